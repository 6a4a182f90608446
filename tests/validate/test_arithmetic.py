"""Comparisons and operations of words against their definition, at 8 bits for every word."""

from __future__ import annotations

import operator
from itertools import product

import numpy as np
import pytest

from support.comparison import Comparison
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Field, Poly
from tilewright.validate.terms import Terms

BITS = 8
WORDS = 1 << BITS
NAMES = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
         "ge": operator.ge}  # fmt: skip


class Words(Comparison):
    """One word of data, and arithmetic on it."""

    def __init__(self) -> None:
        super().__init__()
        self.word = self.terms.data(BITS, BITS, "scalar", "w")

    def holds(self, condition: Condition, value: int) -> bool:
        """Whether a condition on the word holds of a value of it."""
        while not isinstance(condition, int):
            assert self.cases.quantities[condition.quantity].terms == self.word.terms
            assert all(isinstance(cut, int) for cut in condition.cuts)
            condition = condition.children[sum(cut <= value for cut in condition.cuts if isinstance(cut, int))]
        assert condition in (0, self.cases.true)
        return condition != 0

    def value(self, p: Poly, word: int) -> int:
        """What a polynomial in fields of the word is, modulo 2**BITS."""
        total = 0
        for monomial, c in p.terms:
            assert isinstance(c, int)
            for number in monomial:
                atom = self.terms.atoms[number]
                field = atom.args[0] if atom.kind == "field" else Field(number, 0, BITS)
                assert isinstance(field, Field)
                assert self.terms.atoms[field.base].kind == "scalar"
                c *= (word >> field.low) & ((1 << field.count) - 1)
            total += c
        return total % WORDS


def read(value: int, kind: str) -> int:
    """A word as it is compared."""
    value %= WORDS
    return value - WORDS if kind == "s8" and value >= WORDS // 2 else value


@pytest.mark.parametrize("kind", ["s8", "u8"])
@pytest.mark.parametrize("name", NAMES)
def test_a_word_of_data_is_compared_with_a_number_as_a_range(name: str, kind: str) -> None:
    w = Words()
    for sign, offset, number in product((1, -1), (0, 1, 127, 200), (0, 1, 2, 126, 127, 128, 254, 255)):
        value = w.terms.add(w.terms.scale(w.word, sign), w.terms.const(BITS, offset))
        other = w.terms.const(BITS, number)
        for reverse in (False, True):
            a, b = (other, value) if reverse else (value, other)
            condition = w.arithmetic.compare(name, kind, a, b)
            for x in range(WORDS):
                ours, theirs = read(sign * x + offset, kind), read(number, kind)
                expected = NAMES[name](theirs, ours) if reverse else NAMES[name](ours, theirs)
                assert w.holds(condition, x) == expected, (sign, offset, number, reverse, x)


def test_a_word_is_masked_by_its_fields() -> None:
    w = Words()
    for mask in range(WORDS):
        masked = w.arithmetic.bitwise("and", w.word, w.terms.const(BITS, mask))
        assert all(w.value(masked, x) == x & mask for x in range(WORDS)), mask


def test_a_xor_is_negative_where_signs_differ() -> None:
    w = Words()
    other = w.terms.data(BITS, BITS, "scalar", "v")
    both = w.arithmetic.bitwise("xor", w.word, other)
    zero = w.terms.const(BITS, 0)
    signs = (w.arithmetic.compare("lt", "s8", x, zero) for x in (w.word, other))
    assert w.arithmetic.compare("lt", "s8", both, zero) is w.cases.differ(*signs)


@pytest.mark.parametrize("name", [*NAMES, *(f"{name[:2]}u" for name in NAMES), "num", "nan"])
def test_numbers_are_compared_at_once(name: str) -> None:
    w = Words()
    numbers = (-np.inf, -1.0, -0.0, 0.0, 1.5, np.inf, np.nan)

    def word(x: float) -> Poly:
        return w.terms.const(32, int(np.float32(x).view(np.uint32)))

    for x, y in product(numbers, numbers):
        unordered = np.isnan(x) or np.isnan(y)
        ordered = name.removesuffix("u") if name not in ("num", "nan") else name
        expected = unordered == (name == "nan") if name in ("num", "nan") else (
            bool(NAMES[ordered](x, y)) and not unordered if ordered == name else unordered or bool(NAMES[ordered](x, y))
        )  # fmt: skip
        found = w.arithmetic.compare_floats(name, word(x), word(y))
        assert found == (w.cases.true if expected else 0), (name, x, y)


@pytest.mark.parametrize("factor", [1, 1 << 62])
def test_tables_hold_no_integers_beyond_64_bits(factor: int) -> None:
    """Over the integers nothing wraps around; modulo 2**64 all does."""
    terms = Terms(32)
    threads = terms.table(0, np.arange(32))
    with pytest.raises(OverflowError):
        terms.add(terms.scale(threads, factor), terms.const(0, (1 << 64) - (1 << 62) * (factor > 1)))
    assert terms.text(terms.add(threads, terms.const(0, 1 << 62))) == f"T[{1 << 62}..{(1 << 62) + 31}]"
    wrapped = terms.add(terms.table(64, np.arange(32)), terms.const(64, 1 << 64))
    assert wrapped is terms.table(64, np.arange(32))


@pytest.mark.parametrize("bits", [32, 64])
def test_a_loaded_word_is_compared_as_the_integer_that_it_is(bits: int) -> None:
    """0 <= w < n, signed, says of the word what it says of the integer; one bound of the two does not."""
    words = Words()
    terms, cases, arithmetic = words.terms, words.cases, words.arithmetic
    word = terms.data(bits, bits, "ld.global", "index")
    extent = terms.of(bits, terms.atom("parameter", "V", low=0, high=1000))
    whole, most = terms.resize(word, 0), terms.resize(extent, 0)
    below = arithmetic.compare("lt", f"s{bits}", word, extent)
    natural = arithmetic.compare("ge", f"s{bits}", word, terms.const(bits, 0))
    assert cases.both(below, natural) is cases.both(natural, cases.less(whole, most))
    assert cases.both(below, natural) is not below
    assert arithmetic.compare("gt", f"s{bits}", extent, word) is below
    assert arithmetic.compare("le", f"s{bits}", extent, word) is cases.negate(below)


def test_constants_that_differ_are_distinguished() -> None:
    words = Words()
    one, other = words.terms.const(8, 1), words.terms.const(8, 0)
    assert words.arithmetic.compare_data("eq", "u8", one, other) == 0
    assert words.arithmetic.compare_data("ne", "u8", one, other) == words.cases.true
    assert words.arithmetic.compare_data("eq", "u8", one, one) == words.cases.true
