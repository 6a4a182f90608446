"""Bounds of coordinates over all programs and iterations, as expressions over what a launch is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import (
    TRUE,
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
    interval,
    maximum,
    minimum,
    simplify,
)


class Limits:
    """The values that program ids and stream counters take: symbol -> its greatest value; the least is 0.

    Every other symbol (a dimension, at least 0, or a runtime scalar, between its ends) is fixed during a launch and
    stands for itself.
    """

    def __init__(self, dims: frozenset[str], scalars: Mapping[str, Interval] = MappingProxyType({})):
        self._greatest = dict[str, Expr | None]()
        self._walked = dict[Expr, Expr]()
        self.known: Mapping[str, Interval] = {**dict.fromkeys(dims, (0, MAX_EXTENT)), **scalars}

    def range(self, e: Expr) -> Interval:
        """Numbers between which every value of ``e`` lies, whatever the launch."""
        bounds = dict(self.known)
        for symbol, top in self._greatest.items():
            bounds[symbol] = (0, None if top is None else interval(top, bounds)[1])
        return interval(e, bounds)

    def add(self, symbol: str, count: Expr) -> None:
        """``symbol`` runs over ``range(count)``; a count that varies itself is bounded first."""
        top = self.upper(count)
        self._greatest[symbol] = None if top is None else top - 1

    def bounds(self, symbol: str) -> bool:
        """Whether ``symbol`` has a greatest value."""
        return symbol in self._greatest

    def walk(self, begin: Expr, stop: Expr) -> None:
        """``begin``, where a step of a stream begins, lies before ``stop``, though what it is made of may be loaded."""
        top = self.upper(stop)
        if top is not None:
            self._walked[begin] = top - 1

    def inside(self, coord: Expr, dim: Expr, stops: Sequence[Expr] = ()) -> bool:
        """Whether ``0 <= coord < dim`` in every program of every launch. Where there is a coordinate, the ranges that
        it is made of have an element, and those that end at ``stops``: their extents are at least 1."""
        known = self.known
        extents = [*stops, *(top + 1 for s in coord.symbols if (top := self._greatest.get(s)) is not None)]
        filled = {e.name for e in extents if isinstance(e, Sym)} & known.keys()
        self.known = {**known, **{name: (max(1, known[name][0] or 0), known[name][1]) for name in filled}}
        found = self.at_least(coord, Const(0)) and self.at_least(dim - 1, coord)
        self.known = known
        return found

    def at_least(self, high: Expr, low: Expr) -> bool:
        """Whether ``high`` is never less than ``low``."""
        slack = self.lower(high - low)
        if slack is not None and simplify(slack >= 0, self.known) == TRUE:
            return True
        match high, low:
            case Min(), _:
                return all(self.at_least(part, low) for part in high.args)
            case _, Max():
                return all(self.at_least(high, part) for part in low.args)
            case Max(), _ if any(self.at_least(part, low) for part in high.args):
                return True
            case _, Min():
                return any(self.at_least(high, part) for part in low.args)
            case _:
                return False

    def upper(self, e: Expr) -> Expr | None:
        """An expression of launch-time values that is never less than ``e``; None if none is found."""
        for begin, last in self._walked.items():
            beside = (e - begin).constant
            if beside is not None:
                return last + beside
        return self._bound(e, up=True)

    def lower(self, e: Expr) -> Expr | None:
        """An expression of launch-time values that is never greater than ``e``; None if none is found."""
        return self._bound(e, up=False)

    def _bound(self, e: Expr, *, up: bool) -> Expr | None:
        if e.symbols.isdisjoint(self._greatest):
            return e
        if e.text in self._greatest:
            return self._greatest[e.text] if up else Const(0)
        match e:
            case Sum(offset, terms):
                total: Expr = Const(offset)
                for term, c in terms:
                    part = self._bound(term, up=up == (c > 0))
                    if part is None:
                        return None
                    total = total + part * c
                return total
            case Product(factors):
                return self._product(factors, up=up)
            case FloorDiv(a, b):
                part = self._bound(a, up=up)
                return part // b if part is not None and self.fixed(b) else None
            case Mod(_, b):
                return (b - 1 if up else Const(0)) if self.fixed(b) else None
            case Min(args) | Max(args):
                parts = [self._bound(a, up=up) for a in args]
                found = [p for p in parts if p is not None]
                if isinstance(e, Min) == up and found:  # one bound is enough for the least from above
                    return minimum(*found) if up else maximum(*found)
                if len(found) < len(parts):
                    return None
                return maximum(*found) if isinstance(e, Max) else minimum(*found)
            case _:
                return None

    def _product(self, factors: tuple[Expr, ...], *, up: bool) -> Expr | None:
        """Factors that can't be negative grow and shrink together."""
        result: Expr = Const(1)
        for factor in factors:
            least = self._bound(factor, up=False)
            part = self._bound(factor, up=up)
            floor = None if least is None else interval(least, self.known)[0]
            if part is None or floor is None or floor < 0:
                return None
            result = result * part
        return result

    def fixed(self, e: Expr) -> bool:
        """Whether a divisor is fixed during the launch; that it is positive becomes a requirement of the launch."""
        return e.symbols.isdisjoint(self._greatest)
