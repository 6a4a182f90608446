"""Equality of layouts, and conversion between the F2 form and nested strides.

A layout here is a map from a coordinate index to an offset. ``equal`` decides by the strongest form that both sides
have: F2 (bit columns), strides (coalesced modes), else the table; the answer names the method, or a coordinate at which
they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tilewright.diag import TilewrightError, fail
from tilewright.layout import gf2_vectors
from tilewright.layout.cute import CuteLayout, coalesce, merge, static_modes, static_stride
from tilewright.layout.f2 import F2Layout
from tilewright.layout.int_tuple import IntTuple, idx2crd, leaves
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle

Layout: TypeAlias = CuteLayout | ComposedLayout | F2Layout


class ProofKind(Enum):
    """How equality was decided."""

    F2 = "f2"
    STRIDES = "strides"
    SMITH = "smith"
    ISL = "isl"
    ENUMERATED = "enumerated"


@dataclass(frozen=True)
class Equal:
    """The layouts have the same offset at every index."""

    proof: ProofKind


@dataclass(frozen=True)
class Different:
    """At ``index`` (``coordinate`` in the shape of the first layout) the offsets are ``left`` and ``right``.

    ``index`` is -1 when the layouts have different sizes; ``left`` and ``right`` are then those.
    """

    index: int
    coordinate: IntTuple
    left: int
    right: int


def equal(a: Layout, b: Layout) -> Equal | Different:
    """Whether two layouts have the same offset at every index (LAY010 for symbolic layouts)."""
    sizes = (_size(a), _size(b))
    if sizes[0] != sizes[1]:
        return Different(-1, (), *sizes)
    if isinstance(a, CuteLayout) and isinstance(b, CuteLayout):
        return _equal_strides(a, b)
    left, right = _columns(a), _columns(b)
    if left is not None and right is not None:
        return _equal_columns(a, left, right)
    return _equal_tables(a, b)


def _equal_strides(a: CuteLayout, b: CuteLayout) -> Equal | Different:
    """Coalesced modes are unique: the first differing one gives the coordinate."""
    left, right = merge(static_modes(a, "equal")), merge(static_modes(b, "equal"))
    if left == right:
        return Equal(ProofKind.STRIDES)
    place = 1
    for (s, d), (t, e) in zip(left, right, strict=True) if len(left) == len(right) else zip(left, right, strict=False):
        if (s, d) != (t, e):
            # the shorter run ends first, or both start with different steps
            index = place if d != e else place * min(*_ints(s, t))
            return _difference(a, b, index)
        place *= _ints(s, s)[0]
    return _difference(a, b, place)


def _ints(*values: object) -> tuple[int, ...]:
    assert all(isinstance(v, int) for v in values), "static_modes gives integers"
    return tuple(v for v in values if isinstance(v, int))


def _equal_columns(
    a: Layout, left: tuple[int, tuple[int, ...]], right: tuple[int, tuple[int, ...]]
) -> Equal | Different:
    if left[0] != right[0]:
        return _named(a, 0, left[0], right[0])
    for bit, (x, y) in enumerate(zip(left[1], right[1], strict=True)):
        if x != y:
            return _named(a, 1 << bit, x ^ left[0], y ^ right[0])
    return Equal(ProofKind.F2)


def _equal_tables(a: Layout, b: Layout) -> Equal | Different:
    for index, (x, y) in enumerate(zip(_table(a), _table(b), strict=True)):
        if x != y:
            return _named(a, index, x, y)
    return Equal(ProofKind.ENUMERATED)


def _difference(a: CuteLayout, b: CuteLayout, index: int) -> Different:
    x, y = a(index), b(index)
    assert x != y, "coalesced modes that differ, differ here"
    return _named(a, index, *_ints(x, y))


def _named(a: Layout, index: int, left: int, right: int) -> Different:
    if isinstance(a, F2Layout):
        shape: IntTuple = tuple(1 << n for _, n in a.ins)
    else:
        shape = a.shape if isinstance(a, CuteLayout) else a.layout.shape
    return Different(index, idx2crd(index, shape) if shape else (), left, right)


def _size(layout: Layout) -> int:
    if isinstance(layout, F2Layout):
        return 1 << layout.in_bits
    size = layout.size
    return size if isinstance(size, int) else static_stride(size, "equal")


def _table(layout: Layout) -> list[int]:
    if isinstance(layout, F2Layout):
        return [layout(i) for i in range(1 << layout.in_bits)]
    return layout.offsets()


# -- between the forms ----------------------------------------------------------------------------------------------


def _columns(layout: Layout) -> tuple[int, tuple[int, ...]] | None:
    """Offset of index 0 and xor-columns over index bits; None when the layout is not affine over F2."""
    match layout:
        case F2Layout():
            return 0, layout.columns
        case CuteLayout():
            return _stride_columns(layout)
        case ComposedLayout(outer=CuteSwizzle() as swizzle, offset=offset, inner=CuteLayout() as inner):
            return _shifted(inner, offset, swizzle)
        case _:
            return None


def _shifted(inner: CuteLayout, offset: int, swizzle: CuteSwizzle) -> tuple[int, tuple[int, ...]] | None:
    found = _stride_columns(inner)
    if found is None:
        return None
    used = 0
    for column in found[1]:
        used |= column
    if used & offset:
        return None
    return swizzle(offset), tuple(swizzle(c) for c in found[1])


def _stride_columns(layout: CuteLayout) -> tuple[int, tuple[int, ...]] | None:
    """Sums of strides are xors where no two index bits touch one offset bit."""
    columns: list[int] = []
    used = 0
    for s, d in static_modes(layout, "f2"):
        step = static_stride(d, "f2")
        if s & (s - 1):
            return None
        for i in range(s.bit_length() - 1):
            column = step << i
            if column & used:
                return None
            used |= column
            columns.append(column)
    return 0, tuple(columns)


def f2_of(layout: CuteLayout | ComposedLayout) -> F2Layout:
    """The layout as an F2 layout of one input and one output axis (LAY010 with the reason where it is none)."""
    found = _columns(layout)
    if found is None or found[0]:
        fail(
            "LAY010",
            title="the layout is not linear over F2",
            found=f"{layout}: {_obstacle(layout)}",
            required="extents that are powers of two, offset bits that never carry, no offset",
            help="keep it as nested strides, or as an F2 atom with integer repeats",
        )
    bits = max((c.bit_length() for c in found[1]), default=0)
    return F2Layout((("index", len(found[1])),), (("offset", bits),), found[1])


def _obstacle(layout: CuteLayout | ComposedLayout) -> str:
    inner = layout if isinstance(layout, CuteLayout) else layout.inner
    if isinstance(layout, ComposedLayout) and layout.offset:
        return f"an offset of {layout.offset}"
    if isinstance(inner, CuteLayout):
        for extent in leaves(inner.shape):
            if isinstance(extent, int) and extent & (extent - 1):
                return f"the extent {extent} is not a power of two"
    return "strides whose bits carry"


def cute_of(layout: F2Layout) -> CuteLayout | ComposedLayout:
    """The layout as nested strides, one mode per input axis, with a swizzle in front where one suffices (LAY010 else).

    An index bit that moves several offset bits is no stride; if removing one ``Swizzle<B,M,S>`` leaves single bits (or
    zeros), the layout is that swizzle after strides.
    """
    plain = _strides(layout, layout.columns)
    if plain is not None:
        return plain
    swizzle = _swizzle_of(layout)
    inner = None if swizzle is None else _strides(layout, tuple(swizzle(c) for c in layout.columns))
    if swizzle is None or inner is None:
        fail(
            "LAY010",
            found=f"{layout}: index bits share offset bits",
            required="offset bits of their own for every index bit, after one swizzle",
            help="keep the F2 form",
        )
    return ComposedLayout(swizzle, 0, inner)


def _strides(layout: F2Layout, columns: tuple[int, ...]) -> CuteLayout | None:
    """Nested strides with these columns: consecutive bits become one mode; None if two columns share an offset bit. A
    column, like a stride, may have several bits as long as no two columns overlap."""
    used = 0
    modes: list[CuteLayout] = []
    start = 0
    for _, n in layout.ins:
        row = columns[start : start + n]
        start += n
        for column in row:
            if column & used:
                return None
            used |= column
        modes.append(coalesce(CuteLayout((2,) * n, row)) if n else CuteLayout(1, 0))
    return modes[0] if len(modes) == 1 else CuteLayout.of(modes)


def _swizzle_of(layout: F2Layout) -> CuteSwizzle | None:
    """The swizzle read off the columns of two bits: each has a source and a target bit at one distance."""
    pairs = sorted((min(b), max(b)) for b in (list(gf2_vectors.bits(c)) for c in layout.columns) if len(b) == 2)
    if not pairs:
        return None
    base, distance = pairs[0][0], pairs[0][1] - pairs[0][0]
    if any(pair != (base + i, base + i + distance) for i, pair in enumerate(pairs)) or distance < len(pairs):
        return None
    return CuteSwizzle(len(pairs), base, distance)


# -- vectors --------------------------------------------------------------------------------------------------------


def vector_width(layout: Layout, element_bits: int, alignment_bytes: int, *, limit_bytes: int = 16) -> int:
    """How many elements one access may move: the largest power of two v such that v consecutive indices have v
    consecutive offsets from a multiple of v, with v elements no wider than ``limit_bytes`` and ``alignment_bytes``."""
    run = _run(layout)
    width = 1
    while (
        run % (2 * width) == 0
        and 2 * width * element_bits <= 8 * limit_bytes
        and 2 * width * element_bits <= 8 * alignment_bytes
    ):
        width *= 2
    return width


def _run(layout: Layout) -> int:
    """The largest n such that aligned runs of n indices are n consecutive, n-aligned offsets, up to divisors."""
    found: tuple[int, tuple[int, ...]] | None
    try:
        found = _columns(layout)
    except TilewrightError:
        found = None
    if found is not None:
        start, columns = found
        k = 0
        while k < len(columns) and columns[k] == 1 << k:
            k += 1
        while k and (start | _union(columns[k:])) & ((1 << k) - 1):
            k -= 1
        return 1 << k
    if isinstance(layout, CuteLayout):
        modes = merge(layout.flat)
        if not modes or modes[0][1] != 1 or not isinstance(modes[0][0], int):
            return 1
        run = modes[0][0] & -modes[0][0]
        for _, d in modes[1:]:
            # a symbolic stride promises no alignment
            step = d if isinstance(d, int) else 1
            while run > 1 and step % run:
                run //= 2
        return run
    return _table_run(layout)


def _table_run(layout: Layout) -> int:
    table = _table(layout)
    run = 1
    while len(table) % (2 * run) == 0 and all(
        table[i] % (2 * run) == 0 and table[i : i + 2 * run] == list(range(table[i], table[i] + 2 * run))
        for i in range(0, len(table), 2 * run)
    ):
        run *= 2
    return run


def _union(columns: tuple[int, ...]) -> int:
    used = 0
    for column in columns:
        used |= column
    return used
