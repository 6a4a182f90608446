"""Consumer warpgroups that take turns: whose products run when, and the ring stages that each passes over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.base.expr import Const, Expr
from tilewright.schedule.hopper.operands import DotPlan
from tilewright.schedule.hopper.rings import Ring, at_level
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.transport import asynchronous as a

ORDER_BARRIER = 4
"""Named barrier on which the first warpgroup waits for its turn; the others' follow."""


@dataclass(frozen=True)
class Turn:
    """The ``place``-th of ``count`` warpgroups. Products lie from ``first`` to ``last`` in the kernel's body; one
    warpgroup's begin when those of the one before have been issued."""

    place: int
    count: int
    first: Operation
    last: Operation

    @staticmethod
    def of(kernel: tile.Kernel, dots: Sequence[DotPlan], place: int, count: int) -> Turn:
        """The turn of one warpgroup at a kernel's programs."""
        body = kernel.body.block
        found = sorted((at_level(body, plan.dot) for plan in dots), key=body.get_operation_index)
        return Turn(place, count, found[0], found[-1])

    @property
    def opens(self) -> bool:
        """The last warpgroup gives the first its first turn."""
        return self.place == self.count - 1

    def taken(self) -> a.NamedBarrierSync:
        """Wait for the warpgroup before."""
        return await_turn(Const(self.place))

    def passed(self) -> a.NamedBarrierArrive:
        """The turn of the warpgroup after."""
        return pass_turn(Const(self.place), self.count)


def await_turn(place: Expr) -> a.NamedBarrierSync:
    """The ``place``-th warpgroup waits for the one before."""
    return a.NamedBarrierSync(ORDER_BARRIER + place, 2 * a.WARPGROUP_THREADS)


def pass_turn(place: Expr, count: int) -> a.NamedBarrierArrive:
    """The ``place``-th of ``count`` warpgroups gives the turn to the one after."""
    return a.NamedBarrierArrive(ORDER_BARRIER + (place + 1) % count, 2 * a.WARPGROUP_THREADS)


def uses(ring: Ring) -> Expr:
    """How often a program uses the ring."""
    total: Expr = Const(1)
    stream = ring.block.parent_op()
    while isinstance(stream, tile.Stream):
        total, stream = total * stream.trip.expr, stream.parent_op()
    return total


def alike(kernel: tile.Kernel, rings: Sequence[Ring]) -> bool:
    """Every program uses the rings equally often."""
    own = {program_index(i) for i in range(len(kernel.grid))}
    own |= {op.counter.data for op in kernel.walk() if isinstance(op, tile.Stream)}
    return all(uses(ring).symbols.isdisjoint(own) for ring in rings)
