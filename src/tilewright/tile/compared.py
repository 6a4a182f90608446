"""Loaded integers that shift indices before these are compared, such as ``ahead`` in ``t.index <= s.index + ahead``.

Each is bound before its stream, as loaded bounds are, so that schedules know in which steps a comparison holds for
whole tiles::

    ahead = k[b + 1] - q[b + 1]            ahead = k[b + 1] - q[b + 1]
    stream t:                              bind $b to ahead + HALF, clipped to 0 .. 2 HALF
        select(s + ahead >= t, x, -inf)    stream t: as before

What is computed stays as it is, whatever is loaded; the symbol tells of shifts between -HALF and HALF only.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, SSAValue

from tilewright.base.dtypes import i64
from tilewright.base.expr import Expr, Sym, own
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.tile.elements import (
    Binary,
    Broadcast,
    Cast,
    Compare,
    Constant,
    Dot,
    Expand,
    Index,
    ScalarExpr,
    Select,
    Transpose,
)
from tilewright.tile.ops import tile_type
from tilewright.tile.structure import Bind, Kernel, StreamLoop

HALF = (1 << 30) - (1 << 21)
"""Shifts are clipped to -HALF .. HALF; plus HALF they are within the bounds of an integer that ``Bind`` names."""


def bind_shifts(kernel: Kernel) -> None:
    """Name (``Bind``) the loaded integers that shift compared indices in a kernel's loops with products."""
    for stream in [op for op in kernel.body.block.ops if isinstance(op, StreamLoop)]:
        if not any(isinstance(op, Dot) for op in stream.body.block.ops):
            continue
        for value in dict.fromkeys(_loaded(stream)):
            if value.owner.parent_op() is kernel and value not in shifts(stream):
                _bind(kernel, stream, value)


def shifts(stream: StreamLoop) -> dict[SSAValue, Expr]:
    """Each loaded integer that is bound before a stream, with the symbol of its value plus ``HALF``."""
    block = stream.parent_block()
    found: dict[SSAValue, Expr] = {}
    for bind in [op for op in (() if block is None else block.ops) if isinstance(op, Bind)]:
        value = _shifted(bind)
        if value is not None:
            found[value] = Sym(bind.symbol.data)
    return found


def terms(value: SSAValue) -> Iterator[SSAValue]:
    """The terms of a sum or difference of tiles, up to broadcasts and wider integers."""
    value = behind(value)
    if (
        tile_type(value).rank > 0
        and isinstance(value.owner, Binary)
        and value.owner.fn.data in (BinaryFn.ADD, BinaryFn.SUB)
    ):
        yield from (*terms(value.owner.a), *terms(value.owner.b))
        return
    yield value


def behind(value: SSAValue) -> SSAValue:
    """The value of which one is another shape, or the same in a wider integer."""
    while isinstance(value.owner, _SHAPES) or (isinstance(value.owner, Cast) and _widens(value.owner)):
        value = value.owner.operands[0]
    return value


_SHAPES = (Expand, Broadcast, Transpose)


def _widens(cast: Cast) -> bool:
    narrow, wide = tile_type(cast.operands[0]).element, tile_type(cast.results[0]).element
    return narrow.is_int and wide.is_int and narrow.bits <= wide.bits


def _loaded(stream: StreamLoop) -> Iterator[SSAValue]:
    """Integers of no axes in the comparisons of a stream's selects that hold for steps before some step: the indices of
    the stream stand on the smaller side."""
    for select in stream.body.block.ops:
        if not isinstance(select, Select) or not isinstance(select.cond.owner, Compare):
            continue
        compare = select.cond.owner
        sides = [list(terms(side)) for side in (compare.a, compare.b)]
        smaller = sides[0] if compare.fn.data in (CompareFn.LT, CompareFn.LE) else sides[1]
        if any(isinstance(v.owner, Index) and v.owner.axis == stream.axis for v in smaller):
            numbers = (v for v in (*sides[0], *sides[1]) if not isinstance(v.owner, Block | Constant | ScalarExpr))
            yield from (v for v in numbers if tile_type(v).rank == 0 and tile_type(v).element.is_int)


def _bind(kernel: Kernel, stream: StreamLoop, value: SSAValue) -> None:
    taken = {op.symbol.data for op in kernel.walk() if isinstance(op, Bind)}
    symbol = next(name for n in range(len(taken) + 1) if (name := own(f"b{n}")) not in taken)
    wide = None if tile_type(value).element == i64 else Cast(value, i64)
    half, limit, zero = Constant(HALF, i64), Constant(2 * HALF, i64), Constant(0, i64)
    added = Binary(BinaryFn.ADD, value if wide is None else wide.result, half.result)
    least = Binary(BinaryFn.MIN, added.result, limit.result)
    clipped = Binary(BinaryFn.MAX, least.result, zero.result)
    made = [*([] if wide is None else [wide]), half, limit, zero, added, least, clipped, Bind(symbol, clipped.result)]
    for op in made:
        op.attributes |= {k: v for k, v in stream.attributes.items() if k == "loc"}
    block = stream.parent_block()
    assert block is not None
    block.insert_ops_before(made, stream)


def _shifted(bind: Bind) -> SSAValue | None:
    """The integer that ``_bind`` bound, its shape and width aside; None of other bounds."""
    value: SSAValue = bind.value
    for fn, number in ((BinaryFn.MAX, 0), (BinaryFn.MIN, 2 * HALF), (BinaryFn.ADD, HALF)):
        op = value.owner
        if not isinstance(op, Binary) or op.fn.data is not fn or not isinstance(op.b.owner, Constant):
            return None
        if op.b.owner.value.data != number or tile_type(op.result).element != i64:
            return None
        value = op.a
    return behind(value)
