"""Quotients by reciprocals, as NVRTC computes them, against division: every word of 8 and 16 bits, samples of 32.

What a computation becomes is evaluated with NumPy beside the computation itself, in words that wrap: of 8 bits for
every factor and shift, else for those that a compiler takes and the greatest that are let through.
"""

from __future__ import annotations

import operator
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from support.comparison import Comparison
from support.slow import rest_slow
from tilewright.validate import arithmetic, reciprocals, terms
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Field, Poly
from tilewright.validate.values import Choice

Words = NDArray[np.int64]
"""As numbers without a sign."""

SAMPLES = rest_slow([(16, 50, 0), (32, 200, 2000), (8, 1 << 8, 0), (16, 4000, 0), (32, 3000, 8000)], 2, several=True)
"""Bits, divisors beside those that are always there, and words of each where not all are tried: 2 * 10**7 in all."""
SIGNS = rest_slow([(8, 1 << 8, 0), (32, 50, 1000), (16, 100, 0), (32, 3000, 4000)], 2, several=True)


COMPARED = {"lt": operator.lt, "ge": operator.ge, "gt": operator.gt, "le": operator.le}
UNSIGNED = ("plain", "wide", "halved")


def resized(monkeypatch: pytest.MonkeyPatch, bits: int) -> int:
    """Makes the identities, which are of words of 32 bits, those of words of which all can be tried."""
    if bits == 32:
        return bits
    for name, number in (("_BITS", bits), ("_HALF", 1 << (bits - 1)), ("_WORDS", 1 << bits)):
        monkeypatch.setattr(reciprocals, name, number)
    monkeypatch.setattr(arithmetic, "LEAST_BITS", bits)
    monkeypatch.setattr(terms, "LEAST_RECIPROCAL", 2)
    return bits


def signed(words: Words, bits: int) -> Words:
    return ((words + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))


def truncated(x: Words, d: Words | int) -> Words:
    return np.sign(x) * np.sign(d) * (abs(x) // abs(d))


def draws(bits: int, d: int, count: int, random: np.random.Generator) -> Words:
    """All words if they are few, else their ends and multiples of d with those beside them, and others."""
    if bits <= 16:
        return np.arange(1 << bits)
    half, count = 1 << (bits - 1), count // 4
    ends = [n + by for n in (0, half, 2 * half) for by in range(-4, 5)]
    multiples = random.integers(-(half // d), 2 * half // d + 1, count)
    last = [n // d for n in (half, 2 * half, -half)]
    beside = [d * np.append(multiples, last) + by for by in (-1, 0, 1)]
    return np.concatenate([ends, *beside, random.integers(0, 2 * half, count)]) & (2 * half - 1)


def divisors(bits: int, count: int, random: np.random.Generator) -> list[int]:
    """All of words with a sign if so many are asked for, else small ones, those beside powers of 2, and others."""
    half = 1 << (bits - 1)
    if count > half:
        return list(range(2, half))
    beside = [(1 << k) + by for k in range(1, bits) for by in (-1, 0, 1)]
    others = [int(random.integers(2, 1 << int(k))) for k in random.integers(3, bits, count)]
    return [d for d in dict.fromkeys((*range(2, 20), *beside, *others)) if 2 <= d < half]


def factors(d: int, bits: int, *, signed: bool) -> tuple[int, int, int]:
    """The least shift with factors by which all words are divided by d; the least and the last of these factors.

    Granlund and Montgomery 1994, theorem 4.2: x e < n; of words with a sign -x e <= n for a negative x, and 0 < e.
    """
    for shift in range(bits):
        n = 1 << (bits + shift)
        least = n // d + 1
        last = (n + (n >> (bits - 1) if signed else (n - 1) // ((1 << bits) - 1))) // d
        if least <= last:
            return shift, least, last
    raise AssertionError(d)


class Divided(Comparison):
    """A word of data, or one that is counted with and not negative, and what is computed from it."""

    def __init__(self, bits: int, words: Words, *, counted: bool = False) -> None:
        super().__init__(1)
        self.bits, self.half, self.all = bits, 1 << (bits - 1), 1 << bits
        place = self.terms.atom("parameter", "x", low=0, high=self.half - 1)
        self.x = self.terms.of(bits, place) if counted else self.terms.data(bits, bits, "ld.global", "x")
        self.words = words
        self.bounded: list[Poly] = []

    def const(self, number: int) -> Poly:
        return self.terms.const(self.bits, number)

    def shift(self, p: Poly, count: int, *, signed: bool) -> Poly:
        return self.arithmetic.shift("shr", p, self.terms.const(32, count), signed=signed)

    def compare(self, name: str, p: Poly, number: int) -> Condition:
        return self.arithmetic.compare(name, f"s{self.bits}", p, self.const(number))

    # -- what a value is ------------------------------------------------------------------------------------------
    def value(self, p: Poly) -> Words:
        """A value for each word: without a sign if it is a word, else the integer."""
        total = np.zeros_like(self.words)
        for monomial, c in p.terms:
            assert isinstance(c, int)
            product = np.full_like(self.words, c)
            for atom in monomial:
                product *= self.atom(atom)
            total += product
        return total & ((1 << p.width) - 1) if 0 < p.width < 64 else total

    def atom(self, i: int) -> Words:
        atom = self.terms.atoms[i]
        match atom.kind, *atom.args:
            case "ld.global" | "parameter", "x":
                return self.words
            case "field", Field() as field:
                return self.atom(field.base) >> field.low & ((1 << field.count) - 1)
            case "fdiv", Poly() as p, int(n):
                return self.value(p) // n
            case "div.s32", Poly() as p, Poly() as d:
                return truncated(self.signed(p), self.signed(d)) & (self.all - 1)
            case "mul.hi.s32", Poly() as p, Poly() as m:
                return self.signed(p) * self.signed(m) >> self.bits & (self.all - 1)
            case "shr.s32", Poly() as p, int(count):
                return self.signed(p) >> count & (self.all - 1)
            case "choice", Choice(parts=parts):
                return sum((np.where(self.holds(c), self.value(p), 0) for c, p in parts), np.zeros_like(self.words))
            case "test.zero", Poly() as p:
                return (self.value(p) == 0).astype(np.int64)
            case "test.lt.s", Poly() as a, Poly() as b:
                return (self.signed(a) < self.signed(b)).astype(np.int64)
            case _:
                raise AssertionError(atom.kind, atom.args)

    def signed(self, p: Poly) -> Words:
        return signed(self.value(p), p.width)

    def holds(self, condition: Condition) -> NDArray[np.bool_]:
        if isinstance(condition, int):
            return np.full(self.words.shape, condition != 0)
        quantity = self.value(self.cases.quantities[condition.quantity])
        cuts = np.array([cut for cut in condition.cuts if isinstance(cut, int)])
        assert len(cuts) == len(condition.cuts)
        piece = np.searchsorted(cuts, quantity, "right")
        return np.choose(piece, [self.holds(child) for child in condition.children])

    # -- computations ---------------------------------------------------------------------------------------------
    def towards_zero(self, m: int, shift: int, *, of_upper: bool = False, more: int = 0) -> tuple[Poly, Words]:
        """The upper half of m x with its sign, and x where m has no room in a word; shifted, and 1 more where x, or
        what is shifted, is negative. ``more`` than x is in its place beside the product."""
        add, noted = self.terms.add, self.arithmetic.reciprocals
        x, factor = signed(self.words, self.bits), m - self.all if m >= self.half else m
        upper, word = noted.upper(self.x, self.const(factor)), x * factor >> self.bits
        assert upper is not None
        beside, x = add(self.x, self.const(more)), signed(x + more, self.bits)
        if factor < 0:
            upper, word = noted.added(upper, beside, add(upper, beside)), signed(word + x, self.bits)
        sign = self.shift(upper if of_upper else beside, self.bits - 1, signed=False)
        negative = (word if of_upper else x) < 0
        if shift:
            upper, word = self.shift(upper, shift, signed=True), word >> shift
        return noted.added(upper, sign, add(upper, sign)), (word + negative) & (self.all - 1)

    def upper(self, m: int) -> tuple[Poly, Words]:
        """The upper half of m x without a sign."""
        return self._upper(m), (self.words.astype(np.uint64) * np.uint64(m) >> np.uint64(self.bits)).astype(np.int64)

    def _upper(self, m: int) -> Poly:
        product = self.terms.mul(self.terms.unsigned(self.x), self.terms.const(0, m))
        upper = self.terms.resize(self.terms.floordiv(product, self.all), self.bits)
        return self.arithmetic.quotient_by_reciprocal(upper, 0, signed=True) or upper

    def plain(self, m: int, shift: int) -> tuple[Poly, Words]:
        """The upper half of m x, shifted."""
        upper, word = self.upper(m)
        return self.shift(upper, shift, signed=False), word >> shift

    def wide(self, m: int, shift: int) -> tuple[Poly, Words]:
        """The same from a product in a word of twice the width."""
        product = self.terms.mul(self.terms.unsigned(self.x), self.terms.const(0, m))
        moved = self.shift(self.terms.resize(product, 2 * self.bits), self.bits + shift, signed=False)
        word = self.words.astype(np.uint64) * np.uint64(m) >> np.uint64(self.bits + shift)
        return self.terms.resize(moved, self.bits), word.astype(np.int64)

    def halved(self, m: int, shift: int, *, more: int = 0) -> tuple[Poly, Words]:
        """The upper half and half of what it leaves of x, or of ``more``, shifted: of a factor that is 2**bits more."""
        upper, word = self.upper(m)
        beside = self.terms.add(self.x, self.const(more))
        rest = self.arithmetic.reciprocals.subtracted(beside, upper)
        self.bounded.append(self.terms.sub(self.terms.unsigned(beside), self.terms.resize(upper, 0)))
        rest = self.shift(rest, 1, signed=False)
        total = self.arithmetic.reciprocals.added(rest, upper, self.terms.add(rest, upper))
        computed = (((self.words + more - word) & (self.all - 1)) >> 1) + word & (self.all - 1)
        return self.shift(total, shift, signed=False), computed >> shift

    def counted(self, m: int, shift: int, *, more: int = 0) -> tuple[Poly, Words]:
        """The upper half with its sign of a factor that has no room in a word, and x, or ``more``, shifted."""
        upper, word = self._upper(m - self.all), self.words * (m - self.all) >> self.bits
        beside = self.terms.add(self.x, self.const(more))
        total = self.arithmetic.reciprocals.added(upper, beside, self.terms.add(upper, beside))
        computed = signed(word + self.words + more, self.bits) >> shift
        return self.shift(total, shift, signed=True), computed & (self.all - 1)

    # -- quotients ------------------------------------------------------------------------------------------------
    def is_quotient(self, p: Poly, d: int, *, signed: bool) -> bool:
        """The value is x / d in the form that the IR's has, whatever x is."""
        if signed:
            return p is self.terms.data(self.bits, self.bits, "div.s32", self.x, self.const(d))
        return not self.arithmetic.needs and p is self.arithmetic.truncated("u", self.x, self.const(d))

    def agrees(self, p: Poly, computed: Words) -> bool:
        """The value is what was computed, for all words that it was left to be proved of."""
        there = np.full(self.words.shape, True)
        for need in self.arithmetic.needs:
            value = self.value(need.value)
            there &= (need.low <= value) & (value <= (value if need.high is None else need.high))
        for bounded in self.bounded:
            (low, high), value = self.terms.interval(bounded), self.value(bounded)
            assert low is None or (low <= value)[there].all()
            assert high is None or (value <= high)[there].all()
        return bool((self.value(p) == computed)[there].all())


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("of_upper", [False, True])
def test_a_quotient_towards_zero_of_every_word_and_factor(
    monkeypatch: pytest.MonkeyPatch, of_upper: bool, more: int
) -> None:
    bits = resized(monkeypatch, 8)
    found = set[int]()
    for m in range(1, 1 << bits):
        for shift in range(bits):
            own = Divided(bits, np.arange(1 << bits))
            value, computed = own.towards_zero(m, shift, of_upper=of_upper, more=more)
            assert own.agrees(value, computed), (m, shift)
            d = -(-(1 << (bits + shift)) // m)
            if d < own.half and own.is_quotient(value, d, signed=True):
                found.add(d)
    assert more or found == set(range(2, 1 << (bits - 1)))


def test_a_quotient_without_a_sign_of_every_word_and_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of twice the width is recognised wherever the factor is exact."""
    bits = resized(monkeypatch, 8)
    found = set[int]()
    for form, m, shift in product(UNSIGNED, range(1, 1 << bits), range(bits)):
        own = Divided(bits, np.arange(1 << bits))
        value, computed = getattr(own, form)(m, shift)
        assert own.agrees(value, computed), (form, m, shift)
        other = Divided(bits, np.arange(1 << bits))
        assert form != "halved" or other.agrees(*other.halved(m, shift, more=1)), (m, shift)
        factor, n = (m + own.all, 2 * own.all << shift) if form == "halved" else (m, own.all << shift)
        d = -(-n // factor)
        if own.is_quotient(value, d, signed=False):
            found.add(d)
        elif form == "wide":
            assert d < 2 or d >= own.all or (own.all - 1) * (factor * d - n) >= n, (m, shift)
    assert found == set(range(2, 1 << bits)) - {127, 254}  # for them 3 is a factor, half of all words' for another


@pytest.mark.parametrize("more", [0, 1])
def test_a_quotient_of_every_word_that_is_counted_with(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    bits = resized(monkeypatch, 8)
    found = set[int]()
    for m, shift in product(range(1 << (bits - 1), 1 << bits), range(bits)):
        own = Divided(bits, np.arange(1 << (bits - 1)), counted=True)
        value, computed = own.counted(m, shift, more=more)
        assert own.agrees(value, computed), (m, shift)
        d = -(-(own.all << shift) // m)
        if value is own.terms.resize(own.terms.floordiv(own.terms.unsigned(own.x), d), bits):
            found.add(d)
    assert more or found >= set(range(2, 1 << (bits - 1)))


@pytest.mark.parametrize(("bits", "count", "samples"), SAMPLES)
def test_a_quotient_towards_zero(monkeypatch: pytest.MonkeyPatch, bits: int, count: int, samples: int) -> None:
    """With the least factor, the last, and the one behind that, which is let through by no divisor."""
    resized(monkeypatch, bits)
    random = np.random.default_rng(bits)
    half = 1 << (bits - 1)
    for d in divisors(bits, count, random):
        words = draws(bits, d, samples, random)
        expected = truncated(signed(words, bits), d) & (2 * half - 1)
        shift, least, last = factors(d, bits, signed=True)
        for m in (least, last, last + 1):
            own = Divided(bits, words)
            value, computed = own.towards_zero(m, shift)
            assert own.is_quotient(value, d, signed=True) == (m <= last), (d, m)
            assert (computed == expected).all() if m <= last else own.agrees(value, computed), (d, m)


@pytest.mark.parametrize(("bits", "count", "samples"), SAMPLES)
def test_a_quotient_without_a_sign(monkeypatch: pytest.MonkeyPatch, bits: int, count: int, samples: int) -> None:
    """Where the factor has room in a word by a product of twice the width, else by half of what the upper half leaves;
    of even divisors without their powers of 2, which are shifted out of x before."""
    resized(monkeypatch, bits)
    random = np.random.default_rng(bits)
    word = 1 << bits
    forms = set[str]()
    for d in divisors(bits, count, random):
        shift, least, last = factors(d, bits, signed=False)
        words = draws(bits, d, samples, random)
        for m in (least, last, last + 1):
            own = Divided(bits, words)
            form, by = ("halved", shift - 1) if m >= word else ("wide", shift)
            if m >= word and (d % 2 == 0 or d >= word >> 2):
                continue  # of these a compiler takes other forms
            value, computed = getattr(own, form)(m % word, by)
            if own.is_quotient(value, d, signed=False):
                forms.add(form)
                assert m <= last, (d, m)
                assert (computed == words // d).all(), (d, m)
            else:  # what is left of the factor is none, or one of half of all words
                assert m > last or own.arithmetic.needs or m % word < terms.LEAST_RECIPROCAL, (d, m)
                assert bits > 16 or own.agrees(value, computed), (d, m)
    assert forms == {"wide", "halved"}


@pytest.mark.parametrize(("bits", "count", "samples"), SIGNS)
def test_the_sign_of_a_remainder(monkeypatch: pytest.MonkeyPatch, bits: int, count: int, samples: int) -> None:
    """Where x - d * (x / d) is below 0, or not, by comparisons and by its sign; and of other multiples of the quotient
    and sums with them, of which nothing is known."""
    resized(monkeypatch, bits)
    random = np.random.default_rng(bits)
    for divisor in divisors(bits, count, random):
        wrong = ((divisor, divisor + 1, 0), (divisor, divisor - 1, 0), (-divisor, -divisor, 0), (divisor, divisor, 1))
        for d, times, more in ((divisor, divisor, 0), *wrong):
            own = Divided(bits, draws(bits, divisor, samples, random))
            quotient = own.terms.data(bits, bits, "div.s32", own.x, own.const(d))
            rest = own.terms.sub(own.terms.add(own.x, own.const(more)), own.terms.scale(quotient, times))
            x = signed(own.words, bits)
            left = signed(x + more - times * truncated(x, d), bits)
            assert (left == np.fmod(x, d) + more).all() or times != d
            assert (own.signed(rest) == left).all()
            below, something = own.compare("lt", own.x, 0), own.compare("ne", rest, 0)
            known = own.compare("lt", rest, 0) is own.cases.both(below, something)
            assert known == (d == times > 0 == more), (d, times, more)
            for name, than in (("lt", 0), ("ge", 0), ("gt", -1), ("le", -1)):
                found = own.holds(own.compare(name, rest, than))
                assert (found == COMPARED[name](left, than)).all(), (d, times, name)
            assert (own.signed(own.shift(rest, bits - 1, signed=True)) == np.where(left < 0, -1, 0)).all(), (d, times)
