"""Tiles whose rows lie where loaded integers say: gathers which the producer's threads copy, 16 bytes at a time.

    rows[m]              loaded once a program, by the threads that copy those rows     7   2   -1   9
    x[rows[m], k]        cp.async into the pipeline's stage, in each step               x7  x2  0    x9

Integers that a stream moves along, such as a table of pages of one row, are loaded in each step.

Nothing is read for rows whose integer leads outside: they arrive as zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.base.expr import Sym
from tilewright.lang.axes import Coord, Span, axis_symbol
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, integers_of, spans_of


@dataclass(frozen=True)
class GatheredRows:
    """A gather along whose dimension ``dimension`` the rows of its tile's axis ``axis`` lie where ``load`` says, as
    they are loaded; ``columns`` is the dimension along which its other axis runs."""

    gather: tile.Gather
    load: tile.Load
    axis: int
    dimension: int
    columns: int

    @property
    def span(self) -> Span:
        """The range of the tile's rows."""
        return _span(self.gather, self.axis)

    @property
    def coords(self) -> tuple[Coord, ...]:
        """The gather's coordinates, with the range of the columns; of the rows what stands for a loaded integer."""
        across = {self.columns: _span(self.gather, 1 - self.axis)}
        return tuple(across.get(d, c.expr) for d, c in enumerate(self.gather.coords))

    @property
    def moves(self) -> bool:
        """Whether the integers change with each step."""
        return not _steady(self.load)


def _span(gather: tile.Gather, axis: int) -> Span:
    found = spans_of(gather.result)[axis]
    assert found is not None
    return found


def gathered_rows(gather: tile.Gather) -> GatheredRows | None:
    """How the rows of a gather are addressed; None for other gathers, or where the integers change with the steps of a
    stream that the gather is not directly in."""
    axes, coords = tile.tile_type(gather.result).axes_tuple, [c.expr for c in gather.coords]
    if len(gather.indices) != 1 or len(axes) != 2:
        return None
    (index,) = gather.indices
    along = [d for d, kind in enumerate(tile.tile_type(index).axes_tuple) if isinstance(kind, Span)]
    load = _loaded(index)
    if len(along) != 1 or load is None:
        return None
    (axis,) = along
    dimension = [d for d, c in enumerate(coords) if c == Sym(tile.index_symbol(0))]
    columns = [d for d, c in enumerate(coords) if c == Sym(axis_symbol(1 - axis))]
    named = {tile.index_symbol(0), *(axis_symbol(d) for d in range(2))}
    others = [c for d, c in enumerate(coords) if d not in (*dimension, *columns)]
    if len(dimension) != 1 or len(columns) != 1 or any(not named.isdisjoint(c.symbols) for c in others):
        return None
    span = axes[1 - axis]
    dim = tile.tensor_type(gather.tensor).dims.data[columns[0]].expr
    if not isinstance(axes[axis], Span) or not isinstance(span, Span) or span.stop != dim:
        return None
    found = GatheredRows(gather, load, axis, dimension[0], columns[0])
    return None if found.moves and load.parent_op() is not gather.parent_op() else found


def _loaded(value: SSAValue) -> tile.Load | None:
    """The load along one axis of an index, if its tensor is not written."""
    op = integers_of(value)
    rows = isinstance(op, tile.Load) and tile.tile_type(op.result).rank == 1 and _read_only(op)
    return op if isinstance(op, tile.Load) and rows else None


def _steady(load: tile.Load) -> bool:
    around = load.parent_op()
    counters = set[str]()
    while isinstance(around, tile.StreamLoop):
        counters.add(around.counter.data)
        around = around.parent_op()
    ends = (e for c in coords_of(load) for e in ((c.origin, c.stop) if isinstance(c, Span) else (c,)))
    return all(counters.isdisjoint(e.symbols) for e in ends)


def _read_only(load: tile.Load) -> bool:
    return all(isinstance(use.operation, tile.Load | tile.Gather) for use in load.tensor.uses)
