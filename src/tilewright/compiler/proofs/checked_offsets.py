"""Offsets that each CTA judges itself: behind the barrier all of its threads know whether one of them found a fault.

Read from the Transport IR alone, before the roles part::

    broken = 0                                         in every thread
    for k in range(ceildiv(extent, each * threads)):   every place of the offsets, by one register of one thread
        broken += the offset there is more than the next, the last one than the limit, or the first not 0
    broken = threads of the CTA in which it is not 0   a barrier of all threads, which gives all the same number

What a thread says of a place is decided by comparisons of the offset, the next one, the limit and 0, so that trying all
orders in which these may stand decides it for all integers. It has fewer places than a tensor has elements: what it
counts stays below 2^31.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import i64
from tilewright.base.expr import TRUE, Const, Expr, Sym, ceildiv
from tilewright.compiler.proofs.evaluated_map import Computed, evaluated
from tilewright.compiler.proofs.loaded import Ascending
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

_VALUES = range(-3, 4)
"""Offsets to try with limits of 0 and more: three integers compare with 0 and each other in every possible order."""


def counted(lowered: t.Kernel, buffer: SSAValue, reader: Operation) -> t.BarrierCount | None:
    """The barrier whose count all threads of the CTA hold in ``buffer`` when they reach ``reader``; None if that is not
    shown."""
    others = [use.operation for use in buffer.uses if use.operation is not reader and _writes(use.operation, buffer)]
    match _in_order(lowered, others):
        case [*_, t.BarrierCount() as last] if last.parent is lowered.body.block is reader.parent:
            return last if last.is_before_in_block(reader) else None
        case _:
            return None


def _writes(op: Operation, buffer: SSAValue) -> bool:
    return not (isinstance(op, t.Map) and buffer not in op.outputs)


def _in_order(lowered: t.Kernel, ops: list[Operation]) -> list[Operation]:
    """``ops`` in the order of the kernel's ops that contain them."""
    own = list(lowered.body.block.ops)
    return sorted(ops, key=lambda op: own.index(_outermost(op, lowered)))


def _outermost(op: Operation, lowered: t.Kernel) -> Operation:
    parent = op.parent_op()
    return op if parent is None or parent is lowered else _outermost(parent, lowered)


def checks_every_offset(lowered: t.Kernel, barrier: t.BarrierCount, promise: Ascending) -> bool:
    """Whether the count of a barrier is 0 exactly where the offsets keep the promise."""
    buffer = barrier.buffer
    writers = _in_order(lowered, [u.operation for u in buffer.uses if _writes(u.operation, buffer)])
    match writers:
        case [t.Map() as begin, t.Fold() as fold, last] if last is barrier and _is_zero(begin, buffer):
            loop = fold.parent_op()
        case _:
            return False
    if not isinstance(loop, t.For) or not begin.parent is loop.parent is barrier.parent is lowered.body.block:
        return False
    return _looks_at_all(lowered, loop, fold, promise)


def _is_zero(begin: t.Map, buffer: SSAValue) -> bool:
    """Whether every thread begins with 0."""
    match list(begin.body.block.ops):
        case [tile.Constant() as made, t.Yield() as end]:
            zero = int(made.value.data) == 0 and end.values[0] is made.result
            return zero and begin.live.expr == TRUE and tuple(begin.outputs) == (buffer,)
        case _:
            return False


def _looks_at_all(lowered: t.Kernel, loop: t.For, fold: t.Fold, promise: Ascending) -> bool:
    """Whether the loop's registers cover every offset, and each counts what is wrong with it."""
    match [op for op in loop.body.block.ops if not isinstance(op, t.Registers)]:
        case [t.Load() as here, t.Load() as behind, t.Map() as found, last] if last is fold:
            pass
        case _:
            return False
    each, threads = found.count.data, lowered.threads.data
    at = Sym(loop.counter.data) * (each * threads) + Sym(t.REGISTER) * threads + Sym(t.THREAD)
    turns = (loop.begin.expr, loop.end.expr, loop.step.expr)
    return (
        turns == (Const(0), ceildiv(promise.extent, each * threads), Const(1))
        and _loads(here, promise, at, each)
        and _loads(behind, promise, at + 1, each)
        and here.buffer is not behind.buffer
        and tuple(found.inputs) == (here.buffer, behind.buffer)
        and [r.expr for r in found.reads] == [Sym(t.REGISTER)] * 2
        and found.live.expr == fold.live.expr == TRUE
        and fold.fn.data == "sum"
        and fold.into.expr == Const(0)
        and tuple(fold.sources) == tuple(found.outputs)
        and t.registers_of(found.outputs[0]).count.data == each
        and _says(found, at, promise)
    )


def _loads(load: t.Load, promise: Ascending, at: Expr, each: int) -> bool:
    """Whether every register loads the offset at its index, if there is one."""
    return (
        tile.tensor_type(load.tensor).tensor_name.data == promise.tensor
        and [c.expr for c in load.coords] == [at]
        and not load.indices
        and load.guard.expr == (at < promise.extent)
        and load.live.expr == TRUE
        and load.vector.data == 1
        and t.registers_of(load.buffer).count.data == each
    )


def _says(found: t.Map, at: Expr, promise: Ascending) -> bool:
    """Whether registers are 1 where an offset is more than the next, the last more than the limit, or the first not 0;
    else 0."""
    begins, inside, more = at.eq(0), at < promise.extent, at + 1 < promise.extent
    for first, there, next_ in ((f, i, n) for f, i, n in product((False, True), repeat=3) if i or not n):
        places = {begins: first, inside: there, more: next_}
        for x, y, limit in product(_VALUES, _VALUES, _VALUES[3:]):
            wrong = there and (x > (y if next_ else limit) or (first and x != 0))
            loaded = dict(zip(found.body.block.args, (x, y), strict=True))
            if evaluated(found, loaded, _compared(places, (promise.most, limit))) != int(wrong):
                return False
    return True


def _compared(places: Mapping[Expr, bool], limit: tuple[Expr, int]) -> Computed:
    """Evaluates comparisons, in 64 bits, of loaded values, 0 and the limit, and logical operations on them."""

    def computed(op: Operation, values: Mapping[SSAValue, int]) -> int | None:
        match op:
            case tile.Cast() if op.x.owner is op.parent and op.dtype == i64:
                return values[op.x]
            case tile.Constant() if not _wide(op.result) or int(op.value.data) == 0:
                return int(op.value.data)
            case tile.ScalarExpr() if op.expr.expr == limit[0] and _wide(op.result):
                return limit[1]
            case t.Predicate() if op.expr.expr in places:
                return places[op.expr.expr]
            case tile.Compare() if _wide(op.a):
                return _COMPARED[op.fn.data](values[op.a], values[op.b])
            case tile.Binary() if op.fn.data in (BinaryFn.AND, BinaryFn.OR) and not _wide(op.a):
                one, other = values[op.a], values[op.b]
                return one & other if op.fn.data is BinaryFn.AND else one | other
            case _:
                return None

    return computed


def _wide(value: SSAValue) -> bool:
    return tile.tile_type(value).element == i64


_COMPARED = {
    CompareFn.EQ: int.__eq__,
    CompareFn.NE: int.__ne__,
    CompareFn.LT: int.__lt__,
    CompareFn.LE: int.__le__,
    CompareFn.GT: int.__gt__,
    CompareFn.GE: int.__ge__,
}
