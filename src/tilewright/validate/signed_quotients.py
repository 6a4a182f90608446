"""Quotients by numbers of integers that may be negative, rounded towards 0, as NVRTC computes them by reciprocals.

With ``m d = n + e``, ``0 < e`` and ``2**31 e <= n``, where n is ``2**32`` and more, ``floor(m x / n)`` is
``floor(x / d)`` for an x from 0 on, and one less than the quotient towards 0 for a negative one (Granlund and
Montgomery 1994): that is ``floor(x / d)``, or one less of a multiple of d. Its sign is that of x.

Most dividends are never negative, and are taken to be so, which is left to be proved. Those of which it is not shown,
and those that lie between bounds below and above 0, are divided here when the text is evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Poly
from tilewright.validate.values import Value, Values

_BITS = 32
_HALF, _WORDS = 1 << (_BITS - 1), 1 << _BITS


class Negative(Exception):
    """Raised where some lines of a text divide, by a reciprocal, what may be negative."""

    def __init__(self, lines: set[int]):
        super().__init__(str(sorted(lines)))
        self.lines = lines


class SignedQuotients:
    """Those of products in some ``lines`` of a text. ``within`` notes that an integer lies in a range."""

    def __init__(self, values: Values, within: Callable[[Poly, int, int], Poly], lines: frozenset[int] = frozenset()):
        self.values, self.terms, self.cases = values, values.terms, values.cases
        self.within, self.lines = within, lines
        self.lines_of: dict[Poly, set[int]] = {}
        """By integer, where its products with numbers are computed of which the upper half is taken."""
        self.around_0: set[int] = set()
        """Lines of products of integers that are known to lie above a number below 0."""
        self._dividends: set[Poly] = set()
        self._divided: dict[Value, Poly] = {}
        self._products: dict[Value, tuple[Poly, int]] = {}
        """By quotients that are upper halves themselves: they may be shifted."""

    def multiplied(self, x: Poly, line: int) -> None:
        """Notes the line of a product of ``x`` and a number."""
        self.lines_of.setdefault(x, set()).add(line)
        low, _ = self.terms.interval(x)
        if low is not None and -_HALF < low < 0:
            self.around_0.add(line)
        if line in self.lines:
            self._dividends.add(x)

    def quotient(self, upper: Value, count: int) -> Value | None:
        """The upper half of a product, shifted down with its sign; None of others."""
        product = self._product(upper)
        if product is None or not 0 <= count < _BITS:
            return None
        x, m = product
        n = _WORDS << count
        d = -(-n // m)
        e = m * d - n
        if d < 2 or e <= 0 or _HALF * e > n:
            return None
        self.within(x, -_HALF, _HALF - 1)
        floor = self.terms.floordiv(x, d)
        rest = self.terms.sub(x, self.terms.scale(floor, d))
        multiple = self.cases.without(self._negative(x), self.cases.at_least(rest, 1))
        less = self.terms.sub(floor, self.terms.const(0, 1))
        found = self.values.select(multiple, *(self.terms.resize(p, _BITS) for p in (less, floor)))
        self._divided[found] = x
        if count == 0:
            self._products[found] = x, m
        return found

    def negative(self, upper: Value) -> Condition | None:
        """Where the upper half of a product, or such a quotient, is negative; None of others."""
        x = self._divided.get(upper)
        if x is None and (product := self._product(upper)) is not None:
            x, _ = product
        return None if x is None else self._negative(self.within(x, -_HALF, _HALF - 1))

    def _product(self, upper: Value) -> tuple[Poly, int] | None:
        """The integer and the number of which a word is the upper half of the product."""
        if not isinstance(upper, Poly) or upper in self._products:
            return self._products.get(upper)
        whole, by = self.terms.parted.get(self.terms.resize(upper, 0), (upper, 0))
        if by != _WORDS or upper.width != _BITS:
            return None
        x, m = self.terms.scaled[whole]
        return (x, m) if x in self._dividends and 0 < m < _WORDS else None

    def _negative(self, x: Poly) -> Condition:
        return self.cases.negate(self.cases.not_negative(x))
