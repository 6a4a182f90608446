"""Identities of words of data against their definition: every pair of words of 8 bits, or samples of wider ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest

from support.comparison import Comparison
from tilewright.validate.networks import Networks
from tilewright.validate.polynomials import Atom, Field, Poly
from tilewright.validate.shapes import Shapes
from tilewright.validate.values import Value

pytestmark = pytest.mark.sample(12)

BITWISE: dict[str, np.ufunc] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
X, Y = (axis.ravel().astype(object) for axis in np.mgrid[0:256, 0:256])
"""All pairs of words of 8 bits, as Python's integers."""


class Words(Comparison):
    """Values over words ``x`` and ``y``, and what they are for arrays of these."""

    def word(self, name: str, bits: int) -> Poly:
        return self.terms.data(bits, bits, "scalar", name)

    def number(self, p: Value, given: dict[str, np.ndarray]) -> np.ndarray:
        assert isinstance(p, Poly)
        total = np.zeros_like(next(iter(given.values())))
        for monomial, c in p.terms:
            assert isinstance(c, int)
            term = total * 0 + c
            for i in monomial:
                term = term * self.atom(self.terms.atoms[i], given)
            total = total + term
        return total % (1 << p.width) if p.width else total

    def atom(self, atom: Atom, given: dict[str, np.ndarray]) -> np.ndarray:
        if atom.kind in ("scalar", "parameter"):
            return given[str(atom.args[0])]
        if isinstance(atom.args[0], Field):
            field = atom.args[0]
            return self.atom(self.terms.atoms[field.base], given) >> field.low & ((1 << field.count) - 1)
        inside = [self.number(x, given) if isinstance(x, Poly) else x for x in atom.args]
        if atom.kind in BITWISE:
            return BITWISE[atom.kind](*inside)
        if atom.kind == "fdiv":
            return inside[0] // inside[1]  # pyright: ignore[reportOperatorIssue]
        assert atom.kind == "word", atom.kind
        return inside[0]  # pyright: ignore[reportReturnType]


Made = tuple[Callable[[Words, Poly], Poly], Callable[[np.ndarray], np.ndarray]]
MADE: dict[str, Made] = {
    "whole": (lambda w, p: p, lambda x: x),
    "low half": (lambda w, p: w.terms.field(p, 0, 4, 8), lambda x: x & 15),
    "high half, lower": (lambda w, p: w.terms.field(p, 4, 4, 8), lambda x: x >> 4),
    "low half, higher": (lambda w, p: w.terms.scale(w.terms.field(p, 0, 4, 8), 16), lambda x: x << 4 & 0xF0),
    "two bits inside": (lambda w, p: w.terms.scale(w.terms.field(p, 1, 2, 8), 8), lambda x: (x >> 1 & 3) << 3),
    "its complement": (lambda w, p: w.terms.sub(w.terms.const(8, -1), p), lambda x: ~x & 0xFF),
    "its sign, everywhere": (lambda w, p: w.terms.scale(w.terms.field(p, 7, 1, 8), -1), lambda x: -(x >> 7) & 0xFF),
    "its sign, in places": (lambda w, p: w.terms.scale(w.terms.field(p, 7, 1, 8), 0x5A), lambda x: (x >> 7) * 0x5A),
    "its high half, ones below": (
        lambda w, p: w.terms.add(w.terms.scale(w.terms.field(p, 4, 4, 8), 16), w.terms.const(8, 15)),
        lambda x: x | 15,
    ),
    "its high half, inverted": (
        lambda w, p: w.terms.sub(w.terms.const(8, -16), w.terms.scale(w.terms.field(p, 4, 4, 8), 16)),
        lambda x: ~x & 0xF0,
    ),
    "three times it": (lambda w, p: w.terms.scale(p, 3), lambda x: x * 3 & 0xFF),
}


def test_what_a_multiple_is_added_to_keeps_its_low_bits() -> None:
    """A place in shared memory behind a boundary: the bits below the boundary are those of the place alone."""
    w = Words()
    threads, rng = w.terms.threads, np.random.default_rng(0)
    counted = w.terms.of(32, w.terms.atom("parameter", "M", low=0, high=99))
    for _ in range(300):
        unit, mask = 1 << rng.integers(2, 12), rng.integers(0, 1 << 14)
        places = rng.integers(0, 1 << 14, threads) & mask | mask & -mask
        word = w.terms.add(w.terms.table(32, places), w.terms.scale(counted, int(unit)))
        bits = w.terms.may_be_set(word)
        assert all(not ((places + unit * m) & 0xFFFFFFFF & ~bits).any() for m in range(100))
        below = rng.integers(0, unit, threads) & ~mask
        found = w.arithmetic.bitwise("or", word, w.terms.table(32, below))
        assert found is w.terms.add(word, w.terms.table(32, below))


@pytest.mark.parametrize("name", BITWISE)
@pytest.mark.parametrize(("first", "second"), list(product(MADE, MADE)))
def test_bitwise_operations_and_their_fields(name: str, first: str, second: str) -> None:
    w = Words()
    (a, of_x), (b, of_y) = MADE[first], MADE[second]
    found = w.arithmetic.bitwise(name, a(w, w.word("x", 8)), b(w, w.word("y", 8)))
    expected = BITWISE[name](of_x(X), of_y(Y))
    given = {"x": X, "y": Y}
    assert (w.number(found, given) == expected).all()
    assert not (expected & ~w.terms.may_be_set(found)).any()
    for low, count in ((0, 1), (0, 4), (2, 3), (3, 5), (7, 1)):
        field = w.terms.field(found, low, count, 8)
        assert (w.number(field, given) == expected >> low & ((1 << count) - 1)).all(), (low, count)
    for mask in (0x0F, 0x81, 0x55, 0xFE):
        masked = w.arithmetic.bitwise("and", found, w.terms.const(8, mask))
        assert (w.number(masked, given) == expected & mask).all(), mask


def test_exclusive_ors_are_one_value_in_any_order() -> None:
    w = Words()
    words = [*(w.word(name, 32) for name in "abc"), w.terms.const(32, 0x1234567)]
    found = set[int]()
    for a, b, c, d in permutations(words):
        left = w.arithmetic.bitwise("xor", w.arithmetic.bitwise("xor", w.arithmetic.bitwise("xor", a, b), c), d)
        pairs = w.arithmetic.bitwise("xor", w.arithmetic.bitwise("xor", a, b), w.arithmetic.bitwise("xor", c, d))
        found |= {left.id, pairs.id}
    assert len(found) == 1
    twice = w.arithmetic.bitwise("xor", w.arithmetic.bitwise("xor", words[0], words[1]), words[0])
    assert twice is words[1]


def test_the_xor_of_an_inverted_word_is_the_inverted_xor() -> None:
    w = Words()
    x, every = w.word("x", 32), w.terms.const(32, -1)
    sign = w.arithmetic.shift("shr", x, w.terms.const(32, 31), signed=True)
    mask = w.arithmetic.bitwise("and", sign, w.terms.const(32, 0x7FFFFFFF))
    inside = w.arithmetic.bitwise("xor", mask, w.terms.sub(every, x))
    assert inside is w.terms.sub(every, w.arithmetic.bitwise("xor", mask, x))


@pytest.mark.parametrize("factor", [-5, 1, 3, 250])
@pytest.mark.parametrize("constant", [-9, 0, 7, 63])
@pytest.mark.parametrize("n", [3, 8, 64])
def test_a_quotient_of_a_bit_is_one_of_two_numbers(factor: int, constant: int, n: int) -> None:
    w = Words()
    bit = w.terms.of(0, w.terms.field_atom(w.terms.atoms[w.word("x", 8).terms[0][0][0]].id, 3, 1))
    found = w.terms.floordiv(w.terms.add(w.terms.scale(bit, factor), w.terms.const(0, constant)), n)
    assert (w.number(found, {"x": X}) == (constant + factor * (X >> 3 & 1)) // n).all()
    assert all(len(m) < 2 for m, _ in found.terms)
    assert all(w.terms.atoms[i].kind == "field" for m, _ in found.terms for i in m)


@pytest.mark.parametrize("name", BITWISE)
def test_words_of_64_bits_by_their_halves(name: str) -> None:
    w = Words()
    rng = np.random.default_rng(0)
    x, y = ([int(n) for n in rng.integers(0, 1 << 64, 20_000, np.uint64)] for _ in range(2))
    given = {"x": np.array(x, object), "y": np.array(y, object)}
    a, b = w.word("x", 64), w.word("y", 64)
    found = w.arithmetic.bitwise(name, a, w.terms.sub(w.terms.const(64, -1), b))
    expected = BITWISE[name](given["x"], ~given["y"] & ((1 << 64) - 1))
    assert (w.number(found, given) == expected).all()
    low = w.terms.resize(found, 32)
    assert (w.number(low, given) == expected & 0xFFFFFFFF).all()
    halves = (w.terms.field(p, 0, 32, 32) for p in (a, w.terms.sub(w.terms.const(64, -1), b)))
    assert w.terms.field(found, 0, 32, 32) is w.arithmetic.bitwise(name, *halves)


def test_a_product_of_the_low_word_of_an_integer() -> None:
    """10^5 integers: both halves of the product, of the low word and of the integer itself."""
    w = Words()
    rng = np.random.default_rng(0)
    n = np.array([int(k) for k in rng.integers(0, 1 << 62, 100_000)], object)
    n[:4] = 0, (1 << 32) - 1, 1 << 32, (1 << 62) - 1
    given = {"n": n}
    whole = w.terms.of(64, w.terms.atom("parameter", "n", low=0, high=(1 << 62) - 1))
    low = w.terms.field(whole, 0, 32, 64)
    product_ = w.terms.mul(low, w.terms.const(64, 3528531795))
    expected = (n & 0xFFFFFFFF) * 3528531795
    assert (w.number(product_, given) == expected % (1 << 64)).all()
    high = w.arithmetic.shift("shr", product_, w.terms.const(32, 32), signed=False)
    assert (w.number(high, given) == expected >> 32).all()
    direct = w.terms.mul(w.terms.resize(whole, 32), w.terms.const(32, 3528531795))
    assert w.terms.resize(product_, 32) is direct
    assert (w.number(direct, given) == expected & 0xFFFFFFFF).all()


def test_a_quotient_that_is_a_sign_is_one_value() -> None:
    w = Words()
    x = w.terms.of(0, w.terms.atom("parameter", "x", low=-128, high=127))
    numbers = np.arange(-128, 128).astype(object)
    found = [w.terms.floordiv(x, n) for n in (128, 129, 256, 1 << 32)]
    assert len({p.id for p in found}) == 1
    assert (w.number(found[0], {"x": numbers}) == numbers // 256).all()
    assert w.terms.floordiv(x, 127) is not found[0]
    bit = w.terms.of(0, w.terms.atom("bit", low=0, high=1))
    assert w.terms.floordiv(w.terms.scale(bit, -1), 8) is w.terms.scale(bit, -1)


def test_the_lesser_of_two_words_knows_no_sign_where_neither_has_one() -> None:
    w = Words()
    a, b = w.word("x", 32), w.word("y", 32)
    c, d = (w.terms.field(p, 0, 31, 32) for p in (a, b))
    least = w.arithmetic.least
    assert least("s32", c, d) is least("u32", d, c)
    assert least("s32", a, b) is least("s32", b, a)
    assert least("s32", a, b) is not least("u32", a, b)
    assert least("s32", a, b) is not least("s32", a, b, "max")
    assert least("s32", a, d) is not least("u32", a, d)
    assert least("s32", a, a) is a


def test_a_network_is_made_again_of_equal_words() -> None:
    """Only with words that are equal, and only where shuffles run."""
    w = Words()
    mine, theirs = ([w.terms.data(32, 32, "ld.global", name, k, side) for name in "ab"] for k, side in ((0, 1), (0, 2)))

    def network(words: list[Poly]) -> Value:
        a, b = words
        low, high = (w.arithmetic.least("s32", a, b, name) for name in ("min", "max"))
        assert isinstance(low, Poly)
        moved = w.terms.data(
            32, 32, "shfl.bfly", low, w.terms.const(32, 1), w.terms.const(32, 31), w.terms.const(32, -1)
        )
        return w.arithmetic.least("s32", moved, high)

    pairs = dict(zip(mine, theirs, strict=True))

    def made(equal: Callable[[Value, Value], bool], everywhere: bool) -> Value:
        networks = Networks(w.values, Shapes(w.values), equal, lambda _: everywhere)
        return networks.renamed(network(mine), network(theirs))

    assert made(lambda x, y: pairs.get(x) is y, everywhere=True) is network(mine)  # pyright: ignore
    assert made(lambda x, y: False, everywhere=True) is network(theirs)
    assert made(lambda x, y: pairs.get(x) is y, everywhere=False) is not network(mine)  # pyright: ignore
