"""Words of data read as integers, against their definition: every pair of words of 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from support.comparison import Comparison
from tilewright.validate import readings
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Field, Poly
from tilewright.validate.readings import Reader
from tilewright.validate.values import Choice
from tilewright.validate.words import without_upper

pytestmark = pytest.mark.sample(4)

BITS, WIDE = 8, 16
HALF, WORDS = 1 << (BITS - 1), 1 << BITS


class Loaded(Comparison):
    """Two words of 8 bits that are loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = (self.terms.data(BITS, BITS, "ld.global", "tensor", name) for name in "xy")
        self.reader: Reader = self.arithmetic.reader

    def number(self, p: Poly, given: dict[str, int]) -> int:
        """What a polynomial is over the integers."""
        total = 0
        for monomial, c in p.terms:
            assert isinstance(c, int)
            for i in monomial:
                c *= self.atom(i, given)
            total += c
        return total

    def atom(self, i: int, given: dict[str, int]) -> int:
        atom = self.terms.atoms[i]
        match atom.args:
            case (Field(base, low, count),):
                return self.atom(base, given) >> low & ((1 << count) - 1)
            case (Choice() as chosen,):
                return next(self.number(p, given) for c, p in chosen.parts if self.holds(c, given)) % (1 << atom.bits)
            case (Poly() as numerator, int(n)):
                assert atom.kind == "fdiv"
                return self.number(numerator, given) // n
            case (_, name):
                assert atom.kind == "ld.global"
                return given[str(name)]
            case _:
                raise AssertionError(atom.kind)

    def holds(self, condition: Condition, given: dict[str, int]) -> bool:
        while not isinstance(condition, int):
            value = self.number(self.cases.quantities[condition.quantity], given)
            condition = condition.children[sum(cut <= value for cut in condition.cuts if isinstance(cut, int))]
        assert condition in (0, self.cases.true)
        return condition != 0

    def extended(self, p: Poly) -> Poly:
        return self.arithmetic.extended(p, BITS, WIDE)


def chosen(w: Loaded) -> Poly:
    """1 where x is negative and not a multiple of 4, else 0: what rounds a quotient down."""
    negative = w.cases.at_least(w.terms.resize(w.x, 0), HALF)
    odd = w.cases.at_least(w.terms.field(w.x, 0, 2, 0), 1)
    value = w.values.select(w.cases.both(negative, odd), w.terms.const(BITS, 1), w.terms.const(BITS, 0))
    assert isinstance(value, Poly)
    return value


def shifted(w: Loaded, p: Poly, by: int) -> Poly:
    return w.arithmetic.shift("shr", p, w.terms.const(32, by), signed=True)


WORDS_OF: dict[str, Callable[[Loaded], Poly]] = {
    "a word": lambda w: w.x,
    "less three": lambda w: w.terms.sub(w.x, w.terms.const(BITS, 3)),
    "a sum": lambda w: w.terms.add(w.x, w.y),
    "a difference": lambda w: w.terms.sub(w.x, w.y),
    "extended": lambda w: w.extended(w.x),
    "a difference, extended": lambda w: w.terms.sub(
        w.extended(w.x), w.terms.add(w.extended(w.y), w.terms.const(WIDE, 9))
    ),
    "a quotient": lambda w: shifted(w, w.x, 2),
    "a quotient, extended": lambda w: shifted(w, w.extended(w.x), 3),
    "a remainder": lambda w: w.arithmetic.bitwise("and", w.x, w.terms.const(BITS, 7)),
    "a quotient that is rounded": lambda w: w.terms.sub(shifted(w, w.x, 2), chosen(w)),
    "negated": lambda w: w.terms.scale(w.x, -1),
    "twice": lambda w: w.terms.scale(w.extended(w.x), 2),
}


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.setattr(readings, "LEAST_BITS", BITS)
    return Loaded()


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("name", WORDS_OF)
def test_a_word_says_one_integer(words: Loaded, name: str, signed: bool) -> None:
    word = WORDS_OF[name](words)
    found = words.reader.readings(word, signed=signed)
    assert found is not None
    for x, y in product(range(WORDS), range(0, WORDS, 5) if name != "a word" else (0,)):
        given = {"x": x, "y": y}
        expected = words.number(word, given) % (1 << word.width)
        if signed and expected >> (word.width - 1):
            expected -= 1 << word.width
        assert [words.number(q, given) for c, q in found if words.holds(c, given)] == [expected], given


@pytest.mark.parametrize("name", ["extended", "a difference, extended", "a quotient that is rounded", "twice"])
def test_an_address_is_one_place_for_each_sign(words: Loaded, name: str) -> None:
    """The same integer as before, in cases that have no sign bit."""
    terms = words.terms
    address = terms.scale(WORDS_OF[name](words), 4)
    found = words.reader.by_signs(address, words.cases.true)
    assert found is not None
    for c, q in found:
        fields = [terms.atoms[i].args[0] for monomial, _ in q.terms for i in monomial if terms.atoms[i].kind == "field"]
        assert not any(isinstance(f, Field) and f.low == BITS - 1 for f in fields)
        for x, y in product(range(WORDS), range(0, WORDS, 5)):
            given = {"x": x, "y": y}
            if words.holds(c, given):
                assert words.number(q, given) == words.number(terms.resize(address, 0), given)
    covered = [sum(words.holds(c, {"x": x, "y": 200}) for c, _ in found) for x in range(WORDS)]
    assert covered == [1] * WORDS


@pytest.mark.parametrize("kind", ["s16", "u16"])
@pytest.mark.parametrize("name", ["lt", "ge", "eq", "ne", "gt"])
def test_computed_words_are_compared_as_integers(words: Loaded, name: str, kind: str) -> None:
    """The same for every pair of words; one more or less on either side is told from it."""
    a = words.terms.sub(words.extended(words.x), words.terms.const(WIDE, 2))
    b = words.extended(words.y)
    condition = words.arithmetic.compare(name, kind, a, b)
    assert not [q for q in words.cases.quantities_of(condition) if "test" in words.terms.text(q)]
    decide = {"lt": int.__lt__, "ge": int.__ge__, "eq": int.__eq__, "ne": int.__ne__, "gt": int.__gt__}[name]
    for x, y in product(range(0, WORDS, 3), range(WORDS)):
        p, q = ((n - WORDS if n >= HALF else n) for n in (x, y))
        p -= 2
        if kind == "u16":
            p, q = p % (1 << WIDE), q % (1 << WIDE)
        assert words.holds(condition, {"x": x, "y": y}) == decide(p, q), (x, y)
    beside = words.arithmetic.compare(name, kind, words.terms.add(a, words.terms.const(WIDE, 1)), b)
    assert beside is not condition


def test_words_that_are_not_loaded_are_not_read(words: Loaded) -> None:
    """What is computed by an operation that is not looked into stays a word of data; so does one of three signs."""
    terms = words.terms
    made = terms.data(BITS, BITS, "mul.hi.s8", words.x, words.y)
    assert not words.reader.is_loaded(terms.add(words.x, made))
    z = terms.data(BITS, BITS, "ld.global", "tensor", "z")
    three = terms.sum(WIDE, map(words.extended, (words.x, words.y, z)))
    assert words.reader.readings(three) is None
    assert words.reader.readings(terms.mul(words.x, words.y)) is None


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_joined_words_are_negative_by_their_signs(words: Loaded, name: str) -> None:
    a, b = words.terms.sub(words.x, words.terms.const(BITS, 3)), words.y
    joined = words.arithmetic.bitwise(name, a, b)
    condition = words.arithmetic.compare("lt", "s8", joined, words.terms.const(BITS, 0))
    for x, y in product(range(WORDS), range(0, WORDS, 3)):
        value = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[name]((x - 3) % WORDS, y)
        assert words.holds(condition, {"x": x, "y": y}) == (value >= HALF), (x, y)


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_joined_words_of_64_bits_are_negative_by_their_signs(name: str) -> None:
    """Of words of 32 bits that are extended: below 0 and above -1, for every pair of upper halves of 8 bits."""
    w = Loaded()
    x, y = (w.terms.data(32, 32, "ld.global", "tensor", name) for name in "uv")
    joined = w.arithmetic.bitwise(name, *(w.arithmetic.extended(p, 32, 64) for p in (x, y)))
    below = w.arithmetic.compare("lt", "s64", joined, w.terms.const(64, 0))
    above = w.arithmetic.compare("gt", "s64", joined, w.terms.const(64, -1))
    assert above == w.cases.negate(below)
    assert w.arithmetic.compare("lt", "s64", joined, w.terms.const(64, -1)) != below
    join = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[name]
    for u, v in product(range(256), repeat=2):
        given = {"u": u << 24 | v, "v": v << 24 | u}
        assert w.holds(below, given) == (join(given["u"], given["v"]) >= 1 << 31), given


def test_what_a_quotient_leaves_are_the_low_bits(words: Loaded) -> None:
    """x - 8 (x >> 3), for every x; with another factor it stays a difference."""
    terms = words.terms
    whole, upper = terms.resize(words.x, 0), terms.resize(terms.field(words.x, 3, BITS - 3, BITS), 0)
    found = without_upper(terms, terms.sub(whole, terms.scale(upper, 8)))
    assert terms.single(found) is terms.field_atom(terms.resize(words.x, 0).terms[0][0][0], 0, 3)
    other = terms.sub(whole, terms.scale(upper, 4))
    assert without_upper(terms, other) is other
    for x in range(WORDS):
        assert words.number(found, {"x": x, "y": 0}) == x % 8
