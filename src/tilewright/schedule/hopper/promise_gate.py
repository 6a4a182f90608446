"""The gate of a kernel in roles: no role walks programs where a promise was found broken.

Steps before the kernel have set flags, or each CTA judges offsets itself, all of its threads before the roles part.
Every role's walk lies in a loop of as many steps as the gate is open, 0 or 1::

    flags       load flags . st.shared open . barrier . ld.shared open
    offsets     each thread: broken = its offsets > the next . barrier that counts the threads in which it is not 0
    all roles   for _ in range(open): the programs
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import i32, i64
from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, ceildiv, expr
from tilewright.lang.enums import AtomicFn, BinaryFn, CompareFn
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.tile import dialect as tile
from tilewright.tile.indirect import index_symbol
from tilewright.tile.ops import GATE, OPEN_COUNTER, OPEN_TRIP
from tilewright.tile.queries import chained
from tilewright.transport import dialect as t


class Gate:
    """The gate of a tile kernel; without flags or offsets it does nothing."""

    def __init__(self, kernel: tile.Kernel):
        named = dict(zip((n.data for n in kernel.arg_names), kernel.body.block.args, strict=True))
        self.flags = None if kernel.gate is None else named[kernel.gate.data]
        limits = [limit.expr for limit in kernel.limits or ()]
        self.judged = list(zip((named[n.data] for n in kernel.judged or ()), limits, strict=True))
        self.slot = t.Shared("gate", i32, 1)
        self.handed = any(isinstance(op, tile.StreamLoop) and chained(op) for op in kernel.walk())
        """Whether threads read the gate from shared memory instead of using their counts: ptxas sees through those, and
        spills where one product multiplies the result of another (packed attention, heads of 128: 168 bytes instead of
        56)."""

    def open(self, lowering: RoleContext, threads: int, barrier: list[Operation]) -> list[Operation]:
        """The ops of all threads before the roles split, which contain the final ``barrier``."""
        if self.flags is None:
            return barrier
        if self.judged and self.handed:
            return [*self._judge(lowering, self.flags, threads), *barrier, *self._read()]
        if self.judged:
            return [*self._judge(lowering, self.flags, threads), *(b for b in barrier if not isinstance(b, t.Barrier))]
        return [*self._publish(lowering, self.flags), *barrier, *self._read()]

    def _judge(self, lowering: RoleContext, counts: SSAValue, threads: int) -> Iterator[Operation]:
        """Checks every promise in all threads; the gate is bound after the last barrier, or passed through shared
        memory."""
        found: list[SSAValue] = []
        for number, (offsets, limit) in enumerate(self.judged):
            broken = t.Registers("broken", i32, 1)
            yield from (broken, t.Map([], [], [broken.buffer], 1, _numbers(0)))
            yield _looks_at(lowering.arguments[offsets], broken.buffer, threads, number, limit)
            yield t.BarrierCount(broken.buffer)
            found.append(broken.buffer)
        open_ = t.Registers("gate", i32, 1)
        yield open_
        yield t.Map(found, [Const(0)] * len(found), [open_.buffer], 1, _all_zero(len(found)))
        if self.handed:
            yield from (self.slot, self._write(open_.buffer))
        else:
            yield t.Bind(GATE, open_.buffer)
        one = t.Registers("one", i32, 1)
        yield from (one, t.Map([], [], [one.buffer], 1, _numbers(1)))
        for number, broken in enumerate(found):
            place = t.Registers("place", i32, 1)
            yield from (place, t.Map([broken], [Const(0)], [place.buffer], 1, _place(number)))
            at = Sym(index_symbol(0))
            guard = all_of([Const(0) <= at, at < len(found), Sym(t.THREAD).eq(0)])
            to = lowering.arguments[counts]
            yield t.AtomicReduce(AtomicFn.ADD, to, one.buffer, [at], guard, indices=[place.buffer], reads=[Const(0)])

    def _publish(self, lowering: RoleContext, flags: SSAValue) -> list[Operation]:
        """What all threads do before the barrier."""
        (count,) = (d.expr.constant for d in tile.tensor_type(flags).dims)
        assert count is not None, "as many flags as there are promises"
        loaded, open_ = t.Registers("flags", i32, count), t.Registers("gate", i32, 1)
        coords = [Sym(t.REGISTER) if count > 1 else Const(0)]
        load = t.Load(lowering.arguments[flags], loaded.buffer, coords, TRUE)
        reads = [Const(k) for k in range(count)]
        all_zero = t.Map([loaded.buffer] * count, reads, [open_.buffer], 1, _all_zero(count))
        return [self.slot, loaded, load, open_, all_zero, self._write(open_.buffer)]

    def _write(self, open_: SSAValue) -> Operation:
        """Stores the gate to shared memory, by one thread."""
        return t.SharedWrite(self.slot.buffer, open_, Const(0), Sym(t.THREAD).eq(0))

    def _read(self) -> list[Operation]:
        """What all threads do behind it."""
        given = t.Registers("gate", i32, 1)
        read = t.SharedRead(self.slot.buffer, given.buffer, Const(0), TRUE)
        return [given, read, t.Bind(GATE, given.buffer)]

    def around(self, walk: t.Programs) -> Operation:
        """The program loop of a role, inside the gate."""
        if self.flags is None:
            return walk
        return t.For(OPEN_COUNTER, Const(0), OPEN_TRIP, expr(1), t.block([walk]))


_AT_ONCE = 1024
"""Offsets, approximately, that the threads of a CTA check per step."""


def _looks_at(offsets: SSAValue, broken: SSAValue, threads: int, number: int, limit: Expr) -> t.For:
    """A loop that counts in ``broken`` the offsets that exceed the next one, and the first if it is not 0."""
    kind = tile.tensor_type(offsets)
    (extent,) = (d.expr for d in kind.dims)
    each, counter = -(-_AT_ONCE // threads), f"{OPEN_COUNTER}{number}"
    at = Sym(counter) * (each * threads) + Sym(t.REGISTER) * threads + Sym(t.THREAD)
    here, after = (t.Registers(hint, kind.element, each) for hint in ("offsets", "behind"))
    found = t.Registers("found", i32, each)
    ops = [
        *(here, after, found),
        t.Load(offsets, here.buffer, [at], at < extent),
        t.Load(offsets, after.buffer, [at + 1], at + 1 < extent),
        t.Map([here.buffer, after.buffer], [Sym(t.REGISTER)] * 2, [found.buffer], each, _descends(kind, at, limit)),
        t.Fold("sum", [found.buffer], [broken], Const(0)),
    ]
    return t.For(counter, Const(0), ceildiv(extent, each * threads), expr(1), t.block(ops))


def _descends(kind: tile.TensorType, at: Expr, limit: Expr) -> Region:
    """1 where there is an offset that is more than the next, the last one than ``limit``, or the first one not 0."""
    (extent,) = (d.expr for d in kind.dims)
    body = Block(arg_types=[tile.TileType.of(kind.element, ())] * 2)
    here, after = (tile.Cast(arg, i64) for arg in body.args)
    zero, one, none, end = (
        tile.Constant(0, i64),
        tile.Constant(1, i32),
        tile.Constant(0, i32),
        tile.ScalarExpr(limit, i64),
    )
    inside, first, last = (t.Predicate(x) for x in (at < extent, at.eq(0), at + 1 < extent))
    most = tile.Select(last.result, after.result, end.result)
    more = tile.Compare(CompareFn.GT, here.result, most.result)
    begins = tile.Compare(CompareFn.NE, here.result, zero.result)
    other = tile.Binary(BinaryFn.AND, first.result, begins.result)
    either = tile.Binary(BinaryFn.OR, more.result, other.result)
    broken = tile.Binary(BinaryFn.AND, inside.result, either.result)
    number = tile.Select(broken.result, one.result, none.result)
    ops = (here, after, zero, one, none, end, inside, first, last, most, more, begins, other, either, broken, number)
    body.add_ops([*ops, t.Yield([number.result])])
    return Region(body)


def _numbers(number: int) -> Region:
    """A constant."""
    made = tile.Constant(number, i32)
    return t.block([made, t.Yield([made.result])])


def _place(number: int) -> Region:
    """The index of a promise where some thread found it broken, else -1."""
    body = Block(arg_types=[tile.TileType.of(i32, ())])
    zero, own, none = (tile.Constant(k, i32) for k in (0, number, -1))
    broken = tile.Compare(CompareFn.NE, body.args[0], zero.result)
    place = tile.Select(broken.result, own.result, none.result)
    body.add_ops([zero, own, none, broken, place, t.Yield([place.result])])
    return Region(body)


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
