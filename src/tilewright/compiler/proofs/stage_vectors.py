"""Vectors and single elements that are copied to a stage, and read by threads: which element of a load lands at which
byte.

Read from the lowered ops alone, at every thread and copy. Every copy of a buffer brings all elements of one load of the
tile program, one after the other, with zeros outside of the load's domain; reads begin where copies do and name no
element beyond these. A tensor copy brings a box of a map without swizzle, of a load whose domain ends where its tensor
does or is never left. Which register an element belongs to is compared by ``validate.tile_to_transport``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Const
from tilewright.compiler.proofs.epilogue_copies import CopyMismatchError, name_of, place_of, tensor_of
from tilewright.compiler.proofs.operand_domains import ends_with_tensor
from tilewright.compiler.proofs.thread_copies import zeros_outside
from tilewright.hw.tensormap import Swizzle
from tilewright.lang.axes import Span
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, line_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import values_at

_Copy: TypeAlias = a.ThreadCopies | a.TmaLoad


def read_vectors(program: Iterable[Operation], lowered: Sequence[Operation]) -> int:
    """The number of buffers that hold vectors of steps; ``CopyMismatchError`` where one does not hold what the tile
    program loads."""
    copies: dict[SSAValue, list[_Copy]] = {}
    for op in lowered:
        if isinstance(op, a.ThreadCopies | a.TmaLoad):
            copies.setdefault(op.shared, []).append(op)
    loads: dict[tuple[str, str], list[tile.Load]] = {}
    for op in program:
        if isinstance(op, tile.Load):
            loads.setdefault((tensor_name(op), line_of(op)), []).append(op)
    sizes: dict[SSAValue, int] = {}
    for op in lowered:
        if isinstance(op, t.SharedRead) and op.shared in copies:
            if op.shared not in sizes:
                sizes[op.shared] = _landed(copies[op.shared], loads)
            _read(op, copies[op.shared], sizes[op.shared])
    return len(sizes)


def _landed(copies: Sequence[_Copy], loads: Mapping[tuple[str, str], Sequence[tile.Load]]) -> int:
    """The number of elements of the load that all ``copies`` bring."""
    wrong = CopyMismatchError(f"{place_of(copies[0])}: the program loads no such tile")
    first_copy = copies[0]
    name = tensor_of(first_copy) if isinstance(first_copy, a.TmaLoad) else name_of(first_copy.tensor)
    for source in loads.get((name, place_of(first_copy)), ()):
        try:
            first, *_ = [_box(op, source) if isinstance(op, a.TmaLoad) else _elements(op, source) for op in copies]
            return first
        except CopyMismatchError as error:
            wrong = error
    raise wrong


def _box(op: a.TmaLoad, source: tile.Load) -> int:
    """Checks that one box is the whole load."""
    where = f"tensor copy of {tensor_of(op)} at {place_of(op)}"
    declared = op.map.owner
    assert isinstance(declared, a.TensorMap)
    numbers, own = declared.numbers, coords_of(source)
    spans = [(axis, c) for axis, c in enumerate(own) if isinstance(c, Span)]
    if len(spans) != 1 or numbers.swizzle is not Swizzle.NONE or op.ctas.data:
        raise CopyMismatchError(f"{where}: not one vector of this CTA's own")
    ((along, span),) = spans
    dims = tile.tensor_type(source.tensor).dims.data
    if not ends_with_tensor(span, dims[along].expr):
        raise CopyMismatchError(f"{where}: elements from {span.stop} on are no zeros")
    missing = set(range(len(own))) - set(numbers.axes)
    if numbers.axes[0] != along or any(own[axis] != Const(0) or dims[axis].expr != Const(1) for axis in missing):
        raise CopyMismatchError(f"{where}: axes {numbers.axes}, of which {along} should be the first")
    for axis, extent, coord in zip(numbers.axes, numbers.box, op.coords, strict=True):
        first = span.origin if axis == along else own[axis]
        assert not isinstance(first, Span)
        if coord.expr != first or extent != (span.size if axis == along else 1):
            raise CopyMismatchError(f"{where}: {extent} from {coord.expr} along axis {axis}")
    unit = t.shared_of(op.shared).dtype.dtype.bytes
    if op.box_bytes.data != span.size * unit:
        raise CopyMismatchError(f"{where}: {op.box_bytes.data} bytes of {span.size} elements")
    return span.size


def _elements(op: a.ThreadCopies, source: tile.Load) -> int:
    where = f"copies of {name_of(op.tensor)} at {place_of(op)}"
    spans = [c for c in coords_of(source) if isinstance(c, Span)]
    size = spans[0].size if spans else 1
    if len(spans) > 1 or not _domain(op, source, single=not spans):
        raise CopyMismatchError(f"{where}: what is zero is not what lies outside of the domain")
    thread, copy = np.meshgrid(np.arange(a.WARPGROUP_THREADS), np.arange(op.count.data), indexing="ij")
    at = {t.THREAD: thread.ravel(), t.REGISTER: copy.ravel()}
    made = values_at(op.active.expr, at).astype(np.bool_)
    inside, unit = op.offset.expr - op.base.expr, op.copy_bytes // op.vector.data
    steps = np.arange(op.vector.data)
    known = {t.THREAD, t.REGISTER}
    if not inside.symbols <= known:
        raise CopyMismatchError(f"{where}: bytes by more than the thread")
    bytes_ = values_at(inside, at)[made][:, None] + steps * unit
    if sorted(bytes_.ravel()) != list(range(0, size * unit, unit)) or op.bytes.data != size * unit:
        raise CopyMismatchError(f"{where}: not each of {size} elements once")
    for axis, (coord, own) in enumerate(zip(op.coords, coords_of(source), strict=True)):
        offset = coord.expr - (own.origin if isinstance(own, Span) else own)
        if not offset.symbols <= known:
            raise CopyMismatchError(f"{where}: coordinate {coord.expr}, not {own}")
        place = values_at(offset, at)[made][:, None] + (steps if axis == op.axis.data else 0 * steps)
        if (place != (bytes_ // unit if isinstance(own, Span) else 0)).any():
            raise CopyMismatchError(f"{where}: an element of axis {axis} lies where another should")
    return size


def _domain(op: a.ThreadCopies, source: tile.Load, *, single: bool) -> bool:
    if not single:
        return zeros_outside(op, source, {})
    return op.stop.expr - op.coords.data[op.axis.data].expr == Const(1) and op.guard.expr == Const(1)


def _read(op: t.SharedRead, copies: Sequence[_Copy], size: int) -> None:
    """Checks that a read begins where the copies do, and stays inside."""
    begin = op.offset.expr.substitute({t.THREAD: Const(0), t.REGISTER: Const(0)})
    inside, unit = op.offset.expr - begin, t.shared_of(op.shared).dtype.dtype.bytes
    role = a.role_of(op)
    if role is None or not inside.symbols <= {t.THREAD, t.REGISTER}:
        raise CopyMismatchError(f"read at {place_of(op)}: elements by more than the thread")
    registers = range(0, t.registers_of(op.buffer).count.data, op.vector.data)
    thread, register = np.meshgrid(np.arange(role.threads.data), np.array(registers), indexing="ij")
    elements = values_at(inside, {t.THREAD: thread.ravel(), t.REGISTER: register.ravel()})
    if elements.min() < 0 or elements.max() + op.vector.data > size:
        raise CopyMismatchError(f"read at {place_of(op)}: element {elements.max()} of {size}")
    for copy in copies:
        base = copy.offset.expr if isinstance(copy, a.TmaLoad) else copy.base.expr
        if base != begin * unit:
            raise CopyMismatchError(f"read at {place_of(op)}: from byte {begin * unit}, not {base}")
