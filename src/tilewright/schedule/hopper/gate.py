"""The gate of a kernel in roles: no role walks programs where a promise was found broken.

All threads load the flags before the roles part. One of them writes whether all are 0 to shared memory, behind the
barrier that ends the opening all threads read that one integer, and every role's walk lies in a loop of so many steps::

    load flags . st.shared open . barrier . ld.shared open
    producer, consumers     for _ in range(open): the programs
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, Region

from tilewright.base.dtypes import i32
from tilewright.base.expr import TRUE, Const, Sym, expr
from tilewright.lang.fns import CompareFn
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.tile import dialect as tile
from tilewright.tile.ops import GATE, OPEN_COUNTER, OPEN_TRIP
from tilewright.transport import dialect as t


class Gate:
    """The gate of a tile kernel; none opens nothing and bars nothing."""

    def __init__(self, kernel: tile.Kernel):
        names = [n.data for n in kernel.arg_names]
        flags = None if kernel.gate is None else kernel.body.block.args[names.index(kernel.gate.data)]
        self.flags = flags
        self.slot = t.Shared("gate", i32, 1)

    def publish(self, lowering: RoleContext) -> list[Operation]:
        """What all threads do before the barrier."""
        if self.flags is None:
            return []
        (count,) = (d.expr.constant for d in tile.tensor_type(self.flags).dims)
        assert count is not None, "as many flags as there are promises"
        loaded, open_ = t.Registers("flags", i32, count), t.Registers("gate", i32, 1)
        coords = [Sym(t.REGISTER) if count > 1 else Const(0)]
        load = t.Load(lowering.arguments[self.flags], loaded.buffer, coords, TRUE)
        reads = [Const(k) for k in range(count)]
        all_zero = t.Map([loaded.buffer] * count, reads, [open_.buffer], 1, _all_zero(count))
        write = t.SharedWrite(self.slot.buffer, open_.buffer, Const(0), Sym(t.THREAD).eq(0))
        return [self.slot, loaded, load, open_, all_zero, write]

    def read(self) -> list[Operation]:
        """What all threads do behind it."""
        if self.flags is None:
            return []
        given = t.Registers("gate", i32, 1)
        read = t.SharedRead(self.slot.buffer, given.buffer, Const(0), TRUE)
        return [given, read, t.Bind(GATE, given.buffer)]

    def around(self, walk: t.Programs) -> Operation:
        """A role's walk over programs, behind the gate."""
        if self.flags is None:
            return walk
        return t.For(OPEN_COUNTER, Const(0), OPEN_TRIP, expr(1), t.block([walk]))


def _all_zero(count: int) -> Region:
    """1 where all of ``count`` integers are 0, else 0."""
    body = Block(arg_types=[tile.TileType.of(i32, ())] * count)
    zero, one = tile.Constant(0, i32), tile.Constant(1, i32)
    ops: list[Operation] = [zero, one]
    open_ = one.result
    for flag in body.args:
        held = tile.Compare(CompareFn.EQ, flag, zero.result)
        chosen = tile.Select(held.result, open_, zero.result)
        ops += [held, chosen]
        open_ = chosen.result
    body.add_ops([*ops, t.Yield([open_])])
    return Region(body)
