"""The solver of access proofs against plain enumeration of small boxes."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tilewright.verify.access_linear import Conjunction, Disjunction, Formula, Linear, Variables
from tilewright.verify.access_radix import are_apart, differ_modulo, ends_of
from tilewright.verify.access_solve import KnownLiterals, Solver

pytestmark = pytest.mark.sample(12)

LOW, HIGH = -3, 4


def holds(formula: Formula, point: dict[int, int]) -> bool:
    match formula:
        case Linear():
            return formula.value(point) >= 0
        case Conjunction(parts):
            return all(holds(p, point) for p in parts)
        case Disjunction(parts):
            return any(holds(p, point) for p in parts)


def literal(rng: random.Random, variables: int) -> Linear:
    terms = {v: rng.choice((-8, -4, -2, -1, 1, 2, 4, 8)) for v in rng.sample(range(variables), rng.randint(1, 2))}
    return Linear(rng.randint(-9, 9), terms)


def formula(rng: random.Random, variables: int, depth: int = 2) -> Formula:
    if depth == 0 or rng.random() < 0.5:
        return literal(rng, variables)
    parts = tuple(formula(rng, variables, depth - 1) for _ in range(rng.randint(1, 3)))
    return rng.choice((Conjunction, Disjunction))(parts)


@pytest.mark.parametrize("seed", range(150))
def test_a_point_is_found_where_there_is_one(seed: int):
    rng = random.Random(seed)
    variables = Variables()
    for v in range(3):
        variables.new(f"v{v}", LOW, HIGH)
    facts = [formula(rng, 3, 1) for _ in range(rng.randint(0, 3))]
    asked = [formula(rng, 3) for _ in range(rng.randint(1, 4))]
    every = (dict(enumerate(values)) for values in product(range(LOW, HIGH + 1), repeat=3))
    right = [point for point in every if all(holds(f, point) for f in [*facts, *asked])]
    found = Solver(variables).find(KnownLiterals(variables, None, facts), asked)
    assert (found is None) == (not right)
    assert found is None or dict(found) in right


@pytest.mark.parametrize("seed", range(40))
def test_what_refutes_a_form_is_looked_for_among_all_that_could(seed: int):
    rng = random.Random(seed)
    variables = Variables()
    for v in range(5):
        low, high = rng.choice((None, -2, 0, 1)), rng.choice((None, 3, 7))
        variables.new(f"v{v}", low, high)
    nothing = Linear(0)
    known = KnownLiterals(variables)
    for _ in range(12):
        known = KnownLiterals(variables, known) if rng.random() < 0.5 else known
        known.add(literal(rng, 5))
    for _ in range(40):
        form = literal(rng, 5)
        others = [nothing, *known.everything()]
        multiples = ((a, b, k) for other in others for a, b in ((form, other), (other, form)) for k in (1, 2, 4, 8))
        found = known.refutes(form)
        assert found or not any(variables.negative(form, other) for other in others)
        assert not found or any(variables.negative(a, b, k) for a, b, k in multiples)


def test_a_digit_beyond_those_of_a_tile_is_refuted_without_isl() -> None:
    """8 q + r is in a tile of 16 from 16 p on, so q is not less than 2 p: eight times the one and the other."""
    variables = Variables()
    r, q, p = variables.new("r", 0, 7), variables.new("q"), variables.new("p")
    tile = Linear(0, {r: 1, q: 8, p: -16}), Linear(15, {r: -1, q: -8, p: 16})
    for facts, asked in (
        (tile, Linear(-1, {q: -1, p: 2})),
        ((Linear(0, {q: 1, p: -2}),), Linear(-1, {r: -1, q: -8, p: 16})),
    ):
        solver = Solver(variables)
        assert solver.find(KnownLiterals(variables, None, facts), [Disjunction((asked, Linear(-8, {r: 1})))]) is None
        assert not solver.isl_calls
    assert Solver(variables).find(KnownLiterals(variables, None, tile), [Linear(0, {q: -1, p: 2})]) is not None


def test_what_no_choice_changes_is_not_asked_of_each_case() -> None:
    """Ten choices between two, about what the contradiction has nothing to do with: 1024 cases."""
    variables = Variables()
    x, y, *others = (variables.new(f"v{v}", 0, 9) for v in range(12))
    choices = [Disjunction((Linear(-3, {v: 1, x: 1}), Linear(3, {v: -1, y: 1}))) for v in others]
    odd = [Linear(-1, {x: 2, y: -4}), Linear(1, {x: -2, y: 4})]  # 2x - 4y == 1
    solver = Solver(variables)
    assert solver.find(KnownLiterals(variables, None, choices), odd) is None
    assert solver.isl_calls < 200
    even = [Linear(-2, {x: 2, y: -4}), Linear(2, {x: -2, y: 4})]
    point = Solver(variables).find(KnownLiterals(variables, None, choices), even)
    assert point is not None
    assert all(holds(f, dict(point)) for f in [*choices, *even])


def test_choices_about_what_is_asked_are_tried_first() -> None:
    """Both ways of the last choice are impossible; ten choices before it, of 1024 cases, have to do with neither."""
    variables = Variables()
    x, y, *others = (variables.new(f"v{v}", 0, 9) for v in range(12))
    choices = [Disjunction((Linear(-3, {v: 1}), Linear(2, {v: -1}))) for v in others]
    odd = Disjunction(tuple(Conjunction((Linear(-n, {x: 2, y: -4}), Linear(n, {x: -2, y: 4}))) for n in (1, 3)))
    solver = Solver(variables)
    assert solver.find(KnownLiterals(variables, None, [*choices, odd]), [Linear(-1, {x: 1})]) is None
    assert solver.isl_calls < 60
    even = Conjunction((Linear(-2, {x: 2, y: -4}), Linear(2, {x: -2, y: 4})))
    asked = [*choices, Disjunction((odd, even))], [Linear(-1, {x: 1})]
    point = Solver(variables).find(KnownLiterals(variables, None, asked[0]), asked[1])
    assert point is not None
    assert all(holds(f, dict(point)) for f in [*choices, even, *asked[1]])


def test_alternatives_that_nothing_allows_are_tried_once() -> None:
    """x lies in a tile of 64 and lane = x // 8: every way to lie elsewhere contradicts that, whatever the five choices
    between two that come first, about other variables, are."""
    variables = Variables()
    x, tile, lane, *others = (variables.new(f"v{v}") for v in range(8))
    known = [
        *(Disjunction((Linear(0, {v: 1}), Linear(-1, {v: -1}))) for v in others),
        *(Linear(0, {x: 1, tile: -64}), Linear(63, {x: -1, tile: 64}), Linear(0, {tile: 1})),
        *(Linear(0, {x: 1, lane: -8}), Linear(7, {x: -1, lane: 8})),
    ]
    elsewhere = (
        *(Linear(-1, {lane: -1}), Linear(-1, {x: -1}), Linear(-1, {tile: -1, lane: -1})),
        *(Linear(-1, {lane: -1, tile: 8}), Linear(-8, {lane: 1, tile: -8})),
    )
    solver = Solver(variables)
    assert solver.find(KnownLiterals(variables, None, known), [Disjunction(elsewhere)]) is None
    assert solver.isl_calls < 150
    last = Linear(-63, {x: 1, tile: -64})
    point = Solver(variables).find(KnownLiterals(variables, None, known), [Disjunction((*elsewhere, last))])
    assert point is not None
    assert all(holds(f, dict(point)) for f in [*known, last])


@pytest.mark.parametrize("seed", range(60))
def test_what_is_apart_by_its_ends_has_no_common_point(seed: int) -> None:
    rng = random.Random(seed)
    pairs = [
        tuple(Conjunction(tuple(literal(rng, 2) for _ in range(rng.randint(1, 3)))) for _ in "ab") for _ in range(60)
    ]
    points = [dict(enumerate(values)) for values in product(range(-12, 13), repeat=2)]
    apart = [(a, b) for a, b in pairs if are_apart(ends_of(a), ends_of(b))]
    assert not [1 for a, b in apart for point in points if holds(a, point) and holds(b, point)]


@pytest.mark.parametrize("seed", range(20))
def test_coordinates_that_differ_by_a_rest_have_no_common_element(seed: int) -> None:
    """Of two dimensions, and of three variables, the last of which is a parameter of both."""
    rng = random.Random(seed)
    apart = 0
    for _ in range(60):
        one, other = (
            [Linear(rng.randint(-9, 9), {v: rng.choice((2, 4, 6, 8)) for v in (own, 2)}) for _ in range(2)]
            for own in (0, 1)
        )
        if differ_modulo(one, other):
            apart += 1
            points = (dict(enumerate(values)) for values in product(range(-4, 5), repeat=3))
            assert not [p for p in points if all(a.value(p) == b.value(p) for a, b in zip(one, other, strict=True))]
    assert apart


def test_coordinates_that_may_be_equal() -> None:
    n, m = {0: 8}, {1: 8}
    assert differ_modulo([Linear(1, n)], [Linear(3, m)])
    assert not differ_modulo([Linear(1, n)], [Linear(9, m)])
    assert not differ_modulo([Linear(1, n)], [Linear(1, n)])
    assert differ_modulo([Linear(1)], [Linear(2)])
    assert not differ_modulo([Linear(1, n)], [Linear(3, {1: 1})])


def test_ends_that_meet_in_one_point() -> None:
    x, minus = Linear(-3, {0: 1, 1: 2}), Linear(3, {0: -1, 1: -2})  # x0 + 2 * x1 >= 3, and <= 3
    assert not are_apart(ends_of(x), ends_of(minus))
    assert are_apart(ends_of(x), ends_of(minus.shifted(-1)))
    assert are_apart(ends_of(minus), ends_of(x.shifted(-1)))
    assert not are_apart(ends_of(x), ends_of(Linear(-5, {0: 1})))


def test_numbers_beyond_64_bits_are_exact() -> None:
    """Bounds of indices of 64 bits, one further: islpy takes no such integers."""
    variables = Variables()
    x = variables.new("x", -(1 << 63), (1 << 63) - 1)
    y = variables.new("y", None, None)
    far = [Linear(-(1 << 64), {x: 1, y: 1}), Linear((1 << 64) + 1, {y: -1})]
    assert Solver(variables).find(KnownLiterals(variables, None, far), [Linear(-(1 << 63) + 1, {x: 1})]) is not None
    assert Solver(variables).find(KnownLiterals(variables, None, far), [Linear(-(1 << 63), {x: 1})]) is None
    assert Solver(variables).find(KnownLiterals(variables, None, far), [Linear(-2, {x: -1})]) is None
