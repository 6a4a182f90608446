"""Texts that name what expressions share, and the first of many predicates that holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.expr import (
    Assignment,
    Expr,
    ExprError,
    SharedParts,
    SharedTexts,
    Sym,
    all_of,
    any_of,
    ceildiv,
    first_of,
    maximum,
    minimum,
    negate,
    parse,
)
from tilewright.base.expr.nodes import xor

M, N, K, S = (Sym(name) for name in ("M", "N", "K", "a.stride0"))


def family(count: int = 12) -> list[Expr]:
    """Predicates like those of a product's variants: each compares a price with all behind it."""
    prices = [
        maximum(ceildiv(ceildiv(M, 16 * i) * ceildiv(N, 24), 132) * (ceildiv(K, 64) * (31 * i + S % 32) + 500), N * K)
        for i in range(1, count)
    ]
    found = [all_of([price <= minimum(*prices[i + 1 :]), 4 * i < M]) for i, price in enumerate(prices[:-1])]
    return [*found, any_of([negate(M.eq(N)), xor(M, K) < 7]), parse("1")]


def test_texts_over_parts_stand_for_the_expressions() -> None:
    every = family()
    texts = SharedTexts(every)
    written = [texts.text(each) for each in every]
    read = SharedParts(texts.parts)
    assert [read.read(text) for text in written] == every
    assert sum(map(len, (*texts.parts, *written))) * 3 < sum(len(str(each)) for each in every)


@given(st.integers(0, 400), st.integers(1, 400), st.integers(1, 4000), st.integers(0, 64))
def test_the_first_predicate_that_holds(m: int, n: int, k: int, stride: int) -> None:
    every, values = family(), {"M": m, "N": n, "K": k, "a.stride0": stride, "other": 3}
    expected = next(i for i, each in enumerate(every) if each.evaluate(Assignment(values)))
    assert first_of(every)(values) == expected


def test_no_predicate_holds() -> None:
    assert first_of([M > 5, parse("0")])({"M": 4}) is None
    assert first_of([])({}) is None


def test_a_part_that_nothing_asks_for_may_divide_by_zero() -> None:
    shared = (M * 1000 + N * 1000) // K
    guarded = [all_of([K > 0, shared > 3]), all_of([K > 0, shared > 1]), M >= 0]
    assert first_of(guarded)({"M": 1, "N": 1, "K": 0}) == 2
    assert first_of(guarded)({"M": 1, "N": 1, "K": 800}) == 1
    with pytest.raises(ExprError, match="divides by zero"):
        first_of([shared > 3, shared > 1])({"M": 1, "N": 1, "K": 0})
    with pytest.raises(ExprError, match="'M' has no value"):
        first_of([M > 3])({"N": 1})


@pytest.mark.parametrize(
    ("parts", "text", "found"),
    [
        ([], "$part0 + 1", "none of the 0 parts"),
        (["$part1 + M", "M + 1"], "M", "none of the 0 parts"),
        (["$part0 + M"], "M", "none of the 0 parts"),
        (["M + N"] + [f"max($part{i}, N) + max(M, $part{i})" for i in range(60)], "M", "characters"),
        (["max(M, N)"] + [f"max($part{i} + 1, K)" for i in range(400)], "M", "nested"),
        (["__import__('os')"], "M", "not part of an integer expression"),
    ],
)
def test_parts_that_are_refused(parts: list[str], text: str, found: str) -> None:
    with pytest.raises(ExprError, match=found):
        SharedParts(parts).read(text)
