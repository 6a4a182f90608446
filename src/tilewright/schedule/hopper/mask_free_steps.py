"""Predicates that hold for whole tiles: steps of a stream for which a ``where`` need not be asked.

A comparison of indices, such as ``s.index >= t.index``, holds for every element of two tiles once it holds for the
least and the greatest of their coordinates. Where the distance between these falls with the stream's counter, the
first steps are free of it; only those near the diagonal ask for every element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Interval, Min, Sym, all_of, expr, maximum, minimum, simplify
from tilewright.lang.enums import BinaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.compared import HALF, behind, shifts
from tilewright.tile.queries import element


def leading_steps(op: tile.StreamLoop) -> tuple[Expr, frozenset[SSAValue]] | None:
    """How many first steps of a stream satisfy all its comparisons of indices, and these; None where there are none."""
    found: dict[SSAValue, Expr] = {}
    shifted = shifts(op)
    for select in op.body.block.ops:
        if isinstance(select, tile.Select) and isinstance(select.cond.owner, tile.Compare):
            steps = _steps(select.cond.owner, op.counter.data, op.trip.expr, shifted)
            if steps is not None:
                found[select.cond] = steps
    if not found:
        return None
    least, *others = found.values()
    if any(steps != least for steps in others):
        return None
    return least, frozenset(found)


def always(kernel: tile.Kernel, stream: tile.StreamLoop, bounds: Mapping[str, Interval]) -> Expr | None:
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


def whole_first_step(kernel: tile.Kernel, stream: tile.StreamLoop) -> Expr | None:
    """Under what the first step of a stream lies inside of its domain, for every program; None where that depends on
    the program or on a loaded integer."""
    span, counter = stream.axis.data, stream.counter.data
    return _of_extents(kernel, (span.origin + span.size <= span.stop).substitute({counter: 0}))


def whole_steps(kernel: tile.Kernel, stream: tile.StreamLoop) -> Expr | None:
    """The same of all steps: the domain ends with one."""
    span = stream.axis.data
    first = span.origin.substitute({stream.counter.data: 0})
    ends = span.stop.args if isinstance(span.stop, Min) else (span.stop,)
    return _of_extents(kernel, all_of(((end - first) % span.size).eq(0) for end in ends))


def _of_extents(kernel: tile.Kernel, condition: Expr) -> Expr | None:
    """A condition on extents of tensors; None where it is on anything else."""
    found = simplify(condition, {})
    kinds = [arg.type for arg in kernel.body.block.args if isinstance(arg.type, tile.TensorType)]
    return found if found.symbols <= {s for kind in kinds for dim in kind.dims for s in dim.expr.symbols} else None


def _steps(compare: tile.Compare, counter: str, trip: Expr, shifts: Mapping[SSAValue, Expr]) -> Expr | None:
    """The first steps in which the comparison holds everywhere."""
    sides = {"ge": (compare.a, compare.b, 0), "gt": (compare.a, compare.b, 1)}
    sides |= {"le": (compare.b, compare.a, 0), "lt": (compare.b, compare.a, 1)}
    greater, smaller, apart = sides.get(compare.fn.data.value, (None, None, 0))
    if greater is None or smaller is None:
        return None
    high, low = _ends(smaller, shifts), _ends(greater, shifts)
    if high is None or low is None:
        return None
    # holds in step i if slack(i) >= 0; it must fall by the same in every step
    slack = low.least - high.greatest - apart
    at = [simplify(slack.substitute({counter: i}), {}) for i in range(3)]
    falls = [simplify(x - y, {}).constant for x, y in pairwise(at)]
    if falls[0] is None or falls[0] != falls[1] or falls[0] <= 0:
        return None
    step = int(falls[0])
    found = maximum((at[0] + step) // step, 0)
    exact = {
        each.substitute({counter: i}) for each in (*low.exact, *high.exact) for i in (Const(0), maximum(trip, 1) - 1)
    }
    return found * minimum(maximum(minimum(*exact) + 1, 0), 1) if exact else found


@dataclass(frozen=True)
class _Ends:
    """The least and the greatest element of a tile of integers, where every one of ``exact`` is at least 0: what is
    computed does not wrap, and loaded integers are what their symbols say."""

    least: Expr
    greatest: Expr
    exact: tuple[Expr, ...] = ()


def _ends(value: SSAValue, shifts: Mapping[SSAValue, Expr]) -> _Ends | None:
    """Of a tile of indices, numbers and loaded shifts, their sums and differences."""
    value = behind(value)
    if value in shifts:
        shift = shifts[value]
        return _Ends(shift - HALF, shift - HALF, (shift - 1, 2 * HALF - 1 - shift))
    match value.owner:
        case tile.Index():
            span = value.owner.axis.data
            return _Ends(span.origin, span.origin + (span.size - 1))
        case tile.Constant() if type(number := value.owner.value.data) is int:
            return _Ends(expr(number), expr(number))
        case tile.Binary(fn=fn) if fn.data in (BinaryFn.ADD, BinaryFn.SUB):
            a, b = _ends(value.owner.a, shifts), _ends(value.owner.b, shifts)
            if a is None or b is None:
                return None
            adds = fn.data is BinaryFn.ADD
            least, greatest = (
                (a.least + b.least, a.greatest + b.greatest) if adds else (a.least - b.greatest, a.greatest - b.least)
            )
            exact = (*a.exact, *b.exact)
            if not (
                adds is False and all(isinstance(behind(v).owner, tile.Index) for v in (value.owner.a, value.owner.b))
            ):
                low, high = element(value).integers
                exact = (*exact, least - low, expr(high) - greatest)
            return _Ends(least, greatest, exact)
        case _:
            return None
