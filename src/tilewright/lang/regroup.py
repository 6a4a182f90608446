"""Tiles in other axes: the same elements in row-major order, with axes split, merged, or taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NoReturn, TypeAlias

from tilewright.base.dtypes import i8, i32
from tilewright.diag import shown
from tilewright.lang import arithmetic
from tilewright.lang.axes import Axis, Span, show_axes, whole
from tilewright.lang.enums import BinaryFn, CompareFn, ReduceFn, identity
from tilewright.lang.recorder import Node, Recorder
from tilewright.lang.source_locations import refuse

Group: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Axes of the operand and axes of the result that hold the same elements, however the others are."""


def regrouped(before: Sequence[int], after: Sequence[int]) -> list[Group]:
    """The smallest groups of neighbouring axes whose extents have the same product on both sides."""
    groups: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        first, start = i, j
        left = right = 1
        if i < len(before):
            left, i = before[i], i + 1
        if j < len(after):
            right, j = after[j], j + 1
        while left != right:
            if left < right:
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        groups.append((tuple(range(first, i)), tuple(range(start, j))))
    return groups


def reshape(rec: Recorder, x: Node, shape: Sequence[int | Span]) -> Node:
    """The elements of ``x`` in row-major order along axes of other extents, one of which may be -1. A Span names the
    range that an axis runs along; an axis whose elements stay together keeps the one it has."""
    before = [axis.size for axis in x.axes]
    after = _extents(x, shape)
    axes: list[Axis] = [s if isinstance(s, Span) else whole(n) for s, n in zip(shape, after, strict=True)]
    for sources, targets in regrouped(before, after):
        _check_inner(x, after, [before[d] for d in sources[1:]], [after[d] for d in targets[1:]])
        pairs = [[d for d in found if n[d] != 1] for found, n in ((sources, before), (targets, after))]
        if len(pairs[0]) == len(pairs[1]) == 1 or (len(sources) == len(targets) == 1):
            source, target = (p[0] if p else found[0] for p, found in zip(pairs, (sources, targets), strict=True))
            if not isinstance(shape[target], Span):
                axes[target] = x.axes[source]
    return x if tuple(axes) == x.axes else rec.reshape(x, tuple(axes))


def _extents(x: Node, shape: Sequence[int | Span]) -> list[int]:
    """The requested extents, with -1 replaced (LNG043)."""
    total = prod(axis.size for axis in x.axes)
    sizes = [s.size if isinstance(s, Span) else s for s in shape]
    open_ = [d for d, n in enumerate(sizes) if n == -1]
    known = prod(n for n in sizes if n != -1)
    if len(open_) > 1 or any(n < 1 and n != -1 for n in sizes):
        _refuse(x, sizes, "extents of at least 1, of which one may be -1")
    if open_ and total % known == 0:
        sizes[open_[0]] = total // known
    if prod(sizes) != total or -1 in sizes:
        _refuse(x, sizes, f"as many elements as the tile has: {total}")
    return sizes


def _check_inner(x: Node, after: Sequence[int], *inner: Sequence[int]) -> None:
    """Refuses (LNG043) axes that cannot be divided between threads and registers, because their extents are not powers
    of 2."""
    for extent in (n for sizes in inner for n in sizes):
        if extent & (extent - 1):
            _refuse(x, after, f"powers of 2 behind the first of the axes that are split or merged, not {extent}")


def _refuse(x: Node, sizes: Sequence[int], required: str) -> NoReturn:
    refuse(
        "LNG043",
        found=f"a tile of {' x '.join(str(a.size) for a in x.axes) or '1 element'}, axes {show_axes(x.axes)}, "
        f"as {' x '.join(map(str, sizes)) or '1 element'}",
        required=required,
        help="x[m, n].reshape(m, -1, 32) splits an axis in 32s, .reshape(m, n) gives it back its Range; extents that "
        "are known at launch only are split by the tensor's view: x.reshape(M, N // 32, 32)[m, g, :]",
    )


def split(rec: Recorder, x: Node, sections: int, axis: int) -> list[Node]:
    """The parts of ``x`` along an axis, of equal extents."""
    extent = x.axes[axis].size
    if not isinstance(sections, int) or sections < 1 or extent % sections:  # pyright: ignore[reportUnnecessaryIsInstance]
        refuse(
            "LNG043",
            found=f"{extent} elements along axis {axis} in {shown(sections)} parts",
            required="parts of equal extents",
            help="split(2, axis=1) gives two halves; load parts of other extents: x[m, :24], x[m, 24:]",
        )
    if sections == 1:
        return [x]
    shape = [a if isinstance(a, Span) else a.size for a in x.axes]
    parts = _parted(rec, x, shape, axis, [sections, extent // sections])
    return [part(rec, parts, axis, place) for place in range(sections)]


def part(rec: Recorder, x: Node, axis: int, place: int) -> Node:
    """The elements at one place of an axis."""
    along = x.axes[axis]
    assert isinstance(along, Span)
    here = arithmetic.compare(rec, CompareFn.EQ, rec.index(along), place)
    return _picked(rec, x, axis, rec.expand(here, [d for d in range(len(x.axes)) if d != axis]))


def sliced(rec: Recorder, x: Node, axis: int, places: range) -> Node:
    """The elements at ``places`` of an axis, along one of as many. Equal parts, and every n-th element, are parts of
    the axis; others are compared with all places."""
    size, count, step = x.axes[axis].size, len(places), places.step
    if count == 1:
        return rec.expand(part(rec, x, axis, places[0]), [axis])
    shape = [a if isinstance(a, Span) else a.size for a in x.axes]
    if step == 1 and _divides(count, size) and places.start % count == 0:
        return part(rec, _parted(rec, x, shape, axis, [size // count, count]), axis, places.start // count)
    if _divides(step, size) and count * step == size:
        return part(rec, _parted(rec, x, shape, axis, [count, step]), axis + 1, places.start)
    along, new, rank = x.axes[axis], whole(count), len(x.axes) + 1
    assert isinstance(along, Span)
    assert isinstance(new, Span)
    wanted = arithmetic.binary(rec, BinaryFn.MUL, rec.index(new), step)
    wanted = arithmetic.binary(rec, BinaryFn.ADD, wanted, places.start)
    columns = (
        rec.expand(t, [d for d in range(rank) if d != at]) for t, at in ((rec.index(along), axis), (wanted, axis + 1))
    )
    match = arithmetic.compare(rec, CompareFn.EQ, *columns)
    return _picked(rec, rec.expand(x, [axis + 1]), axis, match)


def _divides(part: int, size: int) -> bool:
    """Whether an axis is split in parts of so many elements."""
    return part > 1 and part & (part - 1) == 0 and size % part == 0


def _parted(rec: Recorder, x: Node, shape: Sequence[int | Span], axis: int, parts: Sequence[int]) -> Node:
    return reshape(rec, x, [*shape[:axis], *parts, *shape[axis + 1 :]])


def _picked(rec: Recorder, x: Node, axis: int, match: Node) -> Node:
    """The element along an axis that matches: a reduction that takes no other into account."""
    bits = x.dtype.is_float and x.dtype.bits == 8  # -inf is not among them
    held = arithmetic.bitcast(rec, x, i8) if bits else arithmetic.cast(rec, x, i32) if x.dtype.is_bool else x
    least = arithmetic.convert(rec, identity(ReduceFn.MAX, held.dtype), held.dtype)
    chosen = rec.select(*arithmetic.align(rec, [match, held.known_by(None), least]))
    found = arithmetic.reduce(rec, ReduceFn.MAX, chosen, [axis], keepdims=False)
    found = arithmetic.bitcast(rec, found, x.dtype) if bits else arithmetic.cast(rec, found, x.dtype)
    if x.presence is None:
        return found
    both = arithmetic.binary(rec, BinaryFn.AND, *arithmetic.align(rec, [rec.present(x), match]))
    there = arithmetic.reduce(rec, ReduceFn.MAX, arithmetic.cast(rec, both, i32), [axis], keepdims=False)
    return rec.present_where(found, arithmetic.compare(rec, CompareFn.NE, there, 0))
