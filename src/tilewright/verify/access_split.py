"""Coordinates as others in their place, whose forms are linear: a number's digits, and the number of two digits.

``h*D + d`` by an extent that is known at launch only is a number of two digits. Where ``0 <= d < D`` at every point,
two such coordinates are equal exactly if both their digits are: they are taken for two coordinates ``h, d``, whose
forms are linear. That ``h*D + d`` lies in ``0 .. H*D`` is that h lies in ``0 .. H``. Whether ``0 <= d < D`` is asked
of each map at all points that its guard leaves without these two conditions.

``e // 24, e % 24`` are the digits of a number e, and equal exactly where the numbers are: where these are coordinates
along an axis and one of 24 behind it, in all maps, both are taken for e, along one axis of all their elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tilewright.base.expr import Compare, Const, Expr, Mod, Product, Sum, Sym, all_of, conjuncts
from tilewright.protocol.access import AccessMap, StoreDomain

Points = TypeVar("Points", AccessMap, StoreDomain)

Inside = Callable[[AccessMap, int, str], bool]
"""Whether a coordinate of a map lies in ``0 .. extent`` at every point."""


def split_by_extents(
    accesses: Sequence[AccessMap], domains: Sequence[StoreDomain], inside: Inside
) -> tuple[list[AccessMap], list[StoreDomain]]:
    """The same maps and promises with such coordinates split, as often as all of them allow."""
    maps, promised = list(accesses), list(domains)
    pending = list(_candidates(maps, promised))
    while pending:
        place, extent = pending.pop(0)
        split = [_split(m, place, extent, bounded=True) for m in maps]
        kept = [_split(d, place, extent, bounded=True) for d in promised]
        asked = [_split(m, place, extent, bounded=False) for m in maps]
        asked += [_split(d, place, extent, bounded=False).as_map(()) for d in promised]
        if all(inside(m, place + 1, extent) for m in asked):
            maps, promised = split, kept
            pending = list(_candidates(maps, promised))
    return maps, promised


def join_digits(
    accesses: Sequence[AccessMap], domains: Sequence[StoreDomain]
) -> tuple[list[AccessMap], list[StoreDomain]]:
    """The same maps and promises with the digits of a number along adjacent axes joined."""
    maps, promised = list(accesses), list(domains)
    place = 0
    while maps and place + 1 < len(maps[0].dims):
        extent = maps[0].dims[place + 1].constant
        joined = [_joined(m, place, extent) for m in maps] if extent else []
        kept = [_joined(d, place, extent) for d in promised] if extent else []
        if extent and None not in joined and None not in kept:
            maps, promised = [m for m in joined if m], [d for d in kept if d]
        else:
            place += 1
    return maps, promised


def _joined(points: Points, place: int, extent: int) -> Points | None:
    """A map or promise with two coordinates as the number of which they are the digits."""
    first, second = points.coords[place : place + 2]
    if not isinstance(second, Mod) or second.denominator != Const(extent):
        return None
    quotient = second.numerator // extent
    if (quotient, 1) not in _terms(first):
        return None
    number = second.numerator + (first - quotient) * extent
    conditions: list[Expr] = []
    for condition in conjuncts(points.guard):
        if condition == (first >= 0):
            condition = number >= 0
        elif isinstance(condition, Compare) and condition.op == "<" and condition.lhs == first:
            condition = number < condition.rhs * extent
        conditions.append(condition)
    made = replace(
        points, coords=(*points.coords[:place], number, *points.coords[place + 2 :]), guard=all_of(conditions)
    )
    if isinstance(made, AccessMap):
        dims = made.dims
        made = replace(made, dims=(*dims[:place], dims[place] * extent, *dims[place + 2 :]))
    return made


def _candidates(maps: Sequence[AccessMap], promised: Sequence[StoreDomain]) -> Iterator[tuple[int, str]]:
    """Places of coordinates, and symbols by which they are numbers of two digits in all maps."""
    coords = [*(m.coords for m in maps), *(d.coords for d in promised)]
    for place in range(min(map(len, coords), default=0)):
        products = [t for c in coords for t, _ in _terms(c[place]) if isinstance(t, Product)]
        for symbol in sorted({f.name for t in products for f in t.children if isinstance(f, Sym)}):
            if all(_digits(c[place], symbol) is not None for c in coords):
                yield place, symbol


def _terms(coord: Expr) -> list[tuple[Expr, int]]:
    return list(coord.terms) if isinstance(coord, Sum) else [(coord, 1)]


def _digits(coord: Expr, extent: str, *, squares: bool = False) -> tuple[Expr, Expr] | None:
    """``coord`` as the first of ``first*extent + second``, and the second; None where the extent stands elsewhere, in
    the first but for ``squares``."""
    first: Expr = Const(0)
    second: Expr = Const(coord.offset if isinstance(coord, Sum) else 0)
    for term, factor in _terms(coord):
        if extent not in term.symbols:
            second = second + term * factor
            continue
        others = list(term.children) if isinstance(term, Product) else [term]
        if Sym(extent) not in others:
            return None
        others.remove(Sym(extent))
        rest: Expr = Const(factor)
        for other in others:
            rest = rest * other
        if extent in rest.symbols and not squares:
            return None
        first = first + rest
    return first, second


def _split(points: Points, place: int, extent: str, *, bounded: bool) -> Points:
    """A map or promise with one coordinate as two, and, where ``bounded``, the first one's bounds for those of both."""
    coord = points.coords[place]
    digits = _digits(coord, extent)
    assert digits is not None
    conditions: list[Expr] = []
    for condition in conjuncts(points.guard):
        within = _bound(condition, coord, digits[0], extent)
        if within is None or bounded:
            conditions.append(condition if within is None else within)
    coords = (*points.coords[:place], *digits, *points.coords[place + 1 :])
    made = replace(points, coords=coords, guard=all_of(conditions))
    if isinstance(made, AccessMap):
        made = replace(made, dims=(*made.dims[: place + 1], Sym(extent), *made.dims[place + 1 :]))
    return made


def _bound(condition: Expr, coord: Expr, first: Expr, extent: str) -> Expr | None:
    """``0 <= coord`` or ``coord < H*extent`` as a condition on the first digit; None for another one."""
    if condition == (coord >= 0):
        return first >= 0
    if isinstance(condition, Compare) and condition.op == "<" and condition.lhs == coord:
        end = _digits(condition.rhs, extent, squares=True)
        return first < end[0] if end is not None and end[1] == Const(0) else None
    return None
