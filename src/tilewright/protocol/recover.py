"""The uses of multi-stage pipelines read back from slots, parities and byte positions: the inverse of ``expand``.

``slot_use``, ``phase_use`` and ``stage_use`` are the one place that matches ``i % S``, ``i // S % 2`` and
``i % S * stage_bytes + offset``: the event graph and the canonical runs ask them, and with the graph critical cycles.
``recover`` finds the pipelines of a whole protocol. What an op names becomes the use of a pipeline only if the op found
expands to the op read, so ``expand(recover(p))`` is ``p`` but for the order of its barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tilewright.base.expr import Const, Expr, FloorDiv, Mod, Sum, Sym
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.effects import Await, Signal
from tilewright.protocol.model import Buffer, MbarrierArray, Node, Pipeline, Protocol, Step, steps, with_bodies
from tilewright.protocol.pipelines import Pipelines, barriers_of
from tilewright.protocol.rewrite import with_operands


class Phase(NamedTuple):
    """The phase ``use // S + laps`` of a slot."""

    use: Expr
    laps: int


class StageOffset(NamedTuple):
    """Byte ``offset`` of stage ``use % stages``, of stages of ``stage_bytes``."""

    use: Expr
    stages: int
    stage_bytes: int
    offset: Expr


def slot_use(index: Expr, slots: int) -> Expr | None:
    """The use whose slot of ``slots`` this is, if the index is one modulo their number."""
    match index:
        case Mod(use, Const(m)) if m == slots:
            return use
        case _:
            return None


def phase_use(parity: Expr, slots: int) -> Phase | None:
    """The phase that a wait of this parity on a barrier of ``slots`` is for, up to two laps, which parity hides."""
    match parity:
        case FloorDiv(use, Const(d)) if d == slots:
            return Phase(use, 0)
        case Mod(lap, Const(2)):
            return phase_use(lap, slots)
        case Sum(laps, ((lap, 1 | -1),)):
            found = phase_use(lap, slots)
            return None if found is None else Phase(found.use, found.laps + laps)
        case Sym() | Const() if slots == 1:
            return Phase(parity, 0)
        case _:
            return None


def stage_use(begin: Expr) -> StageOffset | None:
    """The stage that a byte position lies in, if it is a use modulo a number of stages, times their size, plus a
    rest."""
    offset, terms = (begin.offset, begin.terms) if isinstance(begin, Sum) else (0, ((begin, 1),))
    stages = [(term, factor) for term, factor in terms if isinstance(term, Mod)]
    match stages:
        case [(Mod(use, Const(m)) as stage, factor)] if m > 1 and factor > 0:
            rest = (term * factor for term, factor in terms if term is not stage)
            return StageOffset(use, m, factor, sum(rest, Const(offset)))
        case _:
            return None


# -- whole protocols ---------------------------------------------------------------------------------------------------
def recover(protocol: Protocol) -> Protocol:
    """The protocol with its pipelines: pairs of mbarrier arrays that hand stages to and fro between roles, and the
    buffers that copies fill by them. What is not understood stays as it is."""
    pipelines = _pipelines(protocol)
    if not pipelines:
        return protocol
    taken = {b.name for p in pipelines for b in barriers_of(p)}
    barriers = tuple(b for b in protocol.barriers if b.name not in taken)
    found = replace(protocol, barriers=barriers, pipelines=(*protocol.pipelines, *pipelines))
    known = Pipelines(found)
    return replace(found, roles=tuple(replace(r, body=_RoleReading(known).nodes(r.body)) for r in protocol.roles))


@dataclass
class _Users:
    """The roles that wait for an array of mbarriers and that signal it."""

    waiting: set[str] = field(default_factory=set[str])
    signalling: set[str] = field(default_factory=set[str])
    laps: set[int] = field(default_factory=set[int])
    """By how many laps waits are off their counter, of those that are off by whole ones: 0 or 1."""


def _pipelines(protocol: Protocol) -> tuple[Pipeline, ...]:
    """Full and empty arrays of as many slots: who waits for one signals the other."""
    users = {b.name: _Users() for b in protocol.barriers}
    slots = {b.name: b.slots for b in protocol.barriers}
    for role in protocol.roles:
        for step in steps(role.body):
            for wait in step.op.of(Await):
                users[wait.bar.barrier].waiting.add(role.name)
                phase = phase_use(wait.parity, slots[wait.bar.barrier])
                if phase is not None:
                    users[wait.bar.barrier].laps |= _whole_laps(phase, slots[wait.bar.barrier])
            for signal in step.op.of(Signal):
                users[signal.bar.barrier].signalling.add(role.name)
    out: list[Pipeline] = []
    left = list(protocol.barriers)
    for full in protocol.barriers:
        empty = next((b for b in left if full in left and _paired(full, b, users)), None)
        if empty is not None:
            left = [b for b in left if b is not full and b is not empty]
            taken = {name for p in out for name in p.data}
            data = tuple(b.name for b in _filled(protocol, full, empty) if b.name not in taken)
            out.append(_pipeline(full, empty, data))
    return tuple(out)


def _whole_laps(phase: Phase, slots: int) -> set[int]:
    laps, rest = divmod(_split(phase.use)[0] + phase.laps * slots, slots)
    return set() if rest else {laps % 2}


def _paired(full: MbarrierArray, empty: MbarrierArray, users: Mapping[str, _Users]) -> bool:
    """Whether producers wait for ``empty`` and fill, and consumers wait for ``full`` and release."""
    filled, freed = users[full.name], users[empty.name]
    directed = _stem(full, empty) != "" or (filled.laps == {0} and freed.laps == {1})
    to_and_fro = filled.signalling & freed.waiting and freed.signalling & filled.waiting
    return full is not empty and full.slots == empty.slots and directed and bool(to_and_fro)


def _stem(full: MbarrierArray, empty: MbarrierArray) -> str:
    """What both names begin with, if they end as those of a pipeline do."""
    stem = full.name.removesuffix("_full")
    return stem if stem != full.name and empty.name == f"{stem}_empty" else ""


def _pipeline(full: MbarrierArray, empty: MbarrierArray, data: tuple[str, ...]) -> Pipeline:
    stem = _stem(full, empty)
    named = {} if stem else {"full": full.name, "empty": empty.name}
    return Pipeline(stem or f"{full.name}_{empty.name}", full.slots, data, full.count, empty.count, **named)


def _filled(protocol: Protocol, full: MbarrierArray, empty: MbarrierArray) -> Iterator[Buffer]:
    """The buffers whose stages are written by copies that complete on ``full``, or by threads whose last wait before
    was for ``empty``."""
    filled: set[str] = set()
    for role in protocol.roles:
        awaited = ""
        for step in steps(role.body):
            awaited = next((wait.bar.barrier for wait in step.op.of(Await)), awaited)
            landing = {x.bar.barrier for x in step.op.of(Signal) if x.lands}
            if full.name in landing or (not landing and awaited == empty.name):
                for access in (x for x in step.op.accesses if x.writes):
                    if _staged(access.region.begin, protocol.buffer(access.region.buffer), full.slots):
                        filled.add(access.region.buffer)
    return (b for b in protocol.buffers if b.name in filled)


def _staged(begin: Expr, buffer: Buffer, stages: int) -> bool:
    """Whether a byte position is one of a stage of a buffer that has so many."""
    stage = stage_use(begin)
    if stage is None:
        return stages == 1 and buffer.space in (Space.SHARED, Space.TMEM)
    return stage.stages == stages and stages * stage.stage_bytes == buffer.size


def _split(use: Expr) -> tuple[int, Expr]:
    """A use as a number plus a counter."""
    if isinstance(use, Const):
        return use.value, ops.ZERO
    return (use.offset, use - use.offset) if isinstance(use, Sum) else (0, use)


class _RoleReading:
    """Reads the program of one role: ops on slots, parities and bytes become ops on uses.

    A slot tells its use up to whole laps: it is taken to be the last one up to the use that the role waited for
    before.
    """

    def __init__(self, known: Pipelines):
        self.known = known
        self.waited: dict[tuple[str, Expr], int] = {}
        """Per pipeline and counter: how far ahead of the counter the use is that was waited for last."""
        self.latest: dict[str, Expr] = {}
        """Per pipeline the use that was waited for last."""

    def nodes(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes, read in the order of the program."""
        out: list[Node] = []
        for node in nodes:
            if isinstance(node, Step):
                self._add(out, self._step(node))
            else:
                out.append(with_bodies(node, self.nodes))
        return tuple(out)

    def _add(self, out: list[Node], step: Step) -> None:
        """Appends a step; the initialisations of both arrays of a pipeline are one."""
        last = out[-1] if out else None
        pipeline = self.known.of_barrier.get(step.op.barrier) if isinstance(step.op, ops.MbarrierInit) else None
        if pipeline is not None and isinstance(last, Step) and last.by is step.by:
            both = tuple(ops.MbarrierInit(b.name) for b in barriers_of(pipeline))
            if (last.op, step.op) == both:
                out[-1] = replace(last, op=ops.MbarrierInit(pipeline.name))
                return
        out.append(step)

    def _step(self, step: Step) -> Step:
        found = self._word(step.op)
        if found is None or self.known.op(found) != step.op:
            found = with_operands(step.op, self._operand)
        return step if found is step.op else replace(step, op=found)

    def _word(self, op: ops.Op) -> ops.Op | None:
        """The op on a use that an op on an mbarrier may stand for."""
        match op:
            case ops.Wait(ops.Slot(barrier), parity, scope) if barrier in self.known.of_barrier:
                pipeline = self.known.of_barrier[barrier]
                producer = barrier == pipeline.empty_name
                use = self._awaited(pipeline, parity, producer)
                return None if use is None else (ops.ProducerAcquire if producer else ops.ConsumerWait)(use, scope)
            case ops.ArriveExpectTx(slot, tx_bytes, scope) if (use := self._use(slot)) is not None:
                return ops.ProducerCommit(use, tx_bytes, scope)
            case ops.Arrive(slot, _, scope) if (use := self._use(slot)) is not None:
                filled = slot.barrier == self.known.of_barrier[slot.barrier].full_name
                return ops.ProducerCommit(use, 0, scope) if filled else ops.ConsumerRelease(use, slot.cta, scope)
            case _:
                return None

    def _awaited(self, pipeline: Pipeline, parity: Expr, producer: bool) -> ops.PipelineUse | None:
        phase = phase_use(parity, pipeline.stages)
        if phase is None:
            return None
        stages, (offset, counter) = pipeline.stages, _split(phase.use)
        ahead = (offset + (phase.laps - producer) * stages + stages - 1) % (2 * stages) - stages + 1
        self.waited[pipeline.name, counter] = ahead
        use = self.latest[pipeline.name] = counter + ahead
        return ops.PipelineUse(pipeline.name, use)

    def _use(self, slot: ops.Slot) -> ops.PipelineUse | None:
        """The use of a slot of a pipeline."""
        pipeline = self.known.of_barrier.get(slot.barrier)
        use = None if pipeline is None else self._near(pipeline, slot_use(slot.index, pipeline.stages))
        return None if pipeline is None or use is None else ops.PipelineUse(pipeline.name, use)

    def _near(self, pipeline: Pipeline, use: Expr | None) -> Expr | None:
        """The use of this slot nearest to the one waited for; with one stage that itself."""
        if pipeline.stages == 1:
            return self.latest.get(pipeline.name)
        if use is None:
            return None
        offset, counter = _split(use)
        waited = self.waited.get((pipeline.name, counter), 0)
        return counter + waited - (waited - offset) % pipeline.stages

    def _operand(self, operand: ops.Slot | ops.Region) -> ops.Slot | ops.Region:
        found = self._slot(operand) if isinstance(operand, ops.Slot) else self._region(operand)
        return operand if found is None or self.known.operand(found) != operand else found

    def _slot(self, slot: ops.Slot) -> ops.Slot | None:
        use = self._use(slot)
        return None if use is None else ops.StageSlot(slot.barrier, cta=slot.cta, use=use.index)

    def _region(self, region: ops.Region) -> ops.Region | None:
        pipeline = self.known.of_buffer.get(region.buffer)
        if pipeline is None:
            return None
        stage = stage_use(region.begin)
        use = self._near(pipeline, None if stage is None else stage.use)
        begin = region.begin if stage is None else stage.offset
        whole = begin == ops.ZERO and region.size == self.known.stage_bytes(region.buffer)
        size = 0 if whole else region.size
        return None if use is None else ops.StageRegion(region.buffer, begin, size, region.cta, use)
