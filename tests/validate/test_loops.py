"""Closed forms of what loops carry, and the steps that a comparison may take."""

from __future__ import annotations

from functools import reduce

import pytest

from tilewright.validate.cases import Cases
from tilewright.validate.loops import Iterations
from tilewright.validate.polynomials import Poly
from tilewright.validate.terms import Terms
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Values


@pytest.fixture
def iterations() -> Iterations:
    terms = Terms(32)
    return Iterations(Values(terms, Cases(terms)))


def test_a_loop_that_runs_as_often_in_every_iteration_counts_a_product(iterations: Iterations) -> None:
    terms, trips = iterations.terms, iterations.trips("inner")
    iterations.counts("inner", [terms.const(0, 0), terms.of(0, terms.atom("parameter", "K", low=0)), terms.const(0, 1)])
    assert iterations.closed("outer", terms.const(0, 0), trips) is terms.mul(iterations.count("outer"), trips)


@pytest.mark.parametrize("kind", ["counted", "loaded"])
def test_a_loop_that_runs_more_and_more_often_counts_no_product(iterations: Iterations, kind: str) -> None:
    """As often as the iteration's number says, or an integer that each iteration loads."""
    terms, trips = iterations.terms, iterations.trips("inner")
    end = iterations.count("outer") if kind == "counted" else terms.of(0, terms.atom("bound", ("outer",), 0, low=0))
    iterations.counts("inner", [terms.const(0, 0), end, terms.const(0, 1)])
    closed = iterations.closed("outer", terms.const(0, 0), trips)
    assert isinstance(closed, Poly)
    atom = terms.single(closed)
    assert atom is not None
    assert (atom.kind, *atom.args) == ("sum", "outer", trips)


@pytest.mark.parametrize(("most", "once"), [(1, True), (2, False)])
def test_a_loop_of_at_most_one_iteration_counts_none(iterations: Iterations, most: int, once: bool) -> None:
    terms = iterations.terms
    end = terms.of(
        0, terms.atom("min", terms.const(0, most), terms.of(0, terms.atom("parameter", "K", low=0)), high=most)
    )
    iterations.counts("loop", [terms.const(0, 0), end, terms.const(0, 1)])
    assert (iterations.count("loop") is terms.const(0, 0)) == once
    assert (iterations.trips("loop") is terms.const(0, 1)) == once


def test_what_an_iteration_leaves_is_what_the_next_one_finds(iterations: Iterations) -> None:
    """Where it is so before the first one too, and nothing but the iteration's number changes it."""
    terms, count = iterations.terms, iterations.count("loop")
    a = terms.of(0, terms.atom("parameter", "a", low=0))
    latest, start = terms.add(a, terms.scale(count, 3)), terms.sub(a, terms.const(0, 3))
    assert iterations.following("loop", start, latest) is terms.add(start, terms.scale(count, 3))
    assert iterations.following("loop", a, latest) is None
    drawn = terms.of(0, terms.atom("bound", ("loop",), 0, low=0))
    assert iterations.following("loop", drawn, drawn) is None
    assert (
        iterations.following("loop", terms.sub(drawn, terms.const(0, 3)), terms.add(drawn, terms.scale(count, 3)))
        is None
    )


@pytest.mark.slow
def test_long_products_end_undecided() -> None:
    """n products of sums of two terms are a sum of 2**n terms."""
    terms = Terms(32)
    pairs = ((terms.data(32, 8, "word", n), terms.data(32, 1, "sign", n)) for n in range(64))
    sums = (terms.sub(word, terms.scale(sign, 257)) for word, sign in pairs)
    with pytest.raises(Undecided, match="more than"):
        reduce(terms.mul, sums, terms.const(32, 1))
