"""Pieces whose coordinates are mixed-radix numbers, laid over one shared system of digits.

If every index variable occurs in one coordinate only, and the coordinate's terms are the digits of a mixed-radix
number,

    coord = offset + v0 + 4*v1 + 32*v2,   0 <= v0 < 4,  0 <= v1 < 8,  0 <= v2,

then different points have different coordinates, and a coordinate determines the variables: each is a run of the digits
of ``coord - offset``. The places need not divide each other: it is enough that what lies below a place is less than it,
by the ranges or by the predicate (tiles of 300 columns on digits that reach 384). All pieces of a tensor are rewritten
over the digits of the coordinate itself, so that "some point of the piece writes this element" becomes a formula
without quantifiers, which can be negated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import TypeAlias

from tilewright.base.expr import Interval
from tilewright.verify.access_linear import (
    Conjunction,
    Formula,
    Linear,
    Variables,
    both,
    either,
    equal,
    opposite,
    rewritten,
)
from tilewright.verify.access_pieces import AccessPiece


@dataclass(frozen=True)
class Digit:
    """One variable's place in a coordinate; ``flipped`` if the coordinate falls as the variable grows."""

    variable: int
    stride: int
    size: int | None
    flipped: bool


@dataclass(frozen=True)
class Radix:
    """``offset + sum(stride * digit)``, strides ascending; the sum below a stride is less than it, provided that the
    ``requirements`` hold at every point of the piece."""

    offset: Linear
    digits: tuple[Digit, ...]
    requirements: tuple[Linear, ...]

    @property
    def top(self) -> int:
        """Stride of the last digit; 1 if there is none."""
        return self.digits[-1].stride if self.digits else 1

    @property
    def cuts(self) -> set[int]:
        """Places above 1 at which the number is cut into digits."""
        ends = {high for _, high in self.runs if high is not None}
        return (ends | {d.stride for d in self.digits}) - {1}

    @property
    def runs(self) -> tuple[tuple[int, int | None], ...]:
        """For each digit the places it takes: from its stride to where it ends; the last takes all above."""
        nexts = [d.stride for d in self.digits[1:]]
        ends = [min(d.stride * (d.size or 1), n) for d, n in zip(self.digits, nexts, strict=False)]
        return tuple(zip((d.stride for d in self.digits), [*ends, None], strict=True)) if self.digits else ()


def radix_of(piece: AccessPiece) -> tuple[Radix, ...] | str:
    """The mixed-radix form of each coordinate, or why there is none."""
    used: set[int] = set()
    result: list[Radix] = []
    for dim, coord in enumerate(piece.coords):
        digits: list[Digit] = []
        offset = Linear(coord.const, {v: c for v, c in coord.terms.items() if v not in piece.local})
        for variable in coord.terms.keys() & piece.local:
            stride, size = coord.terms[variable], piece.sizes.get(variable)
            if variable not in piece.free:
                return f"coordinate {dim} is not linear in the indices"
            if stride < 0 and size is None:
                return f"coordinate {dim} falls while an index without a constant bound grows"
            if stride < 0:  # counted from its last value, which has to be one
                size = piece.narrowed.get(variable) or size
            if variable in used:
                return f"coordinate {dim} shares an index with another"
            used.add(variable)
            if stride < 0 and size is not None:
                offset = offset.shifted(stride * (size - 1))
            digits.append(Digit(variable, abs(stride), size, stride < 0))
        digits.sort(key=lambda d: d.stride)
        below, reach, requirements = Linear(0), 0, list[Linear]()
        for lower, upper in pairwise(digits):
            if lower.size is None:
                return f"coordinate {dim} has two terms without constant bounds"
            digit = Linear(0, {lower.variable: 1})
            below = below.plus(digit.times(-1).shifted(lower.size - 1) if lower.flipped else digit, lower.stride)
            reach += lower.stride * (lower.size - 1)
            if reach >= upper.stride:
                requirements.append(below.times(-1).shifted(upper.stride - 1))
        result.append(Radix(offset, tuple(digits), tuple(requirements)))
    if used != set(piece.free):
        return "an index takes several values for one element"
    return tuple(result)


@dataclass(frozen=True)
class Chain:
    """The digits of ``coordinate - base``: ``variables[k]`` counts ``places[k]``; the last one is unbounded."""

    base: Linear
    places: tuple[int, ...]
    variables: tuple[int, ...]

    @property
    def value(self) -> Linear:
        """The coordinate."""
        return self.base.plus(Linear(0, dict(zip(self.variables, self.places, strict=True))))

    def run(self, low: int, high: int | None) -> Linear:
        """The digits from place ``low`` up to ``high`` as a number."""
        pairs = zip(self.variables, self.places, strict=True)
        return Linear(0, {v: p // low for v, p in pairs if p >= low and (high is None or p < high)})


@dataclass(frozen=True)
class PlacedPiece:
    """A piece over the plane: ``inside`` and ``outside`` say whether an element belongs to it; ``outside`` is None when
    that needs a quantifier. ``values`` gives the piece's variables at the element."""

    piece: AccessPiece
    inside: Formula
    outside: Formula | None
    values: Mapping[int, Linear]


Ends: TypeAlias = Mapping[tuple[tuple[int, int], ...], Interval]
"""Numbers between which linear forms lie, by the forms' terms; their first coefficients are positive."""


def ends_of(formula: Formula) -> Ends:
    """Between what a formula keeps the forms that it bounds by constants, each by itself."""
    found: dict[tuple[tuple[int, int], ...], Interval] = {}
    for literal in formula.parts if isinstance(formula, Conjunction) else (formula,):
        if not isinstance(literal, Linear) or not literal.terms:
            continue
        const, terms = literal.key
        if terms[0][1] > 0:  # terms >= -const
            low, high = found.get(terms, (None, None))
            found[terms] = -const if low is None else max(low, -const), high
        else:
            terms = tuple((v, -c) for v, c in terms)
            low, high = found.get(terms, (None, None))
            found[terms] = low, const if high is None else min(high, const)
    return found


def are_apart(one: Ends, other: Ends) -> bool:
    """No point fulfils both formulas of these ends: some form would have to lie in two intervals that do not meet."""
    for terms, (low, high) in one.items():
        below, above = other.get(terms, (None, None))
        if (high is not None and below is not None and high < below) or (
            low is not None and above is not None and above < low
        ):
            return True
    return False


def differ_modulo(one: Sequence[Linear], other: Sequence[Linear]) -> bool:
    """No element has both coordinates: in some dimension their difference is never 0, for a number divides all that
    varies in it and not the rest, as in ``8 * n + 1`` and ``8 * m + 3``."""
    for a, b in zip(one, other, strict=True):
        apart = a.plus(b, -1)
        step = gcd(*apart.terms.values())
        if apart.const % step if step else apart.const:
            return True
    return False


class Plane:
    """The elements of one tensor as variables, shared by all pieces that write or promise them."""

    def __init__(self, variables: Variables, rank: int, radixes: Sequence[tuple[Radix, ...]]):
        self.variables = variables
        self.facts: list[Formula] = []
        self._chains: list[dict[object, Chain]] = []
        for dim in range(rank):
            self._chains.append(self._dimension(dim, [r[dim] for r in radixes]))

    @property
    def element(self) -> tuple[Linear, ...]:
        """The coordinates of an element."""
        return tuple(next(iter(chains.values())).value for chains in self._chains)

    def place(self, piece: AccessPiece, radixes: tuple[Radix, ...]) -> PlacedPiece:
        """The piece over the digits of the element."""
        values: dict[int, Linear] = {}
        extra: list[Formula] = []
        for chains, radix in zip(self._chains, radixes, strict=True):
            chain = _chain_of(chains, radix)
            rest = radix.offset.plus(chain.base, -1)
            if not radix.digits:
                extra.append(equal(chain.value, radix.offset))
                continue
            covered: set[int] = set()
            for digit, (low, high) in zip(radix.digits, radix.runs, strict=True):
                run = chain.run(low, high)
                covered |= {p for p in chain.places if p >= low and (high is None or p < high)}
                if high is None:
                    shift = rest.over(digit.stride)
                    assert shift is not None
                    run = run.plus(shift, -1)
                values[digit.variable] = run.times(-1).shifted((digit.size or 1) - 1) if digit.flipped else run
            gaps = [v for v, p in zip(chain.variables, chain.places, strict=True) if p not in covered]
            extra += [equal(Linear(0, {v: 1}), Linear(0)) for v in gaps]
        ranges = both((*extra, rewritten(piece.ranges, values)))
        definitions, predicate = rewritten(piece.definitions, values), rewritten(piece.predicate, values)
        return PlacedPiece(
            piece,
            both((ranges, definitions, predicate)),
            either((opposite(ranges), both((ranges, definitions, opposite(predicate))))),
            values,
        )

    def place_any(self, piece: AccessPiece) -> PlacedPiece:
        """A piece that is no mixed-radix number: the element equals the coordinates of some point."""
        same = [equal(e, c) for e, c in zip(self.element, piece.coords, strict=True)]
        return PlacedPiece(piece, both((piece.points, *same)), None, {})

    # -- digits of one dimension ----------------------------------------------------------------------------------
    def _dimension(self, dim: int, radixes: Sequence[Radix]) -> dict[object, Chain]:
        groups: dict[object, list[Radix]] = {}
        for radix in radixes:
            groups.setdefault(_group(radix), []).append(radix)
        chains: dict[object, Chain] = {}
        for key, members in groups.items():
            cuts = _ascending(members)
            if cuts is not None:
                chains[key] = self._chain(dim, Linear(0) if key == _ORIGIN else members[0].offset, cuts)
                continue
            for radix in members:  # cut at places that cross each other's digits: each gets digits of its own
                chains[id(radix)] = self._chain(dim, radix.offset, sorted(radix.cuts))
        if not chains:
            chains[_ORIGIN] = self._chain(dim, Linear(0), [])
        first, *others = chains.values()
        self.facts += [equal(first.value, other.value) for other in others]
        return chains

    def _chain(self, dim: int, base: Linear, cuts: Sequence[int]) -> Chain:
        places = (1, *cuts)
        highs = (*(-(-b // a) - 1 for a, b in zip(places, cuts, strict=False)), None)
        lows = (*(0 for _ in cuts), None)
        variables = tuple(
            self.variables.new(f"e{dim}/{p}", low, high) for p, low, high in zip(places, lows, highs, strict=True)
        )
        for k, (low, high) in enumerate(pairwise(places), start=1):
            if high % low:  # what lies below a place is less than it
                below = Linear(0, dict(zip(variables[:k], places[:k], strict=True)))
                self.facts.append(below.times(-1).shifted(high - 1))
        return Chain(base, places, variables)


_ORIGIN = "origin"


def _group(radix: Radix) -> object:
    """Numbers whose offset touches only their top digit share the digits of the coordinate itself."""
    return _ORIGIN if not radix.digits or radix.offset.over(radix.top) is not None else radix.offset.key


def _chain_of(chains: Mapping[object, Chain], radix: Radix) -> Chain:
    return chains.get(id(radix)) or chains[_group(radix)]


def _ascending(radixes: Sequence[Radix]) -> list[int] | None:
    """All cuts in ascending order, if those inside a digit's run are multiples of its stride."""
    cuts = sorted(set[int]().union(*(r.cuts for r in radixes)))
    runs = [run for r in radixes for run in r.runs]
    aligned = all(c % low == 0 for low, high in runs for c in cuts if c > low and (high is None or c < high))
    return cuts if aligned else None
