"""Tiles that threads copy to shared memory: which element of the tile program's load lands at which byte.

Read from the lowered op alone: its coordinates and offsets at every thread and copy. What it leaves zero must be what
lies outside of the load's domain, no more and no less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.base.expr import TRUE, Expr, conjuncts, simplify
from tilewright.compiler.proofs.gathered_rows import Rows, row_places
from tilewright.lang.axes import Span
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import Ints, values_at


def place_copies(
    landed: Ints,
    first_byte: int,
    op: a.ThreadCopies,
    source: tile.Load | Rows,
    step: Mapping[str, Expr],
    axes: tuple[int, int],
) -> bool:
    """Writes the byte of every element (of axes mn and k), from the tile's begin, of a part that begins at
    ``first_byte``; False where coordinates or zeros are not those of the load, or of the gather whose rows are named,
    or bytes are none of those that the op names.
    """
    mn_axis, k_axis = axes
    gathered = isinstance(source, Rows)
    if bool(op.indices) is not gathered or (not gathered and not zeros_outside(op, source, step)):
        return False
    thread, copy = np.meshgrid(np.arange(a.WARPGROUP_THREADS), np.arange(op.count.data), indexing="ij")
    at = {t.THREAD: thread.ravel(), t.REGISTER: copy.ravel()}
    made = values_at(op.active.expr, at).astype(np.bool_)
    steps = np.arange(op.vector.data)
    place: dict[int, Ints] = {}
    if gathered:
        named = row_places(op, source, step, at)
        if named is None:
            return False
        place[source.dimension] = named[made][:, None] + 0 * steps
    for axis, (coord, own) in enumerate(zip(op.coords, source.coords if gathered else coords_of(source), strict=True)):
        if axis in place:
            continue
        begin = (own.origin if isinstance(own, Span) else own).substitute(step)
        offset = coord.expr - begin
        if not offset.symbols <= {t.THREAD, t.REGISTER}:
            return False
        place[axis] = values_at(offset, at)[made][:, None] + (steps if axis == op.axis.data else 0 * steps)
    if any(x.any() for axis, x in place.items() if axis not in axes):
        return False
    inside = op.offset.expr - op.base.expr
    if not inside.symbols <= {t.THREAD, t.REGISTER}:
        return False
    size = op.copy_bytes // op.vector.data
    bytes_ = values_at(inside, at)[made][:, None] + steps * size
    if bytes_.min() < 0 or bytes_.max() + size > op.bytes.data:
        return False
    mn, k = place[mn_axis], place[k_axis]
    if mn.min() < 0 or k.min() < 0 or mn.max() >= landed.shape[0] or k.max() >= landed.shape[1]:
        return False
    if len(np.unique(mn * landed.shape[1] + k)) != mn.size or (landed[mn, k] != -1).any():
        return False
    landed[mn, k] = first_byte + bytes_
    return True


def zeros_outside(op: a.ThreadCopies, source: tile.Load, step: Mapping[str, Expr]) -> bool:
    """Elements are read exactly where they lie in the load's domain: the guard has each bound, or it always holds."""
    stops: dict[int, Expr] = {}
    for axis, own in enumerate(coords_of(source)):
        if isinstance(own, Span):
            stops[axis] = own.stop.substitute(step)
    if stops.pop(op.axis.data, None) != op.stop.expr:
        return False
    bounds = {op.coords.data[axis].expr < stop: stop for axis, stop in stops.items()}
    dims = (d.expr for d in tile.tensor_type(source.tensor).dims)
    single = {c < dim for c, dim in zip(coords_of(source), dims, strict=True) if not isinstance(c, Span)}
    asked = set(conjuncts(op.guard.expr)) - single  # that they are asked where they must be, ``stores`` proves
    known = {t.THREAD: (0, a.WARPGROUP_THREADS - 1), t.REGISTER: (0, op.count.data - 1)}
    return asked <= bounds.keys() and all(b in asked or simplify(b, known) == TRUE for b in bounds)
