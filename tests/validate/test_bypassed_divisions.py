"""Quotients of 64-bit words that LLVM computes in 32 bits where both upper halves are 0 (BypassSlowDivision), the sign
as the uppermost bit, and words of 64 bits that are stored by halves. The PTX does what the IR says, and mistakes in
either are refused."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

import pytest

from support.evaluated import Evaluated, quotient
from support.generality import CASES
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.transport.text import transport_kernel
from tilewright.validate.match import Difference
from tilewright.validate.polynomials import Poly
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(5)

WORDS = (1, 3, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 32, (1 << 32) + 5, (1 << 63) - 1, 1 << 63,
         (1 << 64) - (1 << 32), (1 << 64) - 7, (1 << 64) - 1)  # fmt: skip


@pytest.mark.parametrize("kind", ["s64", "u64", "s32", "u32"])
def test_quotients_and_what_remains_are_those_of_the_words(kind: str) -> None:
    made, bits = Evaluated(), int(kind[1:])
    x, y = made.word(bits, "x"), made.word(bits, "y")
    found = made.arithmetic.divided_words(kind, x, y, made.cases.true)
    assert not made.arithmetic.needs
    for p, q in product({w % (1 << bits) for w in WORDS} | {0}, {w % (1 << bits) for w in WORDS} - {0}):
        towards_0 = quotient(kind, p, q)
        numbers = [made.number(value, {"x": p, "y": q}) for value in found]
        assert numbers == [towards_0, (p - towards_0 * q) % (1 << bits)], (p, q)


def test_a_branch_that_has_found_an_upper_half_divides_whole_words() -> None:
    made = Evaluated()
    x, y = made.word(64, "x"), made.word(64, "y")
    found, _ = made.arithmetic.divided_words("s64", x, y, made.cases.at_least(made.terms.field(y, 32, 32, 0), 1))
    assert isinstance(found, Poly)
    assert made.terms.atoms[found.terms[0][0][0]].kind == "div.s64"


def test_the_uppermost_bit_of_a_sum_is_its_sign() -> None:
    made = Evaluated()
    word = made.arithmetic.extended(made.word(32, "x"), 32, 64)
    for factor, added in product((1, 7, -1, 1000003), (0, 1, -(1 << 32), 1 << 62)):
        total = made.terms.add(made.terms.scale(word, factor), made.terms.const(64, added))
        bit = made.arithmetic.shifted("shr", total, made.terms.const(32, 63), signed=False)
        for x in (0, 1, 4295, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            signed = x - (x >> 31 << 32)
            assert made.number(bit, {"x": x}) == (signed * factor + added) >> 63 & 1, (factor, added, x)


def test_halves_of_a_sum_are_joined_to_the_sum() -> None:
    made = Evaluated()
    terms, counted = made.terms, made.terms.of(64, made.terms.atom("parameter", "n", low=0, high=1000))
    total = terms.sub(terms.add(made.word(64, "w"), counted), terms.const(64, 3))
    low, high = (terms.field(total, at, 32, 64) for at in (0, 32))
    assert terms.add(low, terms.scale(high, 1 << 32)) is total
    for word, n in product((0, 2, 3, 0xFFFFFFFF, 1 << 32, (1 << 63) + 1, (1 << 64) - 1), (0, 3, 1000)):
        given = {"w": word, "n": n}
        assert made.number(high, given) << 32 | made.number(low, given) == (word + n - 3) % (1 << 64)


# -- a kernel ----------------------------------------------------------------------------------------------------------
@cache
def compiled() -> tuple[KernelImage, Launch]:
    artifact = CASES["integers"].kernel.compile(dtypes={"a": "i32", "b": "i32", "y": "i32", "z": "i64"})
    launch = artifact.variants[-1].steps[-1]
    assert isinstance(launch, Launch)
    return artifact.kernel(launch.kernel), launch


def differences(ptx: str | None = None, ir: str | None = None) -> tuple[Difference, ...]:
    image, launch = compiled()
    return compare(transport_kernel(ir or image.transport_ir), ptx or image.ptx, launch.args, launch.grid[0], 1)


def test_the_ptx_does_what_the_ir_says() -> None:
    assert differences() == ()


MISTAKES = {
    "halves divided with a sign": (r"div\.u32", "div.s32"),
    "dividend and divisor exchanged": (r"(div\.u32\s+%r\d+), (%r\d+), (%r\d+);", r"\1, \3, \2;"),
    "whole words divided without a sign": (r"div\.s64", "div.u64"),
    "a quotient extended with a sign": (
        r"(div\.u32\s+(%r\d+)[^$]*cvt)\.u64\.u32(\s+%rd\d+, \2;)",
        r"\1.s64.s32\3",
    ),
    "bit 32 is not asked for": (r"(and\.b64\s+%rd\d+, %rd\d+), -4294967296", r"\1, -8589934592"),
    "bit 31 is asked for": (r"(and\.b64\s+%rd\d+, %rd\d+), -4294967296", r"\1, -2147483648"),
    "one upper half is asked for": (r"(or\.b64\s+%rd\d+), (%rd\d+), (%rd\d+);", r"\1, \2, \2;"),
    "the other one is": (r"(or\.b64\s+%rd\d+), (%rd\d+), (%rd\d+);", r"\1, \3, \3;"),
    "a bit of both upper halves is": (r"or\.b64", "and.b64"),
    "branches exchanged": (r"setp\.eq\.s64(\s+%p\d+, %rd\d+, 0;)", r"setp.ne.s64\1"),
    "another bit for the sign": (r"(shr\.u64\s+%rd\d+, %rd\d+), 63", r"\1, 62"),
    "signs are equal": (r"setp\.ne\.s32(\s+%p\d+, %r\d+, %r\d+;)", r"setp.eq.s32\1"),
    "the sign of one": (r"(setp\.ne\.s32\s+%p\d+, )(%r\d+), %r\d+;", r"\1\2, 0;"),
    "rounded up": (r"sub\.s64(\s+%rd\d+, %rd\d+, %rd\d+;\s+\$L)", r"add.s64\1"),
    "words taken without a sign": (r"mul\.wide\.s32(\s+%rd\d+, %r\d+, 1000003)", r"mul.wide.u32\1"),
    "the divisor taken without a sign": (r"mul\.wide\.s32(\s+%rd\d+, %r\d+, 7;)", r"mul.wide.u32\1"),
    "another factor": (r"(mul\.wide\.s32\s+%rd\d+, %r\d+), 7;", r"\1, 9;"),
    "another half is stored": (r"(shr\.u64\s+%rd\d+, %rd\d+), 32", r"\1, 31"),
    "something else is stored as an upper half": (r"(st\.global\.v4\.u32 \s*\[%rd\d+\], \{%r\d+), (%r\d+)", r"\1, %r0"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_ptx_are_refused(mistake: str) -> None:
    """One at a time, at each place where it can be made."""
    ptx = compiled()[0].ptx
    old, new = MISTAKES[mistake]
    found = list(re.finditer(old, ptx))
    assert found
    accepted = [m[0] for m in found if not differences(ptx[: m.start()] + m.expand(new) + ptx[m.end() :])]
    assert accepted == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('tile.constant <"7">', 'tile.constant <"9">'),
        ('tile.constant <"1000003">', 'tile.constant <"1000001">'),
        ("tile.binary <floordiv> %30, %33", "tile.binary <mod> %30, %33"),
        ("tile.binary <floordiv> %30, %33", "tile.binary <floordiv> %33, %30"),
        ("tile.binary <add> %34, %38", "tile.binary <sub> %34, %38"),
    ],
)
def test_mistakes_in_the_ir_are_refused(old: str, new: str) -> None:
    ir = compiled()[0].transport_ir
    assert old in ir
    assert differences(ir=ir.replace(old, new))
