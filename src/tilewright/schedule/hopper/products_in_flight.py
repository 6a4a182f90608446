"""Products of one step that run side by side: each is waited for where its result is first touched.

Where a step adds several products to fragments, a wait behind each of them would leave the tensor cores idle while
elements are computed. Instead every product is a group of its own, which stays in flight; what is computed from an
earlier product runs under the later ones::

    S = K Q^T . dP = V dO^T | wait for S | P | dV += P dO | wait for dP | dS | dK += dS Q | wait for both sums

Groups end in the order in which they were committed (PTX ISA, wgmma.wait_group), so that a stage is given back with the
last product that reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.accumulator_placement import value_registers
from tilewright.schedule.hopper.configuration import ScheduleConfiguration
from tilewright.schedule.hopper.operands import AsyncOperand, DotPlan, RegisterOperand
from tilewright.schedule.hopper.pipeline_lowering import PipelineLowering
from tilewright.schedule.hopper.tile_pipelines import TilePipeline, accumulates
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile
from tilewright.tile.queries import spans_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class WgmmaGroup:
    """One committed group: the registers it uses, and the pipelines whose stages are released when it completes."""

    held: frozenset[SSAValue]
    ends: list[TilePipeline] = field(default_factory=list[TilePipeline])


def streams_in_flight(
    kernel: tile.Kernel, dots: Sequence[DotPlan], placement: Placement, budget: int, others: Collection[tile.StreamLoop]
) -> frozenset[tile.StreamLoop]:
    """The streams whose steps add several products to fragments, so that one of these runs while the operand of the
    next is computed, and whose results have room in the ``budget`` registers of a thread; none of ``others``, which
    are scheduled in ways of their own. With one such product, the last, nothing is computed under it
    (docs/measured/attention.md, "Gradients of attention")."""
    found: set[tile.StreamLoop] = set()
    for stream in [op for op in kernel.walk() if isinstance(op, tile.StreamLoop)]:
        own = [p for p in dots if p.dot.parent_op() is stream]
        nested = any(isinstance(op, tile.StreamLoop) for op in stream.walk() if op is not stream)
        sums = sum(p.write is not None for p in own)
        if sums < 2 or sums == len(own) or nested or stream in others or accumulates(stream, dots):
            continue
        ready = all(isinstance(p.a, AsyncOperand | RegisterOperand) and isinstance(p.b, AsyncOperand) for p in own)
        if ready and _words(kernel, stream, own, placement) <= budget:
            found.add(stream)
    return frozenset(found)


def _words(kernel: tile.Kernel, stream: tile.StreamLoop, own: Sequence[DotPlan], placement: Placement) -> int:
    """Registers of a thread: the kernel's fragments, every product of a step, and beside them the largest of the
    operands and of the vectors in registers."""
    fragments = [op.results[0] for op in kernel.walk() if isinstance(op, tile.FragmentInit)]
    fresh = [p.dot.result for p in own if p.write is None]
    operands = [p.dot.a for p in own if isinstance(p.a, RegisterOperand)]
    vectors = [op.result for op in stream.body.block.ops if isinstance(op, tile.Load) and len(spans_of(op.result)) == 1]
    held = sum(value_registers(value, placement) for value in (*fragments, *fresh))
    return held + sum(
        max((value_registers(value, placement) for value in each), default=0) for each in (operands, vectors)
    )


class ProductsInFlight(PipelineLowering):
    """Keeps products in flight, and waits for them before an op that uses their registers."""

    def __init__(
        self, kernel: tile.Kernel, placement: Placement, facts: CallFacts, configuration: ScheduleConfiguration
    ):
        super().__init__(kernel, placement, facts, configuration)
        self.groups: list[WgmmaGroup] = []

    def emit(self, op: t.TransportOp, source: Operation | None = None) -> t.TransportOp:
        if self.groups:
            touched = {value for inner in op.walk() for value in inner.operands}
            self.wait_for(max((n for n, f in enumerate(self.groups, 1) if touched & f.held), default=0))
        return super().emit(op, source)

    def commit_group(self, held: Sequence[SSAValue]) -> None:
        """Commits the open group, which stays in flight."""
        super().emit(a.WgmmaCommit())
        self.groups.append(WgmmaGroup(frozenset(held)))

    def release_with_last(self, pipeline: TilePipeline) -> None:
        """Releases the pipeline's stage when the last committed group completes."""
        self.groups[-1].ends.append(pipeline)

    def wait_for(self, count: int) -> None:
        """Waits for the first ``count`` groups in flight, and releases the stages that end with them."""
        landed, self.groups = self.groups[:count], self.groups[count:]
        if landed:
            held = dict.fromkeys(value for flight in landed for value in sorted(flight.held, key=str))
            super().emit(a.WgmmaWait(len(self.groups), list(held)))
        for pipeline in (pipeline for flight in landed for pipeline in flight.ends):
            self.end_use(pipeline)

    def wait_for_all(self) -> None:
        """Waits for all groups, first for those that release stages."""
        while self.groups:
            self.wait_for(next((n for n, f in enumerate(self.groups, 1) if f.ends), len(self.groups)))
