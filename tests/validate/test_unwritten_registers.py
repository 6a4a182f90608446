"""Registers that hold what an instruction left open, or that nothing wrote: nothing is known of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from support.example_cases import load
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.transport.text import transport_kernel
from tilewright.validate.match import Difference
from tilewright.validate.transport_to_ptx import compare

_ADVANCES = re.compile(r"\tadd\.s64 \t(%rd\d+), \1, 8192;")
_LOADED = re.compile(r"\tld\.global\.nc\.v4\.u32 \t\{(%r\d+),")


@cache
def compiled() -> tuple[KernelImage, Launch]:
    """A sum of rows in f32, whose loop loads four vectors a step."""
    artifact = load("reductions").row_sum.compile(dtypes={"x": "f32", "y": "f32"})
    for variant in artifact.variants:
        for step in variant.steps:
            if isinstance(step, Launch) and _ADVANCES.search(artifact.kernel(step.kernel).ptx):
                return artifact.kernel(step.kernel), step
    raise AssertionError("no kernel whose loop advances by 8192 bytes")


def differences(edit: Callable[[str], str]) -> tuple[Difference, ...]:
    image, launch = compiled()
    ir = transport_kernel(image.transport_ir)
    return compare(ir, edit(image.ptx), launch.args, launch.grid[0], 1)


def test_the_kernel_itself_validates() -> None:
    assert not differences(lambda ptx: ptx)


@pytest.mark.parametrize("before", [False, True])
def test_a_step_that_a_loaded_word_decides(before: bool) -> None:
    """Also where another value was in the register before the loop, which leaves the word there."""

    def edit(ptx: str) -> str:
        advance = _ADVANCES.search(ptx)
        assert advance is not None
        *_, loaded = _LOADED.finditer(ptx, 0, advance.start())
        word = loaded[1]
        skipped = f"\tsetp.ne.s32 \t%pn, {word}, 0;\n\t@!%pn bra \t$SKIP;\n{advance[0]}\n$SKIP:"
        ptx = ptx[: advance.start()] + skipped + ptx[advance.end() :]
        written = f"\tmov.u32 \t{word}, 1;\n" if before else ""
        ptx = ptx[: loaded.start()] + written + ptx[loaded.start() :]
        return ptx.replace("\t.reg .pred ", "\t.reg .pred \t%pn;\n\t.reg .pred ", 1)

    assert differences(edit)


@pytest.mark.parametrize("test", ["setp.gt.f32 \t%pn, %fa, %fb;", "setp.ne.s32 \t%pn, %ra, %rb;"])
def test_a_comparison_of_registers_that_nothing_wrote(test: str) -> None:
    def edit(ptx: str) -> str:
        advance = _ADVANCES.search(ptx)
        assert advance is not None
        total = re.findall(r"\tadd\.rn\.f32 \t(%f\d+), \1, %f\d+;", ptx[: advance.start()])[-1]
        changed = f"\t{test}\n\tselp.f32 \t{total}, 0f00000000, {total}, %pn;\n{advance[0]}"
        declared = "\t.reg .pred \t%pn;\n\t.reg .f32 \t%fa, %fb;\n\t.reg .b32 \t%ra, %rb;\n\t.reg .pred "
        ptx = ptx[: advance.start()] + changed + ptx[advance.end() :]
        return ptx.replace("\t.reg .pred ", declared, 1)

    assert differences(edit)
