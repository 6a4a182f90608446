"""Swizzles and composed layouts.

``Swizzle<B,M,S>`` xors bits [M+S, M+S+B) of an offset onto bits [M, M+B) (S > 0; for S < 0 the other way), so it is its
own inverse. A composed layout is ``c -> outer(offset + inner(c))``, what remains when a swizzle can't be pushed into
strides. Definitions: CuTe swizzle.hpp, layout_composed.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.expr import Expr, expr
from tilewright.diag import fail
from tilewright.layout.checks import integer
from tilewright.layout.cute import CuteLayout, symbolic
from tilewright.layout.int_tuple import Coordinate, Leaf

_MAX_BITS = 128
"""The number of offset bits a swizzle may use; addresses have 64."""


@dataclass(frozen=True)
class CuteSwizzle:
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

    def recast(self, old_bits: int, new_bits: int) -> CuteSwizzle:
        """The same swizzle in units of another width (LAY016 if it would split an element)."""
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
        return CuteSwizzle(self.bits, max(base, 0), self.shift)

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True)
class ComposedLayout:
    """``c -> outer(offset + inner(c))``. One of the two is usually a ``CuteSwizzle``."""

    outer: CuteSwizzle | CuteLayout
    offset: int
    inner: CuteLayout | CuteSwizzle

    @property
    def layout(self) -> CuteLayout:
        """The inner layout, which has the shape (LAY010 when the inner part is a swizzle: its domain is unbounded)."""
        if isinstance(self.inner, CuteSwizzle):
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
        if isinstance(self.inner, CuteSwizzle):
            index = coordinate[0]
            assert isinstance(index, int | Expr), "a swizzle's coordinate is an offset"
            middle = self.offset + self.inner.apply(index)
        else:
            middle = self.offset + self.inner(*coordinate)
        return self.outer.apply(middle) if isinstance(self.outer, CuteSwizzle) else self.outer(middle)

    def offsets(self) -> list[int]:
        """All offsets in index order (static layouts)."""
        outer = self.outer
        if isinstance(outer, CuteSwizzle):
            return [outer(self.offset + x) for x in self.layout.offsets()]
        table = [outer(self.offset + x) for x in self.layout.offsets()]
        return [x if isinstance(x, int) else symbolic("offsets", outer) for x in table]

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + max(self.offsets())

    @property
    def is_injective(self) -> bool:
        """No two coordinates share an offset: a swizzle is a bijection, so its inner layout decides."""
        if isinstance(self.outer, CuteSwizzle):
            return self.layout.is_injective
        table = self.offsets()
        return len(set(table)) == len(table)

    def __str__(self) -> str:
        return f"{self.outer} o {self.offset} o {self.inner}"


AnyLayout: TypeAlias = CuteLayout | ComposedLayout
