"""CuTe layouts: nested shape:stride, the map of a coordinate to the sum of its digits times their strides.

Strides are non-negative integers or symbols; extents positive integers or symbols. Results are exact or refused: where
an operation's definition can't be met by nested strides, it says which condition fails. Definitions: CuTe layout
algebra (CUTLASS, media/docs/cpp/cute/02_layout_algebra.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, cast

from tilewright.base.expr import Expr, ExprError, parse
from tilewright.diag import TilewrightError, fail
from tilewright.layout.checks import extent, integer
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
    unflatten,
)

Modes: TypeAlias = list[tuple[int, Leaf]]
"""Flat modes as (extent, stride)."""


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
        return CuteLayout(_parse(shape, source), _parse(stride, source) if colon else None)

    @staticmethod
    def of(modes: Iterable[CuteLayout]) -> CuteLayout:
        """Layouts side by side, each one a mode."""
        parts = list(modes)
        return _trusted(tuple(p.shape for p in parts), tuple(p.stride for p in parts))

    # -- queries --------------------------------------------------------------------------------------------------
    @property
    def modes(self) -> tuple[CuteLayout, ...]:
        """Top-level modes; a layout of a single integer has one."""
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return tuple(map(_trusted, self.shape, self.stride))
        return (self,)

    def __getitem__(self, mode: int) -> CuteLayout:
        return self.modes[mode]

    @property
    def rank(self) -> int:
        """Number of top-level modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def depth(self) -> int:
        """Levels of nesting: 0 for a single integer."""
        return _depth(self.shape)

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
        """One past the largest offset."""
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

    def offsets(self) -> list[int]:
        """All offsets in index order (static layouts): the table that defines the layout."""
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
    return _from_modes(merge(layout.flat))


def filter_zeros(layout: CuteLayout) -> CuteLayout:
    """The same nesting with every mode of stride 0 cut to extent 1: offsets once each, where strides repeat them."""
    kept: list[Leaf] = [1 if d == 0 else s for s, d in layout.flat]
    return CuteLayout(unflatten(iter(kept), layout.shape), layout.stride)


def filter_layout(layout: CuteLayout) -> CuteLayout:
    """Without the modes of stride 0, coalesced."""
    return coalesce(filter_zeros(layout))


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


# -- composition ----------------------------------------------------------------------------------------------------


def composition(a: CuteLayout, b: CuteLayout, *, extrapolate: bool = False) -> CuteLayout:
    """``c -> a(b(c))`` with the shape of ``b`` (its leaves may become nested).

    Refused where ``b`` leaves ``a``'s domain (LAY005; with ``extrapolate`` the last mode of ``coalesce(a)`` continues,
    as in CuTe), where a mode of ``b`` straddles modes of ``a``, or where digits of two modes of ``b`` carry
    (LAY004): there no nested strides have the composed offsets.
    """
    return _Composer(a, b, extrapolate).result()


class _Composer:
    """One composition: the modes of ``a``, how far each digit of ``a`` is filled, and the walk over ``b``."""

    def __init__(self, a: CuteLayout, b: CuteLayout, extrapolate: bool) -> None:
        self.a, self.b = a, b
        modes = merge(static_modes(a, "composition"))
        self.modes: Modes = [(s, d) for s, d in modes if isinstance(s, int)] or [(1, 0)]
        self.last = len(self.modes) - 1
        self.extrapolate = extrapolate
        self.filled = [1] * len(self.modes)

    def result(self) -> CuteLayout:
        return _trusted(*self.walk(self.b.shape, self.b.stride))

    def walk(self, shape: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
        if isinstance(shape, tuple) and isinstance(stride, tuple):
            parts = [self.walk(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(s for s, _ in parts), tuple(d for _, d in parts)
        if not isinstance(shape, int) or not isinstance(stride, int):
            symbolic("composition", self.b)
        if stride == 0:
            return shape, 0
        modes = self.one(stride) if shape == 1 else self.leaf(0, shape, stride, 0)
        if len(modes) == 1:
            return modes[0]
        return tuple(s for s, _ in modes), tuple(d for _, d in modes)

    def one(self, step: int) -> Modes:
        """A single coordinate: any stride will do, CuTe's is kept."""
        for s, _ in self.modes[: self.last]:
            step = -(-step // s)
        return [(1, step * self.modes[self.last][1])]

    def leaf(self, index: int, count: int, step: int, extra: Leaf) -> Modes:
        """Offsets at 0, step, ..., (count-1)*step of the modes from ``index`` on, plus ``extra`` per step, as modes.

        With step = q*s + r over a mode of extent s, the digit moves by r and the modes above by q, until it carries.
        """
        if step == 0:
            return [(count, extra)]
        s, d = self.modes[index]
        if index == self.last:
            self.fill(index, count, step)
            return [(count, extra + step * d)]
        q, r = divmod(step, s)
        if r == 0:
            return self.leaf(index + 1, count, q, extra)
        if (count - 1) * r < s:
            self.fill(index, count, r)
            return self.leaf(index + 1, count, q, extra + r * d)
        taken = s // r
        if s % r or count % taken:
            self.refuse(count, step, s)
        # ``taken`` steps pass over the mode once and carry 1
        self.fill(index, taken, r)
        inside = self.leaf(index + 1, taken, q, extra + r * d)
        return inside + self.leaf(index + 1, count // taken, q * taken + 1, extra * taken)

    def fill(self, index: int, count: int, step: int) -> None:
        """Digit ``index`` of ``a`` gains (count-1)*step; beyond its extent it would carry into the next."""
        self.filled[index] += (count - 1) * step
        s = self.modes[index][0]
        if self.filled[index] <= s:
            return
        if index < self.last:
            fail(
                "LAY004",
                title="digits of the inner layout's modes carry",
                found=f"composition({self.a}, {self.b}): digit {index} reaches {self.filled[index] - 1}",
                required=f"at most {s - 1} in the mode {s}:{self.modes[index][1]}",
                source="CuTe layout algebra, composition",
                help="compose with a layout whose modes use different digits",
            )
        if not self.extrapolate:
            fail(
                "LAY005",
                title="the inner layout leaves the outer layout's domain",
                found=f"composition({self.a}, {self.b}): offset {self.b.cosize - 1}",
                required=f"less than {self.a.size}",
                source="CuTe layout algebra, composition",
                help="extend the outer layout, or pass extrapolate=True to continue its last mode",
            )

    def refuse(self, count: int, step: int, s: int) -> None:
        fail(
            "LAY004",
            found=f"composition({self.a}, {self.b}): {count} steps of {step} over a mode of extent {s}",
            required=f"the step divides {s} and whole modes are taken, or all steps stay inside it",
            source="CuTe layout algebra, composition: shape and stride divisibility conditions",
            help="split the inner layout's mode where the outer layout's modes end",
        )


# -- inverses and complement ----------------------------------------------------------------------------------------


def complement(layout: CuteLayout, cosize: int = 1) -> CuteLayout:
    """The offsets ``layout`` leaves out, ordered: the sums ``layout(j) + c(i)`` are all different.

    Where each stride is a multiple of what the smaller ones fill, the sums are [0, n) with n >= ``cosize``; elsewhere
    a gap keeps what does not fit a whole copy. LAY006 where modes overlap.
    """
    modes = sorted((static_stride(d, "complement"), s) for s, d in static_modes(layout, "complement") if s > 1)
    result: list[tuple[Leaf, Leaf]] = []
    current = 1
    for d, s in modes:
        if d == 0:
            continue
        if d < current:
            fail(
                "LAY006",
                title="modes of the layout overlap",
                found=f"{layout}: stride {d} after {current} offsets",
                required=f"a stride of at least {current}",
                source="CuTe layout algebra, complement",
                help="give modes strides beyond what the smaller ones reach",
            )
        result.append((d // current, current))
        current = d * s
    result.append((-(-extent(cosize, "cosize") // current), current))
    return _from_modes(merge(result))


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """The longest ``r`` with ``layout(r(i)) == i`` for every i, built from whole modes."""
    digits: list[tuple[int, int, int]] = []
    place = 1
    for s, d in static_modes(layout, "right_inverse"):
        if s > 1 and d != 0:
            digits.append((static_stride(d, "right_inverse"), s, place))
        place *= s
    result: list[tuple[Leaf, Leaf]] = []
    current = 1
    for d, s, where in sorted(digits):
        if d != current:
            break
        result.append((s, where))
        current = d * s
    return _from_modes(merge(result))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """The ``l`` with ``l(layout(i)) == i`` for every i (LAY006 unless the strides leave whole gaps)."""
    modes = [(static_stride(d, "left_inverse"), s) for s, d in static_modes(layout, "left_inverse") if s > 1]
    current = 1
    for d, s in sorted(modes):
        if d == 0 or d % current:
            fail(
                "LAY006",
                title="the layout has no left inverse",
                found=f"{layout}: stride {d} after {current} offsets",
                required=f"a positive multiple of {current}",
                source="CuTe layout algebra, left_inverse",
                help="modes must not overlap or repeat, and gaps hold whole copies of what is below",
            )
        current = d * s
    return right_inverse(CuteLayout.of([layout, complement(layout)]))


def nullspace(layout: CuteLayout) -> CuteLayout:
    """The coordinates that map to 0: ``layout(n(i)) == 0`` for every i, and no other coordinate does."""
    result: list[tuple[Leaf, Leaf]] = []
    place = 1
    for s, d in static_modes(layout, "nullspace"):
        if d == 0:
            result.append((s, place))
        place *= s
    return _from_modes([m for m in result if m[0] != 1])


def max_common_layout(a: CuteLayout, b: CuteLayout) -> CuteLayout:
    """The longest ``r``, a prefix of ``right_inverse(b)``, with ``a(r(i)) == b(r(i)) == i``: the coordinates to copy as
    one vector."""
    result: list[tuple[Leaf, Leaf]] = []
    current = 1
    for s, d in static_modes(right_inverse(b), "max_common_layout"):
        run = _common_run(a, CuteLayout.of([_from_modes(result), CuteLayout(s, d)]), current)
        if run > 1:
            result.append((run, d))
        current *= run
        if run < s:
            break
    return _from_modes(merge(result))


def _common_run(a: CuteLayout, r: CuteLayout, current: int) -> int:
    """The largest divisor k of the last mode of ``r`` such that ``a(r(i)) == i`` for i < current * k."""
    first, (extent_, stride) = r[0], r.flat[-1]
    for run in range(static_stride(extent_, "max_common_layout"), 1, -1):
        if static_stride(extent_, "max_common_layout") % run:
            continue
        try:
            joined = merge(composition(a, CuteLayout.of([first, CuteLayout(run, stride)])).flat)
        except TilewrightError:
            continue
        if joined == [(current * run, 1)]:
            return run
    return 1


def max_common_vector(a: CuteLayout, b: CuteLayout) -> int:
    """How many elements both layouts hold contiguously at the same coordinates."""
    return static_size(max_common_layout(a, b))


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
    fail(
        "LAY010",
        title=f"{operation} needs numbers where the layout has symbols",
        found=str(what),
        required="integer extents and strides",
        help="substitute the symbols, or keep symbolic modes out of the operation",
    )


def _from_modes(modes: Sequence[tuple[Leaf, Leaf]]) -> CuteLayout:
    if not modes:
        return _trusted(1, 0)
    if len(modes) == 1:
        return _trusted(*modes[0])
    return _trusted(tuple([s for s, _ in modes]), tuple([d for _, d in modes]))


def _trusted(shape: IntTuple, stride: IntTuple) -> CuteLayout:
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


def _depth(shape: IntTuple) -> int:
    return 1 + max(map(_depth, shape), default=0) if isinstance(shape, tuple) else 0


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


def _parse(source: str, whole: str) -> IntTuple:
    """Nested parentheses around integers and symbols."""
    tokens = re.findall(r"[(),]|[^(),]+", source.replace(" ", "").replace("_", ""))
    value, rest = _parse_value(tokens, whole)
    if rest:
        _unreadable(whole, "".join(rest))
    return value


def _parse_value(tokens: list[str], whole: str) -> tuple[IntTuple, list[str]]:
    if not tokens or tokens[0] in "),":
        _unreadable(whole, "".join(tokens) or "end of text")
    if tokens[0] != "(":
        try:
            leaf = parse(tokens[0])
        except ExprError:
            _unreadable(whole, tokens[0])
        constant = leaf.constant
        return (leaf if constant is None else constant), tokens[1:]
    parts: list[IntTuple] = []
    tokens = tokens[1:]
    while tokens and tokens[0] != ")":
        part, tokens = _parse_value(tokens, whole)
        parts.append(part)
        if tokens[:1] == [","]:
            tokens = tokens[1:]
        elif tokens[:1] != [")"]:
            _unreadable(whole, "".join(tokens) or "end of text")
    if not tokens:
        _unreadable(whole, "end of text")
    return tuple(parts), tokens[1:]


def _unreadable(whole: str, where: str) -> NoReturn:
    fail(
        "LAY013",
        found=f"{whole!r}, at {where!r}",
        required="shape:stride, such as (8,(2,4)):(8,(1,2))",
        help="write nested parentheses of integers or symbol names",
    )
