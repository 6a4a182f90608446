"""Views of tensors in other axes: ``x.reshape(M, N // 128, 128)`` splits and merges dimensions, and moves nothing."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import NoReturn, TypeAlias

from tilewright.base.expr import Const, Expr, Sym, expr
from tilewright.lang import arithmetic
from tilewright.lang.axes import Axis, Coord, Span, axis_symbol
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.lang.recorder import Array, Node, Recorder
from tilewright.lang.regroup import Group, regrouped
from tilewright.lang.source_locations import refuse
from tilewright.lang.values import ON_INTEGERS

Place: TypeAlias = Expr | Node
"""A coordinate, of which ``axis_symbol``s stand for places along axes, or a tile of coordinates."""

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)


def _check_split(base: Array, dimension: int, dims: Sequence[Expr], coords: Sequence[Coord | Node]) -> None:
    """Refuse (LNG043) places in parts whose extents are expressions, but for the numbered parts: they would be products
    of an index and that, of which nothing is proved."""
    numbered = 0
    while numbered < len(coords) - 1 and isinstance(c := coords[numbered], Expr) and c.constant is not None:
        numbered += 1
    unknown = next((d for d in dims[numbered + 1 :] if d.constant is None and not isinstance(d, Sym)), None)
    if unknown is not None:
        refuse(
            "LNG043",
            title="a dimension is not split in parts of a computed extent",
            found=f"dimension {dimension} of {base.name}, {base.dims[dimension]}, as {_shown(dims)}",
            required=f"numbers and dimensions behind the first of its parts, and not {unknown}",
            help=f'name the part in the annotation: {base.name}: tw.Tensor["M", '
            + ('"G*C"], and let another tensor have C' if dims[0].constant is None else f'"{dims[0]}*C"]')
            + "; or take the first by its number, [0, n]",
        )


class View:
    """The dimensions of ``array`` viewed as ``dims``; each launch is required to have equal numbers of elements."""

    __slots__ = ("array", "base", "groups")

    def __init__(self, rec: Recorder, base: Array, dims: Sequence[Expr | None]):
        found = _without_open(base, dims)
        self.base = base
        self.array = Array(base.handle, base.name, base.dtype, tuple(found))
        self.groups = _grouped(base.dims, found)
        for old, new in self.groups:
            same = _product(base.dims[d] for d in old).eq(_product(found[d] for d in new))
            if not rec.require(same):
                _refuse(base, found)

    def _outside_of_parts(self, rec: Recorder, place: Place, parts: Sequence[tuple[Place, Expr]]) -> Place:
        """``place``, or nowhere where a computed or loaded coordinate leaves its part: it would be of another."""
        for coord, dim in parts:
            if isinstance(coord, Node) and not rec.known_inside_of(coord, dim):
                above = arithmetic.compare(rec, CompareFn.GE, coord, 0)
                inside = arithmetic.binary(rec, BinaryFn.AND, above, arithmetic.compare(rec, CompareFn.LT, coord, dim))
                assert isinstance(place, Node)
                place = arithmetic.select(rec, inside, place, -1)
        return place

    def check_split(self, coords: Sequence[Coord | Node]) -> None:
        """Refuse coordinates in parts whose places are no sums of indices times numbers."""
        for old, new in self.groups:
            if len(old) == 1 and len(new) > 1:
                _check_split(self.base, old[0], [self.array.dims[d] for d in new], [coords[d] for d in new])

    def check_stored(self) -> None:
        """Refuse (LNG043) stores to dimensions that are merged by extents known at launch only: that no two elements of
        the view are one is proved of sums, and of quotients by constants."""
        for old, new in self.groups:
            if len(old) > 1 and any(self.base.dims[d].constant is None for d in old[1:]):
                merged = _shown([self.base.dims[d] for d in old])
                refuse(
                    "LNG043",
                    title="a tensor is not stored to in merged dimensions",
                    found=f"{self.base.name} stored to as {_shown(self.array.dims)}, where {merged} is "
                    + _shown([self.array.dims[d] for d in new]),
                    required="extents behind the first of the merged dimensions that the annotation gives as numbers",
                    help=f"store to {self.base.name} in its own dimensions; reshape the tensor before the call, and "
                    "annotate it as it is then; or add with tw.reduce_add, which may meet",
                )

    def box(self, coords: Sequence[Coord]) -> list[Coord] | None:
        """Coordinates of the tensor where each dimension is accessed along a range of neighbours, or at one place."""
        found: list[Coord] = []
        for old, new in self.groups:
            given = [coords[d] for d in new]
            place = self._joined(given, [self.array.dims[d] for d in new]) if len(old) == 1 else None
            if place is None:
                return None
            found.append(place)
        return found

    def _joined(self, given: Sequence[Coord], dims: Sequence[Expr]) -> Coord | None:
        """The elements of a dimension that those of its parts are; None where they are not all between two of them."""
        if len(given) == 1:
            return given[0]
        origin: Expr = Const(0)
        size, stop = 1, None
        for coord, dim in zip(given, dims, strict=True):
            extent = dim.constant
            if extent is None and origin.constant is None:
                return None
            origin = origin * dim
            if not isinstance(coord, Span):
                if stop is not None:
                    return None
                origin = origin + coord
            elif stop is None:
                stop = origin + coord.stop
                origin, size = origin + coord.origin, coord.size
            elif extent is None or extent & (extent - 1) or coord != Span(Const(0), extent, dim):
                return None
            else:
                size, stop = size * extent, stop * extent
        return origin if stop is None else Span(origin, size, stop)

    def places(self, rec: Recorder, coords: Sequence[Place], axes: tuple[Axis, ...]) -> list[Place]:
        """Coordinates of the tensor for those of the view, which have ``axes``."""
        found: list[Place] = []
        for old, new in self.groups:
            if len(old) == len(new) == 1:
                found.append(coords[new[0]])
                continue
            given = [_tile(rec, coords[d], axes) for d in new]
            place = functools.reduce(
                lambda a, b: _apply(rec, BinaryFn.ADD, _apply(rec, BinaryFn.MUL, a, b[1]), b[0]),
                zip(given[1:], (self.array.dims[d] for d in new[1:]), strict=True),
                given[0],
            )
            place = self._outside_of_parts(rec, place, [(coords[d], self.array.dims[d]) for d in new])
            inner = [_product(self.base.dims[d] for d in old[i + 1 :]) for i in range(len(old))]
            for i, (d, behind) in enumerate(zip(old, inner, strict=True)):
                at = place if behind == Const(1) else _apply(rec, BinaryFn.FLOORDIV, place, behind)
                found.append(at if i == 0 else _apply(rec, BinaryFn.MOD, at, self.base.dims[d]))
        return found


def _tile(rec: Recorder, coord: Place, axes: tuple[Axis, ...]) -> Place:
    """A coordinate along an axis as a tile of coordinates."""
    if isinstance(coord, Node):
        return coord
    along = next((d for d in range(len(axes)) if axis_symbol(d) in coord.symbols), None)
    if along is None:
        return coord
    span = axes[along]
    assert isinstance(span, Span)
    index, others = rec.index(span), [d for d in range(len(axes)) if d != along]
    return rec.expand(index, others) if others else index


def _apply(rec: Recorder, fn: BinaryFn, a: Place, b: Place) -> Place:
    if isinstance(a, Node) or isinstance(b, Node):
        return arithmetic.binary(rec, fn, a, b)
    return ON_INTEGERS[fn](a, b)


def _product(factors: Iterable[Expr]) -> Expr:
    return functools.reduce(operator.mul, factors, expr(1))


def _samples(dims: Sequence[Expr]) -> list[int]:
    """Extents for numbers that quotients by small ones leave whole: equal products of these are equal products."""
    names = sorted({s for dim in dims for s in dim.symbols})
    values = {name: 2**14 * 3**4 * 5**2 * 7 * _PRIMES[i % len(_PRIMES)] ** 3 for i, name in enumerate(names)}
    return [int(dim.evaluate(values)) for dim in dims]


def _grouped(before: Sequence[Expr], after: Sequence[Expr]) -> list[Group]:
    """Dimensions that have the same elements in both: by their extents, and what is left between those that both sides
    begin and end with, where extents are others' symbols."""
    sizes = _samples([*before, *after])
    old, new = sizes[: len(before)], sizes[len(before) :]
    if prod(old) == prod(new):
        return regrouped(old, new)
    pairs = list(zip(before, after, strict=False))
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    backwards = list(zip(reversed(before[first:]), reversed(after[first:]), strict=False))
    last = next((i for i, (a, b) in enumerate(backwards) if a != b), len(backwards))
    middle = (tuple(range(first, len(before) - last)), tuple(range(first, len(after) - last)))
    beside = range(last, 0, -1)
    return [
        *(((i,), (i,)) for i in range(first)),
        middle,
        *(((len(before) - i,), (len(after) - i,)) for i in beside),
    ]


def _without_open(base: Array, dims: Sequence[Expr | None]) -> list[Expr]:
    """The extents, that of -1 worked out from its neighbours in the tensor."""
    known = [d for d in dims if d is not None]
    if len(known) == len(dims):
        return known
    at = list(dims).index(None)
    sizes, whole = _samples([*known, *base.dims]), len(known)
    rest, left = divmod(prod(sizes[whole:]), max(prod(sizes[:whole]), 1))
    if left or len(known) < len(dims) - 1:
        _refuse(base, dims)
    given = [*sizes[:at], rest, *sizes[at:whole]]
    old, new = next(g for g in regrouped(sizes[whole:], given) if at in g[1])
    beside = _product(d for i, d in enumerate(dims) if d is not None and i in new)
    total = _product(base.dims[d] for d in old)
    made = list(dims)
    made[at] = total if beside == Const(1) else total // beside
    return [d for d in made if d is not None]


def _refuse(base: Array, dims: Sequence[Expr | None]) -> NoReturn:
    refuse(
        "LNG043",
        title="a tensor has no such view",
        found=f"{base.name} of {_shown(base.dims)} as {_shown(dims)}",
        required="the same number of elements in every launch, and at most one extent of -1",
        help=f"split one dimension, or merge neighbours: {base.name}.reshape(M, -1, 128)",
    )


def _shown(dims: Sequence[Expr | None]) -> str:
    return " x ".join("-1" if d is None else f"({d})" if " " in str(d) else str(d) for d in dims)
