"""Tiles that the producer's threads copy to a pipeline, into the layout that a tensor copy would have left.

The lines of a tile (rows of one panel after the other) are dealt to the threads so that neighbours copy what lies side
by side in memory, as many lines at once as there are threads for::

    8 bytes at a time, lines of 128 bytes       thread    0 .. 15   16 .. 31   ..   112 .. 127
                                                copy 0    line 0    line 1          line 7
                                                copy 1    line 8    line 9          line 15
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Interval, Sym, all_of, simplify
from tilewright.lang.axes import Span
from tilewright.layout.shared import SharedTile
from tilewright.schedule.hopper.operands import ThreadCopiedOperand
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
    """The copies of one tile to byte ``begin`` of a pipeline, where counters have the values ``at``: an op for each
    panel, whose copies are one step apart in memory, or one op where its rows are no multiple of those copied at once.

    What lies outside of the load's domain arrives as zeros, along every axis.
    """
    tile = operand.shared.shared_tile
    assert tile is not None, "tiles are whole panels of whole swizzle periods"
    vector = operand.vector
    lanes = tile.panel // vector
    at_once = THREADS // lanes
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
        for axis, coord in enumerate(coords_of(operand.load)):
            first = coord.origin if isinstance(coord, Span) else coord
            coords.append(first.substitute(at) + simplify(place.get(axis, Const(0)), known))
        stops = {axis: c.stop.substitute(at) for axis, c in enumerate(coords_of(operand.load)) if isinstance(c, Span)}
        base = begin + part * tile.rows * tile.pitch_bytes
        yield (a.CpAsync if operand.asynchronous else a.LoadStore)(
            tensor,
            shared,
            coords=coords,
            axis=inner,
            stop=stops[inner],
            guard=all_of([simplify(coords[outer] < stops[outer], {**bounds, **known}), *loaded_tests(operand.load)]),
            active=TRUE if lines % at_once == 0 else line < lines,
            offset=base + _offset(tile, lanes, at_once, known),
            vector=vector,
            count=count,
            base=base,
            bytes=lines * tile.pitch_bytes,
        )


def _offset(tile: SharedTile, lanes: int, at_once: int, known: dict[str, Interval]) -> Expr:
    """Byte of a thread's copy in the tile. Panels follow one another and the swizzle repeats every ``period`` lines:
    from there on copies lie at constant distances."""
    period = max(1, tile.pattern.repeat_bytes // tile.pitch_bytes) if tile.pattern.pairs else 1
    together = max(1, period // at_once)
    line = _THREAD // lanes + _COPY % together * at_once
    first = tile.offset_expr(line, _THREAD % lanes * (tile.panel // lanes), bounds=known)
    return first + _COPY // together * (together * at_once * tile.pitch_bytes)
