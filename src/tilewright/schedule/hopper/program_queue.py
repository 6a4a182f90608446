"""A queue of programs: a CTA that has issued its copies draws the number of its next program, for all of its roles.

Programs of ragged grids differ in length, and how, only the device knows. Dealt beforehand, the busiest CTA of mixed
packed attention has a tenth more than an equal share (H200: 3,006 us dealt, 2,701 drawn). A counter in global memory,
0 when a launch begins that has more programs than CTAs, numbers those beyond the first ones, and launches of fewer
touch none; one slot of shared memory hands the number on::

    producer    its program . draw . wait empty . st.shared . arrive full
    consumers   its program . wait full . ld.shared . arrive empty (every thread)

All roles leave the loop at the first number that no program has.
"""

from __future__ import annotations

from math import prod

from xdsl.ir import SSAValue

from tilewright.base.dtypes import i32
from tilewright.base.expr import TRUE, Const, Sym, own
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.tile import dialect as tile
from tilewright.tile.ops import NEXT
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

COUNTER = own("i_next")
"""Programs whose number a role has received."""


class ProgramQueue:
    """The queue of a tile kernel, if the lengths of its programs are loaded and one thread fills the pipelines."""

    def __init__(self, kernel: tile.Kernel, *, serves: bool):
        names = [n.data for n in kernel.arg_names]
        served = serves and kernel.queue is not None
        self.counter = kernel.body.block.args[names.index(kernel.queue.data)] if served and kernel.queue else None
        self.bars: tuple[SSAValue, ...] = ()

    @property
    def drawn(self) -> str | None:
        """The symbol of the next program's number; None where programs are dealt statically."""
        return None if self.counter is None else NEXT

    @property
    def counters(self) -> list[a.Counter]:
        """What every role counts."""
        return [] if self.counter is None else [a.Counter(COUNTER)]

    def declare(self, lowering: RoleContext) -> None:
        """The slot and its barriers."""
        if self.counter is None:
            return
        slot = t.Shared("next", i32, 1, 0)
        full = a.Mbarriers("next_full", 1, 1)
        empty = a.Mbarriers("next_empty", 1, a.WARPGROUP_THREADS * lowering.configuration.consumers)
        self.slot, self.full, self.empty = slot.buffer, full.bars, empty.bars
        self.bars = (self.full, self.empty)
        lowering.declarations += [slot, full, empty]

    def lower(self, lowering: RoleContext) -> None:
        """Emits the end of a program, in the producer or in a consumer role."""
        if self.counter is None:
            return
        use, producing = Sym(COUNTER), lowering.producing
        if producing:
            taken = lowering.registers("next", i32, 1)
            programs = prod((g.expr for g in lowering.kernel.grid), start=Const(1))
            lowering.emit(t.Draw(lowering.arguments[self.counter], taken, programs))
            lowering.emit(a.MbarrierWait(self.empty, Const(0), (use + 1) % 2))
            lowering.emit(t.SharedWrite(self.slot, taken, Const(0), TRUE))
        else:
            lowering.emit(a.MbarrierWait(self.full, Const(0), use % 2))
        given = lowering.registers("next", i32, 1)
        lowering.emit(t.SharedRead(self.slot, given, Const(0), TRUE))
        lowering.emit(t.Bind(NEXT, given))
        lowering.emit(a.MbarrierArrive(self.full if producing else self.empty, Const(0)))
        lowering.emit(a.Advance(COUNTER))
