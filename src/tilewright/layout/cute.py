"""CuTe layouts: nested shape:stride, the map of a coordinate to the sum of its digits times their strides.

Strides are non-negative integers or symbols; extents positive integers or symbols. Results are exact or refused: where
an operation's definition can't be met by nested strides, it says which condition fails. Definitions: CuTe layout
algebra (CUTLASS, media/docs/cpp/cute/02_layout_algebra.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, cast

from tilewright.base.expr import Expr
from tilewright.diag import fail
from tilewright.layout.checks import extent, integer
from tilewright.layout.cute_text import parse_tuple
from tilewright.layout.int_tuple import (
    Coordinate,
    IntTuple,
    Leaf,
    congruent,
    crd2idx,
    flat_coordinates,
    leaves,
    prefix_product,
    product,
    text,
)

Modes: TypeAlias = list[tuple[int, Leaf]]
"""Flat modes as (extent, stride)."""

MOST_LISTED = 1 << 22
"""Offsets in the longest table: half a second and 200 MB."""


@dataclass(frozen=True, repr=False)
class CuteLayout:
    """``shape:stride``. Without ``stride`` the compact one, first mode fastest."""

    shape: IntTuple
    stride: IntTuple = ()

    def __init__(self, shape: IntTuple, stride: IntTuple | None = None) -> None:
        # the dataclass is immutable to everyone else; strides have a default that depends on the shape
        object.__setattr__(self, "shape", _checked(shape, extents=True))
        if stride is None:
            stride = prefix_product(self.shape)
        object.__setattr__(self, "stride", _checked(stride, extents=False))
        if not congruent(self.shape, self.stride):
            fail(
                "LAY002",
                title="shape and stride are nested differently",
                found=f"{text(self.shape)}:{text(self.stride)}",
                required="one stride per extent, in the same nesting",
                help="give every extent its stride",
            )

    @staticmethod
    def parse(source: str) -> CuteLayout:
        """Read ``(8,(2,4)):(8,(1,2))``; symbols are allowed, the stride may be left out (LAY013)."""
        shape, colon, stride = source.partition(":")
        return CuteLayout(parse_tuple(shape, source), parse_tuple(stride, source) if colon else None)

    @staticmethod
    def of(modes: Iterable[CuteLayout]) -> CuteLayout:
        """Layouts side by side, each one a mode."""
        parts = list(modes)
        return trusted(tuple(p.shape for p in parts), tuple(p.stride for p in parts))

    # -- queries --------------------------------------------------------------------------------------------------
    @property
    def modes(self) -> tuple[CuteLayout, ...]:
        """Top-level modes; a layout of a single integer has one."""
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return tuple(map(trusted, self.shape, self.stride))
        return (self,)

    def __getitem__(self, mode: int) -> CuteLayout:
        return self.modes[mode]

    @property
    def rank(self) -> int:
        """Number of top-level modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def is_static(self) -> bool:
        """All extents and strides are numbers."""
        return all(isinstance(x, int) for x in (*leaves(self.shape), *leaves(self.stride)))

    @property
    def size(self) -> Leaf:
        """Number of coordinates."""
        return product(self.shape)

    @property
    def cosize(self) -> Leaf:
        """One more than the largest offset."""
        last: Leaf = 1
        for s, d in zip(leaves(self.shape), leaves(self.stride), strict=True):
            last = last + (s - 1) * d
        return last

    @property
    def flat(self) -> list[tuple[Leaf, Leaf]]:
        """Leaves as (extent, stride)."""
        if isinstance(self.shape, int) and isinstance(self.stride, int):
            return [(self.shape, self.stride)]
        return list(zip(leaves(self.shape), leaves(self.stride), strict=True))

    def __call__(self, *coordinate: Coordinate) -> Leaf:
        """The offset of an index, or of one coordinate per mode (LAY002, LAY005); an expression for symbols."""
        return crd2idx(coordinate[0] if len(coordinate) == 1 else coordinate, self.shape, self.stride)

    def substitute(self, values: Mapping[str, int]) -> CuteLayout:
        """The layout for some values of its symbols (LAY001 where an extent is then no positive integer)."""
        return CuteLayout(_substituted(self.shape, values), _substituted(self.stride, values))

    def offsets(self) -> list[int]:
        """All offsets in index order (static layouts): the table that defines the layout (LAY029 for a huge one)."""
        if static_size(self) > MOST_LISTED:
            fail(
                "LAY029",
                found=f"{self}, {self.size} offsets",
                required=f"at most {MOST_LISTED}",
                help="ask for the offsets of a tile of it, or call the layout with single indices",
            )
        table = [0]
        for s, d in static_modes(self, "offsets"):
            step = static_stride(d, "offsets")
            table = [base + k * step for k in range(s) for base in table]
        return table

    def slice(self, coordinate: Coordinate) -> tuple[CuteLayout, Leaf]:
        """Fix the modes that have a coordinate, keep those that are ``None``: the layout left and its offset."""
        shape: list[IntTuple] = []
        stride: list[IntTuple] = []
        offset = _slice(coordinate, self.shape, self.stride, shape, stride)
        return CuteLayout(tuple(shape), tuple(stride)), offset

    @property
    def is_injective(self) -> bool:
        """No two coordinates share an offset. Decided by strides where digits are ordered, else by the table."""
        reach = 1
        for d, s in sorted((static_stride(d, "injective"), s) for s, d in static_modes(self, "injective") if s > 1):
            if d < reach:
                table = self.offsets()
                return len(set(table)) == len(table)
            reach = d * (s - 1) + reach
        return True

    def __str__(self) -> str:
        return f"{text(self.shape)}:{text(self.stride)}"

    def __repr__(self) -> str:
        return f"CuteLayout({self})"


# -- simplification -------------------------------------------------------------------------------------------------


def flatten(layout: CuteLayout) -> CuteLayout:
    """The same leaves without nesting."""
    if not isinstance(layout.shape, tuple):
        return layout
    return CuteLayout(tuple(leaves(layout.shape)), tuple(leaves(layout.stride)))


def coalesce(layout: CuteLayout, profile: IntTuple | None = None) -> CuteLayout:
    """The shortest flat layout with the same offset at every index; with ``profile``, each of its modes by itself."""
    if isinstance(profile, tuple):
        modes = list(layout.modes)
        if len(profile) > len(modes):
            fail(
                "LAY002",
                title="the profile has more modes than the layout",
                found=text(profile),
                required=f"at most {len(modes)} modes",
                help="coalesce by a profile of the layout's rank",
            )
        modes[: len(profile)] = [coalesce(m, p) for m, p in zip(modes, profile, strict=False)]
        return CuteLayout.of(modes)
    return from_modes(merge(layout.flat))


def merge(modes: Iterable[tuple[Leaf, Leaf]]) -> list[tuple[Leaf, Leaf]]:
    """Drop modes of extent 1 and join a mode with the next where the next continues it."""
    result: list[tuple[Leaf, Leaf]] = []
    for s, d in modes:
        if s == 1:
            continue
        if result and result[-1][0] * result[-1][1] == d:
            result[-1] = (result[-1][0] * s, result[-1][1])
        else:
            result.append((s, d))
    return result


# -- helpers --------------------------------------------------------------------------------------------------------


def static_modes(layout: CuteLayout, operation: str) -> Modes:
    """Flat modes with integer extents (LAY010 for symbolic ones)."""
    modes = layout.flat
    for s, _ in modes:
        if not isinstance(s, int):
            symbolic(operation, layout)
    return cast(Modes, modes)


def static_stride(stride: Leaf, operation: str) -> int:
    """An integer stride (LAY010 for a symbolic one)."""
    if not isinstance(stride, int):
        symbolic(operation, stride)
    return stride


def static_size(layout: CuteLayout) -> int:
    """The number of coordinates as an int (LAY010 when symbolic)."""
    size = layout.size
    if not isinstance(size, int):
        symbolic("size", layout)
    return size


def symbolic(operation: str, what: CuteLayout | Leaf) -> NoReturn:
    """Refuse an operation on symbols that it can't decide about (LAY010)."""
    fail(
        "LAY010",
        title=f"{operation} needs numbers where the layout has symbols",
        found=str(what),
        required="integer extents and strides",
        help="substitute the symbols, or keep symbolic modes out of the operation",
    )


def from_modes(modes: Sequence[tuple[Leaf, Leaf]]) -> CuteLayout:
    """A flat layout of modes; 1:0 when there are none."""
    if not modes:
        return trusted(1, 0)
    if len(modes) == 1:
        return trusted(*modes[0])
    return trusted(tuple([s for s, _ in modes]), tuple([d for _, d in modes]))


def trusted(shape: IntTuple, stride: IntTuple) -> CuteLayout:
    """A layout from parts of layouts, which were checked when those were made."""
    layout = object.__new__(CuteLayout)
    object.__setattr__(layout, "shape", shape)
    object.__setattr__(layout, "stride", stride)
    return layout


def _checked(value: IntTuple, extents: bool) -> IntTuple:
    if isinstance(value, tuple):
        for part in value:
            if type(part) is not int or part < extents:
                return tuple(_checked(part, extents) for part in value)
        return value
    if type(value) is int:
        if value >= extents:
            return value
        if extents:
            return extent(value)
        fail(
            "LAY001",
            title="a stride is negative",
            found=str(value),
            required="stride >= 0",
            help="flips are affine layouts; reverse the coordinate instead",
        )
    if isinstance(value, Expr):
        known = value.constant
        return value if known is None else _checked(known, extents)
    return extent(value) if extents else integer(value, "stride")


def _substituted(value: IntTuple, values: Mapping[str, int]) -> IntTuple:
    if isinstance(value, tuple):
        return tuple(_substituted(part, values) for part in value)
    return value.substitute(values) if isinstance(value, Expr) else value


def _slice(
    coordinate: Coordinate, shape: IntTuple, stride: IntTuple, shapes: list[IntTuple], strides: list[IntTuple]
) -> Leaf:
    if coordinate is None:
        shapes.append(shape)
        strides.append(stride)
        return 0
    if isinstance(coordinate, tuple) and isinstance(shape, tuple) and isinstance(stride, tuple):
        if len(coordinate) != len(shape):
            flat_coordinates(coordinate, shape)  # refuses
        offset: Leaf = 0
        for c, s, d in zip(coordinate, shape, stride, strict=True):
            if _has_open(c) and isinstance(c, tuple):
                inner_shape: list[IntTuple] = []
                inner_stride: list[IntTuple] = []
                offset = offset + _slice(c, s, d, inner_shape, inner_stride)
                shapes.append(tuple(inner_shape))
                strides.append(tuple(inner_stride))
            else:
                offset = offset + _slice(c, s, d, shapes, strides)
        return offset
    return crd2idx(coordinate, shape, stride)


def _has_open(coordinate: Coordinate) -> bool:
    if isinstance(coordinate, tuple):
        return any(map(_has_open, coordinate))
    return coordinate is None
