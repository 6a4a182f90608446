"""Grouped products with scales of blocks: a table that is as long as a launch is asked for, and a constant to which
threads without rows are led, are read where the IR reads."""

from __future__ import annotations

import re
from functools import cache

import pytest
from examples.grouped_matmul import scaled_blocks

from support.comparison import Comparison
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.transport.text import transport_kernel
from tilewright.validate.match import Difference
from tilewright.validate.needs import Prover
from tilewright.validate.polynomials import Poly
from tilewright.validate.transport_to_ptx import compare

DTYPES = {"offsets": "i32", "a": "e4m3", "a_scale": "f32", "b": "e4m3", "b_scale": "f32", "c": "bf16"}


class Bounds(Comparison):
    """Proofs about integers."""

    def integer(self, name: str, low: int | None = 0, high: int | None = 1 << 20) -> Poly:
        return self.terms.of(0, self.terms.atom("parameter", name, low=low, high=high))

    def prover(self, *known: Poly) -> Prover:
        return Prover(self.terms, self.cases, {}, [(self.cases.true, p) for p in known], 31)


@pytest.mark.parametrize(("parts", "least"), [(1, 1), (1, 2), (2, 129), (2, 130), (0, -126), (0, -125)])
def test_an_integer_of_which_a_part_is_known(parts: int, least: int) -> None:
    """floor((x + 127) / 128) >= parts, of some x that may be negative, says as much of x, and not more."""
    i = Bounds()
    x = i.integer("x", -(1 << 20))
    part = i.terms.floordiv(i.terms.add(x, i.terms.const(0, 127)), 128)
    # a product keeps the quotient from being taken for what is divided
    holds = i.cases.at_least(i.terms.mul(part, i.integer("n")), 1)
    shown = i.prover(i.terms.sub(part, i.terms.const(0, parts))).not_negative(
        i.terms.sub(x, i.terms.const(0, least)), holds
    )
    assert shown is all(v >= least for v in range(-400, 400) if (v + 127) // 128 >= parts)


@pytest.mark.parametrize(("low", "high", "of", "shown"), [(0, 1, 0, True), (-3, 1, 0, True), (0, 2, 0, False),
                                                          (0, None, 0, False), (0, 1, -1, False)])  # fmt: skip
def test_a_share_is_not_more_than_the_whole(low: int, high: int | None, of: int, shown: bool) -> None:
    """j >= c says j >= c b for b <= 1 and a c that is not negative."""
    i = Bounds()
    j, b, c = i.integer("j"), i.integer("b", low, high), i.integer("c", of)
    apart = i.terms.sub(j, i.terms.mul(c, b))
    prover = i.prover(i.terms.sub(j, c))
    assert prover.not_negative(apart, i.cases.true) is shown
    assert not prover.not_negative(i.terms.sub(apart, i.terms.const(0, 1)), i.cases.true)


# -- a kernel ----------------------------------------------------------------------------------------------------------
@cache
def compiled() -> tuple[KernelImage, Launch]:
    artifact = scaled_blocks.compile(dtypes=DTYPES)
    launch = artifact.variants[0].steps[-1]
    assert isinstance(launch, Launch)
    return artifact.kernel(launch.kernel), launch


def differences(ptx: str | None = None, ir: str | None = None) -> tuple[Difference, ...]:
    image, launch = compiled()
    return compare(transport_kernel(ir or image.transport_ir), ptx or image.ptx, launch.args, launch.grid[0], 1)


def test_the_ptx_does_what_the_ir_says() -> None:
    assert differences() == ()


LONG = '#tile.expr<"(K + 127) // 128 <= J">'


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "other", ["(K + 126) // 128 <= J", "K // 128 <= J", "(K + 127) // 128 <= J + 1", "0 <= J", "(K + 127) // 129 <= J"]
)
def test_of_a_shorter_table_it_is_not_shown(other: str) -> None:
    ir = compiled()[0].transport_ir
    assert ir.count(LONG) == 1
    assert differences(ir=ir.replace(LONG, f'#tile.expr<"{other}">'))


MISTAKES = {
    "the constant is read where there are blocks": (
        r"(setp\.gt\.s32\s+%p\d+, %r\d+), 0;(\s+setp\.gt\.s32\s+%p\d+, %r\d+, 0;\s+and\.pred)",
        r"\1, 1;\2",
    ),
    "the constant is read where there are rows": (
        r"(setp\.gt\.s32\s+%p\d+, %r\d+, 0;\s+setp\.gt\.s32\s+%p\d+, %r\d+), 0;(\s+and\.pred)",
        r"\1, 1;\2",
    ),
    "the constant and the table exchanged": (
        r"(mov\.u64\s+(%rd\d+), no_elements;\s+selp\.b64\s+%rd\d+), (%rd\d+), \2",
        r"\1, \2, \3",
    ),
    "another constant": (r"(mov\.u64\s+%rd\d+), no_elements;", r"\1, 0;"),
    "another block in the last step": (r"(shr\.s32\s+%r\d+, %r\d+), 7;(\s+mul\.lo)", r"\1, 6;\2"),
    "the rows behind": (r"(mad\.lo\.s32\s+(%r\d+), %r\d+, %r\d+, %r\d+;\s+selp\.b32\s+%r\d+, )\2, 0,", r"\g<1>0, \2,"),
    "of another row": (r"(shl\.b32\s+%r\d+, %r\d+), 3;(\s+add\.s32[^;]*;\s+selp\.b32)", r"\1, 2;\2"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_ptx_are_refused(mistake: str) -> None:
    """One at a time, at each place where it can be made."""
    ptx = compiled()[0].ptx
    old, new = MISTAKES[mistake]
    found = list(re.finditer(old, ptx))
    assert found
    accepted = [m[0] for m in found if not differences(ptx[: m.start()] + m.expand(new) + ptx[m.end() :])]
    assert not accepted
