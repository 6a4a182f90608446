"""Algebra of swizzled layouts: composition, inverses, and how two swizzles become one.

Definitions: CuTe swizzle.hpp, layout_composed.hpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tilewright.diag import fail
from tilewright.layout.cute import CuteLayout, static_modes, static_stride, symbolic
from tilewright.layout.library.cute_algebra import composition, right_inverse
from tilewright.layout.swizzle import AnyLayout, ComposedLayout, CuteSwizzle


def swizzled(swizzle: CuteSwizzle, layout: CuteLayout, *, size: int | None = None) -> ComposedLayout:
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
    outer: CuteSwizzle | AnyLayout, inner: AnyLayout | CuteSwizzle, *, extrapolate: bool = False
) -> CuteLayout | ComposedLayout | CuteSwizzle:
    """``outer o inner``, pushed into strides where they can hold it (LAY010 where two swizzles would be left).

    A swizzle stays outermost; a composed outer layout composes its inner part; a layout over a swizzle is moved below
    it where its bits allow (``passed``); two swizzles that meet become one where one suffices (``joined``).
    """
    match outer, inner:
        case CuteLayout(), CuteLayout():
            return composition(outer, inner, extrapolate=extrapolate)
        case CuteSwizzle(), CuteLayout():
            return ComposedLayout(outer, 0, inner)
        case CuteSwizzle(), CuteSwizzle():
            one = joined(outer, inner)
            return ComposedLayout(outer, 0, inner) if one is None else one
        case CuteLayout(), CuteSwizzle():
            return ComposedLayout(outer, 0, inner)
        case ComposedLayout(outer=CuteSwizzle() as first, offset=offset, inner=CuteLayout() as rest), CuteLayout():
            return ComposedLayout(first, offset, composition(rest, inner, extrapolate=extrapolate))
        case ComposedLayout(outer=CuteLayout() as first, offset=0, inner=CuteSwizzle() as second), CuteLayout():
            return compose(first, ComposedLayout(second, 0, inner))
        case CuteLayout(), ComposedLayout(outer=CuteSwizzle() as second, offset=0, inner=CuteLayout() as rest):
            moved = passed(outer, second)
            return _unjoined(outer, inner) if moved is None else ComposedLayout(moved, 0, composition(outer, rest))
        case (
            ComposedLayout(outer=CuteSwizzle() as first, offset=0, inner=CuteLayout() as rest),
            ComposedLayout(outer=CuteSwizzle(), offset=0, inner=CuteLayout()),
        ):
            return compose(first, compose(rest, inner))
        case CuteSwizzle(), ComposedLayout(outer=CuteSwizzle() as second, offset=offset, inner=rest):
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


def joined(first: CuteSwizzle, second: CuteSwizzle) -> CuteSwizzle | None:
    """The one swizzle ``x -> first(second(x))``, if there is one.

    Where no source of one is a target of the other, both are xors of fixed bits and the pairs that both have cancel.
    """
    pairs = _pairs(first) ^ _pairs(second)
    targets, sources = ({p[i] for p in _pairs(first) | _pairs(second)} for i in (0, 1))
    return None if targets & sources else _swizzle(sorted(pairs))


def passed(layout: CuteLayout, swizzle: CuteSwizzle) -> CuteSwizzle | None:
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


def _pairs(swizzle: CuteSwizzle) -> set[tuple[int, int]]:
    """(target bit, source bit) of every exclusive or."""
    low = swizzle.base - min(0, swizzle.shift)
    return {(low + i, low + i + swizzle.shift) for i in range(swizzle.bits)}


def _swizzle(pairs: Sequence[tuple[int, int]]) -> CuteSwizzle | None:
    """The swizzle of sorted pairs, if they are consecutive bits at one distance."""
    if not pairs:
        return CuteSwizzle(0, 0, 0)
    (target, source), bits = pairs[0], len(pairs)
    shift = source - target
    if abs(shift) < bits or any(pair != (target + i, source + i) for i, pair in enumerate(pairs)):
        return None
    return CuteSwizzle(bits, min(target, source), shift)


def right_inverse_of(layout: AnyLayout | CuteSwizzle) -> CuteLayout | ComposedLayout | CuteSwizzle:
    """``r`` with ``layout(r(i)) == i``: a swizzle is its own, a swizzled layout's is its parts' in reverse."""
    match layout:
        case CuteSwizzle():
            return layout
        case CuteLayout():
            return right_inverse(layout)
        case ComposedLayout(outer=CuteSwizzle() as swizzle, offset=0, inner=CuteLayout() as inner):
            return ComposedLayout(right_inverse(inner), 0, swizzle)
        case _:
            return fail(
                "LAY008",
                title="the composed layout is not inverted",
                found=str(layout),
                required="swizzle o 0 o layout",
                help="invert its parts, or convert it to an F2 layout",
            )
