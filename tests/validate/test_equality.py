"""Comparisons of values of the IR with values of the PTX."""

from __future__ import annotations

from functools import reduce

from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.cases import Cases
from tilewright.validate.equality import Equality
from tilewright.validate.polynomials import Poly
from tilewright.validate.ranks import RANKS, equal_for_all_ranks
from tilewright.validate.terms import Terms
from tilewright.validate.values import Values


class Small:
    """Two words of data, and an extent that is large, or less."""

    def __init__(self) -> None:
        self.terms = Terms(32)
        self.cases = Cases(self.terms)
        self.values = Values(self.terms, self.cases)
        self.equality = Equality(self.values, {}, {}, {}, {}, lambda *_: False, lambda _: False, lambda *_: False, {})
        n = self.terms.of(0, self.terms.atom("parameter", "N", low=0, high=100))
        self.x, self.y = (self.terms.data(32, 32, "scalar", name) for name in "xy")
        self.many, self.some = self.cases.at_least(n, 20), self.cases.at_least(n, 10)


def test_a_value_that_nothing_wrote_equals_none() -> None:
    s = Small()
    values, cases, x, y, many, some = s.values, s.cases, s.x, s.y, s.many, s.some
    ours = values.select(many, y, x)
    theirs = values.choose([(many, y), (cases.without(some, many), x)])
    assert s.equality.equal(ours, theirs, some)
    assert not s.equality.equal(ours, theirs, cases.true)


def test_an_operand_that_nothing_wrote_equals_none() -> None:
    s = Small()
    written = s.values.choose([(s.many, s.x), (s.cases.negate(s.some), s.y)])
    ours, theirs = s.equality.floats.mul(s.x, s.y), s.equality.floats.mul(written, s.y)
    assert s.equality.equal(ours, theirs, s.many)
    assert not s.equality.equal(ours, theirs, s.some)


def test_integers_are_equal_where_what_they_differ_by_is_0() -> None:
    s = Small()
    terms, cases = s.terms, s.cases
    n = terms.of(0, terms.atom("parameter", "N"))
    ours, theirs = terms.add(terms.scale(n, 2), terms.const(0, 2)), terms.const(0, 42)  # 2 N + 2, and 42
    of_20 = cases.without(s.many, cases.at_least(n, 21))
    places = [terms.data(32, 32, "ld.global", "w", at, 2, None) for at in (ours, theirs)]
    for x, y in ((ours, theirs), places):
        assert s.equality.equal(x, y, of_20)
        assert not s.equality.equal(x, y, s.many)
        assert not s.equality.equal(x, y, cases.without(s.some, cases.at_least(n, 20)))


def test_products_have_each_factor_as_often() -> None:
    s = Small()
    x, y, cases = s.x, s.y, s.cases
    chosen = s.terms.data(32, 32, "choice", s.values.select(s.many, x, y))

    def product(*factors: Poly) -> Poly:
        return reduce(s.terms.mul, factors)

    for care in (s.many, cases.true):
        assert not s.equality.equal(product(x, x, y), product(x, y, y), care)
        assert s.equality.equal(product(x, chosen, y), product(y, x, x), care) == (care == s.many)
        assert s.equality.equal(product(*[x] * 13), product(*[chosen] * 13), care) == (care == s.many)


def test_words_of_a_rank_are_compared_number_by_number() -> None:
    """(rank + 1) % 2 is rank % 2 ^ 1, and two bits that are set one by one are 5 << rank % 2."""
    s = Small()
    terms = s.terms
    arithmetic = Arithmetic(s.values)
    rank = terms.of(0, terms.atom("cta_rank", low=0, high=RANKS - 1))
    one = terms.const(0, 1)

    def remainder(p: Poly) -> Poly:
        return terms.sub(p, terms.scale(terms.floordiv(p, 2), 2))

    column = remainder(rank)
    peer = remainder(terms.add(rank, one))
    inverted = terms.of(0, terms.atom("xor", one, column, low=0, high=1))
    assert s.equality.equal(peer, inverted, s.cases.true)
    assert not s.equality.equal(column, inverted, s.cases.true)
    assert not s.equality.equal(terms.add(peer, terms.resize(s.x, 0)), inverted, s.cases.true)

    def bit(n: int) -> Poly:
        at = terms.resize(terms.add(column, terms.const(0, n)), 32)
        return arithmetic.shift("shl", terms.const(32, 1), at, signed=False)

    both = arithmetic.bitwise("or", bit(0), bit(2))
    shifted = arithmetic.shift("shl", terms.const(32, 5), terms.resize(column, 32), signed=True)
    assert s.equality.equal(both, shifted, s.cases.true)
    assert not s.equality.equal(bit(0), shifted, s.cases.true)


def test_ranks_are_distinguished_up_to_the_last() -> None:
    terms = Terms(32)
    rank = terms.of(0, terms.atom("cta_rank", low=0, high=15))
    last = terms.floordiv(rank, 15)  # 1 of the last rank alone
    assert not equal_for_all_ranks(terms, last, terms.const(0, 0))
    squared = terms.of(0, terms.atom("xor", last, terms.const(0, 0), low=0, high=1))
    assert equal_for_all_ranks(terms, last, squared)
    word = terms.data(32, 4, "xor", rank, terms.const(0, 8))
    assert equal_for_all_ranks(
        terms, terms.field(word, 0, 3, 32), terms.resize(terms.sub(rank, eights(terms, rank)), 32)
    )


def eights(terms: Terms, p: Poly) -> Poly:
    return terms.scale(terms.floordiv(p, 8), 8)


def test_an_exclusive_or_with_a_remainder_by_2_is_the_other_one() -> None:
    """Slots of two stages, 8 bytes each, as NVRTC writes them."""
    s = Small()
    terms, arithmetic = s.terms, Arithmetic(s.values)
    count = terms.of(0, terms.atom("iter", "loop", low=0, high=(1 << 31) - 1))
    uses = terms.add(terms.scale(count, 3), terms.of(0, terms.atom("parameter", "K", low=0, high=99)))

    def slot(q: Poly, size: int) -> Poly:
        return terms.resize(terms.scale(terms.sub(q, terms.scale(terms.floordiv(q, 2), 2)), size), 32)

    for q in (count, uses, terms.floordiv(uses, 4)):
        other = slot(terms.add(q, terms.const(0, 1)), 8)
        assert arithmetic.bitwise("xor", slot(q, 8), terms.const(32, 8)) == other
        assert arithmetic.bitwise("xor", terms.const(32, 8), slot(q, 8)) == other
        assert arithmetic.bitwise("xor", slot(q, 8), terms.const(32, 16)) != other
        assert arithmetic.bitwise("xor", slot(q, 4), terms.const(32, 8)) != other
