"""Comparisons of f32s in one form: what several of them say of one value, or of one pair, is one condition, however
NVRTC has written it.

Two integers say all that comparisons can. The *rank* of a value is its place among the floats: of a positive one its
bits, of a negative one minus those of its magnitude, 0 of both zeros, and ``NAN_RANK``, above all others, of a NaN. The
*order* of a pair is ``1 + (a > b) - (a < b)``: 0, 1 or 2, and 1 where one is NaN.
"""

from __future__ import annotations

from tilewright.validate.cases import Cases, Condition
from tilewright.validate.constants import SIGN
from tilewright.validate.polynomials import Poly
from tilewright.validate.terms import Terms

RANK, ORDER = "test.rank.f32", "test.order.f32"
"""The kinds of atoms of both."""

NAN_RANK = 0x7F800001
"""One more than the bits of infinity."""

_NEGATIONS = {"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt", "neu": "eq", "equ": "ne", "nan": "num"}
_ORDERS = {"num": (0, 3), "lt": (0, 1), "le": (0, 2), "eq": (1, 2), "ge": (1, 3), "gt": (2, 3)}
"""The orders of numbers for which a comparison holds: from the first on, below the second."""


class FloatOrders:
    """Conditions on the ranks and the orders of f32s."""

    def __init__(self, terms: Terms, cases: Cases):
        self.terms, self.cases = terms, cases

    def compare(self, name: str, a: Poly, b: Poly) -> Condition:
        """setp: forms that end with u hold where an operand is NaN, the others where none is."""
        cases = self.cases
        if name in _NEGATIONS:
            return cases.negate(self.compare(_NEGATIONS[name], a, b))
        if name == "ne":
            return cases.without(self.compare("num", a, b), self.compare("eq", a, b))
        first, last = _ORDERS[name]
        bits = self.terms.number(b)
        if bits is not None and (rank := _rank(bits)) < NAN_RANK:
            low, high = -NAN_RANK if first == 0 else rank + first - 1, NAN_RANK if last == 3 else rank + last - 1
            return cases.without(self.rank_reaches(a, low), self.rank_reaches(a, high))
        numbers = cases.negate(cases.either(self.rank_reaches(a, NAN_RANK), self.rank_reaches(b, NAN_RANK)))
        return cases.without(cases.both(numbers, self.order_reaches(a, b, first)), self.order_reaches(a, b, last))

    def rank_reaches(self, a: Poly, least: int) -> Condition:
        """Where the rank is so much at least: that of -x where that of x is minus so much at most, or NaN's."""
        if least > NAN_RANK:
            return 0
        bits = self.terms.number(a)
        if bits is not None:
            return self.cases.true if _rank(bits) >= least else 0
        rest = self._negated(a)
        if rest is not None:
            return self.cases.either(self.cases.negate(self._reached(rest, 1 - least)), self._reached(rest, NAN_RANK))
        return self._reached(a, least)

    def order_reaches(self, a: Poly, b: Poly, least: int) -> Condition:
        """Where the order is so much at least. The two are exchanged, or negated, where that of the others is
        ``2 - least`` at most; beside a number it is told by the rank."""
        cases, terms = self.cases, self.terms
        if not 0 < least < 3:
            return cases.true if least <= 0 else 0
        if terms.number(a) is not None and terms.number(b) is None:
            return cases.negate(self.order_reaches(b, a, 3 - least))
        bits = terms.number(b)
        if bits is not None:
            if _rank(bits) == NAN_RANK:
                return cases.true if least == 1 else 0
            reached = self.rank_reaches(a, _rank(bits) + least - 1)
            return reached if least == 1 else cases.without(reached, self.rank_reaches(a, NAN_RANK))
        x, y = self._negated(a), self._negated(b)
        if x is not None:
            negated = y or terms.data(32, 32, "neg.f32", b)
            return cases.negate(self.order_reaches(x, negated, 3 - least))
        if a is b:
            return cases.true if least == 1 else 0
        if a is y:
            return self.order_reaches(a, terms.const(32, 0), least)
        if a.id > (y or b).id:
            if y is not None:  # a < -y where y < -a
                return self.order_reaches(y, terms.data(32, 32, "neg.f32", a), least)
            return cases.negate(self.order_reaches(b, a, 3 - least))
        return cases.at_least(terms.of(0, terms.atom(ORDER, a, b, low=0, high=2)), least)

    def rank(self, a: Poly) -> Poly:
        """The quantity in terms of which comparisons of a value, which is no number, with numbers are expressed."""
        atom = self.terms.atom(RANK, self._negated(a) or a, low=1 - NAN_RANK, high=NAN_RANK)
        return self.terms.of(0, atom)

    def _reached(self, a: Poly, least: int) -> Condition:
        return self.cases.at_least(self.rank(a), least)

    def _negated(self, a: Poly) -> Poly | None:
        """What a value is the negation of, if it is one."""
        atom = self.terms.single(a)
        inner = atom.args[0] if atom is not None and atom.kind == "neg.f32" else None
        return inner if isinstance(inner, Poly) else None


def _rank(bits: int) -> int:
    """The rank of a number."""
    magnitude = min(bits & ~SIGN & 0xFFFFFFFF, NAN_RANK)
    return -magnitude if bits & SIGN and magnitude < NAN_RANK else magnitude
