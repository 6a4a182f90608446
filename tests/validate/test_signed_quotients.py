"""Quotients by reciprocals of integers that may be negative: of every word of 8 bits, factor and shift against Python,
and in a loop's end as NVRTC computes it, with mistakes, which are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation, SSAValue

from support import transport
from support.evaluated import Evaluated
from tilewright.artifact.schema import Launch
from tilewright.base.dtypes import f32
from tilewright.base.expr import Const, Expr, Sym, all_of, ceildiv
from tilewright.codegen.assemble import compile_text
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.launch_recipe import recipe
from tilewright.transport import dialect as t
from tilewright.validate import reciprocals, signed_quotients, terms
from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.match import Difference
from tilewright.validate.polynomials import Poly
from tilewright.validate.transport_to_ptx import compare
from tilewright.validate.values import Value

BITS, ALL, HALF = 8, 256, 128
LINE = 7


@pytest.fixture
def words_of_8_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reciprocals, signed_quotients):
        for name, number in (("_BITS", BITS), ("_HALF", HALF), ("_WORDS", ALL)):
            monkeypatch.setattr(module, name, number)
    monkeypatch.setattr(terms, "LEAST_RECIPROCAL", 2)


class Divided(Evaluated):
    """An integer of which nothing is known, and the upper half of its product with a number."""

    def __init__(self, *lines: int) -> None:
        super().__init__()
        self.arithmetic = Arithmetic(self.values, frozenset(lines))
        self.x = self.terms.of(0, self.terms.atom("parameter", "x"))

    def upper(self, m: int) -> Value:
        """The upper half, and x more of a factor that has no room in a word."""
        factor = m - ALL if m >= HALF else m
        self.arithmetic.signed_quotients.multiplied(self.x, LINE)
        product = self.terms.scale(self.x, factor)
        upper = self.terms.resize(self.terms.floordiv(product, ALL), BITS)
        if factor == m:
            return self.arithmetic.signed_quotients.quotient(upper, 0) or upper
        word = self.terms.resize(self.x, BITS)
        return self.arithmetic.reciprocals.added(upper, word, self.terms.add(upper, word))

    def shifted(self, word: Value, count: int, *, signed: bool = True) -> Value:
        return self.arithmetic.shifted("shr", word, self.terms.const(32, count), signed=signed)

    def towards_0(self, d: int) -> tuple[Value, int] | None:
        """The quotient by ``d``, as a compiler makes it, and the shift; None where no factor is exact."""
        for shift, m in product(range(BITS), range(2, ALL)):
            e = m * d - (ALL << shift)
            if e > 0 and HALF * e <= ALL << shift:
                upper = self.upper(m)
                sign = self.shifted(upper, BITS - 1, signed=False)
                return self.values.add(self.shifted(upper, shift), sign), shift
        return None


def words() -> Iterator[tuple[int, dict[str, int]]]:
    return ((x, {"x": x}) for x in range(-HALF, HALF))


@pytest.mark.usefixtures("words_of_8_bits")
@pytest.mark.parametrize("first", range(2, ALL, 16))
def test_the_upper_half_of_every_product(first: int) -> None:
    """Shifted, and shifted again: what is said of it is what it is."""
    for m, count in product(range(first, min(first + 16, ALL)), range(BITS)):
        made = Divided(LINE)
        upper = made.upper(m)
        found = made.arithmetic.signed_quotients.quotient(upper, count)
        negative = made.arithmetic.signed_quotients.negative(upper)
        again = None if found is None else made.arithmetic.signed_quotients.quotient(found, 1)
        assert negative is not None or (found is None and m == ALL - 1)
        for x, given in words():
            assert made.proved(given)
            assert negative is None or made.holds(negative, given) is (x < 0)
            assert found is None or made.number(found, given) == (m * x >> BITS + count) % ALL, (m, count, x)
            assert again is None or made.number(again, given) == (m * x >> BITS + count + 1) % ALL, (m, count, x)


@pytest.mark.usefixtures("words_of_8_bits")
def test_a_quotient_that_is_corrected_is_the_floor() -> None:
    """Where the dividend is negative and something is left, one less than the quotient towards 0."""
    for d in range(2, HALF):
        made = Divided(LINE)
        values, cases = made.values, made.cases
        found = made.towards_0(d)
        assert found is not None
        quotient, _ = found
        for x, given in words():
            assert made.number(quotient, given) == int(x / d) % ALL, (d, x)
        rest = values.sub(made.terms.resize(made.x, BITS), values.scale(quotient, d))
        left = made.arithmetic.compare("ne", "s8", rest, made.terms.const(BITS, 0))
        corrected = values.select(
            cases.without(left, cases.not_negative(made.x)), values.sub(quotient, made.terms.const(BITS, 1)), quotient
        )
        assert corrected is made.terms.resize(made.terms.floordiv(made.x, d), BITS), d


@pytest.mark.usefixtures("words_of_8_bits")
def test_other_products_are_left_alone() -> None:
    made = Divided(LINE + 1)
    upper = made.upper(43)
    assert made.arithmetic.signed_quotients.quotient(upper, 0) is None
    assert made.arithmetic.signed_quotients.negative(upper) is None
    assert made.arithmetic.signed_quotients.lines_of == {made.x: {LINE}}


@pytest.mark.usefixtures("words_of_8_bits")
def test_a_shift_by_no_number_is_no_quotient() -> None:
    made = Divided(LINE)
    count = made.terms.of(32, made.terms.atom("parameter", "count", low=0, high=7))
    found = made.arithmetic.shifted("shr", made.upper(43), count, signed=True)
    assert not isinstance(found, Poly) or made.terms.quotient(found.terms[0][0]) is None


# -- a kernel ----------------------------------------------------------------------------------------------------------
def filled(end: Expr) -> t.Kernel:
    """``y[0, 0]`` and so on below ``end`` become 1."""

    def build(y: SSAValue) -> list[Operation]:
        one = t.Registers("one", f32, 1)
        inside = all_of([transport.TID.eq(0), Sym("i") < transport.N])
        store = t.Store(y, one.buffer, [Const(0), Sym("i")], inside).at("user.py:1", "store y")
        loop = t.For("i", Const(0), end, Const(1), t.block([store]))
        body = [one, transport.fill(1.0, one.buffer), loop]
        return [transport.programs(["p"], [ceildiv(transport.M, 128)], body)]

    kernel = transport.kernel({"y": transport.tensor("y", [transport.M, transport.N])}, build)
    kernel.index_bits = IntAttr(32)
    return kernel


def end(d: int = 96, more: int = 0, step: int = 128) -> Expr:
    """A quotient of what is negative in some programs, and a number."""
    return (transport.N - transport.P * step + more) // d + 4


@cache
def compiled() -> tuple[str, Launch]:
    kernel = filled(end())
    ptx, *_ = compile_text(emit_kernel(kernel).source, "sm_90a", "k")
    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    return ptx, launch


def differences(meant: Expr, ptx: str) -> tuple[Difference, ...]:
    _, launch = compiled()
    return compare(filled(meant), ptx, launch.args, launch.grid[0], 1)


@pytest.mark.parametrize(
    ("meant", "same"),
    [(end(), True), (end(95), False), (end(97), False), (end(more=1), False), (end(more=-1), False),
     (end(more=95), False), (end(step=127), False), (end() + 1, False)],
)  # fmt: skip
def test_a_loop_that_ends_at_a_quotient(meant: Expr, same: bool) -> None:
    assert (differences(meant, compiled()[0]) == ()) is same


MISTAKES = {
    "another reciprocal": (r"(mul\.hi\.s32\s+%r\d+, %r\d+), 715827883", r"\1, 715827882"),
    "a reciprocal that is not exact": (r"(mul\.hi\.s32\s+%r\d+, %r\d+), 715827883", r"\1, 715827885"),
    "without a sign": (r"mul\.hi\.s32", "mul.hi.u32"),
    "of half the number": (r"(shr\.s32\s+%r\d+, %r\d+), 4", r"\1, 3"),
    "shifted without a sign": (r"shr\.s32(\s+%r\d+, %r\d+, 4)", r"shr.u32\1"),
    "another bit for the sign": (r"(shr\.u32\s+%r\d+, %r\d+), 31", r"\1, 30"),
    "minus the sign": (r"shr\.u32(\s+%r\d+, %r\d+, 31)", r"shr.s32\1"),
    "what a product with another number leaves": (r"(mul\.lo\.s32\s+%r\d+, %r\d+), 96", r"\1, 95"),
    "corrected where nothing is left": (r"setp\.ne\.s32(\s+%p\d+, %r\d+, 0)", r"setp.eq.s32\1"),
    "corrected where more than one is left": (r"(setp\.ne\.s32\s+%p\d+, %r\d+), 0", r"\1, -1"),
    "corrected from 0 on": (r"setp\.lt\.s32(\s+%p\d+, %r\d+, 0)", r"setp.ge.s32\1"),
    "corrected below -1": (r"(setp\.lt\.s32\s+%p\d+, %r\d+), 0", r"\1, -1"),
    "corrected of 1": (r"(setp\.lt\.s32\s+%p\d+, %r\d+), 0", r"\1, 2"),
    "corrected where either holds": (r"and\.pred", "or.pred"),
    "one more": (r"(selp\.s32\s+%r\d+), -1, 0", r"\1, 1, 0"),
    "corrected elsewhere": (r"(selp\.s32\s+%r\d+), -1, 0", r"\1, 0, -1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_quotient_are_refused(mistake: str) -> None:
    ptx, _ = compiled()
    old, new = MISTAKES[mistake]
    found = list(re.finditer(old, ptx))
    assert found
    accepted = [m[0] for m in found if not differences(end(), ptx[: m.start()] + m.expand(new) + ptx[m.end() :])]
    assert not accepted
