"""Tiles whose rows lie in pages that a table names: gathers which tensor copies can bring, a page or a part of it at a
time.

    pages[b, t // 16]                       entries       7       2       9       4
    pool[pages[b, t // 16], t % 16, g]      rows of t   0 .. 15  .. 31  .. 47  .. 63     a box each
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.base.expr import Const, Expr, FloorDiv, Mod, Sym, divisor
from tilewright.lang.axes import Span, axis_symbol
from tilewright.tile import dialect as tile
from tilewright.tile.queries import integers_of


@dataclass(frozen=True)
class PagedTile:
    """A gather of rows in pages of ``page``: row x of the range ``span``, axis ``axis`` of the tile, is element
    x % page along dimension ``slot`` of the page that ``table`` has at ``entry(x)``, an index along ``number``.

    A box brings ``rows`` rows: a page, or as much of one as the tile has. ``axes`` is the tile's axis that each
    dimension runs along, None where the gather takes one index.
    """

    gather: tile.Gather
    table: tile.Gather
    axis: int
    span: Span
    page: int
    number: int
    slot: int
    axes: tuple[int | None, ...]

    @property
    def rows(self) -> int:
        """Rows of a box."""
        return min(self.page, self.span.size)

    @property
    def boxes(self) -> int:
        """Boxes that lie above one another in a tile."""
        return self.span.size // self.rows

    def entry(self, row: Expr) -> tuple[Expr, ...]:
        """Where the table names the page of a row."""
        return tuple(c.expr.substitute({axis_symbol(0): row}) for c in self.table.coords)


def paged_tile(gather: tile.Gather) -> PagedTile | None:
    """How a gather's rows lie in pages; None where they do not, or boxes would cross the ends of pages."""
    axes, coords = tile.tile_type(gather.result).axes_tuple, [c.expr for c in gather.coords]
    if len(gather.indices) != 1:
        return None
    index = gather.indices[0]
    spans = [d for d, axis in enumerate(tile.tile_type(index).axes_tuple) if isinstance(axis, Span)]
    table = _table(index)
    if len(spans) != 1 or table is None:
        return None
    (axis,) = spans
    span, symbol = axes[axis], Sym(axis_symbol(axis))
    number = [d for d, c in enumerate(coords) if c == Sym(tile.index_symbol(0))]
    slots = [d for d, c in enumerate(coords) if isinstance(c, Mod) and c.numerator == symbol]
    if not isinstance(span, Span) or len(number) != 1 or len(slots) != 1:
        return None
    along = [_axis(c, len(axes)) for c in coords]
    along[slots[0]] = axis
    page, free = _constant(coords[slots[0]]), [d for d in range(len(axes)) if d not in along]
    loose = [
        c
        for d, c in enumerate(coords)
        if along[d] is None and d != number[0] and any(s in c.symbols for s in _own(axes))
    ]
    if page is None or free or loose or along.count(axis) != 1:
        return None
    found = PagedTile(gather, table, axis, span, page, number[0], slots[0], tuple(along))
    by_page = FloorDiv(Sym(axis_symbol(0)), Const(page))
    if [c.expr for c in table.coords if axis_symbol(0) in c.expr.symbols] != [by_page]:
        return None
    whole = max(page, span.size) % found.rows == 0 and divisor(span.origin, {}) % found.rows == 0
    return found if whole and len(axes) == 2 and isinstance(axes[1 - axis], Span) else None


def _own(axes: tuple[object, ...]) -> list[str]:
    return [*(axis_symbol(d) for d in range(len(axes))), tile.index_symbol(0)]


def _axis(coord: Expr, rank: int) -> int | None:
    """The tile's axis that a coordinate is."""
    return next((d for d in range(rank) if coord == Sym(axis_symbol(d))), None)


def _constant(coord: Expr) -> int | None:
    value = coord.denominator.constant if isinstance(coord, Mod) else None
    return None if value is None else int(value)


def _table(value: SSAValue) -> tile.Gather | None:
    """The gather of integers that an index is, where it is present; elsewhere it leads outside."""
    op = integers_of(value)
    while isinstance(op, tile.Select):
        op = integers_of(op.a)
    return op if isinstance(op, tile.Gather) and tile.tile_type(op.result).rank == 1 and not op.indices else None
