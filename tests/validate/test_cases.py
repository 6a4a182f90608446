"""The algebra of conditions against an enumeration of threads and values."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.validate.cases import Cases, Condition
from tilewright.validate.polynomials import Poly, Table
from tilewright.validate.terms import Terms

THREADS, NAMES, REACH = 4, "pq", range(-1, 7)
thresholds = st.lists(st.integers(0, 5), min_size=THREADS, max_size=THREADS)
atoms = st.tuples(st.sampled_from(NAMES), thresholds) | st.integers(0, (1 << THREADS) - 1)
formulas = st.recursive(atoms, lambda inner: st.tuples(st.sampled_from(["both", "either", "differ"]), inner, inner))


class Conditions:
    """Conditions on two quantities, and what they are for values of these."""

    def __init__(self) -> None:
        self.terms = Terms(THREADS)
        self.cases = Cases(self.terms)
        self.quantities = {name: self.terms.of(0, self.terms.atom("parameter", name)) for name in NAMES}

    def made(self, formula: object) -> Condition:
        """The condition that a formula describes."""
        if isinstance(formula, int):
            return formula
        assert isinstance(formula, tuple)
        if len(formula) == 2:
            name, cuts = formula
            cut = self.terms.table(0, np.array(cuts))
            return self.cases.not_negative(self.terms.sub(self.quantities[name], cut))
        return getattr(self.cases, formula[0])(self.made(formula[1]), self.made(formula[2]))

    def holds(self, condition: Condition, values: dict[Poly, int]) -> tuple[bool, ...]:
        """For each thread, whether a condition holds of values of the quantities."""
        return tuple(self._holds(condition, values, thread) for thread in range(THREADS))

    def _holds(self, condition: Condition, values: dict[Poly, int], thread: int) -> bool:
        if isinstance(condition, int):
            return bool(condition >> thread & 1)
        value = values[self.cases.quantities[condition.quantity]]
        cuts = [int(c.values[thread]) if isinstance(c, Table) else c for c in condition.cuts]
        assert cuts == sorted(cuts)
        return self._holds(condition.children[sum(cut <= value for cut in cuts)], values, thread)

    def points(self) -> list[dict[Poly, int]]:
        """Values of both quantities around all thresholds."""
        return [dict(zip(self.quantities.values(), values, strict=True)) for values in product(REACH, repeat=2)]


def expected(formula: object, values: dict[str, int], thread: int) -> bool:
    """What a formula says, by its definition."""
    if isinstance(formula, int):
        return bool(formula >> thread & 1)
    assert isinstance(formula, tuple)
    if len(formula) == 2:
        return values[formula[0]] >= formula[1][thread]
    a, b = (expected(part, values, thread) for part in formula[1:])
    return {"both": a and b, "either": a or b, "differ": a != b}[formula[0]]


@settings(max_examples=60, deadline=None)
@given(formulas)
def test_a_condition_holds_where_its_formula_does(formula: object) -> None:
    c = Conditions()
    condition = c.made(formula)
    for point in c.points():
        values = dict(zip(NAMES, point.values(), strict=True))
        assert c.holds(condition, point) == tuple(expected(formula, values, t) for t in range(THREADS))


@settings(max_examples=60, deadline=None)
@given(formulas, formulas)
def test_what_is_known_need_not_be_said(formula: object, known: object) -> None:
    c = Conditions()
    a, k = c.made(formula), c.made(known)
    given_ = c.cases.given(a, k)
    assert c.cases.both(k, c.cases.differ(given_, a)) == 0
    for point in c.points():
        for x, y, asked in zip(c.holds(given_, point), c.holds(a, point), c.holds(k, point), strict=True):
            assert x == y or not asked


def test_what_is_known_is_left_out() -> None:
    c = Conditions()
    known, more = c.made(("p", [1, 1, 2, 2])), c.made(("q", [3, 3, 3, 3]))
    assert c.cases.given(c.cases.both(known, more), known) is more


@settings(max_examples=60, deadline=None)
@given(formulas)
def test_no_condition_holds_together_with_its_negation(formula: object) -> None:
    c = Conditions()
    a = c.made(formula)
    assert c.cases.both(a, c.cases.negate(a)) == 0
    assert c.cases.either(a, c.cases.negate(a)) == c.cases.true


def test_one_cut_stands_for_two_that_are_apart_for_no_thread_that_asks() -> None:
    c = Conditions()
    two = c.made(("both", ("p", [1, 1, 2, 2]), ("either", 0b0011, ("p", [2, 2, 2, 2]))))
    assert two == c.made(("p", [1, 1, 2, 2]))


def test_cuts_beyond_64_bits_beside_tables() -> None:
    terms = Terms(4)
    cases = Cases(terms)
    x = terms.of(0, terms.atom("parameter", "x"))
    row = terms.table(0, np.array([0, 5, (1 << 62), -3]))
    inside = cases.not_negative(terms.sub(x, row))
    large, small = cases.at_least(x, 1 << 63), cases.at_least(x, -(1 << 70))
    assert cases.both(inside, large) == large
    assert cases.either(inside, small) == small
    assert cases.both(large, cases.at_least(x, 1 << 64)) == cases.at_least(x, 1 << 64)


quotients = st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([1, 2, 4, 8])), max_size=3)


@settings(max_examples=120, deadline=None)
@given(quotients, st.integers(-3, 3), thresholds, st.integers(-3, 9))
def test_what_a_remainder_decides_is_a_condition_on_it(
    parts: list[tuple[int, int]], factor: int, cuts: list[int], offset: int
) -> None:
    """A sum of x and quotients of x is compared alike whether or not x mod 8 is told of, for all x and threads; where
    floor(x / 8) cancels out nothing but that remainder is asked."""
    told, plain = Conditions(), Conditions()

    def value(c: Conditions) -> tuple[Poly, Poly]:
        x = c.terms.add(c.quantities["p"], c.terms.const(0, offset))
        total = c.terms.sub(c.terms.scale(x, factor), c.terms.table(0, np.array(cuts)))
        for count, by in parts:
            total = c.terms.add(total, c.terms.scale(c.terms.floordiv(x, by), count))
        return x, total

    x, total = value(told)
    told.cases.remainder(x, 8)
    found, other = told.cases.not_negative(total), plain.cases.not_negative(value(plain)[1])
    if factor * 8 + sum(count * (8 // by) for count, by in parts) == 0:
        rest = told.terms.sub(x, told.terms.scale(told.terms.floordiv(x, 8), 8))
        assert {*told.cases.quantities_of(found)} <= {rest}
    for p in range(-20, 20):
        reference = factor * (p + offset) + sum(count * ((p + offset) // by) for count, by in parts)
        for c, condition in ((told, found), (plain, other)):
            values = {quantity: valued(c, quantity, p) for quantity in c.cases.quantities}
            assert c.holds(condition, values) == tuple(reference >= cut for cut in cuts)


def valued(c: Conditions, quantity: Poly, p: int) -> int:
    """A quantity of one parameter and of its quotients."""
    total = 0
    for monomial, count in quantity.terms:
        assert isinstance(count, int)
        for i in monomial:
            atom = c.terms.atoms[i]
            count *= p if atom.kind == "parameter" else valued(c, atom.args[0], p) // atom.args[1]  # type: ignore
        total += count
    return total
