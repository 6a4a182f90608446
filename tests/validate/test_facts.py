"""Lower bounds of linear forms against all values that facts allow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest

from tilewright.base.expr import Const, Expr, Sym, maximum, minimum
from tilewright.validate.tile_to_transport.facts import SymbolFacts

NAMES = "abk"
VALUES = [dict(zip(NAMES, each, strict=True)) for each in product(range(9), range(9), range(-3, 9))]
KNOWN = {"a": (0, 8), "b": (0, 8)}


def number(draw: random.Random, depth: int, names: str = NAMES) -> Expr:
    """An expression of sums, quotients, least and greatest ones, and products of what is not negative."""
    if not depth:
        return draw.choice([Sym(draw.choice(names)), Const(draw.randint(-3, 4))])
    x, y = (number(draw, depth - 1, names) for _ in range(2))
    match draw.randrange(6):
        case 0:
            return x + y * draw.choice([-2, -1, 1, 2])
        case 1:
            return x // draw.choice([2, 3])
        case 2:
            return minimum(x, y)
        case 3:
            return maximum(x, y)
        case 4:
            return maximum(x, 0) * minimum(maximum(y, 0), 1)
        case _:
            return minimum(x, maximum(y, 0), 1)


def allowed(predicates: list[Expr]) -> Iterator[dict[str, int]]:
    return (env for env in VALUES if all(p.evaluate(env) for p in predicates))


@pytest.mark.parametrize("seed", range(4))
def test_no_bound_is_above_what_predicates_allow(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        predicates = [number(draw, 2) >= draw.randint(1, 2), number(draw, 1) <= number(draw, 1)]
        facts, envs = SymbolFacts(KNOWN).when(predicates), list(allowed(predicates))
        for e in (number(draw, 2), -number(draw, 2), number(draw, 3)):
            least = facts.least(e)
            assert least is None or all(e.evaluate(env) >= least for env in envs), (predicates, e, least)


@pytest.mark.parametrize("seed", range(4))
def test_no_bound_is_above_what_the_steps_of_a_range_allow(seed: int) -> None:
    draw = random.Random(100 + seed)
    for _ in range(60):
        begin, end = (
            maximum(number(draw, 1, "ab"), draw.choice([0, 1])),
            minimum(*(number(draw, 2, "ab") for _ in "xy")),
        )
        facts = SymbolFacts(KNOWN).within("k", begin, end)
        envs = list(allowed([begin <= Sym("k"), Sym("k") < end]))
        for e in (number(draw, 2), number(draw, 2) - Sym("k") * 2, number(draw, 1) * 3 - Sym("k")):
            least = facts.least(e)
            assert least is None or all(e.evaluate(env) >= least for env in envs), (begin, end, e, least)


def test_a_product_of_steps_and_a_test_has_as_many_steps_as_its_larger_factor() -> None:
    a, b, k = map(Sym, NAMES)
    facts = SymbolFacts(KNOWN).within("k", Const(0), maximum((a - 1) // 2, 0) * minimum(maximum(b - 3, 0), 1))
    assert facts.never_negative(a - 3 - k * 2)
    assert facts.never_negative(b - 4)
    assert not facts.never_negative(a - 4 - k * 2)
    assert not facts.never_negative(b - 5)


def test_a_quotient_lies_between_what_its_numerator_allows() -> None:
    a, b = Sym("a"), Sym("b")
    facts = SymbolFacts({}).when([minimum(a, b) + 7 < 8])
    assert facts.never_negative(-((minimum(a, b) + 7) // 8))
    assert not facts.never_negative(-((minimum(a, b) + 8) // 8))
