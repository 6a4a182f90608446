"""Multi-stage pipelines, and their expansion to mbarriers with slots and parities.

Use ``i`` of a pipeline of S stages has slot ``i % S`` of its barriers and data, and phase ``i // S`` of that slot:

    producer_acquire(p[i])   the stage is free            Wait(empty[i % S], (i // S + 1) % 2)
    producer_commit(p[i])    it is, or will be, filled    Arrive or ArriveExpectTx on full[i % S]
    consumer_wait(p[i])      its data are there           Wait(full[i % S], i // S % 2)
    consumer_release(p[i])   they have been read          Arrive(empty[i % S])

The words are those of CUTLASS and of Gluon. A producer waits for the opposite parity, so that the first S uses pass on
fresh barriers. ``protocol.recover`` is the inverse of ``expand``; both rest on the three functions below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.protocol import ops
from tilewright.protocol.edit import rewritten
from tilewright.protocol.model import MbarrierArray, Pipeline, Protocol, Step
from tilewright.protocol.rewrite import with_operands


def slot_of(use: Expr, stages: int) -> Expr:
    """The slot of a use."""
    return use % stages


def parity_of(use: Expr, stages: int, laps: int = 0) -> Expr:
    """The parity of a use's phase, ``laps`` phases later."""
    return (use // stages + laps) % 2


def begin_of(use: Expr, stages: int, stage_bytes: int, offset: Expr) -> Expr:
    """Where byte ``offset`` of the stage of a use lies in its buffer."""
    return slot_of(use, stages) * stage_bytes + offset


@dataclass(frozen=True)
class Pipelines:
    """The pipelines of a protocol by the names of what they consist of."""

    protocol: Protocol

    @cached_property
    def named(self) -> Mapping[str, Pipeline]:
        """By their own names."""
        return {p.name: p for p in self.protocol.pipelines}

    @cached_property
    def of_barrier(self) -> Mapping[str, Pipeline]:
        """By the names of their barrier arrays."""
        return {name: p for p in self.protocol.pipelines for name in (p.full_name, p.empty_name)}

    @cached_property
    def of_buffer(self) -> Mapping[str, Pipeline]:
        """By the names of their buffers."""
        return {name: p for p in self.protocol.pipelines for name in p.data}

    def op(self, op: ops.Op) -> ops.Op:
        """The op on mbarriers and bytes that an op on uses stands for; itself where it names none."""
        match op:
            case ops.ProducerAcquire(use, scope):
                return self._wait(self.named[use.pipeline].empty_name, use, 1, scope)
            case ops.ConsumerWait(use, scope):
                return self._wait(self.named[use.pipeline].full_name, use, 0, scope)
            case ops.ProducerCommit(use, tx_bytes, scope):
                full = self._slot(self.named[use.pipeline].full_name, use.index)
                return ops.ArriveExpectTx(full, tx_bytes, scope) if tx_bytes else ops.Arrive(full, scope=scope)
            case ops.ConsumerRelease(use, cta, scope):
                return ops.Arrive(self._slot(self.named[use.pipeline].empty_name, use.index, cta), scope=scope)
            case _:
                return with_operands(op, self.operand)

    def stage_bytes(self, buffer: str) -> int:
        """Bytes of one stage of a buffer."""
        return self.protocol.buffer(buffer).size // self.of_buffer[buffer].stages

    def operand(self, operand: ops.Slot | ops.Region) -> ops.Slot | ops.Region:
        """The slot, or the bytes, that the stage of a use stands for."""
        match operand:
            case ops.StageSlot():
                return self._slot(operand.barrier, operand.use, operand.cta)
            case ops.StageRegion():
                size = self.stage_bytes(operand.buffer)
                begin = begin_of(operand.use, self.of_buffer[operand.buffer].stages, size, operand.begin)
                return ops.Region(operand.buffer, begin, operand.size or size, operand.cta)
            case _:
                return operand

    def _wait(self, barrier: str, use: ops.PipelineUse, laps: int, scope: ops.Scope) -> ops.Wait:
        stages = self.of_barrier[barrier].stages
        return ops.Wait(self._slot(barrier, use.index), parity_of(use.index, stages, laps), scope)

    def _slot(self, barrier: str, use: Expr, cta: Expr | None = None) -> ops.Slot:
        return ops.Slot(barrier, slot_of(use, self.of_barrier[barrier].stages), cta)


def barriers_of(pipeline: Pipeline) -> tuple[MbarrierArray, MbarrierArray]:
    """The arrays of mbarriers that a pipeline declares: full and empty."""
    full = MbarrierArray(pipeline.full_name, pipeline.stages, pipeline.producers)
    return full, MbarrierArray(pipeline.empty_name, pipeline.stages, pipeline.consumers)


def expand(protocol: Protocol) -> Protocol:
    """The protocol without pipelines: their barriers behind the others, their uses as slots and parities."""
    if not protocol.pipelines:
        return protocol
    known = Pipelines(protocol)

    def expanded(step: Step) -> tuple[Step, ...]:
        if isinstance(step.op, ops.MbarrierInit) and step.op.barrier in known.named:
            return tuple(replace(step, op=ops.MbarrierInit(b.name)) for b in barriers_of(known.named[step.op.barrier]))
        op = known.op(step.op)
        return (step if op is step.op else replace(step, op=op),)

    barriers = (*protocol.barriers, *(b for p in protocol.pipelines for b in barriers_of(p)))
    return replace(rewritten(protocol, lambda _, step: expanded(step)), barriers=barriers, pipelines=())
