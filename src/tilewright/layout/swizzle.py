"""Swizzles and composed layouts.

``Swizzle<B,M,S>`` xors bits [M+S, M+S+B) of an offset onto bits [M, M+B) (S > 0; for S < 0 the other way), so it is its
own inverse. A composed layout is ``c -> outer(offset + inner(c))``, what remains when a swizzle can't be pushed into
strides. Definitions: CuTe swizzle.hpp, layout_composed.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from tilewright.base.expr import Expr, expr
from tilewright.diag import fail
from tilewright.layout.checks import integer
from tilewright.layout.cute import CuteLayout, static_modes, static_stride, symbolic
from tilewright.layout.cute_algebra import composition, right_inverse
from tilewright.layout.int_tuple import Coordinate, Leaf

_MAX_BITS = 128
"""Of an offset that a swizzle looks at; addresses have 64."""


@dataclass(frozen=True)
class Swizzle:
    """``x ^ ((x >> S) & mask)`` with B mask bits above M (LAY011 unless B, M >= 0, |S| >= B and all are small)."""

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for name in ("bits", "base", "shift"):
            integer(getattr(self, name), f"swizzle {name}")
        reach = self.base + abs(self.shift) + self.bits
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits or reach > _MAX_BITS:
            fail(
                "LAY011",
                found=str(self),
                required=f"B >= 0, M >= 0, |S| >= B and M + |S| + B <= {_MAX_BITS}",
                help="exchange no more bits than lie between source and target",
            )

    @property
    def source_mask(self) -> int:
        """Bits that are read."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def period(self) -> int:
        """Offsets after which the pattern repeats: a tile of a multiple of it is permuted within itself."""
        return 1 << (self.base + abs(self.shift) + self.bits) if self.bits else 1

    def __call__(self, offset: int) -> int:
        """The swizzled offset."""
        moved = offset & self.source_mask
        return offset ^ (moved >> self.shift if self.shift >= 0 else moved << -self.shift)

    def apply(self, offset: Leaf) -> Leaf:
        """The swizzled offset of a number or an expression."""
        if isinstance(offset, int):
            return self(offset)
        low = self.base + max(0, self.shift)
        field = (offset // (1 << low)) % (1 << self.bits) * (1 << (self.base - min(0, self.shift)))
        return expr(offset) ^ field

    def recast(self, old_bits: int, new_bits: int) -> Swizzle:
        """The same exchange of bits counted in elements of another width (LAY016 when it moves parts of an element)."""
        base = self.base
        while old_bits > new_bits:
            old_bits //= 2
            base += 1
        while old_bits < new_bits:
            old_bits *= 2
            base -= 1
        if old_bits != new_bits or (base < 0 and self.bits):
            fail(
                "LAY016",
                title="the swizzle cannot be recast to the element size",
                found=f"{self} to {new_bits} bits",
                required="element widths a power of two apart, no part of an element moved",
                help="choose a swizzle with a larger base M",
            )
        return Swizzle(self.bits, max(base, 0), self.shift)

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True)
class ComposedLayout:
    """``c -> outer(offset + inner(c))``. One of the two is usually a ``Swizzle``."""

    outer: Swizzle | CuteLayout
    offset: int
    inner: CuteLayout | Swizzle

    @property
    def layout(self) -> CuteLayout:
        """The inner layout, which has the shape (LAY010 when the inner part is a swizzle: its domain is unbounded)."""
        if isinstance(self.inner, Swizzle):
            fail(
                "LAY010",
                title="the layout's domain is not a shape",
                found=str(self),
                required="a layout as the inner part",
                help="compose with a layout to give it a shape",
            )
        return self.inner

    @property
    def size(self) -> Leaf:
        """Number of coordinates."""
        return self.layout.size

    def __call__(self, *coordinate: Coordinate) -> Leaf:
        """The offset of a coordinate."""
        if isinstance(self.inner, Swizzle):
            index = coordinate[0]
            assert isinstance(index, int | Expr), "a swizzle's coordinate is an offset"
            middle = self.offset + self.inner.apply(index)
        else:
            middle = self.offset + self.inner(*coordinate)
        return self.outer.apply(middle) if isinstance(self.outer, Swizzle) else self.outer(middle)

    def with_inner(self, operation: Callable[[CuteLayout], CuteLayout]) -> ComposedLayout:
        """The same swizzle over ``operation(inner)``: divides, slices, groupings of a swizzled tile act on its inner
        layout, since ``(s o a) o b == s o (a o b)``."""
        return ComposedLayout(self.outer, self.offset, operation(self.layout))

    def offsets(self) -> list[int]:
        """All offsets in index order (static layouts)."""
        outer = self.outer
        if isinstance(outer, Swizzle):
            return [outer(self.offset + x) for x in self.layout.offsets()]
        table = [outer(self.offset + x) for x in self.layout.offsets()]
        return [x if isinstance(x, int) else symbolic("offsets", outer) for x in table]

    @property
    def cosize(self) -> int:
        """One past the largest offset."""
        return 1 + max(self.offsets())

    @property
    def is_injective(self) -> bool:
        """No two coordinates share an offset: a swizzle is a bijection, so its inner layout decides."""
        if isinstance(self.outer, Swizzle):
            return self.layout.is_injective
        table = self.offsets()
        return len(set(table)) == len(table)

    def __str__(self) -> str:
        return f"{self.outer} o {self.offset} o {self.inner}"


AnyLayout: TypeAlias = CuteLayout | ComposedLayout


def swizzled(swizzle: Swizzle, layout: CuteLayout, *, size: int | None = None) -> ComposedLayout:
    """``swizzle o layout`` over a tile of ``size`` offsets (the layout's cosize), which it must permute (LAY012)."""
    cosize = layout.cosize if size is None else size
    if not isinstance(cosize, int):
        symbolic("swizzled", layout)
    if cosize % swizzle.period:
        fail(
            "LAY012",
            found=f"{swizzle} over {cosize} offsets",
            required=f"a multiple of {swizzle.period}",
            source="CuTe swizzle.hpp; PTX ISA, tensor swizzling modes",
            help=f"extend the tile to {-(-cosize // swizzle.period) * swizzle.period} offsets, or exchange fewer bits",
        )
    return ComposedLayout(swizzle, 0, layout)


def compose(
    outer: Swizzle | AnyLayout, inner: AnyLayout | Swizzle, *, extrapolate: bool = False
) -> CuteLayout | ComposedLayout | Swizzle:
    """``outer o inner``, pushed into strides where they can hold it (LAY010 where two swizzles would be left).

    A swizzle stays outermost; a composed outer layout composes its inner part; a layout over a swizzle is moved below
    it where its bits allow (``passed``); two swizzles that meet become one where one suffices (``joined``).
    """
    match outer, inner:
        case CuteLayout(), CuteLayout():
            return composition(outer, inner, extrapolate=extrapolate)
        case Swizzle(), CuteLayout():
            return ComposedLayout(outer, 0, inner)
        case Swizzle(), Swizzle():
            one = joined(outer, inner)
            return ComposedLayout(outer, 0, inner) if one is None else one
        case CuteLayout(), Swizzle():
            return ComposedLayout(outer, 0, inner)
        case ComposedLayout(outer=Swizzle() as first, offset=offset, inner=CuteLayout() as rest), CuteLayout():
            return ComposedLayout(first, offset, composition(rest, inner, extrapolate=extrapolate))
        case ComposedLayout(outer=CuteLayout() as first, offset=0, inner=Swizzle() as second), CuteLayout():
            return compose(first, ComposedLayout(second, 0, inner))
        case CuteLayout(), ComposedLayout(outer=Swizzle() as second, offset=0, inner=CuteLayout() as rest):
            moved = passed(outer, second)
            return _unjoined(outer, inner) if moved is None else ComposedLayout(moved, 0, composition(outer, rest))
        case (
            ComposedLayout(outer=Swizzle() as first, offset=0, inner=CuteLayout() as rest),
            ComposedLayout(outer=Swizzle(), offset=0, inner=CuteLayout()),
        ):
            return compose(first, compose(rest, inner))
        case Swizzle(), ComposedLayout(outer=Swizzle() as second, offset=offset, inner=rest):
            one = joined(outer, second)
            if one is None:
                return _unjoined(outer, inner)
            return rest if one.bits == 0 and offset == 0 else ComposedLayout(one, offset, rest)
        case _:
            return _unjoined(outer, inner)


def _unjoined(outer: object, inner: object) -> NoReturn:
    fail(
        "LAY010",
        title="the composition leaves a swizzle between two layouts",
        found=f"{outer} o ({inner})",
        required="at most one swizzle, outermost or innermost",
        help="convert both to F2 layouts and compose those",
    )


def joined(first: Swizzle, second: Swizzle) -> Swizzle | None:
    """The one swizzle ``x -> first(second(x))``, if there is one.

    Where no source of one is a target of the other, both are xors of fixed bits and the pairs that both have cancel.
    """
    pairs = _pairs(first) ^ _pairs(second)
    targets, sources = ({p[i] for p in _pairs(first) | _pairs(second)} for i in (0, 1))
    return None if targets & sources else _swizzle(sorted(pairs))


def passed(layout: CuteLayout, swizzle: Swizzle) -> Swizzle | None:
    """The ``s`` with ``layout(swizzle(x)) == s(layout(x))`` for every x of the layout; None if there is none.

    The layout must move bits as bits (extents powers of two, strides that don't carry) and hold whole periods; then s
    exchanges what the bits of ``swizzle`` became, if these lie side by side at one distance.
    """
    columns: list[int] = []
    for s, d in static_modes(layout, "compose"):
        step = static_stride(d, "compose")
        if s & (s - 1):
            return None
        columns += [step << i for i in range(s.bit_length() - 1)]
    used = 0
    for column in columns:
        if column & used:
            return None
        used |= column
    if swizzle.period > 1 << len(columns):
        return None
    pairs = sorted(_pairs(swizzle))
    if any(columns[target].bit_count() != 1 or not columns[source] for target, source in pairs):
        return None
    moved = [(columns[target].bit_length() - 1, columns[source]) for target, source in pairs]
    for distance in range(-used.bit_length(), used.bit_length() + 1):
        if all(target + distance >= 0 and source >> (target + distance) & 1 for target, source in moved):
            return _swizzle(sorted((target, target + distance) for target, _ in moved))
    return None


def _pairs(swizzle: Swizzle) -> set[tuple[int, int]]:
    """(target bit, source bit) of every exclusive or."""
    low = swizzle.base - min(0, swizzle.shift)
    return {(low + i, low + i + swizzle.shift) for i in range(swizzle.bits)}


def _swizzle(pairs: Sequence[tuple[int, int]]) -> Swizzle | None:
    """The swizzle of sorted pairs, if they are consecutive bits at one distance."""
    if not pairs:
        return Swizzle(0, 0, 0)
    (target, source), bits = pairs[0], len(pairs)
    shift = source - target
    if abs(shift) < bits or any(pair != (target + i, source + i) for i, pair in enumerate(pairs)):
        return None
    return Swizzle(bits, min(target, source), shift)


def right_inverse_of(layout: AnyLayout | Swizzle) -> CuteLayout | ComposedLayout | Swizzle:
    """``r`` with ``layout(r(i)) == i``: a swizzle is its own, a swizzled layout's is its parts' in reverse."""
    match layout:
        case Swizzle():
            return layout
        case CuteLayout():
            return right_inverse(layout)
        case ComposedLayout(outer=Swizzle() as swizzle, offset=0, inner=CuteLayout() as inner):
            return ComposedLayout(right_inverse(inner), 0, swizzle)
        case _:
            return fail(
                "LAY008",
                title="the composed layout is not inverted",
                found=str(layout),
                required="swizzle o 0 o layout",
                help="invert its parts, or convert it to an F2 layout",
            )
