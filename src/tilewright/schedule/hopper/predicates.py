"""Predicates that hold for whole tiles: steps of a stream for which a ``where`` need not be asked.

A comparison of indices, such as ``s.index >= t.index``, holds for every element of two tiles once it holds for the
least and the greatest of their coordinates. Where the distance between these falls with the stream's counter, the
first steps are free of it; only those near the diagonal ask for every element.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Interval, Sym, all_of, expr, maximum, simplify
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index

_SOME_EXTENT = 4096
_SHAPES = (tile.Expand, tile.Broadcast, tile.Transpose)


def leading_steps(op: tile.Stream) -> tuple[Expr, frozenset[SSAValue]] | None:
    """How many first steps of a stream satisfy all its comparisons of indices, and these; None where there are none."""
    found: dict[SSAValue, Expr] = {}
    for select in op.body.block.ops:
        if isinstance(select, tile.Select) and isinstance(select.cond.owner, tile.Compare):
            steps = _steps(select.cond.owner, op.counter.data)
            if steps is not None:
                found[select.cond] = steps
    if not found:
        return None
    least, *others = found.values()
    if any(steps != least for steps in others):
        return None
    return least, frozenset(found)


def always(kernel: tile.Kernel, stream: tile.Stream, bounds: Mapping[str, Interval]) -> Expr | None:
    """Under what a stream has a step in every program: extents are not 0; None if it may have none all the same.

    Where an extent of the grid is 0 there is no program.
    """
    kinds = [arg.type for arg in kernel.body.block.args if isinstance(arg.type, tile.TensorType)]
    extents = {symbol for kind in kinds for dim in kind.dims for symbol in dim.expr.symbols}
    filled: dict[str, Interval] = dict.fromkeys(extents, (1, None))
    if simplify(stream.trip.expr > 0, {**bounds, **filled}) != TRUE:
        return None
    grid = {s for extent in kernel.grid for s in extent.expr.symbols if extent.expr.substitute({s: 0}) == Const(0)}
    return all_of(Const(0) < Sym(s) for s in sorted((stream.trip.expr.symbols & extents) - grid))


def whole_first_step(kernel: tile.Kernel, stream: tile.Stream) -> Expr | None:
    """Under what the first step of a stream lies inside of its domain, for every program; None where that depends on
    the program or on a loaded integer."""
    span, counter = stream.axis.data, stream.counter.data
    inside = simplify((span.origin + span.size <= span.stop).substitute({counter: 0}), {})
    kinds = [arg.type for arg in kernel.body.block.args if isinstance(arg.type, tile.TensorType)]
    extents = {symbol for kind in kinds for dim in kind.dims for symbol in dim.expr.symbols}
    return inside if inside.symbols <= extents else None


def lengthening(kernel: tile.Kernel) -> str | None:
    """The programs' coordinate with which a stream gets longer.

    A matter of order alone, so extents of a middling size stand for all.
    """
    streams = [op.trip.expr for op in kernel.walk() if isinstance(op, tile.Stream)]
    names = [program_index(i) for i in range(len(kernel.grid))]
    return next((n for n in names if any(_at(trip, {n: 0}) < _at(trip, {n: 4}) for trip in streams)), None)


def _at(trip: Expr, known: dict[str, int]) -> int:
    return int(trip.evaluate({**dict.fromkeys(trip.symbols, _SOME_EXTENT), **known}))


def _steps(compare: tile.Compare, counter: str) -> Expr | None:
    """The first steps in which the comparison holds everywhere."""
    sides = {"ge": (compare.a, compare.b, 0), "gt": (compare.a, compare.b, 1)}
    sides |= {"le": (compare.b, compare.a, 0), "lt": (compare.b, compare.a, 1)}
    greater, smaller, apart = sides.get(compare.fn.data.value, (None, None, 0))
    if greater is None or smaller is None:
        return None
    high, low = _range(smaller), _range(greater)
    if high is None or low is None:
        return None
    # holds in step i if slack(i) >= 0; it must fall by the same in every step
    slack = low[0] - high[1] - apart
    at = [simplify(slack.substitute({counter: i}), {}) for i in range(3)]
    falls = [simplify(x - y, {}).constant for x, y in pairwise(at)]
    if falls[0] is None or falls[0] != falls[1] or falls[0] <= 0:
        return None
    step = int(falls[0])
    return maximum((at[0] + step) // step, 0)


def _range(value: SSAValue) -> tuple[Expr, Expr] | None:
    """The least and the greatest element of a tile of indices, or of their differences, which never wrap."""
    value = _behind(value)
    match value.owner:
        case tile.Index():
            span = value.owner.axis.data
            return span.origin, span.origin + (span.size - 1)
        case tile.Constant() if type(number := value.owner.value.data) is int:
            return expr(number), expr(number)
        case tile.Binary() if value.owner.fn.data.value == "sub":
            sides = [_behind(side) for side in (value.owner.a, value.owner.b)]
            a, b = (_range(side) if isinstance(side.owner, tile.Index) else None for side in sides)
            return None if a is None or b is None else (a[0] - b[1], a[1] - b[0])
        case _:
            return None


def _behind(value: SSAValue) -> SSAValue:
    """The value of which one is another shape."""
    while isinstance(value.owner, _SHAPES):
        value = value.owner.operands[0]
    return value
