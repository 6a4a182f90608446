"""Comparisons of values of the IR with values of the PTX."""

from __future__ import annotations

from tilewright.validate.cases import Cases
from tilewright.validate.equality import Equality
from tilewright.validate.terms import Terms
from tilewright.validate.values import Values


class Small:
    """Two words of data, and an extent that is large, or less."""

    def __init__(self) -> None:
        self.terms = Terms(32)
        self.cases = Cases(self.terms)
        self.values = Values(self.terms, self.cases)
        self.equality = Equality(self.values, {}, {}, {}, {}, lambda *_: False, lambda _: False, {})
        n = self.terms.of(0, self.terms.atom("parameter", "N", low=0, high=100))
        self.x, self.y = (self.terms.data(32, 32, "scalar", name) for name in "xy")
        self.many, self.some = self.cases.at_least(n, 20), self.cases.at_least(n, 10)


def test_a_value_that_nothing_wrote_equals_none() -> None:
    s = Small()
    values, cases, x, y, many, some = s.values, s.cases, s.x, s.y, s.many, s.some
    ours = values.select(many, y, x)
    theirs = values.choose([(many, y), (cases.without(some, many), x)])
    assert s.equality.equal(ours, theirs, some)
    assert not s.equality.equal(ours, theirs, cases.true)


def test_an_operand_that_nothing_wrote_equals_none() -> None:
    s = Small()
    written = s.values.choose([(s.many, s.x), (s.cases.negate(s.some), s.y)])
    ours, theirs = s.equality.floats.mul(s.x, s.y), s.equality.floats.mul(written, s.y)
    assert s.equality.equal(ours, theirs, s.many)
    assert not s.equality.equal(ours, theirs, s.some)
