"""Ping-pong of consumer warpgroups: whose products run when, and the pipeline stages that each passes over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.base.expr import Const, Expr
from tilewright.schedule.hopper.operands import AsyncOperand, DotPlan, RegisterOperand
from tilewright.schedule.hopper.tile_pipelines import TilePipeline, accumulates, at_level
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.transport import asynchronous as a

ORDER_BARRIER = 5
"""Named barrier on which the first warpgroup waits for the last; the others' follow, of up to 4, as do each one's own
from 1 on."""


@dataclass(frozen=True)
class PingPongOrder:
    """The ``place``-th of ``count`` warpgroups. Products lie from ``first`` to ``last`` in the kernel's body; one
    warpgroup's begin when those of the one before have been issued."""

    place: int
    count: int
    first: Operation
    last: Operation

    @staticmethod
    def of(kernel: tile.Kernel, dots: Sequence[DotPlan], place: int, count: int) -> PingPongOrder:
        """The place of one warpgroup over a kernel's programs."""
        body = kernel.body.block
        found = sorted((at_level(body, plan.dot) for plan in dots), key=body.get_operation_index)
        return PingPongOrder(place, count, found[0], found[-1])

    @property
    def opens(self) -> bool:
        """The last warpgroup arrives for the first before any has multiplied."""
        return self.place == self.count - 1

    def wait(self) -> a.NamedBarrierSync:
        """Wait for the warpgroup before."""
        return order_wait(Const(self.place))

    def arrive(self) -> a.NamedBarrierArrive:
        """Lets the next warpgroup multiply."""
        return order_arrive(Const(self.place), self.count)


def order_wait(place: Expr) -> a.NamedBarrierSync:
    """The ``place``-th warpgroup waits for the one before."""
    return a.NamedBarrierSync(ORDER_BARRIER + place, 2 * a.WARPGROUP_THREADS)


def order_arrive(place: Expr, count: int) -> a.NamedBarrierArrive:
    """The ``place``-th of ``count`` warpgroups lets the next one multiply."""
    return a.NamedBarrierArrive(ORDER_BARRIER + (place + 1) % count, 2 * a.WARPGROUP_THREADS)


def ordered_streams(kernel: tile.Kernel, dots: Sequence[DotPlan]) -> frozenset[tile.StreamLoop]:
    """The streams whose only product is waited for in its own step, before the next one is issued.

    Warpgroups that share a tile find its stage full at the same time: without an order their instructions interleave on
    the tensor cores, both products end together, and the tensor cores are idle while both compute.
    """
    found: set[tile.StreamLoop] = set()
    for plan in dots:
        stream = plan.dot.parent_op()
        if not isinstance(stream, tile.StreamLoop) or accumulates(stream, dots):
            continue
        alone = all(other is plan or not stream.is_ancestor(other.dot) for other in dots)
        if alone and isinstance(plan.a, AsyncOperand | RegisterOperand) and isinstance(plan.b, AsyncOperand):
            found.add(stream)
    return frozenset(found)


def uses_per_program(pipeline: TilePipeline) -> Expr:
    """The uses of the pipeline in one program."""
    total: Expr = Const(1)
    stream = pipeline.block.parent_op()
    while isinstance(stream, tile.StreamLoop):
        total, stream = total * stream.trip.expr, stream.parent_op()
    return total


def equal_uses(kernel: tile.Kernel, pipelines: Sequence[TilePipeline]) -> bool:
    """Whether every program uses the pipelines equally often."""
    own = {program_index(i) for i in range(len(kernel.grid))}
    own |= {op.counter.data for op in kernel.walk() if isinstance(op, tile.StreamLoop)}
    return all(uses_per_program(pipeline).symbols.isdisjoint(own) for pipeline in pipelines)
