"""Tiles that the producer's threads copy to a ring with cp.async, into the layout that a tensor copy would have left.

The lines of a landing tile (rows of one panel after the other) are dealt to the threads so that neighbours copy what
lies side by side in memory, as many lines at once as there are threads for::

    8 bytes at a time, lines of 128 bytes       thread    0 .. 15   16 .. 31   ..   112 .. 127
                                                copy 0    line 0    line 1          line 7
                                                copy 1    line 8    line 9          line 15
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Expr, Interval, Sym, simplify
from tilewright.lang.axes import Span
from tilewright.layout.shared import SharedTile
from tilewright.schedule.hopper.operands import Fed
from tilewright.schedule.tiles import coords_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

THREADS = a.WARPGROUP_THREADS
_THREAD, _COPY = Sym(t.THREAD), Sym(t.REGISTER)


def thread_copies(
    fed: Fed,
    tensor: SSAValue,
    shared: SSAValue,
    begin: Expr,
    at: Mapping[str, Expr],
    bounds: Mapping[str, Interval],
) -> a.CpAsync:
    """The copies of one tile to byte ``begin`` of a ring, where counters have the values ``at``.

    What lies outside of the load's domain arrives as zeros, along every axis.
    """
    copies, tile = fed.copies, fed.shared.shared_tile
    assert tile is not None, "tiles are whole panels of whole swizzle periods"
    inner, outer = copies.tile_axes
    vector = copies.vector_bytes // tile.element_bytes
    lanes = tile.panel // vector
    at_once = THREADS // lanes
    lines = tile.rows * tile.panels
    count = -(-lines // at_once)
    known: dict[str, Interval] = {t.THREAD: (0, THREADS - 1), t.REGISTER: (0, count - 1)}
    thread, copy = _THREAD, _COPY
    if tile.rows % at_once == 0:
        panel, row = copy // (tile.rows // at_once), thread // lanes + copy % (tile.rows // at_once) * at_once
    else:
        line = thread // lanes + copy * at_once
        panel, row = line // tile.rows, line % tile.rows
    row = simplify(row, known)
    column = simplify(panel * tile.panel + thread % lanes * vector, known)
    whole = lines % at_once == 0
    coords: list[Expr] = []
    stops: dict[int, Expr] = {}
    for axis, coord in enumerate(coords_of(fed.load)):
        if not isinstance(coord, Span):
            coords.append(coord.substitute(at))
            continue
        coords.append(coord.origin.substitute(at) + (column if axis == inner else row))
        stops[axis] = coord.stop.substitute(at)
    within = simplify(coords[outer] < stops[outer], {**bounds, **known})
    return a.CpAsync(
        tensor,
        shared,
        coords=coords,
        axis=inner,
        stop=stops[inner],
        guard=within,
        active=TRUE if whole else thread // lanes + copy * at_once < lines,
        offset=begin + _offset(tile, lanes, at_once, known),
        vector=vector,
        count=count,
        base=begin,
        bytes=fed.shared.size_bytes,
    )


def _offset(tile: SharedTile, lanes: int, at_once: int, known: dict[str, Interval]) -> Expr:
    """Byte of a thread's copy in the tile. Panels follow one another and the swizzle repeats every ``period`` lines:
    from there on copies lie at constant distances."""
    period = max(1, tile.pattern.repeat_bytes // tile.pitch_bytes) if tile.pattern.pairs else 1
    together = max(1, period // at_once)
    line = _THREAD // lanes + _COPY % together * at_once
    first = tile.offset_expr(line, _THREAD % lanes * (tile.panel // lanes), bounds=known)
    return first + _COPY // together * (together * at_once * tile.pitch_bytes)
