"""Identities of the comparison against their definition: for every word of a few bits, or every integer of 16."""

from __future__ import annotations

import operator
from itertools import product

import numpy as np
import pytest

from support.comparison import Comparison
from tilewright.validate.cases import Condition
from tilewright.validate.constants import least_integer
from tilewright.validate.equality import Equality
from tilewright.validate.needs import Prover, TensorExtents
from tilewright.validate.polynomials import Poly

pytestmark = pytest.mark.sample(1)

HALF = 1 << 15
NUMBERS = (-np.inf, -40000.5, -32768.0, -1.5, -1.0, -0.0, 0.0, 1e-40, 0.5, 1.0, 7.25, 32767.0, 40000.0, np.inf, np.nan)
ORDERED = {"eq": operator.eq, "neu": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
           "ge": operator.ge}  # fmt: skip


class Integers(Comparison):
    """Values of one integer of 16 bits, or of a few words."""

    def integer(self, name: str, low: int, high: int, width: int = 0) -> Poly:
        return self.terms.of(width, self.terms.atom("parameter", name, low=low, high=high))

    def holds(self, condition: Condition, given: dict[str, int]) -> bool:
        while not isinstance(condition, int):
            value = self.number(self.cases.quantities[condition.quantity], given)
            cuts = [cut for cut in condition.cuts if isinstance(cut, int)]
            condition = condition.children[sum(cut <= value for cut in cuts)]
        assert condition in (0, self.cases.true)
        return condition != 0

    def number(self, p: Poly, given: dict[str, int]) -> int:
        """What a polynomial is over the integers."""
        total = 0
        for monomial, c in p.terms:
            assert isinstance(c, int)
            for i in monomial:
                atom = self.terms.atoms[i]
                if atom.kind == "parameter":
                    c *= given[str(atom.args[0])]
                    continue
                inner = [self.number(x, given) if isinstance(x, Poly) else x for x in atom.args]
                x, y = (n if isinstance(n, int) else 0 for n in inner)
                c *= {"or": operator.or_, "xor": operator.xor, "fdiv": operator.floordiv}[atom.kind](x, y)
            total += c
        return total


@pytest.mark.parametrize("name", [*ORDERED, "equ", "ltu", "leu", "gtu", "geu", "ne", "num", "nan"])
def test_the_f32_of_an_integer_is_compared_as_the_integer(name: str) -> None:
    i = Integers()
    converted = i.arithmetic.float_of(i.integer("n", -HALF, HALF - 1, 32), signed=True)
    own = np.arange(-HALF, HALF).astype(np.float32)
    for number, swapped in product(NUMBERS, (False, True)):
        constant = i.terms.const(32, int(np.float32(number).view(np.uint32)))
        a, b = (constant, converted) if swapped else (converted, constant)
        condition = i.arithmetic.compare_floats(name, a, b)
        x, y = (np.float32(number), own) if swapped else (own, np.float32(number))
        unordered = np.isnan(x) | np.isnan(y)
        if name in ("num", "nan"):
            expected = unordered == (name == "nan")
        elif name == "neu":
            expected = unordered | (x != y)
        else:
            ordered = {**ORDERED, "ne": operator.ne}[name.removesuffix("u")](x, y)
            expected = unordered | ordered if name.endswith("u") else ordered & ~unordered
        found = [i.holds(condition, {"n": n}) for n in range(-HALF, HALF, 61)]
        assert found == expected[::61].tolist(), (number, swapped)
        near = [int(number) + d for d in range(-3, 4)] if np.isfinite(number) else []
        near = [n for n in near if -HALF <= n < HALF and abs(n - number) < 3]
        assert all(i.holds(condition, {"n": n}) == expected[n + HALF] for n in near), (number, swapped)


@pytest.mark.parametrize("above", [False, True])
def test_the_least_integer_whose_f32_reaches_a_number(above: bool) -> None:
    bounds = [
        float(np.float32(x)) for x in (-(2.0**63), -(2.0**40) - 1, -16777217.0, -0.5, 0.0, 3.0, 16777218.0, 2.0**50)
    ]
    for bound in bounds:
        found = least_integer(bound, above=above)
        reached = operator.gt if above else operator.ge
        assert reached(float(np.float32(np.int64(found))), bound)
        if found > -(1 << 63):
            assert not reached(float(np.float32(np.int64(found - 1))), bound)


@pytest.mark.parametrize("name", ["or", "xor"])
def test_bits_of_counted_words(name: str) -> None:
    i = Integers()
    x, y = (i.integer(n, 0, 15, 8) for n in "xy")
    joined = i.arithmetic.bitwise(name, x, y)
    join = {"or": operator.or_, "xor": operator.xor}[name]
    for mask in range(256):
        masked = i.arithmetic.bitwise("and", joined, i.terms.const(8, mask))
        if name == "xor" and any(i.terms.atoms[k].bits for m, _ in masked.terms for k in m):
            continue  # not looked into
        for a, b in product(range(16), range(16)):
            assert i.number(masked, {"x": a, "y": b}) % 256 == join(a, b) & mask, (mask, a, b)


def test_a_disjunction_has_no_high_bits_where_its_operands_have_none() -> None:
    i = Integers()
    x, y = i.integer("x", 0, (1 << 31) - 1, 64), i.integer("y", 0, (1 << 32) - 1, 64)
    high = i.arithmetic.bitwise("and", i.arithmetic.bitwise("or", x, y), i.terms.const(64, -(1 << 32)))
    assert i.terms.number(high) == 0
    wide = i.integer("z", 0, 1 << 32, 64)
    high = i.arithmetic.bitwise("and", i.arithmetic.bitwise("or", x, wide), i.terms.const(64, -(1 << 32)))
    assert i.terms.number(high) is None


def test_the_least_and_the_greatest_word_decide_a_minimum() -> None:
    i = Integers()
    word = i.terms.data(8, 8, "scalar", "w")
    for kind, low, high in (("s8", -128, 127), ("u8", 0, -1)):
        for x, name in product((low, high), ("min", "max")):
            end = i.terms.const(8, x)
            expected = end if (x == low) == (name == "min") else word
            assert i.arithmetic.least(kind, word, end, name) is expected
            assert i.arithmetic.least(kind, end, word, name) is expected


def test_a_word_below_a_small_number_is_one_of_those_before_it() -> None:
    i = Integers()
    a, b = (i.terms.data(32, 32, "scalar", n) for n in "ab")
    total, zero = i.terms.add(a, b), i.terms.const(32, 0)
    equal = [i.arithmetic.compare("eq", "u32", total, i.terms.const(32, n)) for n in range(3)]
    for count in (1, 2, 3):
        below = i.arithmetic.compare("lt", "u32", total, i.terms.const(32, count))
        assert below == i.cases.any(equal[:count])
    assert i.arithmetic.compare("lt", "u32", total, zero) != i.cases.any(equal[:1])


def test_a_word_of_fields_is_zero_where_all_of_them_are() -> None:
    i = Integers()
    a, b = (i.terms.data(8, 8, "scalar", n) for n in "ab")
    word = i.terms.add(i.terms.scale(i.terms.resize(a, 32), 256), i.terms.scale(i.terms.resize(b, 32), 1 << 20))
    zero = i.arithmetic.compare("eq", "u32", word, i.terms.const(32, 0))
    each = (i.arithmetic.compare("eq", "u8", x, i.terms.const(8, 0)) for x in (a, b))
    assert zero == i.cases.all(each)


def equality(i: Integers) -> Equality:
    """A comparison without loops."""
    prover = Prover(i.terms, i.cases, {}, (), 31)
    return Equality(i.values, {}, {}, {}, {}, lambda *_: False, prover.impossible, prover.equal, {})


def numbers(i: Integers, width: int, *given: int) -> Poly:
    """One of two numbers, whichever a test of data says."""
    test = i.arithmetic.test("lt.f32", i.terms.data(32, 32, "scalar", "x"), i.terms.const(32, 0))
    first, second = (i.terms.const(width, n) for n in given)
    found = i.values.select(test, first, second)
    assert isinstance(found, Poly)
    return found


def test_words_that_are_one_of_several_numbers() -> None:
    i = Integers()
    narrow, wide = numbers(i, 16, 0x3F80, 0xBF80), numbers(i, 32, 0x3F800000, 0xBF800000)
    other = numbers(i, 32, 0x3F800000, 0xBF810000)
    shifted = i.terms.scale(i.terms.resize(narrow, 32), 1 << 16)
    same = equality(i)
    assert same.equal(wide, shifted, i.cases.true)
    assert not same.equal(other, shifted, i.cases.true)
    signed = i.terms.add(i.terms.resize(narrow, 32), i.terms.const(32, 1))
    assert same.equal(numbers(i, 32, 0x3F81, 0xBF81), signed, i.cases.true)
    assert not same.equal(numbers(i, 32, 0x3F81, 0xBF81 - (1 << 16)), signed, i.cases.true)


def test_a_sum_has_the_cases_that_its_terms_have() -> None:
    i = Integers()
    n = i.integer("n", 0, 100)
    test = i.arithmetic.test("lt.f32", i.terms.data(32, 32, "scalar", "x"), i.terms.const(32, 0))
    a, b = i.terms.data(32, 32, "scalar", "a"), i.terms.data(32, 32, "scalar", "b")
    few = i.cases.at_least(i.terms.sub(i.terms.const(0, 9), n), 0)
    part = i.values.select(i.cases.both(i.cases.negate(few), test), b, i.terms.const(32, 0))
    assert isinstance(part, Poly)
    total = i.terms.add(a, part)
    assert equality(i).equal(a, total, few)
    assert not equality(i).equal(a, total, i.cases.true)


def test_conversions_of_what_is_left_open() -> None:
    i = Integers()
    same, anything, zero = equality(i), i.values.anything(32), i.terms.const(16, 0)
    rounded = i.values.apply(16, "cvt.rn.bf16.f32", i.values.apply(32, "cvt.rn.f32.s32", anything))
    assert same.equal(rounded, zero, i.cases.true)
    assert not same.equal(rounded, i.terms.const(16, 1), i.cases.true)
    known = i.values.apply(16, "cvt.rn.bf16.f32", i.terms.data(32, 32, "scalar", "x"))
    assert not same.equal(known, zero, i.cases.true)
    assert not same.equal(zero, rounded, i.cases.true)  # of the PTX nothing is left open


def test_bounds_are_proved_thread_by_thread() -> None:
    i = Integers()
    p, m, n = (i.integer(name, 0, 1 << 20) for name in ("P", "M", "c"))
    row = i.terms.add(i.terms.table(0, np.arange(32) // 16), n)
    prover = Prover(i.terms, i.cases, {}, [(i.cases.true, i.terms.sub(p, m))], 31)
    first = i.cases.both(i.cases.threads_where(np.arange(32) < 16), i.cases.at_least(i.terms.sub(m, n), 1))
    second = i.cases.both(i.cases.threads_where(np.arange(32) >= 16), i.cases.at_least(i.terms.sub(m, n), 2))
    inside = i.terms.sub(i.terms.sub(p, i.terms.const(0, 1)), row)
    assert prover.not_negative(inside, i.cases.either(first, second))
    assert not prover.not_negative(inside, i.cases.at_least(i.terms.sub(m, n), 1))


@pytest.mark.parametrize(("least", "shown"), [(64, True), (63, False)])
def test_quotients_of_what_a_condition_bounds(least: int, shown: bool) -> None:
    """64 floor((x + 1) / 3) is at most 64 where x < 5, by x alone 128."""
    i = Integers()
    x = i.integer("x", 0, 6)
    part = i.terms.scale(i.terms.floordiv(i.terms.add(x, i.terms.const(0, 1)), 3), 64)
    inside = i.cases.at_least(i.terms.sub(i.terms.const(0, 4), x), 0)
    prover = Prover(i.terms, i.cases, {}, (), 31)
    assert prover.not_negative(i.terms.sub(i.terms.const(0, least), part), inside) is shown
    assert not prover.not_negative(i.terms.sub(i.terms.const(0, 64), part), i.cases.true)


def test_bounds_of_a_sum_of_many_residues_are_found() -> None:
    i = Integers()
    total = i.terms.const(0, 0)
    for k in range(40):
        x = i.integer(f"x{k}", 0, 1 << 20)
        total = i.terms.add(total, i.terms.residue(x, 7 + k))
    low, high = i.terms.interval(total)
    assert low is not None
    assert high is not None


@pytest.mark.parametrize(("m", "bits", "d"), [(715827883, 31, 3), (1717986919, 33, 5), (43691, 17, 3)])
def test_a_product_that_is_shifted_is_a_quotient(m: int, bits: int, d: int) -> None:
    i = Integers()
    x = i.integer("x", 0, (1 << 16) - 1)
    assert i.terms.floordiv(i.terms.scale(x, m), 1 << bits) is i.terms.floordiv(x, d)
    assert all(m * n >> bits == n // d for n in range(1 << 16))
    wide = i.integer("y", 0, 1 << 40)
    assert i.terms.floordiv(i.terms.scale(wide, m), 1 << bits) is not i.terms.floordiv(wide, d)


def test_coordinates_in_a_dense_workspace() -> None:
    i = Integers()
    rows, pitch, a, b, c = (i.integer(n, 0, 1 << 20) for n in ("M", "F", "a", "b", "c"))
    inner = i.terms.scale(pitch, 64)
    tensor = TensorExtents((a, rows, inner), (i.terms.mul(inner, rows), inner, i.terms.const(0, 1)), 2)
    prover = Prover(i.terms, i.cases, {"x": tensor}, (), 31)
    offset = i.terms.sum(0, (i.terms.mul(a, i.terms.mul(inner, rows)), i.terms.mul(b, inner), c))
    assert prover.coordinates(tensor, offset) == [a, b, c]
    odd = i.terms.add(offset, i.terms.mul(b, pitch))  # a 64th of a row
    assert prover.coordinates(tensor, odd) is None


def test_offsets_in_a_tensor_whose_strides_are_numbers() -> None:
    """Rows of 8 elements, 32 apart: the last element of a row is inside, the one behind it is not."""
    i = Integers()
    rows, c = i.integer("P", 0, 1 << 20), i.integer("c", 0, 1 << 20)
    tensor = TensorExtents((rows, i.terms.const(0, 8)), (i.terms.const(0, 32), i.terms.const(0, 1)), 4)
    prover = Prover(i.terms, i.cases, {"x": tensor}, (), 31)
    there = i.cases.less(c, rows)
    for last, inside in ((0, True), (7, True), (8, False), (31, False), (-1, False)):
        offset = i.terms.add(i.terms.scale(c, 4 * 32), i.terms.const(0, 4 * last))
        assert prover.readable("x", offset, 4, there) == inside, last
    assert not prover.readable("x", i.terms.scale(c, 4 * 32), 4, i.cases.true)
    assert not prover.readable("x", i.terms.add(i.terms.scale(c, 4 * 32), i.terms.const(0, 4 * 32)), 4, there)


@pytest.mark.parametrize("name", ["min", "max"])
def test_extrema_where_only_some_words_are_there(name: str) -> None:
    """Beside the neutral word the other one; of words that are not negative as without sign. One that may be negative
    or missing is none of these."""
    i = Integers()
    n, neutral = i.integer("n", 0, 1 << 20), i.terms.const(32, -HALF << 16 if name == "max" else (HALF << 16) - 1)
    there = i.cases.at_least(n, 8)
    small = [i.terms.resize(i.terms.data(8, 8, "ld.global", "x", k), 32) for k in range(2)]
    whole = i.terms.data(32, 32, "ld.global", "x", 2)
    eq = equality(i)

    def extreme(kind: str, a: Poly, b: Poly, absent: bool) -> Poly:
        other = i.values.select(there, b, neutral) if absent else b
        found = i.arithmetic.least(kind, a, other, name)
        assert isinstance(found, Poly)
        return found

    for second, same in ((small[1], True), (whole, False)):
        masked, plain = extreme("s32", small[0], second, True), extreme("u32", small[0], second, False)
        assert eq.equal(masked, plain, there) == same
        assert not eq.equal(masked, plain, i.cases.true)
    assert eq.equal(extreme("s32", small[0], whole, True), extreme("s32", small[0], whole, False), there)


def test_bits_of_a_word_where_no_others_are_left() -> None:
    """x >> 3 and 8 of its bits: where the quotient is below 2**8, and not one further."""
    i = Integers()
    base = i.terms.single(i.terms.data(64, 64, "ld.global", "x", 0))
    assert base is not None
    whole, part, beside = (i.terms.field_atom(base.id, low, count) for low, count in ((3, 61), (3, 8), (4, 8)))
    quotient = i.terms.of(0, whole)
    eq = equality(i)
    below = i.cases.negate(i.cases.at_least(quotient, 1 << 8))
    assert eq.equal(quotient, i.terms.of(0, part), below)
    assert not eq.equal(quotient, i.terms.of(0, beside), below)
    assert not eq.equal(quotient, i.terms.of(0, part), i.cases.negate(i.cases.at_least(quotient, (1 << 8) + 1)))


def test_a_quotient_by_a_power_of_two_is_a_product() -> None:
    """Of each number by each power whose reciprocal is a float that is not subnormal, and of no other divisor."""
    floats = Integers().arithmetic.floats
    x = floats.terms.of(32, floats.terms.atom("ld.global", "x"))
    for k in (-126, -3, -1, 1, 2, 30, 126):
        for sign in (1.0, -1.0):
            product = floats.mul(x, floats.constant(sign * 2.0**-k))
            assert floats.div(x, floats.constant(sign * 2.0**k), "rn.f32") is product
        with np.errstate(all="ignore"):
            values = np.float32(NUMBERS)
            np.testing.assert_array_equal(values / np.float32(2.0**k), values * np.float32(2.0**-k))
    for divisor in (3.0, 2.0**127, 2.0**-127, 0.0, np.inf):
        assert floats._atom(floats.div(x, floats.constant(divisor), "rn.f32"), "div.rn.f32") is not None
    assert floats._atom(floats.div(x, floats.constant(4.0), "full.f32"), "div.full.f32") is not None


def _chosen(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """max.f32 and min.f32 of words: what is no NaN, and of two zeros the positive or the negative one."""
    x, y = a.view(np.float32), b.view(np.float32)
    signs = np.signbit(x) < np.signbit(y)
    greater = np.where(x == y, signs, x > y)
    first = np.isnan(y) | ((greater if kind == "max.f32" else ~greater) & ~np.isnan(x))
    return np.where(first, a, b)


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "ltu", "leu", "gtu", "geu", "eq", "ne"])
def test_a_choice_by_a_comparison_is_the_lesser_or_the_greater(name: str) -> None:
    words = (np.arange(1 << 16, dtype=np.uint32) << 16) | (np.arange(1 << 16, dtype=np.uint32) % 3)
    made = 0
    for number, swapped, otherwise in product((*NUMBERS, -1e-40), (False, True), (False, True)):
        i = Integers()
        x, c = i.terms.data(32, 32, "scalar", "x"), i.terms.const(32, int(np.float32(number).view(np.uint32)))
        a, b = (c, x) if swapped else (x, c)
        condition = i.arithmetic.compare_floats(name, a, b)
        then, other = (c, x) if otherwise else (x, c)
        atom = i.terms.single(found) if isinstance(found := i.values.select(condition, then, other), Poly) else None
        if atom is None or not atom.kind.startswith(("max", "min")):
            continue
        made += 1
        of_x, of_c = words, np.full_like(words, np.float32(number).view(np.uint32))
        p, q = (of_c, of_x) if swapped else (of_x, of_c)
        p, q = p.view(np.float32), q.view(np.float32)
        test = ORDERED.get(name.removesuffix("u"), operator.ne)(p, q)
        if name.endswith("u"):
            test = test | np.isnan(p) | np.isnan(q)
        elif name == "ne":
            test = test & ~np.isnan(p) & ~np.isnan(q)
        expected = np.where(test, *((of_c, of_x) if otherwise else (of_x, of_c)))
        result = _chosen(atom.kind, of_x, of_c)
        same = (result == expected) | (np.isnan(result.view(np.float32)) & np.isnan(expected.view(np.float32)))
        assert same.all(), (number, swapped, otherwise)
    assert made  # by eq and ne beside an infinity, beyond which there is no number


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_least_of_several_integers_has_one_form(name: str) -> None:
    i = Integers()
    a, b, c = (i.integer(n, 0, 100) for n in "abc")

    def extreme(x: Poly, y: Poly) -> Poly:
        return i.arithmetic.extreme(name, x, y)

    def moved(x: Poly, by: int) -> Poly:
        return i.terms.add(x, i.terms.const(0, by))

    whole = extreme(extreme(a, b), c)
    assert whole is extreme(a, extreme(c, b)) is extreme(extreme(a, c), extreme(b, c))
    assert extreme(moved(extreme(a, b), 3), c) is extreme(moved(a, 3), extreme(c, moved(b, 3)))
    assert extreme(moved(extreme(a, b), 3), c) is not extreme(extreme(a, b), c)
    beyond = moved(a, 1 if name == "min" else -1)
    assert extreme(extreme(b, c), extreme(a, beyond)) is extreme(extreme(beyond, b), extreme(c, a)) is whole
    assert extreme(extreme(beyond, b), c) is not whole


@pytest.mark.parametrize(("least", "shown"), [(1, True), (0, False)])
def test_the_least_is_the_other_one_where_one_is_above_it(least: int, shown: bool) -> None:
    i = Integers()
    a, b = (i.integer(n, 0, 100) for n in "ab")
    smaller = i.arithmetic.extreme("min", a, b)
    above = i.cases.at_least(i.terms.sub(a, smaller), least)  # where it may be as large nothing is known
    assert equality(i).equal(smaller, b, above) == shown
    assert not equality(i).equal(smaller, a, above)


@pytest.mark.parametrize(("name", "number"), [("gt", 1), ("lt", 2), ("ge", 2), ("le", 1), ("gt", 7), ("lt", 0)])
@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_a_word_of_two_cases_is_compared_as_each_of_them(name: str, number: int, kind: str) -> None:
    """-1 or a number below 8, whichever a test of data says: without a sign -1 is the greatest."""
    i = Integers()
    test = i.arithmetic.test("lt.f32", i.terms.data(32, 32, "scalar", "x"), i.terms.const(32, 0))
    place = i.integer("p", 0, 7, 32)
    word = i.values.select(test, i.terms.const(32, -1), place)
    assert isinstance(word, Poly)
    holds = {"gt": operator.gt, "lt": operator.lt, "ge": operator.ge, "le": operator.le}[name]
    for sides in ((word, i.terms.const(32, number)), (i.terms.const(32, number), word)):
        found = i.arithmetic.compare(name, kind, *sides)
        for taken, values in ((test, [2**32 - 1 if kind == "u32" else -1]), (i.cases.negate(test), range(8))):
            for value in values:
                here = i.cases.both(taken, i.cases.equal(i.terms.resize(place, 0), i.terms.const(0, value % 8)))
                want = holds(value, number) if sides[0] is word else holds(number, value)
                assert i.cases.both(here, found) == (here if want else 0)


@pytest.mark.parametrize(("m", "bits", "d"), [(1431655766, 32, 3), (1717986919, 33, 5), (715827883, 33, 12)])
def test_a_place_of_each_thread_is_divided_by_a_reciprocal(m: int, bits: int, d: int) -> None:
    """The upper word of 32 n + t times the reciprocal, shifted, for every n of 16 bits: multiples of powers of two are
    not taken out of it. With another reciprocal the quotient is another value."""
    i = Integers()
    n = i.integer("n", 0, (1 << 16) - 1)
    x = i.terms.add(i.terms.scale(n, 32), i.terms.table(0, np.arange(32)))
    expected = i.terms.floordiv(x, d)

    def divided(by: int) -> Poly:
        upper = i.terms.floordiv(i.terms.mul(x, i.terms.const(0, by)), 1 << 32)
        return i.terms.floordiv(upper, 1 << (bits - 32))

    assert divided(m) is expected
    whole = np.arange(1 << 21, dtype=np.int64)
    assert (whole * m >> bits == whole // d).all()
    assert divided(m + (1 << 20)) is not expected


@pytest.mark.parametrize(("m", "shift", "d"), [(1431655766, 0, 3), (1717986919, 1, 5), (1717986919, 2, 10)])
def test_a_quotient_by_a_reciprocal_of_an_integer_without_bounds(m: int, shift: int, d: int) -> None:
    """It is one if the integer is a word without a sign bit, which is left to be proved; then it has no sign bit."""
    i = Integers()
    x = i.terms.of(0, i.terms.atom("parameter", "x"))
    upper = i.terms.resize(i.terms.floordiv(i.terms.mul(x, i.terms.const(0, m)), 1 << 32), 32)
    found = i.arithmetic.quotient_by_reciprocal(upper, shift, signed=True)
    assert found is i.terms.resize(i.terms.floordiv(x, d), 32)
    assert {(need.value, need.low, need.high) for need in i.arithmetic.needs} == {(x, 0, (1 << 31) - 1)}
    for word in (upper, found):
        i.arithmetic.needs.clear()
        assert i.terms.number(i.arithmetic.shift("shr", word, i.terms.const(32, 31), signed=False)) == 0
        assert i.arithmetic.needs
    ends = np.array([*range(1 << 12), *((1 << 31) - 1 - n for n in range(1 << 12))], np.int64)
    among = np.concatenate([ends, np.random.default_rng(0).integers(0, 1 << 31, 10**7)])
    assert (among * m >> (32 + shift) == among // d).all()
    assert i.arithmetic.quotient_by_reciprocal(upper, shift + 3, signed=True) is not found
    below = i.integer("y", -5, 100)
    negative = i.terms.floordiv(i.terms.mul(below, i.terms.const(0, m)), 1 << 32)
    assert i.arithmetic.quotient_by_reciprocal(i.terms.resize(negative, 32), shift, signed=True) is None


def test_a_sign_bit_counts_as_a_number() -> None:
    """1 - (x >> 31) is 1 where x is not negative, else 0; the same of what is counted."""
    i = Integers()
    data, other = (i.terms.data(32, 32, "scalar", name) for name in "xa")
    counted = i.integer("n", 0, (1 << 32) - 1)
    one, zero = (i.terms.const(32, n) for n in (1, 0))
    for value, sign in (
        (i.terms.resize(data, 0), i.terms.field(data, 31, 1, 32)),
        (counted, i.terms.resize(i.terms.floordiv(counted, 1 << 31), 32)),
    ):
        upper = i.cases.at_least(value, 1 << 31)
        picked = i.values.select(upper, zero, i.terms.scale(other, 2))
        text = i.terms.mul(i.terms.sub(one, sign), i.terms.scale(other, 2))
        total = i.terms.add(i.terms.sub(one, sign), other)
        chosen = i.values.select(upper, other, i.terms.add(other, one))
        assert equality(i).equal(chosen, total, i.cases.true)
        assert not equality(i).equal(chosen, i.terms.add(sign, other), i.cases.true)
        assert not equality(i).equal(i.values.select(upper, i.terms.add(other, one), other), total, i.cases.true)
        assert not equality(i).equal(picked, i.terms.add(text, one), i.cases.true)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_a_form_that_changes_numbers_is_looked_at(kind: str) -> None:
    """``relu`` of a negative number, ``satfinite`` of an infinity: what was widened is not what it was."""
    made = Comparison()
    floats, word = made.arithmetic.floats, made.terms.data(16, 16, "ld.global", "x")
    whole = floats.widened(kind, word)
    assert floats.rounded(kind, 16, f"cvt.rn.{kind}.f32", whole) is word
    for form in ("rn.relu", "rz.relu", "rn.satfinite", "rn.relu.satfinite"):
        assert floats.rounded(kind, 16, f"cvt.{form}.{kind}.f32", whole) is not word


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extreme_that_changes_its_operand_is_looked_at(name: str) -> None:
    """``ftz`` of a denormal, ``xorsign.abs`` of a negative number."""
    made = Comparison()
    floats, x = made.arithmetic.floats, made.terms.data(32, 32, "ld.global", "x")
    assert all(floats.extreme(f"{name}{form}.f32", x, x) is x for form in ("", ".NaN"))
    for form in (".ftz", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
        assert floats.extreme(f"{name}{form}.f32", x, x) is not x


@pytest.mark.parametrize(
    ("bits", "width", "factor", "is_open"),
    [(16, 32, 0x10001, True), (8, 32, 0x1010101, True), (16, 64, 0x1000100010001, True), (32, 32, 1, True),
     (16, 32, 0x10000, False), (16, 32, 0x20001, False), (16, 32, 0x10003, False), (16, 64, 0x10001, False),
     (8, 32, 0x10001, False), (8, 32, 0x10101, False), (16, 0, 0x10001, False), (16, 32, 2, False),
     (32, 32, 3, False), (16, 32, 1, False), (8, 16, 1, False)],
)  # fmt: skip
def test_a_word_of_open_parts_is_open(bits: int, width: int, factor: int, is_open: bool) -> None:
    """Where its parts fill it, each bit once."""
    i = Integers()
    part = i.terms.resize(i.values.anything(bits), width)
    assert i.values.is_open(i.terms.scale(part, factor)) is is_open
    assert not i.values.is_open(i.terms.scale(i.terms.data(width, bits, "ld.global", "x"), factor))
    assert not i.values.is_open(i.terms.add(i.terms.scale(part, factor), i.terms.const(width, 1)))
