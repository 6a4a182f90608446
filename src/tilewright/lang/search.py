"""Elements of a tile at computed places, and places in sorted ones: made of comparisons, reductions and loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from tilewright.base.dtypes import i8, i32
from tilewright.base.expr import Const, Expr
from tilewright.lang import arithmetic
from tilewright.lang.axes import Axis, Span, show_axes
from tilewright.lang.calls import operands_of
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, CompareFn, ReduceFn, identity
from tilewright.lang.recorder import Cell, Node, Recorder
from tilewright.lang.running import position_of
from tilewright.lang.scans import tile_of
from tilewright.lang.source_locations import refuse
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Tile

_PLACES = 31
"""Bits of a place in a tensor whose extent is not known: a step each."""


# -- take -----------------------------------------------------------------------------------------------------------
def take(x: object, index: object, axis: int | None = None) -> Tile:
    """The elements of a tile at places along an axis, counted from the tile's start; absent where there is none.

    ``index``, an integer tile, has the axes of ``x`` without ``axis``, so that each of the others has one place; the
    axes of ``x`` with another one for ``axis``; one other axis; or any axes where ``x`` has one. Its axes stand where
    ``axis`` did. All places of the axis are compared for each result.
    """
    tile = tile_of(x)
    rec, node = tile.recorder, tile.node
    at = position_of(axis, node.axes)
    places = arithmetic.lift(rec, operands_of(index)[1][0])
    if not places.dtype.is_int:
        refuse("LNG023", found=f"indices of {places.dtype}", required="integers", help="index.to(tw.i32)")
    if node.dtype.is_float and node.dtype.bits == 8:  # as bits: -inf is not among them
        return Tile(
            rec, arithmetic.bitcast(rec, _taken(rec, arithmetic.bitcast(rec, node, i8), places, at), node.dtype)
        )
    return Tile(rec, _taken(rec, node, places, at))


def _taken(rec: Recorder, x: Node, places: Node, at: int) -> Node:
    beside = x.axes[:at] + x.axes[at + 1 :]
    if beside == places.axes and any(isinstance(a, Span) for a in beside):  # one place for each of the others
        return rec.drop(_taken(rec, x, rec.expand(places, [at]), at), at)
    count = len(places.axes)
    if count == len(x.axes) > 1 and _same_beside(x.axes, places.axes, at):
        count, many = 1, rec.expand(places, [at])
    elif count == 1 or len(x.axes) == 1:
        others = [*range(at + 1), *range(at + 1 + count, len(x.axes) + count)]
        many = rec.expand(places, others)
    else:
        _refuse_axes(x, places, at)
    wide = rec.expand(x, range(at + 1, at + 1 + count))
    here = _expanded(rec, _along(rec, x.axes[at]), at, len(wide.axes))
    match = arithmetic.compare(rec, CompareFn.EQ, here, many.known_by(None))
    if wide.presence is None:
        found = _inside(rec, many.known_by(None), x.axes[at])
        found = rec.drop(found, at)
    else:
        held, test = arithmetic.align(rec, [rec.present(wide), match])
        both = arithmetic.binary(rec, BinaryFn.AND, held, test)
        found = arithmetic.reduce(rec, ReduceFn.MAX, both, [at], keepdims=False)
    if many.presence is not None:
        known = rec.drop(rec.present(many), at)
        found = arithmetic.binary(rec, BinaryFn.AND, *arithmetic.align(rec, [found, known]))
    least = arithmetic.convert(rec, identity(ReduceFn.MAX, x.dtype), x.dtype)
    chosen = rec.select(*arithmetic.align(rec, [match, wide.known_by(None), least]))
    result = arithmetic.reduce(rec, ReduceFn.MAX, chosen, [at], keepdims=False)
    return rec.present_where(result, arithmetic.broadcast(rec, found, result.axes))


def _same_beside(axes: Sequence[Axis], others: Sequence[Axis], at: int) -> bool:
    return all(d == at or a == b for d, (a, b) in enumerate(zip(axes, others, strict=True)))


def _along(rec: Recorder, axis: Axis) -> Node:
    """Places along an axis, counted from the tile's start."""
    if not isinstance(axis, Span):
        return rec.expand(arithmetic.lift(rec, 0), [0])
    return arithmetic.binary(rec, BinaryFn.SUB, rec.index(axis), axis.origin)


def _expanded(rec: Recorder, x: Node, at: int, rank: int) -> Node:
    """A value of one axis as one of ``rank``, where it is axis ``at``."""
    others = [d for d in range(rank) if d != at]
    return rec.expand(x, others) if others else x


def _inside(rec: Recorder, places: Node, axis: Axis) -> Node:
    """Whether there are such places along an axis."""
    below = arithmetic.compare(rec, CompareFn.LT, places, axis.count if isinstance(axis, Span) else 1)
    return arithmetic.binary(rec, BinaryFn.AND, arithmetic.compare(rec, CompareFn.GE, places, 0), below)


def _refuse_axes(x: Node, places: Node, at: int) -> NoReturn:
    refuse(
        "LNG017",
        found=f"indices of axes {show_axes(places.axes)} along axis {at} of {show_axes(x.axes)}",
        required="indices of one axis, or of the same axes but for that one",
        help="load both with the same Ranges; a tensor takes any indices: x[index[m, k], n]",
    )


# -- searchsorted ---------------------------------------------------------------------------------------------------
def searchsorted(sorted: object, values: object, *, right: bool = False) -> Tile:
    """Where ``values`` belong among ascending elements, i32: how many of these are less, with ``right`` not greater.

    ``sorted`` is a tensor of one dimension, in which each step of a binary search loads one element, or a tile of one
    axis, of which all elements are compared. NaN is the greatest, as ``tw.sort`` has it.
    """
    rec, (operand,) = operands_of(values)
    looked_for = arithmetic.lift(rec, operand)
    if isinstance(sorted, Tensor):
        return Tile(rec, _searched(rec, sorted, looked_for, right=right))
    among = tile_of(sorted).node
    if len(among.axes) != 1:
        _refuse_sorted(f"a tile of axes {show_axes(among.axes)}")
    count = len(looked_for.axes)
    others = rec.expand(looked_for, [0])
    every = rec.expand(among, range(1, 1 + count)) if count else among
    passed = _passed(rec, every, others, right=right)
    return Tile(rec, arithmetic.cast(rec, arithmetic.reduce(rec, ReduceFn.SUM, passed, [0], keepdims=False), i32))


def _searched(rec: Recorder, tensor: Tensor, values: Node, *, right: bool) -> Node:
    """A binary search by halved steps: a step is made where the element before its end is passed."""
    if tensor.ndim != 1:
        _refuse_sorted(repr(tensor))
    extent = tensor.array.dims[0].constant
    bits = _PLACES if extent is None else extent.bit_length()
    zeros = arithmetic.broadcast(rec, arithmetic.convert(rec, 0, i32), values.axes)
    low, width = rec.fragment(zeros), rec.fragment(arithmetic.convert(rec, 1 << bits - 1, i32))

    def halve(_: Expr) -> Mapping[Cell, Node]:
        before, step = rec.read(low), rec.read(width)
        reached = arithmetic.binary(rec, BinaryFn.ADD, before, step)
        last = arithmetic.binary(rec, BinaryFn.SUB, reached, 1)
        element = rec.gather(tensor.array, [last], values.axes)
        passed = _passed(rec, element.known_by(None), values.known_by(None), right=right)
        there = arithmetic.binary(rec, BinaryFn.AND, rec.present(element), passed)
        chosen = arithmetic.select(rec, there, reached, before)
        return {low: chosen, width: arithmetic.binary(rec, BinaryFn.SHR, step, 1)}

    rec.repeat(Const(bits), halve)
    return rec.read(low).known_by(values.presence)


def _passed(rec: Recorder, element: Node, value: Node, *, right: bool) -> Node:
    """Whether an element comes before the place that is looked for."""
    if not right:
        return _less(rec, element, value)
    return arithmetic.unary(rec, UnaryFn.NOT, _less(rec, value, element))


def _less(rec: Recorder, a: Node, b: Node) -> Node:
    """``a < b``, where NaN is the greatest."""
    less = arithmetic.compare(rec, CompareFn.LT, a, b)
    if not b.dtype.is_float:
        return less
    only_b = arithmetic.compare(rec, CompareFn.NE, b, b)
    if a.dtype.is_float:
        number = arithmetic.compare(rec, CompareFn.EQ, a, a)
        only_b = arithmetic.binary(rec, BinaryFn.AND, *arithmetic.align(rec, [number, only_b]))
    return arithmetic.binary(rec, BinaryFn.OR, *arithmetic.align(rec, [less, only_b]))


def _refuse_sorted(found: str) -> NoReturn:
    refuse(
        "LNG002",
        found=found,
        required="ascending elements along one axis",
        help="search a tensor of one dimension, or a row of a tile: tw.searchsorted(edges[tw.axis(64)], x)",
    )
