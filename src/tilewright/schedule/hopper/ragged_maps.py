"""Tensor maps whose copies end with a domain that ends inside of its tensor, as groups of rows do (``legal.ragged``).

Their coordinates are 32-bit integers only if neither the rows that copies begin at nor the end is too large; a launch
is asked for the extent that bounds both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import Const, Expr, Interval, Min, Sym, interval, maximum
from tilewright.base.verdict import Legal
from tilewright.hw.tensormap import Swizzle
from tilewright.lang.axes import Span
from tilewright.lang.enums import BinaryFn
from tilewright.legal.facts import Facts
from tilewright.legal.ragged import BOUND, ragged_plan
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.tile_accesses import tile_access
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import owner


def end_inside(kernel: tile.Kernel, rows: Span, extent: Expr, limit: int) -> Expr | str:
    """Where rows end that end inside of ``extent``, as a coordinate of a map, in launches of at most ``limit``; or why
    it is none."""
    if not isinstance(rows.stop, Min) or extent not in rows.stop.args or not isinstance(extent, Sym | Const):
        return f"{rows.stop} is not known to lie inside of {extent} rows"
    if (extent <= limit).constant == 0:
        return f"{extent} is more than {limit}"
    bounds = _bounds(kernel, {extent.name: (0, limit)} if isinstance(extent, Sym) else {})
    stop = rows.stop if interval(rows.stop, bounds)[0] is not None else maximum(rows.stop, 0)
    for place in (rows.origin, stop):
        low, high = interval(place, bounds)
        if low is None or high is None or low < 0 or high > BOUND - rows.size:
            return f"{place} is not known to lie between 0 and {BOUND - rows.size}"
    return stop


def ragged_map(
    op: tile.Load | tile.Store,
    axis: int,
    stop: Expr,
    extents: Sequence[int | None],
    swizzle: Swizzle,
    known: Facts,
    *,
    padded: bool = False,
) -> TensorMapPlan | str:
    """The legal map of a box of ``extents`` that ends along ``axis`` before ``stop``; or the rule against it.
    ``padded``: its last panel may reach beyond the box."""
    asked = replace(tile_access(op, extents, (swizzle,), known), padded=padded)
    answer = ragged_plan(asked, axis, 0, stop, known)
    if not isinstance(answer, Legal):
        return ", ".join(f"{v.rule} ({v.found})" for v in answer.core)
    plain = [c for c in answer.fields.coordinates[:-2] if isinstance(c, Sym)]
    if len(plain) != answer.fields.rank - 3:
        return "several axes share a dimension"
    return answer.fields


def _bounds(kernel: tile.Kernel, given: Mapping[str, Interval]) -> dict[str, Interval]:
    """What is known of extents, programs, counters of streams and integers that are loaded and clipped."""
    dims = (d.expr for a in kernel.body.block.args if isinstance(a.type, tile.TensorType) for d in a.type.dims)
    bounds: dict[str, Interval] = {symbol: (0, MAX_EXTENT) for dim in dims for symbol in dim.symbols}
    bounds |= given
    for i, extent in enumerate(kernel.grid):
        bounds[program_index(i)] = _below(extent.expr, bounds)
    for op in kernel.walk():
        if isinstance(op, tile.StreamLoop):
            bounds[op.counter.data] = _below(op.trip.expr, bounds)
        elif isinstance(op, tile.Bind) and (most := _most(op)) is not None:
            bounds[op.symbol.data] = 0, interval(most, bounds)[1]
    return bounds


def _most(op: tile.Bind) -> Expr | None:
    """What a loaded integer is clipped to: ``max(min(x, most), 0)``."""
    upper = owner(op.value)
    lower = owner(upper.a) if isinstance(upper, tile.Binary) and upper.fn.data is BinaryFn.MAX else None
    most = owner(lower.b) if isinstance(lower, tile.Binary) and lower.fn.data is BinaryFn.MIN else None
    return most.expr.expr if isinstance(most, tile.ScalarExpr) else None if op.most is None else op.most.expr


def _below(end: Expr, bounds: Mapping[str, Interval]) -> Interval:
    most = interval(end, bounds)[1]
    return 0, None if most is None else max(most - 1, 0)
