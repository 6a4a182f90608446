"""Composition, complement and inverses of CuTe layouts: exact, or refused with the condition that fails.

A result holds for all values of its layouts' symbols, each at least 1. A condition that is not known to hold for all of
them (a division that may leave a rest, an order of strides that may turn) refuses with LAY010 and names it.

Definitions: CuTe layout algebra (CUTLASS, media/docs/cpp/cute/02_layout_algebra.md).
"""

from __future__ import annotations

from typing import NoReturn, TypeAlias

from tilewright.base.expr import ceildiv
from tilewright.diag import TilewrightError, fail
from tilewright.layout.checks import extent
from tilewright.layout.cute import CuteLayout, from_modes, merge, static_modes, static_size, static_stride, trusted
from tilewright.layout.int_tuple import IntTuple, Leaf
from tilewright.layout.library.cute_symbolic import at_most, leaf, quotient

Modes: TypeAlias = list[tuple[Leaf, Leaf]]
"""Flat modes as (extent, stride)."""


def _refuse(
    values: tuple[Leaf, ...], code: str, operation: str, *, found: str, required: str, help: str = "", **fields: str
) -> NoReturn:
    """``code`` where a condition on numbers fails, LAY010 where it is not known to hold for all symbols in them."""
    if all(isinstance(x, int) for x in values):
        source = f"CuTe layout algebra, {operation}"
        fail(code, found=found, required=required, help=help, **{"source": source, **fields})
    fail(
        "LAY010",
        title=f"{operation} is not known to hold for all values of the symbols",
        found=found,
        required=required,
        help="say what divides an extent (128*m instead of M), or substitute numbers",
    )


# -- composition ----------------------------------------------------------------------------------------------------


def composition(a: CuteLayout, b: CuteLayout, *, extrapolate: bool = False) -> CuteLayout:
    """``c -> a(b(c))`` with the shape of ``b`` (its leaves may become nested).

    Refused where ``b`` leaves ``a``'s domain (LAY005; with ``extrapolate`` the last mode of ``coalesce(a)`` continues,
    as in CuTe), where a mode of ``b`` straddles modes of ``a``, or where digits of two modes of ``b`` carry
    (LAY004): there no nested strides have the composed offsets. With symbols, where that is not known (LAY010).
    """
    return trusted(*_Composer(a, b, extrapolate).walk(b.shape, b.stride))


class _Composer:
    """One composition: the modes of ``a``, how far each digit of ``a`` is filled, and the walk over ``b``."""

    def __init__(self, a: CuteLayout, b: CuteLayout, extrapolate: bool) -> None:
        self.a, self.b, self.extrapolate = a, b, extrapolate
        self.modes: Modes = merge(a.flat) or [(1, 0)]
        self.last = len(self.modes) - 1
        self.filled: list[Leaf] = [1] * len(self.modes)

    def walk(self, shape: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
        if isinstance(shape, tuple) and isinstance(stride, tuple):
            parts = [self.walk(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(s for s, _ in parts), tuple(d for _, d in parts)
        assert not isinstance(shape, tuple)
        assert not isinstance(stride, tuple)
        if stride == 0:
            return shape, 0
        if shape == 1:
            return 1, self.one(stride)
        modes = self.leaf(0, shape, stride, 0)
        if len(modes) == 1:
            return modes[0]
        return tuple(s for s, _ in modes), tuple(d for _, d in modes)

    def one(self, step: Leaf) -> Leaf:
        """The stride of a single coordinate: any will do, CuTe's is kept."""
        for s, _ in self.modes[: self.last]:
            step = ceildiv(step, s) if not isinstance(step, int) or not isinstance(s, int) else -(-step // s)
        return leaf(step * self.modes[self.last][1])

    def leaf(self, index: int, count: Leaf, step: Leaf, extra: Leaf) -> Modes:
        """Offsets at 0, step, ..., (count-1)*step of the modes from ``index`` on, plus ``extra`` per step, as modes.

        With step = q*s + r over a mode of extent s, the digit moves by r and the modes above by q, until it carries.
        """
        if step == 0:
            return [(count, extra)]
        s, d = self.modes[index]
        if index == self.last:
            self.fill(index, count, step)
            return [(count, leaf(extra + step * d))]
        whole = quotient(step, s)
        if whole is not None:
            return self.leaf(index + 1, count, whole, extra)
        q, r = self.digits(step, s)
        if at_most((count - 1) * r + 1, s):
            self.fill(index, count, r)
            return self.leaf(index + 1, count, q, leaf(extra + r * d))
        taken = quotient(s, r)
        blocks = None if taken is None else quotient(count, taken)
        if taken is None or blocks is None:
            self.refuse(
                (count, step, s),
                "LAY004",
                f"{count} steps of {step} over a mode of extent {s}",
                f"the step divides {s} and whole modes are taken, or all steps stay inside it",
                source="CuTe layout algebra, composition: shape and stride divisibility conditions",
                help="split the inner layout's mode where the outer layout's modes end",
            )
        # ``taken`` steps pass over the mode once and carry 1
        self.fill(index, taken, r)
        inside = self.leaf(index + 1, taken, q, leaf(extra + r * d))
        return inside + self.leaf(index + 1, blocks, leaf(q * taken + 1), leaf(extra * taken))

    def digits(self, step: Leaf, s: Leaf) -> tuple[Leaf, Leaf]:
        """``divmod(step, s)``."""
        if isinstance(step, int) and isinstance(s, int):
            return divmod(step, s)
        if at_most(step + 1, s) or (quotient(s, step) is not None and at_most(step, s)):
            return 0, step  # a step of the whole extent passes over the mode in one step and carries 1
        found = f"a step of {step} over a mode of extent {s}"
        self.refuse((step, s), "LAY010", found, "a multiple of the extent, or less than it")

    def fill(self, index: int, count: Leaf, step: Leaf) -> None:
        """Digit ``index`` of ``a`` gains (count-1)*step; beyond its extent it would carry into the next."""
        s, d = self.modes[index]
        self.filled[index] = reach = leaf(self.filled[index] + (count - 1) * step)
        if at_most(reach, s) or (index == self.last and self.extrapolate):
            return
        if index < self.last:
            self.refuse(
                (reach, s),
                "LAY004",
                f"digit {index} reaches {reach - 1}",
                f"at most {s - 1} in the mode {s}:{d}",
                title="digits of the inner layout's modes carry",
                help="compose with a layout whose modes use different digits",
            )
        self.refuse(
            (reach, s, self.b.cosize, self.a.size),
            "LAY005",
            f"digit {index} reaches {reach - 1}, offset {self.b.cosize - 1}",
            f"less than {self.a.size}",
            title="the inner layout leaves the outer layout's domain",
            help="extend the outer layout, or pass extrapolate=True to continue its last mode",
        )

    def refuse(self, values: tuple[Leaf, ...], code: str, what: str, required: str, **fields: str) -> NoReturn:
        found = f"composition({self.a}, {self.b}): {what}"
        _refuse(values, code, "composition", found=found, required=required, **fields)


# -- inverses and complement ----------------------------------------------------------------------------------------


def complement(layout: CuteLayout, cosize: Leaf = 1) -> CuteLayout:
    """The offsets ``layout`` leaves out, ordered: the sums ``layout(j) + c(i)`` are all different.

    Where each stride is a multiple of what the smaller ones fill, the sums are [0, n) with n >= ``cosize``; elsewhere
    a gap keeps what does not fit a whole copy. LAY006 where modes overlap.
    """
    if isinstance(cosize, int):
        cosize = extent(cosize, "cosize")
    result: Modes = []
    current: Leaf = 1
    for d, s in _by_stride("complement", [(d, s) for s, d in layout.flat if s != 1 and d != 0]):
        if not at_most(current, d):
            _refuse(
                (current, d),
                "LAY006",
                "complement",
                found=f"{layout}: stride {d} after {current} offsets",
                required=f"a stride of at least {current}",
                title="modes of the layout overlap",
                help="give modes strides beyond what the smaller ones reach",
            )
        between = quotient(d, current)
        result.append((leaf(d // current) if between is None else between, current))
        current = leaf(d * s)
    rest = quotient(cosize, current)
    result.append((leaf(ceildiv(cosize, current)) if rest is None else rest, current))
    return from_modes(merge(result))


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """An ``r`` with ``layout(r(i)) == i`` for every i, of whole modes, each the first known to continue the others."""
    left: list[tuple[Leaf, Leaf, Leaf]] = []
    place: Leaf = 1
    for s, d in layout.flat:
        if s != 1 and d != 0:
            left.append((d, s, place))
        place = place * s
    result: Modes = []
    current: Leaf = 1
    while (found := next((m for m in left if m[0] == current), None)) is not None:
        left.remove(found)
        result.append((found[1], found[2]))
        current = leaf(found[0] * found[1])
    return from_modes(merge(result))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """The ``l`` with ``l(layout(i)) == i`` for every i (LAY006 unless the strides leave whole gaps)."""
    current: Leaf = 1
    for d, s in _by_stride("left_inverse", [(d, s) for s, d in layout.flat if s != 1]):
        if d == 0 or quotient(d, current) is None:
            _refuse(
                (0,) if d == 0 else (d, current),
                "LAY006",
                "left_inverse",
                found=f"{layout}: stride {d} after {current} offsets",
                required=f"a positive multiple of {current}",
                title="the layout has no left inverse",
                help="modes must not overlap or repeat, and gaps hold whole copies of what is below",
            )
        current = leaf(d * s)
    # offsets in a gap go to indices beyond the layout's
    return right_inverse(CuteLayout.of([layout, complement(layout)]))


def _by_stride(operation: str, modes: Modes) -> Modes:
    """Modes (stride, extent) in an order of strides that holds for all values of the symbols."""
    if all(type(d) is int for d, _ in modes):
        return sorted(modes, key=lambda mode: mode[0])
    left = list(modes)
    result: Modes = []
    while left:
        least = next((m for m in left if all(at_most(m[0], o[0]) for o in left)), None)
        if least is None:
            strides = tuple(d for d, _ in left)
            order = ", ".join(map(str, strides))
            _refuse(strides, "LAY010", operation, found=f"the order of strides {order}", required="one least stride")
        left.remove(least)
        result.append(least)
    return result


def nullspace(layout: CuteLayout) -> CuteLayout:
    """The coordinates that map to 0: ``layout(n(i)) == 0`` for every i, and no other coordinate does."""
    result: Modes = []
    place: Leaf = 1
    for s, d in layout.flat:
        if d == 0:
            result.append((s, place))
        place *= s
    return from_modes([m for m in result if m[0] != 1])


def max_common_layout(a: CuteLayout, b: CuteLayout) -> CuteLayout:
    """The longest ``r``, a prefix of ``right_inverse(b)``, with ``a(r(i)) == b(r(i)) == i``: the coordinates to copy as
    one vector."""
    result: Modes = []
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
