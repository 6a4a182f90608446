"""Expressions for people: no polynomial, nothing of the compiler's own, and the value that the text has in Python."""

from __future__ import annotations

from math import ceil

import pytest

from tilewright.base.expr import parse
from tilewright.base.readable import arithmetic, condition, conditions, when

ARITHMETIC = [
    ("(M*N)*8", "8*M*N"),
    ("M*4 + (M*N)*8", "4*M + 8*M*N"),
    ("(((N + 63) // 64)*M)*4", "4*ceil(N / 64)*M"),
    ("(S + 127) // 128 - 1", "ceil(S / 128) - 1"),
    ("(M + 5) // 3", "ceil(M / 3) + 1"),
    ("((S + 127) // 128 - 1) // N", "(ceil(S / 128) - 1) // N"),
    ("-K + L + 1", "L - K + 1"),
    ("min(M, N*2) % 7", "min(2*N, M) % 7"),
    ("max(-x.stride0, x.stride0)", "|stride(x, 0)|"),
    ("$p0*64 + $k1", "k1 + 64*p0"),
]


@pytest.mark.parametrize(("text", "readable"), ARITHMETIC)
def test_sums_and_products_are_written_as_people_write_them(text: str, readable: str) -> None:
    assert arithmetic(parse(text)) == readable


@pytest.mark.parametrize("text", [t for t, _ in ARITHMETIC if "$" not in t and "stride" not in t])
def test_the_readable_text_has_the_same_value(text: str) -> None:
    values = {"M": 70, "N": 33, "S": 300, "K": 9, "L": 50}
    assert eval(arithmetic(parse(text)), {"ceil": ceil, "min": min, "max": max}, values) == parse(text).evaluate(values)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.address % 16 == 0", "x is aligned to 16 bytes"),
        ("x.stride3 == 1", "x is contiguous along dimension 3"),
        ("(x.stride0*2) % 16 == 0", "dimension 0 of x has a stride that is a multiple of 8 elements"),
        (
            "(x.stride0*2) % 16 == 0 or M <= 1",
            "dimension 0 of x has a stride that is a multiple of 8 elements (if M > 1)",
        ),
        ("0 < x.stride0 or M <= 1", "dimension 0 of x has a stride above 0 (if M > 1)"),
        ("max(-x.stride0, x.stride0)*max(M - 1, 0) < 2147483648", "offsets of elements in x fit 32 bits"),
        ("(N*16) % 128 == 0", "N % 8 == 0"),
        ("M % 8 == 0 and N <= 4096", "M % 8 == 0 and N <= 4096"),
        ("0 < M", "M > 0"),
        ("N == (N // 128)*128", "N == 128*(N // 128)"),
    ],
)
def test_conditions_are_told_in_words(text: str, said: str) -> None:
    assert condition(parse(text)) == said


def test_what_only_has_to_fit_and_costs_are_told_once() -> None:
    waves = "(((M + 63) // 64)*((N + {w}) // {n}) + 131) // 132"
    costs = f"({waves.format(w=127, n=128)})*13056 <= ({waves.format(w=255, n=256)})*25600"
    sizes = "((M + 63) // 64)*((N + 63) // 64) <= 2145386496"
    told = conditions([parse("M % 8 == 0"), parse(costs), parse(sizes), parse(sizes.replace("// 64", "// 32"))])
    assert told == [
        "M % 8 == 0",
        "the cost model prefers it for these M, N",
        "numbers of programs and steps, by M, N, fit 32 bits",
    ]


def test_variants_say_when_they_run() -> None:
    assert when(parse("True")) == "always"
    assert when(parse("M <= 16 and (N < 5 or K < 3)")) == "if (K < 3 or N < 5) and M <= 16"
