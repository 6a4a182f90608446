"""Composition, complement and inverses of CuTe layouts: exact, or refused with the condition that fails.

Definitions: CuTe layout algebra (CUTLASS, media/docs/cpp/cute/02_layout_algebra.md).
"""

from __future__ import annotations

from typing import TypeAlias, TypeGuard, cast

from tilewright.diag import TilewrightError, fail
from tilewright.layout.checks import extent
from tilewright.layout.cute import (
    CuteLayout,
    from_modes,
    merge,
    static_modes,
    static_size,
    static_stride,
    trusted,
)
from tilewright.layout.int_tuple import IntTuple, Leaf
from tilewright.layout.library import cute_symbolic

Modes: TypeAlias = list[tuple[int, int]]


def numbers(modes: list[tuple[Leaf, Leaf]]) -> TypeGuard[Modes]:
    """No mode has a symbol."""
    for s, d in modes:  # a generator takes twice as long
        if type(s) is not int or type(d) is not int:
            return False
    return True


# -- composition ----------------------------------------------------------------------------------------------------


def composition(a: CuteLayout, b: CuteLayout, *, extrapolate: bool = False) -> CuteLayout:
    """``c -> a(b(c))`` with the shape of ``b`` (its leaves may become nested).

    Refused where ``b`` leaves ``a``'s domain (LAY005; with ``extrapolate`` the last mode of ``coalesce(a)`` continues,
    as in CuTe), where a mode of ``b`` straddles modes of ``a``, or where digits of two modes of ``b`` carry
    (LAY004): there no nested strides have the composed offsets. With symbols, where that is not known (LAY010).
    """
    modes = a.flat
    if numbers(modes):
        try:
            return _Composer(a, merge(modes), b, extrapolate).result()
        except _HasSymbols:
            pass
    return cute_symbolic.composition(a, b, extrapolate=extrapolate)


class _HasSymbols(Exception):
    """The inner layout is not all numbers."""


class _Composer:
    """One composition: the modes of ``a``, how far each digit of ``a`` is filled, and the walk over ``b``."""

    def __init__(self, a: CuteLayout, modes: list[tuple[Leaf, Leaf]], b: CuteLayout, extrapolate: bool) -> None:
        self.a, self.b = a, b
        self.modes = cast("Modes", modes) or [(1, 0)]
        self.last = len(self.modes) - 1
        self.extrapolate = extrapolate
        self.filled = [1] * len(self.modes)

    def result(self) -> CuteLayout:
        return trusted(*self.walk(self.b.shape, self.b.stride))

    def walk(self, shape: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
        if isinstance(shape, tuple) and isinstance(stride, tuple):
            parts = [self.walk(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(s for s, _ in parts), tuple(d for _, d in parts)
        if not isinstance(shape, int) or not isinstance(stride, int):
            raise _HasSymbols
        if stride == 0:
            return shape, 0
        modes = self.one(stride) if shape == 1 else self.leaf(0, shape, stride, 0)
        if len(modes) == 1:
            return modes[0]
        return tuple(s for s, _ in modes), tuple(d for _, d in modes)

    def one(self, step: int) -> list[tuple[int, Leaf]]:
        """A single coordinate: any stride will do, CuTe's is kept."""
        for s, _ in self.modes[: self.last]:
            step = -(-step // s)
        return [(1, step * self.modes[self.last][1])]

    def leaf(self, index: int, count: int, step: int, extra: Leaf) -> list[tuple[int, Leaf]]:
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


def complement(layout: CuteLayout, cosize: Leaf = 1) -> CuteLayout:
    """The offsets ``layout`` leaves out, ordered: the sums ``layout(j) + c(i)`` are all different.

    Where each stride is a multiple of what the smaller ones fill, the sums are [0, n) with n >= ``cosize``; elsewhere
    a gap keeps what does not fit a whole copy. LAY006 where modes overlap.
    """
    flat = layout.flat
    if not isinstance(cosize, int) or not numbers(flat):
        return cute_symbolic.complement(layout, cosize)
    modes = sorted((d, s) for s, d in flat if s > 1)
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
    return from_modes(merge(result))


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """The longest ``r`` with ``layout(r(i)) == i`` for every i, built from whole modes."""
    modes = layout.flat
    if not numbers(modes):
        return cute_symbolic.right_inverse(layout)
    result: list[tuple[Leaf, Leaf]] = []
    current = 1
    for d, s, where in _digits(modes):
        if d == 0:
            continue
        if d != current:
            break
        result.append((s, where))
        current = d * s
    return from_modes(merge(result))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """The ``l`` with ``l(layout(i)) == i`` for every i (LAY006 unless the strides leave whole gaps)."""
    modes = layout.flat
    if not numbers(modes):
        return cute_symbolic.left_inverse(layout)
    result: list[tuple[Leaf, Leaf]] = []
    current, gaps = 1, static_size(layout)
    for d, s, where in _digits(modes):
        if d == 0 or d % current:
            fail(
                "LAY006",
                title="the layout has no left inverse",
                found=f"{layout}: stride {d} after {current} offsets",
                required=f"a positive multiple of {current}",
                source="CuTe layout algebra, left_inverse",
                help="modes must not overlap or repeat, and gaps hold whole copies of what is below",
            )
        if d > current:  # offsets in a gap go to indices beyond the layout's
            result.append((d // current, gaps))
            gaps *= d // current
        result.append((s, where))
        current = d * s
    return from_modes(merge(result))


def _digits(modes: Modes) -> list[tuple[int, int, int]]:
    """(stride, extent, place in the index) of every mode of more than one coordinate, least stride first."""
    digits: list[tuple[int, int, int]] = []
    place = 1
    for s, d in modes:
        if s > 1:
            digits.append((d, s, place))
            place *= s
    digits.sort()
    return digits


def nullspace(layout: CuteLayout) -> CuteLayout:
    """The coordinates that map to 0: ``layout(n(i)) == 0`` for every i, and no other coordinate does."""
    result: list[tuple[Leaf, Leaf]] = []
    place: Leaf = 1
    for s, d in layout.flat:
        if d == 0:
            result.append((s, place))
        place *= s
    return from_modes([m for m in result if m[0] != 1])


def max_common_layout(a: CuteLayout, b: CuteLayout) -> CuteLayout:
    """The longest ``r``, a prefix of ``right_inverse(b)``, with ``a(r(i)) == b(r(i)) == i``: the coordinates to copy as
    one vector."""
    result: list[tuple[Leaf, Leaf]] = []
    current = 1
    for s, d in static_modes(right_inverse(b), "max_common_layout"):
        run = _common_run(a, CuteLayout.of([from_modes(result), CuteLayout(s, d)]), current)
        if run > 1:
            result.append((run, d))
        current *= run
        if run < s:
            break
    return from_modes(merge(result))


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
