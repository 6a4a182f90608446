"""Stores of products: what stmatrix writes to a panel of shared memory is what copies to global memory read there.

And what both halves of the ``map`` obligation stand on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import TRUE, Expr, all_of, conjuncts, interval, negate, simplify
from tilewright.compiler.proofs.ragged_copies import fault_of_copy, places
from tilewright.hw.rules.wgmma import INSTRUCTION_M as ROWS
from tilewright.hw.tensormap import ELEMENT_BITS, PATTERNS, Swizzle
from tilewright.lang.axes import Span
from tilewright.legal.facts import Facts
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations, ops_before
from tilewright.tile.queries import coords_of, line_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import TmaNumbers
from tilewright.transport.every_thread import Ints, values_at


class CopyMismatchError(Exception):
    """How the lowered kernel differs from the tile program."""


INTERIOR = "interior"
"""The obligation that tensor copies store whole tiles only, where the domain ends before the tensor: the program tests
for it."""


def panel(stores: Sequence[tile.Store], copy: a.TmaStore, known: Facts, clips: Mapping[str, Expr]) -> tuple[Expr, ...]:
    """Checks one panel: the copy reads what stmatrix wrote, at the coordinates of a store of the tile program.

    Returns the conditions that the program has tested so that the whole tile lies in the store's domain; none where the
    hardware clips at the domain's end: where it is the tensor's, and along a map's ragged axis (``ragged_copies``).
    """
    numbers = numbers_of(copy)
    name, where = tensor_of(copy), place_of(copy)
    asked = [store for store in stores if (tensor_name(store), line_of(store)) == (name, where)]
    everyone = range(a.warpgroups_of(copy))
    begin = dict(zip(numbers.axes, places(numbers, [c.expr for c in copy.coords]), strict=True))
    sources = [x for x in asked if all(_stored_at(copy, begin, x, w) for w in everyone)]
    if not sources:
        raise CopyMismatchError(f"a panel of {where} is stored at {', '.join(str(c.expr) for c in copy.coords)}")
    if numbers.ragged_axis is not None:
        faults = [fault_of_copy(copy, numbers, source, known, clips) for source in sources]
        sources = [source for source, fault in zip(sources, faults, strict=True) if not fault]
        if not sources:
            raise CopyMismatchError(f"a panel of {where}: {faults[0]}")
    needed, taken = [_interior(source, numbers.ragged_axis) for source in sources], conditions_of(copy)
    interior = next((tests for tests in needed if taken.issuperset(tests)), None)
    if interior is None:
        raise CopyMismatchError(f"a panel of {where} is stored whole, and nothing says {all_of(needed[0])}")
    size = ELEMENT_BITS[numbers.data_type] // 8
    elected = copy.parent_op()
    assert elected is not None
    matrices = _matrices(elected, copy.shared, copy.offset.expr)
    columns, rows = numbers.box[0], prod(numbers.box[1:])
    written = _written(rows, columns, size, matrices)
    if written is None or not np.array_equal(written, box_bytes(columns, rows, size, numbers.swizzle)):
        raise CopyMismatchError(f"a panel of {where}: the copy looks for its elements elsewhere")
    return interior


def _interior(store: tile.Store, ragged_axis: int | None) -> tuple[Expr, ...]:
    """The conditions under which a store's tile is whole along axes whose domain ends before the tensor; copies end
    with their domain along the ragged axis."""
    found: list[Expr] = []
    for axis, (coord, dim) in enumerate(zip(coords_of(store), tile.tensor_type(store.tensor).dims, strict=True)):
        if isinstance(coord, Span) and coord.stop != dim.expr and axis != ragged_axis:
            found += conjuncts(simplify(coord.origin + coord.size <= coord.stop, {}))
    return tuple(test for test in found if test != TRUE)


def conditions_of(op: Operation) -> frozenset[Expr]:
    """The conditions of the branches around an op."""
    found: set[Expr] = set()
    block, around = op.parent, op.parent_op()
    while around is not None:
        if isinstance(around, t.If):
            taken = around.condition.expr
            found.update(conjuncts(taken if block is around.then.block else negate(taken)))
        block, around = around.parent, around.parent_op()
    return frozenset(found)


def asks_bounds(lowered: t.Kernel) -> bool:
    """Whether some tensor copies are conditional on a loaded bound, but for those through a map that ends with it."""
    inside = operations(lowered)
    bounds = {op.symbol.data for op in inside if isinstance(op, t.Bind)}
    copies = (op for op in inside if isinstance(op, a.TmaStore) and numbers_of(op).ragged_axis is None)
    return any(not bounds.isdisjoint(test.symbols) for copy in copies for test in conditions_of(copy))


def rows_of_panel(stores: Sequence[tile.Store], copies: a.CopyOut) -> int:
    """Checks one panel that threads copy out: every vector is read where stmatrix wrote the elements of a store of the
    tile program. Returns 1."""
    name, where = name_of(copies.tensor), place_of(copies)
    asked = [store for store in stores if (tensor_name(store), line_of(store)) == (name, where)]
    matrices = _matrices(copies, copies.shared, copies.base.expr)
    everyone = range(a.warpgroups_of(copies))
    if not any(all(_copied_from(copies, source, matrices, w) for w in everyone) for source in asked):
        raise CopyMismatchError(f"a panel of {where}: its elements are copied from elsewhere")
    return 1


def _copied_from(copies: a.CopyOut, source: tile.Store, matrices: _Matrices, warpgroup: int) -> bool:
    """Whether a warpgroup copies a panel of this store."""
    here = {a.WARPGROUP: warpgroup}
    count, first_thread = copies.count.data, warpgroup * a.WARPGROUP_THREADS
    bounds = {t.REGISTER: (0, count - 1), t.THREAD: (first_thread, first_thread + a.WARPGROUP_THREADS - 1)}
    places: list[Expr] = []
    for coord, own in zip(copies.coords, coords_of(source), strict=True):
        place = coord.expr.substitute(here) - (own.origin if isinstance(own, Span) else own)
        if isinstance(own, Span):
            places.append(simplify(place, bounds))
        elif place.constant != 0:
            return False
    offset = simplify((copies.offset.expr - copies.base.expr).substitute(here), bounds)
    if len(places) != 2 or not offset.symbols.union(*(p.symbols for p in places)) <= {t.THREAD, t.REGISTER}:
        return False
    axes = [axis for axis, own in enumerate(coords_of(source)) if isinstance(own, Span)]
    size = t.shared_of(copies.shared).dtype.dtype.bytes
    shape = (count, copies.vector.data, copies.bytes.data // size // ROWS, size)
    return axes[1] == copies.axis.data and _rows_read(places[0], places[1], offset, first_thread, shape, matrices)


@lru_cache(maxsize=1024)
def _rows_read(
    row: Expr, column: Expr, offset: Expr, first_thread: int, shape: tuple[int, int, int, int], matrices: _Matrices
) -> bool:
    """Whether ``count`` vectors of every thread, at row and column of a tile, are read where stmatrix wrote them; a
    panel begins where the first thread's first vector lies."""
    count, vector, columns, size = shape
    written = _written(ROWS, columns, size, matrices)
    thread, copy = np.indices((a.WARPGROUP_THREADS, count))
    at = {t.THREAD: thread + first_thread, t.REGISTER: copy}
    x, y, place = (values_at(node, at) for node in (row, column, offset))
    if written is None or min(x.flat[0], y.flat[0]) < 0:
        return False
    x, y = x - x.flat[0], (y - y.flat[0])[:, :, None] + np.arange(vector)
    if min(x.min(), y.min()) < 0 or x.max() >= ROWS or y.max() >= columns:
        return False
    return np.array_equal(written[x[:, :, None], y], place[:, :, None] + np.arange(vector) * size)


_Matrices: TypeAlias = tuple[tuple[Expr, int], ...]
"""stmatrix ops by offset and number of 8 x 8 matrices."""


@lru_cache(maxsize=1024)
def _written(rows: int, columns: int, size: int, matrices: _Matrices) -> Ints | None:
    """The byte at which these ops write every element of a panel; -1 for none; None where one lies outside the
    panel."""
    written = np.full((rows, columns), -1)
    threads, chunk = np.arange(a.WARPGROUP_THREADS), np.arange(8)
    for index, (offset, count) in enumerate(matrices):
        thread = threads[threads % 32 < 8 * count]
        matrix, row = np.divmod(thread % 32, 8)
        row = thread // 32 * 16 + row + matrix % 2 * 8
        column = 16 * index + matrix // 2 * 8
        if row.max() >= rows or column.max() + 8 > columns:
            return None
        first = values_at(offset, {t.THREAD: thread})
        written[row[:, None], column[:, None] + chunk] = first[:, None] + chunk * size
    return written


@lru_cache(maxsize=1024)
def box_bytes(inner: int, outer: int, size: int, swizzle: Swizzle, begin: int = 0) -> Ints:
    """The byte of every element (outer, inner) of a swizzled box that starts at byte ``begin`` of shared memory."""
    return swizzled(begin + np.arange(outer * inner).reshape(outer, inner) * size, swizzle)


def _stored_at(store: a.TmaStore, begin: Mapping[int, Expr], source: tile.Store, warpgroup: int) -> bool:
    """The box, at ``begin`` by axis, begins at the store's coordinates plus constants, and at its own index along the
    other axes; in a loop over panels in each of its steps."""
    steps = _steps_around(store)
    for axis, coordinate in begin.items():
        own = coords_of(source)[axis]
        first = own.origin if isinstance(own, Span) else own
        offset = coordinate.substitute({a.WARPGROUP: warpgroup}) - first
        low, high = interval(offset, steps)
        if not offset.symbols <= steps.keys() or low is None or high is None:
            return False
        if low < 0 or high >= (own.size if isinstance(own, Span) else 1):
            return False
    return True


def _steps_around(op: Operation) -> dict[str, tuple[int, int]]:
    """Counters of the loops around an op whose bounds are constants, with their least and greatest values."""
    found: dict[str, tuple[int, int]] = {}
    around = op.parent_op()
    while around is not None:
        if isinstance(around, t.For):
            begin, end = around.begin.expr.constant, around.end.expr.constant
            if begin is not None and end is not None and around.step.expr.constant == 1:
                found[around.counter.data] = int(begin), int(end) - 1
        around = around.parent_op()
    return found


def _matrices(copied: Operation, shared: SSAValue, base: Expr) -> _Matrices:
    """The stmatrix ops that fill the panel at ``base``: those before its copy, back to the copy before."""
    found: list[tuple[Expr, int]] = []
    for op in ops_before(copied):
        if any(isinstance(x, a.TmaStore | a.CopyOut) for x in op.walk()):
            break
        if isinstance(op, a.StoreMatrix) and op.base.expr == base and op.shared == shared:
            found.insert(0, (op.offset.expr, op.matrices.data))
    return tuple(found)


def swizzled(addresses: Ints, swizzle: Swizzle) -> Ints:
    """Addresses with their bits permuted by the swizzle; tiles begin at a multiple of its period."""
    result = addresses
    pairs = PATTERNS[swizzle].pairs
    for distance in {source - target for target, source in pairs}:
        mask = sum(1 << target for target, source in pairs if source - target == distance)
        result = result ^ (addresses >> distance & mask)
    return result


def map_of(op: a.TmaLoad | a.TmaStore) -> a.TensorMap:
    """The map that a copy uses."""
    declared = op.map.owner
    assert isinstance(declared, a.TensorMap)
    return declared


def numbers_of(op: a.TmaLoad | a.TmaStore) -> TmaNumbers:
    """Its fields."""
    return map_of(op).numbers


def tensor_of(op: a.TmaLoad | a.TmaStore) -> str:
    return name_of(map_of(op).tensor)


def name_of(tensor: SSAValue) -> str:
    """The name of a kernel's tensor."""
    kind = tensor.type
    assert isinstance(kind, t.TensorType)
    return kind.tensor_name.data


def place_of(op: t.TransportOp) -> str:
    return op.loc.data if op.loc is not None else ""
