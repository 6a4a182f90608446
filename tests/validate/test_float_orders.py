"""Comparisons of floats by ranks and orders, against NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pytest

from support.comparison import Comparison
from support.made_values import Made, rank
from tilewright.validate.polynomials import Poly

pytestmark = pytest.mark.sample(1)

NUMBERS = [0.0, -0.0, 1.5, -1.5, 1e-45, -1e-45, 3e38, np.inf, -np.inf, np.nan]
WORDS = [*(int(np.float32(x).view(np.uint32)) for x in NUMBERS), 0xFF800001]
ORDERED: dict[str, Callable[..., np.ndarray]] = {
    "lt": operator.lt, "le": operator.le, "eq": operator.eq, "ge": operator.ge, "gt": operator.gt, "ne": operator.ne,
}  # fmt: skip
NAMES = [*ORDERED, *(f"{name}u" for name in ORDERED), "num", "nan"]


def compared(name: str, a: int, b: int) -> bool:
    """setp.f32 of two words (PTX ISA, 9.7.3.16)."""
    x, y = (np.uint32(word).view(np.float32) for word in (a, b))
    if np.isnan(x) or np.isnan(y):
        return name.endswith("u") or name == "nan"
    return name == "num" or (name != "nan" and bool(ORDERED[name.removesuffix("u")](x, y)))


class Floats(Comparison):
    """Two floats and their negations, and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = (self.terms.data(32, 32, "scalar", name) for name in "xy")

    def negated(self, x: Poly) -> Poly:
        found = self.arithmetic.floats.neg(x)
        assert isinstance(found, Poly)
        return found

    def number(self, word: int) -> Poly:
        return self.terms.const(32, word)


def test_ranks_are_in_the_order_of_floats() -> None:
    words = [*range(0, 1 << 32, 65521), *WORDS]
    for a, b in pairwise(words):
        if not (compared("nan", a, a) or compared("nan", b, b)):
            assert (rank(a) < rank(b)) == compared("lt", a, b)
            assert (rank(a) == rank(b)) == compared("eq", a, b)


@pytest.mark.parametrize("name", NAMES)
def test_every_upper_half_of_a_float_beside_numbers(name: str) -> None:
    """Each word of a bf16, both signs, on both sides of each number."""
    f = Floats()
    words = np.arange(1 << 16, dtype=np.uint32) << 16 | np.arange(1 << 16, dtype=np.uint32) % 3
    floats = words.view(np.float32)
    magnitudes = np.minimum(words & 0x7FFFFFFF, 0x7F800001).astype(np.int64)
    ranks = np.where((words >> 31 == 1) & ~np.isnan(floats), -magnitudes, magnitudes)
    assert [rank(int(word)) for word in words[::97]] == list(ranks[::97])
    for number, minus, swapped in product(WORDS, (False, True), (False, True)):
        a, b = f.negated(f.x) if minus else f.x, f.number(number)
        condition = f.arithmetic.compare_floats(name, *((b, a) if swapped else (a, b)))
        if isinstance(condition, int):
            found = np.full(len(words), condition != 0)
        else:
            assert f.cases.quantities[condition.quantity] is f.values.orders.rank(f.x)
            cuts = [cut for cut in condition.cuts if isinstance(cut, int)]
            leaves = np.array([child == f.cases.true for child in condition.children])
            found = leaves[np.searchsorted(cuts, ranks, side="right")]
        x, c = -floats if minus else floats, np.uint32(number).view(np.float32)
        p, q = (c, x) if swapped else (x, c)
        unordered = np.isnan(p) | np.isnan(q)
        expected = {"num": ~unordered, "nan": unordered}.get(name)
        if expected is None:
            holds = ORDERED[name.removesuffix("u")](p, q)
            expected = holds | unordered if name.endswith("u") else holds & ~unordered
        np.testing.assert_array_equal(found, expected, f"{number:#x}")


@pytest.mark.parametrize("name", NAMES)
def test_two_floats(name: str) -> None:
    f = Floats()
    forms = [(False, f.x), (True, f.negated(f.x)), (False, f.y), (True, f.negated(f.y))]
    for (minus, a), (other, b) in product(forms, forms):
        condition = f.arithmetic.compare_floats(name, a, b)
        for u, v in product(WORDS, WORDS):
            of_a, of_b = ((u if p in (f.x, forms[1][1]) else v) ^ m << 31 for m, p in ((minus, a), (other, b)))
            made = Made(f.terms, f.cases, {"x": [u], "y": [v]}, {})
            assert made.holds(condition, 0) == compared(name, of_a, of_b), (u, v)


def test_comparisons_that_say_the_same_together_are_one_condition() -> None:
    f = Floats()
    x, y, cases, compare = f.x, f.y, f.cases, f.arithmetic.compare_floats
    greater, equal = compare("gt", x, y), compare("eq", y, x)
    assert cases.either(greater, equal) == compare("ge", x, y)
    assert cases.negate(cases.either(greater, equal)) == compare("ltu", x, y)
    assert cases.both(greater, compare("lt", x, y)) == 0
    assert cases.both(greater, compare("num", x, x)) == greater
    assert compare("gt", f.negated(x), y) == compare("lt", x, f.negated(y))
    one, two, infinity = (f.number(int(np.float32(n).view(np.uint32))) for n in (1, 2, np.inf))
    assert cases.both(compare("gt", x, one), compare("gt", x, two)) == compare("gt", x, two)
    assert cases.either(compare("le", x, one), compare("gt", x, one)) == compare("num", x, x)
    assert compare("gt", x, infinity) == 0
    assert compare("ge", x, f.negated(infinity)) == compare("num", x, x) != compare("gt", x, f.negated(infinity))
