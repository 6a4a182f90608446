"""Affine layouts against enumeration: values, existence, inverses, runs, canonical forms, composition, refusals."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest

from support.affine_agreement import check_pair, check_questions, cyclic_inverse_exists
from support.affine_oracle import random_case
from support.attempts import attempt
from tilewright.base.expr import sym
from tilewright.layout.library.affine import AffineLayout
from tilewright.layout.library.affine_algebra import compose, divide, invert, right_inverse, stack
from tilewright.layout.library.affine_queries import alignment, image, is_injective, preimage, vector_width
from tilewright.layout.library.lattice import hermite, smith


@pytest.mark.slow
def test_questions_agree_with_enumeration() -> None:
    rng = random.Random(20)
    outcomes = Counter(check_questions(random_case(rng)) for _ in range(300))
    assert outcomes["found"] > 30
    assert outcomes["none"] > 60


def test_canonical_forms() -> None:
    rng = random.Random(21)
    assert sum(check_pair(rng, random_case(rng)) for _ in range(300)) > 200


@pytest.mark.parametrize("extent", range(1, 8))
def test_cyclic_inverses_are_found_exactly_when_there_are_any(extent: int) -> None:
    for modulus, step in product(range(1, 8), range(-7, 8)):
        if extent * step % modulus == 0:
            _, code = attempt(
                lambda m=modulus, s=step: right_inverse(AffineLayout.strided(extent, s, "x", "y", modulus=m))
            )
            assert (code == "") == cyclic_inverse_exists(extent, step, modulus)


def test_composition_agrees_with_enumeration() -> None:
    rng = random.Random(22)
    exact = 0
    for _ in range(400):
        inner = random_case(rng, 60).layout
        sizes = [max(y[j] for y in inner.table()) + 1 for j in range(len(inner.outs))]
        if min(v for y in inner.table() for v in y) < 0:
            continue
        outer = AffineLayout.of(
            dict(zip(inner.out_names, sizes, strict=True)),
            {"z": rng.choice((None, 6, 7, 12))},
            {n: [(rng.randint(-6, 9),)] for n in inner.out_names},
        )
        joined, code = attempt(lambda a=inner, b=outer: compose(a, b))
        if code:
            assert code == "LAY025"
            continue
        exact += 1
        assert list(joined.canonical().table()) == [outer(*y) for y in inner.table()]
    assert exact > 100


def test_composition_with_digits() -> None:
    rows = AffineLayout.of({"i": (4, 6)}, {"o": None}, {"i": [6, 1]})
    pairs = AffineLayout.of({"t": 12}, {"i": None}, {"t": [(2,)]})
    assert list(compose(pairs, rows).table()) == [rows(2 * t) for t in range(12)]
    back = AffineLayout.of({"t": 24}, {"i": None}, {"t": [(-1,)]}, [23])
    assert list(compose(back, rows).table()) == [rows(23 - t) for t in range(24)]
    assert attempt(lambda: compose(AffineLayout.strided(8, 3, "t", "i"), rows))[1] == "LAY025"
    assert attempt(lambda: compose(AffineLayout.strided(9, 3, "t", "i"), rows))[1] == "LAY005"
    flip = AffineLayout.strided(6, 5, "x", "y", modulus=6)
    assert attempt(lambda: compose(flip, AffineLayout.strided(6, 7, "y", "z")))[1] == "LAY025"
    wrapped = compose(flip, AffineLayout.strided(6, 7, "y", "z", modulus=42))
    assert [z for (z,) in wrapped.table()] == [0, 35, 28, 21, 14, 7]


def test_flips_slices_windows() -> None:
    layout = AffineLayout.of({"i": 5, "j": 7}, {"o": None}, {"i": [7], "j": [1]})
    assert layout.flip("j")(2, 0) == layout(2, 6)
    assert layout.slice("i", 3)(4) == layout(3, 4)
    assert layout.window("j", 6, 3, -2)(1, 2) == layout(1, 2)
    assert attempt(lambda: layout.window("j", 6, 4, -2))[1] == ""
    assert attempt(lambda: layout.window("j", 6, 5, -2))[1] == "LAY005"
    assert attempt(lambda: layout(5, 0))[1] == "LAY005"
    assert attempt(lambda: layout(4))[1] == "LAY002"
    digits = AffineLayout.of({"i": (2, 3)}, {"o": None}, {"i": [3, 1]})
    assert attempt(lambda: digits.window("i", 0, 2))[1] == "LAY025"
    assert digits.flip("i")(0) == digits(5)


def test_symbols() -> None:
    n = sym("N")
    layout = AffineLayout.of({"i": sym("M"), "j": 64}, {"o": None}, {"i": [n * 8], "j": [1]})
    assert alignment(layout, "o") == 1
    assert alignment(layout.slice("j", 0), "o") == 8
    assert alignment(layout.slice("j", 0), "o", {"N": 4}) == 32
    assert str(layout(sym("r"), 3)[0]) == "(N*r)*8 + 3"
    assert attempt(lambda: is_injective(layout))[1] == "LAY010"
    assert is_injective(layout.substitute({"M": 5, "N": 8}))
    assert not is_injective(layout.substitute({"M": 5, "N": 7}))
    shifted = compose(AffineLayout.identity(32, "k", "j") * AffineLayout.identity(sym("M"), "r", "i"), layout)
    assert shifted.slice("r", 0)(5) == (5,)


def test_inverses_by_digits() -> None:
    transpose = AffineLayout.of({"t": (3, 2)}, {"o": 6}, {"t": [2, 1]})
    back = invert(transpose)
    assert [back(*y)[0] for y in transpose.table()] == list(range(6))
    assert attempt(lambda: invert(AffineLayout.strided(4, 3, "x", "y", modulus=6)))[1] == "LAY008"
    assert attempt(lambda: invert(AffineLayout.strided(6, 0, "x", "y", modulus=1)))[1] == "LAY008"
    assert invert(AffineLayout.strided(1, 0, "x", "y", modulus=1))(0) == (0,)
    assert preimage(transpose, 6) is None


def test_images() -> None:
    even = image(AffineLayout.strided(5, 2, "x", "y", start=3))
    assert (even.base, even.basis, even.index, even.low, even.high) == ((3,), ((2,),), 2, (3,), (11,))
    assert image(AffineLayout.of({"x": 4}, {"a": None, "b": None}, {"x": [(1, 2)]})).index == 0
    assert hermite([(4, 6), (2, 8)]) == ((2, 8), (0, 10))
    assert smith([(4, 6), (2, 8)]) == (2, 10)


def test_stacks_and_quotients() -> None:
    low, high = AffineLayout.identity(3, "i", "o", modulus=3), AffineLayout.strided(5, 2, "i", "o", modulus=5)
    whole = stack(low, high)
    assert [o for (o,) in whole.table()] == [x + 3 * (2 * y % 5) for y in range(5) for x in range(3)]
    assert divide(whole, low) == high
    assert divide(whole, AffineLayout.strided(3, 2, "i", "o", modulus=3)) is None
    assert attempt(lambda: stack(AffineLayout.identity(3, "i", "o"), high))[1] == "LAY025"
    assert attempt(lambda: stack(AffineLayout.strided(3, 2, "i", "o", modulus=3), high))[1] == "LAY025"


def test_bad_input() -> None:
    of = AffineLayout.of
    assert attempt(lambda: AffineLayout.strided(6, 5, "x", "y", modulus=0))[1] == "LAY020"
    assert attempt(lambda: AffineLayout.of({"x": 6}, {"y": None}, {"x": [1.5]}))[1] == "LAY001"
    assert attempt(lambda: AffineLayout.strided(6, 5, "x", "y", modulus=1))[1] == ""
    assert attempt(lambda: AffineLayout.strided(0, 5, "x", "y"))[1] == "LAY001"
    assert attempt(lambda: AffineLayout.strided(6, 0.5, "x", "y"))[1] == "LAY001"  # pyright: ignore[reportArgumentType]
    assert attempt(lambda: of({"x": 6}, {"y": None}, {"x": [(1, 2)]}))[1] == "LAY002"
    assert attempt(lambda: of({"x": 6}, {"y": None}, {"z": [1]}))[1] == "LAY002"
    assert attempt(lambda: of({"x": (2, 3)}, {"y": None}, {"x": [1]}))[1] == "LAY002"
    assert attempt(lambda: vector_width(of({"x": 6}, {"y": None}, {"x": [1]}), "z", "y"))[1] == "LAY002"
    assert (
        attempt(lambda: compose(AffineLayout.identity(2, "a", "b"), AffineLayout.identity(2, "c", "d")))[1] == "LAY002"
    )
    two = AffineLayout.identity(2, "a", "b", modulus=2)
    assert attempt(lambda: two * AffineLayout.identity(2, "c", "b", modulus=3))[1] == "LAY002"
