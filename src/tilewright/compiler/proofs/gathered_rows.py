"""Rows that threads copy from where loaded integers say: which integer of which tensor each row's is, and that rows
which lie nowhere are zero.

A gather of a tile of the program has a coordinate that is an element of a loaded tile of integers, one for each row.
Each of the producer's threads loads the integers of the rows that it copies, once a program, or in each step of a
stream that moves along them, and reads them from its registers. That what it loads there is the program's integer
follows from the load's coordinates, which differ from the program's by numbers alone; that it still is when the copies
are made, from its being the only one that writes these registers, before the copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import TRUE, Expr, Sym, conjuncts, simplify
from tilewright.lang.axes import Coord, Span, axis_symbol
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_before
from tilewright.tile.queries import coords_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import Ints, values_at

_INTEGER = Sym(tile.index_symbol(0))


@dataclass(frozen=True)
class Rows:
    """How the rows of a gathered tile are addressed: row i of ``span``, axis ``axis`` of the tile, has as its
    coordinate along ``dimension`` the element of ``table`` at ``entry``, where the range stands for i. ``columns`` is
    the dimension of the tile's other axis."""

    gather: tile.Gather
    table: str
    entry: tuple[Coord, ...]
    axis: int
    span: Span
    dimension: int
    columns: int

    @property
    def coords(self) -> tuple[Coord, ...]:
        """The gather's coordinates, with a range for each that follows an axis."""
        across = tile.tile_type(self.gather.result).axes_tuple[1 - self.axis]
        assert isinstance(across, Span)
        ranges = {self.dimension: self.span, self.columns: across}
        return tuple(ranges.get(d, c.expr) for d, c in enumerate(self.gather.coords))

    @property
    def dims(self) -> tuple[int, int]:
        """The dimensions along which the tile's axes run."""
        return (self.dimension, self.columns) if self.axis == 0 else (self.columns, self.dimension)


def rows_of(gather: tile.Gather) -> Rows | None:
    """How a gather's rows are addressed; None for other gathers."""
    axes = tile.tile_type(gather.result).axes_tuple
    if len(gather.indices) != 1 or len(axes) != 2:
        return None
    (index,) = gather.indices
    along = [d for d, kind in enumerate(tile.tile_type(index).axes_tuple) if isinstance(kind, Span)]
    load = _integers(index)
    if len(along) != 1 or load is None:
        return None
    (axis,) = along
    places = [c.expr for c in gather.coords]
    named, across = places.count(_INTEGER), Sym(axis_symbol(1 - axis))
    others = [c for c in places if c not in (_INTEGER, across)]
    own = {_INTEGER.name, *(axis_symbol(d) for d in range(len(axes)))}
    span = axes[axis]
    if named != 1 or places.count(across) != 1 or any(not own.isdisjoint(c.symbols) for c in others):
        return None
    entry = coords_of(load)
    if not isinstance(span, Span) or entry.count(span) != 1 or sum(isinstance(c, Span) for c in entry) != 1:
        return None
    table = tile.tensor_type(load.tensor).tensor_name.data
    return Rows(gather, table, entry, axis, span, places.index(_INTEGER), places.index(across))


def _integers(value: SSAValue) -> tile.Load | None:
    """The load of an index, if the kernel does not write its tensor."""
    op = value.owner
    match op:
        case tile.Expand() | tile.Broadcast():
            return _integers(op.x)
        case tile.Cast():
            source = tile.tile_type(op.x).element
            return _integers(op.x) if source.is_int and op.dtype.is_int and op.dtype.holds(source) else None
        case tile.Load():
            read = all(isinstance(use.operation, tile.Load | tile.Gather) for use in op.tensor.uses)
            return op if read else None
        case _:
            return None


def row_places(op: a.ThreadCopies, rows: Rows, step: Mapping[str, Expr], at: Mapping[str, Ints]) -> Ints | None:
    """For every thread and copy ``at`` the tile row whose integer the copy uses; None if the copy uses another, or
    zeros other rows than those outside."""
    if len(op.indices) != 1 or op.coords.data[rows.dimension].expr != _INTEGER:
        return None
    load = _only_writer(op, op.indices[0])
    if load is None or tile.tensor_type(load.tensor).tensor_name.data != rows.table or load.indices:
        return None
    place: Expr | None = None
    for coord, own in zip((c.expr for c in load.coords), rows.entry, strict=True):
        if isinstance(own, Span):
            place = coord - own.origin.substitute(step)
        elif coord != own.substitute(step):
            return None
    if place is None or not place.symbols <= {t.THREAD, t.REGISTER}:
        return None
    held = t.registers_of(load.buffer).count.data
    if not _loads_all(load, rows, place, held, step):
        return None
    read = op.reads[0]
    if not read.symbols <= {t.THREAD, t.REGISTER}:
        return None
    register = np.broadcast_to(values_at(read, at), at[t.REGISTER].shape)
    if register.min() < 0 or register.max() >= held or not _zero_outside(op, rows, place, read, step):
        return None
    return values_at(place, {**at, t.REGISTER: register})


def _only_writer(copies: Operation, buffer: SSAValue) -> t.Load | None:
    """The load in a block around some copies that alone writes a buffer."""
    users = [use.operation for use in buffer.uses]
    writers = [u for u in users if not (isinstance(u, t.Load | a.ThreadCopies) and buffer in u.indices)]
    if len(writers) != 1 or not isinstance(writers[0], t.Load) or writers[0].buffer != buffer:
        return None
    around: Operation | None = copies
    while around is not None and not isinstance(around, t.Programs):
        if writers[0] in ops_before(around):
            return writers[0]
        around = around.parent_op()
    return None


def _loads_all(load: t.Load, rows: Rows, place: Expr, held: int, step: Mapping[str, Expr]) -> bool:
    """Whether the integer of every row in the domain is loaded wherever the program loads it."""
    dims = (d.expr for d in tile.tensor_type(load.tensor).dims)
    single = {(c < dim).substitute(step) for c, dim in zip(rows.entry, dims, strict=True) if not isinstance(c, Span)}
    bounds = {(rows.span.origin + place < rows.span.stop).substitute(step), place < rows.span.size}
    known = {t.THREAD: (0, a.WARPGROUP_THREADS - 1), t.REGISTER: (0, held - 1)}
    allowed = bounds | {simplify(b, known) for b in bounds} | single | {TRUE}
    return load.live.expr == TRUE and set(conjuncts(load.guard.expr)) <= allowed


def _zero_outside(op: a.ThreadCopies, rows: Rows, place: Expr, read: Expr, step: Mapping[str, Expr]) -> bool:
    """Whether elements are read exactly where their row lies in the domain and in the tensor."""
    columns = rows.coords[rows.columns]
    assert isinstance(columns, Span)
    if op.axis.data != rows.columns or op.stop.expr != columns.stop.substitute(step):
        return False
    dims = [d.expr for d in tile.tensor_type(rows.gather.tensor).dims]
    known = {t.THREAD: (0, a.WARPGROUP_THREADS - 1), t.REGISTER: (0, op.count.data - 1)}
    row = place.substitute({t.REGISTER: read})
    domain = simplify((rows.span.origin + row < rows.span.stop).substitute(step), known)
    needed = {domain, _INTEGER >= 0, dims[rows.dimension] > _INTEGER} - {TRUE}
    others = {
        test.substitute(step)
        for c, dim in zip(rows.coords, dims, strict=True)
        if not isinstance(c, Span)
        for test in (c >= 0, c < dim)
    }
    asked = set(conjuncts(op.guard.expr))
    return needed <= asked <= needed | others
