"""Facts about integers at a point: lower bounds of the linear forms that predicates bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from tilewright.base.expr import (
    All,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Interval,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Sym,
    conjuncts,
    interval,
    maximum,
    minimum,
    simplify,
)

_DEPTH = 4
"""Symbols that are replaced by a bound of theirs, one after another."""


@dataclass(frozen=True)
class SymbolFacts:
    """``ranges``: symbols that lie in ``begin <= symbol < end``; ``positive``: expressions that are at least 0;
    ``known``: intervals of dimensions and scalars; ``multiples``: of which numbers expressions are multiples."""

    known: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    multiples: Mapping[Expr, int] = field(default_factory=dict[Expr, int])
    ranges: Mapping[str, tuple[Expr, Expr]] = field(default_factory=dict[str, tuple[Expr, Expr]])
    positive: tuple[Expr, ...] = ()
    _found: dict[Expr, int | None] = field(init=False, default_factory=dict["Expr", "int | None"], compare=False)

    def within(self, name: str, begin: Expr, end: Expr) -> SymbolFacts:
        """Also that a symbol lies in a range, which is not empty."""
        least = self.least(begin)
        if not end.symbols.isdisjoint(self._counted):
            end = _above(least, end)
        known = {**self.known, name: (least, None)}
        end, more = self._without_small_factors(end, least)
        if isinstance(end, Max) and begin in end.args:  # there is a step, so the others decide
            end = maximum(*(part for part in end.args if part != begin))
        match end - begin:
            case FloorDiv(Sum(offset, ((Sym(extent), 1),)), n) if n.constant == offset + 1:  # ceildiv(extent, n) >= 1
                low, high = self.known.get(extent, (None, None))
                known[extent] = (max(1, low or 1), high)
            case _:
                pass
        return replace(
            self,
            known=known,
            ranges={**self.ranges, name: (begin, end)},
            positive=(*self.positive, end - begin - 1, *more),
        )

    def _without_small_factors(self, end: Expr, least: int | None) -> tuple[Expr, list[Expr]]:
        """``end`` of a range that begins at ``least`` and is not empty: without factors that are 1, as they are at most
        that; and what is not negative, as there is a step."""
        parts = end.args if isinstance(end, Min) else (end,)
        some = [part for part in parts if isinstance(part, Product) or (isinstance(part, Max) and part != end)]
        if least is None or least < 0 or not some:
            return end, []
        implied = [each for part in some for each in _implied(part - least - 1, self.known)]
        return minimum(*(_above(least, self._large(part)) for part in parts)), implied

    def _large(self, e: Expr) -> Expr:
        """Of a product that is not 0 the factors that may be above 1."""
        if not isinstance(e, Product):
            return e
        return prod((factor for factor in e.factors if interval(factor, self.known) != (0, 1)), start=Const(1))

    def when(self, predicates: Iterable[Expr]) -> SymbolFacts:
        """Also that these hold."""
        predicates = [part for p in predicates for part in conjuncts(p)]
        multiples = {**self.multiples, **dict(m for p in predicates for m in _multiples(p))}
        told = (simplify(d, self.known) for p in predicates for d in _differences(p))
        found = [each for d in told for part in _parts(d) for each in (part, *_implied(part, self.known))]
        known = dict(self.known)
        for d in found:
            terms = d.terms if isinstance(d, Sum) else ((d, 1),)
            offset = d.offset if isinstance(d, Sum) else 0
            (term, factor), *others = terms
            if isinstance(term, Sym) and factor > 0 and not others:
                low, high = known.get(term.name, (None, None))
                least = -(offset // factor)
                known[term.name] = (least if low is None else max(low, least), high)
        return replace(self, known=known, multiples=multiples, positive=(*self.positive, *found))

    def least(self, e: Expr) -> int | None:
        """A number that ``e`` is not less than; None if none is found."""
        if e not in self._found:
            self._found[e] = self._rounded(e, self._least(e, _DEPTH))
        return self._found[e]

    @property
    def _counted(self) -> set[str]:
        """Symbols that are known to be multiples of a constant. For others the ends of ranges stay unchanged: what
        neither side of a comparison can decide stays open on both."""
        return {symbol for known in self.multiples for symbol in known.symbols}

    def _rounded(self, e: Expr, least: int | None) -> int | None:
        """The first number from ``least`` on that ``e`` can be, by what it is a multiple of."""
        if least is None or e.symbols.isdisjoint(self._counted):
            return least
        residues = ((n, self._residue(e, n)) for n in set(self.multiples.values()))
        return max((least + (r - least) % n for n, r in residues if r is not None), default=least)

    def never_negative(self, e: Expr) -> bool:
        """``e`` is never negative."""
        least = self.least(e)
        return least is not None and least >= 0

    def never_negative_in_cases(self, e: Expr) -> bool:
        """The same, where it takes each part of a least or of a greatest by itself."""
        cases = _cases(e)
        return self.never_negative(e) or (bool(cases) and all(map(self.never_negative_in_cases, cases)))

    def _least(self, e: Expr, depth: int) -> int | None:
        whole, e = e, self._without_remainders(_without_quotients(e))
        lows = [
            *(self._plain(each) for each in dict.fromkeys((whole, e))),
            *(self._beside(e, d) for d in self.positive),
        ]
        found = [low for low in lows if low is not None]
        if depth:
            for other in (*self._replaced(e), *self._bounded_quotients(e, depth - 1)):
                low = self._least(other, depth - 1)
                if low is not None:
                    found.append(low)
        return max(found, default=None)

    def _without_remainders(self, e: Expr) -> Expr:
        """Remainders by what is known of multiples."""
        for term, factor in e.terms if isinstance(e, Sum) else ((e, 1),):
            if isinstance(term, Mod) and (n := term.denominator.constant):
                residue = self._residue(term.numerator, n)
                if residue is not None:
                    return self._without_remainders(e - term * factor + residue * factor)
        return e

    def _residue(self, e: Expr, n: int) -> int | None:
        """``e % n``, if it is one number."""
        if isinstance(e, Min | Max):
            found = {self._residue(part, n) for part in e.args}
            return found.pop() if len(found) == 1 else None
        if isinstance(e, Sum):
            parts = [0 if factor % n == 0 else self._residue(term, n) for term, factor in e.terms]
            factors = [factor for _, factor in e.terms]
            if any(part is None for part in parts):
                return None
            return (e.offset + sum(part * factor for part, factor in zip(parts, factors, strict=True) if part)) % n
        if e.constant is not None:
            return e.constant % n
        return 0 if self.multiples.get(e, 1) % n == 0 else None

    def _plain(self, e: Expr) -> int | None:
        return interval(simplify(e, self.known), self.known)[0]

    def _beside(self, e: Expr, positive: Expr) -> int | None:
        """What ``e`` exceeds something by that is not negative."""
        if positive.symbols.isdisjoint(e.symbols):
            return None
        rest = _without_quotients(e - positive * _times(e, positive))
        return rest.constant if isinstance(rest, Const) else self._plain(rest)

    def _bounded_quotients(self, e: Expr, depth: int) -> Iterator[Expr]:
        """Expressions that are not greater: a quotient at the least, or where it counts negatively the greatest, that
        its numerator allows."""
        for term, factor in e.terms if isinstance(e, Sum) else ((e, 1),):
            if isinstance(term, FloorDiv) and (n := term.denominator.constant or 0) > 0:
                sign = 1 if factor > 0 else -1
                least = self._least(term.numerator * sign, depth)
                if least is not None:
                    yield e - term * factor + least * sign // n * factor

    def _replaced(self, e: Expr) -> Iterator[Expr]:
        """Expressions that are not greater: a symbol at the end of its range where it counts negatively."""
        terms = e.terms if isinstance(e, Sum) else ((e, 1),)
        for term, factor in sorted(terms, key=lambda each: not isinstance(each[0], Min)):
            rest = e - term * factor
            if isinstance(term, Sym) and term.name in self.ranges and term.name not in rest.symbols:
                begin, end = self.ranges[term.name]
                if factor > 0:
                    yield rest + begin * factor
                else:
                    parts = end.args if isinstance(end, Min) else (end,)
                    yield from (rest + (part - 1) * factor for part in parts)
                return
            if isinstance(term, Min) and factor < 0:
                yield from (rest + part * factor for part in term.args)
                return
            if isinstance(term, Max) and factor > 0:
                yield from (rest + part * factor for part in term.args)
                return


def _times(e: Expr, positive: Expr) -> int:
    """How often the one term of an expression that is not negative is in ``e``; once if it has more, or is not."""
    if not isinstance(positive, Sum) or len(positive.terms) != 1 or not isinstance(e, Sum):
        return 1
    ((term, factor),) = positive.terms
    found = next((f for each, f in e.terms if each == term), 0)
    return found if factor == 1 and found > 1 else 1


def _above(least: int | None, end: Expr) -> Expr:
    """``end`` of a range that begins at ``least`` and is not empty: numbers below are not the greatest."""
    if isinstance(end, Min):
        return minimum(*(_above(least, part) for part in end.args))
    if isinstance(end, Max) and least is not None:
        return maximum(*(part for part in end.args if part.constant is None or part.constant > least))
    return end


def _multiples(predicate: Expr) -> Iterator[tuple[Expr, int]]:
    match predicate:
        case Compare("==", Mod(e, n), zero) if zero == Const(0) and n.constant:
            yield e, n.constant
        case _:
            pass


def _differences(predicate: Expr) -> Iterator[Expr]:
    if isinstance(predicate, Compare):
        if predicate.op == "<":
            yield predicate.rhs - predicate.lhs - 1
        elif predicate.op == "<=":
            yield predicate.rhs - predicate.lhs
        elif predicate.op == "==":
            yield predicate.rhs - predicate.lhs
            yield predicate.lhs - predicate.rhs
    elif isinstance(predicate, All):
        for part in predicate.args:
            yield from _differences(part)


def _parts(e: Expr) -> list[Expr]:
    """Of an expression that is not negative: those of which it is the least, which are not negative either."""
    terms = e.terms if isinstance(e, Sum) else ((e, 1),)
    for term, factor in terms:
        if isinstance(term, Min) and factor > 0:
            return [e - term * factor + arg * factor for arg in term.args]
    return [e]


def _implied(e: Expr, known: Mapping[str, Interval]) -> Iterator[Expr]:
    """What is not negative where a product, or a greatest, less a number above 0 is not."""
    match e:
        case Sum(offset, ((Product(factors), 1),)) if offset < 0:
            ranges = [interval(factor, known) for factor in factors]
            if all(low is not None and low >= 0 for low, _ in ranges):
                large = [factor for factor, (_, high) in zip(factors, ranges, strict=True) if high != 1]
                for factor in factors:
                    yield from _at_least(factor, 1)
                if len(large) == 1:
                    yield from _at_least(large[0], -offset)
        case Sum(offset, ((Max() as greatest, 1),)) if offset < 0:
            yield from _at_least(greatest, -offset)
        case _:
            pass


def _at_least(e: Expr, number: int) -> Iterator[Expr]:
    """What is not negative where ``e`` is at least ``number``."""
    match e:
        case Sum(offset, ((term, 1),)):
            yield from _at_least(term, number - offset)
        case Min(args):
            for part in args:
                yield from _at_least(part, number)
        case Max(args) if len(parts := [p for p in args if p.constant is None or p.constant >= number]) == 1:
            yield from _at_least(parts[0], number)
        case _ if e.constant is None:
            for part in _parts(e - number):
                yield part
                yield from _numerators(part)
        case _:
            pass


def _numerators(e: Expr) -> Iterator[Expr]:
    """What is not negative where ``e`` is not, as ``n * (a // n)`` is not above ``a``."""
    for term, factor in e.terms if isinstance(e, Sum) else ((e, 1),):
        if isinstance(term, FloorDiv) and (n := term.denominator.constant or 0) > 0 and factor > 0:
            yield (e - term * factor) * n + term.numerator * factor


def _cases(e: Expr) -> list[Expr]:
    """Expressions of which ``e`` is always one: a greatest that counts negatively, or a least, as each of its parts."""
    for term, factor in e.terms if isinstance(e, Sum) else ((e, 1),):
        if (isinstance(term, Max) and factor < 0) or (isinstance(term, Min) and factor > 0):
            return [e - term * factor + part * factor for part in term.args]
    return []


def _without_quotients(e: Expr) -> Expr:
    """``n * (a // n)`` is ``a - a % n``."""
    terms = e.terms if isinstance(e, Sum) else ((e, 1),)
    for term, factor in terms:
        if isinstance(term, FloorDiv) and (n := term.denominator.constant) and factor % n == 0:
            a, scale = term.numerator, factor // n
            return _without_quotients(e - term * factor + (a - a % n) * scale)
    return e
