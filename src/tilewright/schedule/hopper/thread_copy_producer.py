"""Tiles that the producer's threads copy to a pipeline, into the layout that a tensor copy would have left.

The lines of a tile (rows of one panel after the other) are dealt to the threads so that neighbours copy what lies side
by side in memory, as many lines at once as there are threads for::

    8 bytes at a time, lines of 128 bytes       thread    0 .. 15   16 .. 31   ..   112 .. 127
                                                copy 0    line 0    line 1          line 7
                                                copy 1    line 8    line 9          line 15
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Interval, Sym, all_of, simplify
from tilewright.lang.axes import Span
from tilewright.layout.shared import SharedTile
from tilewright.schedule.hopper.operands import ThreadCopiedOperand
from tilewright.tile import dialect
from tilewright.tile.indirect import index_symbol
from tilewright.tile.queries import coords_of, loaded_tests
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

THREADS = a.WARPGROUP_THREADS
_THREAD, _COPY = Sym(t.THREAD), Sym(t.REGISTER)


def producer_copies(
    operand: ThreadCopiedOperand,
    tensor: SSAValue,
    shared: SSAValue,
    begin: Expr,
    at: Mapping[str, Expr],
    bounds: Mapping[str, Interval],
) -> Iterator[a.ThreadCopies]:
    """The copies of one loaded tile to byte ``begin`` of a pipeline, where counters have the values ``at``: an op for
    each panel, whose copies are one step apart in memory, or one op where its rows are no multiple of those copied at
    once.

    What lies outside of the load's domain arrives as zeros, along every axis.
    """
    load = operand.load
    assert isinstance(load, dialect.Load)
    tile = _held(operand)
    vector = operand.vector
    lanes, at_once = _lanes(operand)
    whole = tile.rows % at_once == 0
    parts, lines = (tile.panels, tile.rows) if whole else (1, tile.rows * tile.panels)
    count = -(-lines // at_once)
    known: dict[str, Interval] = {t.THREAD: (0, THREADS - 1), t.REGISTER: (0, count - 1)}
    line = _THREAD // lanes + _COPY * at_once
    inner, outer = operand.copies.tile_axes
    for part in range(parts):
        panel, row = (Const(part), line) if whole else (line // tile.rows, line % tile.rows)
        place = {inner: panel * tile.panel + _THREAD % lanes * vector, outer: row}
        coords: list[Expr] = []
        for axis, coord in enumerate(coords_of(load)):
            first = coord.origin if isinstance(coord, Span) else coord
            coords.append(first.substitute(at) + simplify(place.get(axis, Const(0)), known))
        stops = {axis: c.stop.substitute(at) for axis, c in enumerate(coords_of(load)) if isinstance(c, Span)}
        base = begin + part * tile.rows * tile.pitch_bytes
        yield (a.CpAsync if operand.asynchronous else a.LoadStore)(
            tensor,
            shared,
            coords=coords,
            axis=inner,
            stop=stops[inner],
            guard=all_of([simplify(coords[outer] < stops[outer], {**bounds, **known}), *loaded_tests(load)]),
            active=TRUE if lines % at_once == 0 else line < lines,
            offset=base + _offset(tile, lanes, at_once, known),
            vector=vector,
            count=count,
            base=base,
            bytes=lines * tile.pitch_bytes,
        )


def row_integers(operand: ThreadCopiedOperand, tensor: SSAValue, buffer: SSAValue, at: Mapping[str, Expr]) -> t.Load:
    """The integers that name the rows of a gathered tile where counters have the values ``at``, each to the threads
    that copy its row."""
    rows = operand.rows
    assert rows is not None
    coords = [(c.origin + _row(operand) if isinstance(c, Span) else c).substitute(at) for c in coords_of(rows.load)]
    (span,) = (c for c in coords_of(rows.load) if isinstance(c, Span))
    within = [(span.origin + _row(operand) < span.stop).substitute(at), _row(operand) < span.size]
    known: dict[str, Interval] = {t.THREAD: (0, THREADS - 1), t.REGISTER: (0, row_count(operand) - 1)}
    return t.Load(tensor, buffer, coords, all_of([*(simplify(x, known) for x in within), *loaded_tests(rows.load)]))


def row_count(operand: ThreadCopiedOperand) -> int:
    """Rows that a thread copies of a gathered tile."""
    return -(-_held(operand).rows // _lanes(operand)[1])


def gathered_copies(
    operand: ThreadCopiedOperand,
    tensor: SSAValue,
    shared: SSAValue,
    integers: SSAValue,
    begin: Expr,
    at: Mapping[str, Expr],
    inside: Sequence[Expr],
) -> Iterator[a.CpAsync]:
    """The same for a tile whose rows lie where ``integers`` say: an op for each panel. ``inside`` are the conditions
    that its other coordinates lie in the tensor. Rows that lie nowhere arrive as zeros."""
    rows, tile = operand.rows, _held(operand)
    assert rows is not None
    lanes, at_once = _lanes(operand)
    count = row_count(operand)
    known: dict[str, Interval] = {t.THREAD: (0, THREADS - 1), t.REGISTER: (0, count - 1)}
    here = simplify((rows.span.origin + _row(operand) < rows.span.stop).substitute(at), known)
    row, dims = Sym(index_symbol(0)), dialect.tensor_type(rows.gather.tensor).dims.data
    for part in range(tile.panels):
        coords = [(c.origin if isinstance(c, Span) else c).substitute(at) for c in rows.coords]
        coords[rows.columns] = coords[rows.columns] + (part * tile.panel + _THREAD % lanes * operand.vector)
        columns = rows.coords[rows.columns]
        assert isinstance(columns, Span)
        base = begin + part * tile.rows * tile.pitch_bytes
        yield a.CpAsync(
            tensor,
            shared,
            coords=coords,
            axis=rows.columns,
            stop=columns.stop.substitute(at),
            guard=all_of([here, *inside, row >= 0, row < dims[rows.dimension].expr]),
            active=TRUE if tile.rows % at_once == 0 else _row(operand) < tile.rows,
            offset=base + _offset(tile, lanes, at_once, known),
            vector=operand.vector,
            count=count,
            base=base,
            bytes=tile.rows * tile.pitch_bytes,
            indices=[integers],
            reads=[_COPY],
            within=here,
        )


def _row(operand: ThreadCopiedOperand) -> Expr:
    """The row of a gathered tile that copy ``r`` of a thread is of."""
    lanes, at_once = _lanes(operand)
    return _THREAD // lanes + _COPY * at_once


def _held(operand: ThreadCopiedOperand) -> SharedTile:
    tile = operand.shared.shared_tile
    assert tile is not None, "tiles are whole panels of whole swizzle periods"
    return tile


def _lanes(operand: ThreadCopiedOperand) -> tuple[int, int]:
    """Threads that copy a line of a panel together, and lines that are copied at once."""
    lanes = _held(operand).panel // operand.vector
    return lanes, THREADS // lanes


def _offset(tile: SharedTile, lanes: int, at_once: int, known: dict[str, Interval]) -> Expr:
    """Byte of a thread's copy in the tile. Panels follow one another and the swizzle repeats every ``period`` lines:
    from there on copies lie at constant distances."""
    period = max(1, tile.pattern.repeat_bytes // tile.pitch_bytes) if tile.pattern.pairs else 1
    together = max(1, period // at_once)
    line = _THREAD // lanes + _COPY % together * at_once
    first = tile.offset_expr(line, _THREAD % lanes * (tile.panel // lanes), bounds=known)
    return first + _COPY // together * (together * at_once * tile.pitch_bytes)
