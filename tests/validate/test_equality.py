"""Comparisons of values of the IR with values of the PTX."""

from __future__ import annotations

from tilewright.validate.cases import Cases
from tilewright.validate.equality import Equality
from tilewright.validate.terms import Terms
from tilewright.validate.values import Values


def test_a_value_that_nothing_wrote_equals_none() -> None:
    terms = Terms(32)
    cases = Cases(terms)
    values = Values(terms, cases)
    equality = Equality(values, {}, {}, {}, {}, lambda *_: False, lambda _: False, {})
    n = terms.of(0, terms.atom("parameter", "N", low=0, high=100))
    x, y = (terms.data(32, 32, "scalar", name) for name in "xy")
    many, some = cases.at_least(n, 20), cases.at_least(n, 10)
    ours = values.select(many, y, x)
    theirs = values.choose([(many, y), (cases.without(some, many), x)])
    assert equality.equal(ours, theirs, some)
    assert not equality.equal(ours, theirs, cases.true)
