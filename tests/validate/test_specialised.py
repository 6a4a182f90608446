"""Values that are made again for where a condition holds: equal there, in every lane, whatever the data is."""

from __future__ import annotations

import random

import numpy as np
import pytest

from support.comparison import Comparison
from support.made_values import Made
from tilewright.validate.cases import Condition
from tilewright.validate.equality import COMPUTED
from tilewright.validate.polynomials import Poly
from tilewright.validate.specialised import Specialised
from tilewright.validate.values import Value

pytestmark = pytest.mark.sample(1)

EXTENTS = range(7)
WORDS = [int(np.float32(x).view(np.uint32)) for x in (0.0, -0.0, 1.5, -1.5, 2.0, np.inf, -np.inf, np.nan)]


class Random(Comparison):
    """Values of words of data, chosen by tests of data and bounds of threads, and exchanged by lanes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.n = self.terms.of(0, self.terms.atom("parameter", "N", low=0, high=max(EXTENTS)))
        self.words: list[Value] = [self.terms.data(32, 32, "scalar", name) for name in "xyz"]
        self.words += [self.terms.const(32, word) for word in WORDS]
        for _ in range(24):
            self.words.append(self._word())

    def _any(self) -> Value:
        return self.random.choice(self.words[-6:] if self.random.random() < 0.6 else self.words)

    def _word(self) -> Value:
        a, b = self._any(), self._any()
        match self.random.randrange(8):
            case 0:
                return self.arithmetic.floats.neg(a)
            case 1:
                return self.arithmetic.floats.absolute(a)
            case 2 | 3:
                distance, *rest = (self.terms.const(32, k) for k in (self.random.choice((1, 2, 16)), 31, -1))
                known = self.values.shuffled("bfly", a, distance, *rest)
                return known or self.terms.data(32, 32, "shfl.bfly", a, distance, *rest)
            case 4:
                low, high = (self.values.field(x, 0, 16, 32) for x in (a, b))
                return self.values.add(low, self.values.scale(high, 1 << 16))
            case _:
                return self.values.select(self.condition(), a, b)

    def condition(self) -> Condition:
        a, b, bound = self._any(), self._any(), self.random.choice(EXTENTS)
        match self.random.randrange(5):
            case 0:
                return self.cases.at_least(self.n, bound)
            case 1:
                lanes = self.terms.table(0, np.arange(32) // 4 + bound)
                return self.cases.not_negative(self.terms.sub(self.n, lanes))
            case 2:
                return self.arithmetic.compare("lt", self.random.choice(("s32", "u32")), a, b)
            case _:
                return self.arithmetic.compare_floats(self.random.choice(("lt", "le", "eq", "gtu", "neu", "num")), a, b)


@pytest.mark.parametrize("seed", range(12))
def test_made_again_they_are_equal_where_the_condition_holds(seed: int) -> None:
    r = Random(seed)
    care = r.cases.without(r.cases.at_least(r.n, 2), r.cases.at_least(r.n, 5))
    specialised = Specialised(r.arithmetic, care, COMPUTED)
    changed = 0
    for value in r.words:
        made = specialised.value(value)
        changed += made is not value
        for extent in (2, 3, 4) if made is not value else ():
            data = {name: [r.random.choice(WORDS) for _ in range(32)] for name in "xyz"}
            both = Made(r.terms, r.cases, data, {"N": extent})
            for lane in range(32):
                assert both.value(made, lane) == both.value(value, lane), (r.values.text(value), extent, lane)
    assert changed
    assert not r.arithmetic.needs


def test_a_condition_for_some_thread_holds_where_it_holds_for_one() -> None:
    r = Random(0)
    cases, n, x, y = r.cases, r.n, *r.words[:2]
    m, lanes = r.terms.of(0, r.terms.atom("parameter", "M", low=0)), r.terms.table(0, np.arange(32))
    some = cases.all((cases.not_negative(r.terms.sub(m, lanes)), cases.at_least(n, 3), 0xF0))
    tested = cases.both(some, r.arithmetic.compare_floats("lt", x, y))
    assert cases.for_some_thread(tested) == cases.for_some_thread(some) == cases.at_least(n, 3)
    assert cases.for_some_thread(0) == 0
    assert cases.for_some_thread(1) == cases.true
    by_data = cases.either(cases.both(r.arithmetic.compare_floats("lt", x, y), cases.at_least(n, 3)), 0)
    assert cases.for_some_thread(by_data) == cases.at_least(n, 3)


def test_what_nothing_wrote_somewhere_stays() -> None:
    r = Random(0)
    x, y = r.words[:2]
    many, some = r.cases.at_least(r.n, 4), r.cases.at_least(r.n, 2)
    unwritten = r.values.choose([(many, x), (r.cases.negate(some), y)])
    assert Specialised(r.arithmetic, many, COMPUTED).value(unwritten) is x
    assert Specialised(r.arithmetic, some, COMPUTED).value(unwritten) is unwritten
    negated = r.arithmetic.floats.neg(unwritten)
    assert Specialised(r.arithmetic, some, COMPUTED).value(negated) is negated


def test_a_comparison_that_would_rest_on_a_proof_stays() -> None:
    r = Random(0)
    far = r.terms.of(32, r.terms.atom("parameter", "far", low=0, high=1 << 40))
    many, word = r.cases.at_least(r.n, 4), r.words[0]
    assert isinstance(word, Poly)
    chosen = r.values.select(r.arithmetic.compare_floats("lt", word, r.words[1]), word, r.words[1])
    at = r.values.select(many, far, chosen)
    test = r.arithmetic.test("lt.s", r.terms.data(32, 32, "choice", at), word)
    made = Specialised(r.arithmetic, many, COMPUTED).condition(test)
    assert made == r.cases.both(test, many)
    assert not r.arithmetic.needs


def test_a_quotient_of_integers_is_none_of_floats() -> None:
    r = Random(0)
    x, minus = r.words[0], r.terms.const(32, -3)
    found = r.arithmetic.floats.remade("div.s32", 32, [x, minus])
    assert found is r.values.apply(32, "div.s32", x, minus)
