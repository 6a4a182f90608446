"""Stores of products: what stmatrix writes to a panel of shared memory is what the copy to global memory reads there.

And what both halves of the ``map`` obligation stand on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.ir import SSAValue

from tilewright.base.expr import Expr
from tilewright.hw.tensormap import ELEMENT_BITS, PATTERNS, Swizzle
from tilewright.lang.axes import Span
from tilewright.schedule.tiles import coords_of, place, tensor_name
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

Ints = npt.NDArray[Any]


class WrongError(Exception):
    """Where the lowered kernel differs from the tile program."""


def panel(stores: Sequence[tile.Store], copy: a.TmaStore) -> int:
    """One panel: what stmatrix writes is what the copy reads, at the coordinates of a store of the tile program."""
    declared = copy.map.owner
    assert isinstance(declared, a.TensorMap)
    numbers = declared.numbers
    name, where = tensor_of(copy), place_of(copy)
    asked = [store for store in stores if (tensor_name(store), place(store)) == (name, where)]
    everyone = range(a.warpgroups_of(copy))
    if not any(all(_stored_at(copy, numbers.axes, source, w) for w in everyone) for source in asked):
        raise WrongError(f"a panel of {where} is stored at {', '.join(str(c.expr) for c in copy.coords)}")
    size = ELEMENT_BITS[numbers.data_type] // 8
    if not _filled(
        numbers.box, size, numbers.swizzle, tuple((m.offset.expr, m.matrices.data) for m in _matrices(copy))
    ):
        raise WrongError(f"a panel of {where}: the copy looks for its elements elsewhere")
    return 1


@lru_cache(maxsize=1024)
def _filled(box: tuple[int, ...], size: int, swizzle: Swizzle, matrices: tuple[tuple[Expr, int], ...]) -> bool:
    """Whether these stmatrix ops, by offset and number of 8 x 8 matrices, write every element of a panel where a copy
    of ``box`` reads it. The panels of a kernel are filled alike."""
    columns, rows = box[0], prod(box[1:])
    written = np.full((rows, columns), -1)
    threads, chunk = np.arange(a.WARPGROUP_THREADS), np.arange(8)
    for index, (offset, count) in enumerate(matrices):
        thread = threads[threads % 32 < 8 * count]
        matrix, row = np.divmod(thread % 32, 8)
        row = thread // 32 * 16 + row + matrix % 2 * 8
        column = 16 * index + matrix // 2 * 8
        if row.max() >= rows or column.max() + 8 > columns:
            return False
        first = values_at(offset, {t.THREAD: thread})
        written[row[:, None], column[:, None] + chunk] = first[:, None] + chunk * size
    return np.array_equal(written, box_bytes(columns, rows, size, swizzle))


@lru_cache(maxsize=1024)
def box_bytes(inner: int, outer: int, size: int, swizzle: Swizzle, begin: int = 0) -> Ints:
    """The byte of every element (outer, inner) of a box that begins at a byte of shared memory."""
    return swizzled(begin + np.arange(outer * inner).reshape(outer, inner) * size, swizzle)


def _stored_at(store: a.TmaStore, axes: Sequence[int], source: tile.Store, warpgroup: int) -> bool:
    """The box begins at the store's coordinates plus constants, and at its own index along the other axes."""
    for axis, coordinate in zip(axes, store.coords, strict=True):
        own = coords_of(source)[axis]
        first = own.origin if isinstance(own, Span) else own
        offset = (coordinate.expr.substitute({a.WARPGROUP: warpgroup}) - first).constant
        if offset is None or not 0 <= int(offset) < (own.size if isinstance(own, Span) else 1):
            return False
    return True


def _matrices(store: a.TmaStore) -> list[a.StoreMatrix]:
    """The stmatrix ops that fill the panel: those before the copy, back to the copy before."""
    elected = store.parent_op()
    assert elected is not None
    found: list[a.StoreMatrix] = []
    op = elected.prev_op
    while op is not None and not (isinstance(op, a.Elected) and any(isinstance(x, a.TmaStore) for x in op.walk())):
        if isinstance(op, a.StoreMatrix) and op.base.expr == store.offset.expr and op.shared == store.shared:
            found.insert(0, op)
        op = op.prev_op
    return found


def swizzled(addresses: Ints, swizzle: Swizzle) -> Ints:
    """Addresses with their bits exchanged by the pattern; tiles begin at a multiple of its period."""
    result = addresses
    pairs = PATTERNS[swizzle].pairs
    for distance in {source - target for target, source in pairs}:
        mask = sum(1 << target for target, source in pairs if source - target == distance)
        result = result ^ (addresses >> distance & mask)
    return result


def values_at(node: Expr, at: Mapping[str, Ints]) -> Ints:
    """An expression at every thread, and at every register or copy of it, as ``at`` lists them."""
    return np.broadcast_to(np.asarray(node.evaluate(at)), at[t.THREAD].shape)


def tensor_of(op: a.TmaLoad | a.TmaStore) -> str:
    declared = op.map.owner
    assert isinstance(declared, a.TensorMap)
    return name_of(declared.tensor)


def name_of(tensor: SSAValue) -> str:
    """The name of a kernel's tensor."""
    kind = tensor.type
    assert isinstance(kind, t.TensorType)
    return kind.tensor_name.data


def place_of(op: t.TransportOp) -> str:
    return op.loc.data if op.loc is not None else ""
