"""Bodies of programs that lie inside of their tensors: whole vectors, and nothing under a predicate."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.artifact.disassemble import sass
from tilewright.artifact.sass_accesses import KernelSassAccesses, kernel_accesses
from tilewright.base.dtypes import bf16
from tilewright.base.expr import TRUE
from tilewright.compiler.program import plan
from tilewright.compiler.requests import Request
from tilewright.compiler.specialisation import Observed, observe_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import add
import reductions
import softmax
import swiglu
import transpose

pytestmark = pytest.mark.sample(1)

WIDE = 16
MOST_KERNELS = 16
"""Of one artifact (docs/measured/memory.md, "Rows of any width")."""


def accesses(kernel: tw.Kernel) -> list[KernelSassAccesses]:
    """Of the machine code of every kernel, for rows of bf16 at multiples of 16 bytes."""
    names = [x.name for x in kernel.compiled.function.tensors]
    artifact = kernel.compile(dtypes=dict.fromkeys(names, "bf16"))
    return [kernel_accesses(sass(image.cubin)) for image in artifact.kernels]


@pytest.mark.parametrize(
    "kernel", [reductions.row_sum, reductions.row_max, reductions.column_sum, softmax.softmax_streamed]
)
def test_whole_steps_of_a_stream_have_whole_vectors_and_no_predicate(kernel: tw.Kernel) -> None:
    for found in accesses(kernel):
        core, *others = found.loops
        assert core.predicated == 0
        assert {width.bytes for width in core.widths} == {WIDE}
        assert any(loop.predicated for loop in others)  # those at an edge have some


@pytest.mark.parametrize("kernel", [add.add, swiglu.swiglu, transpose.transpose])
def test_whole_tiles_are_moved_by_accesses_without_predicate(kernel: tw.Kernel) -> None:
    found = accesses(kernel)[0]
    (widest, *_) = found.whole.widths
    assert widest.bytes == WIDE
    assert widest.predicated == 0
    assert found.whole.predicated > 0  # elements at an edge


@pytest.mark.parametrize("alignment", [2, 16])
@pytest.mark.parametrize(
    "kernel", [add.add, swiglu.swiglu, softmax.softmax, transpose.transpose, reductions.column_sum]
)
def test_a_family_is_small_and_serves_every_width(kernel: tw.Kernel, alignment: int) -> None:
    function = kernel.compiled.function
    seen = {
        x.name: Observed(
            bf16, 0, (5, 4088 + alignment // 2)[-len(x.dims) :], (4088 + alignment // 2, 1)[-len(x.dims) :]
        )
        for x in function.tensors
    }
    request = Request(function, Signature.of(dict.fromkeys(seen, bf16)), observe_facts(seen), SM90A, Schedule())
    found = plan(request)
    assert found.left_out == ()
    assert found.variants[-1].predicate == TRUE  # it serves whom none before it does
    assert len(found.variants) <= MOST_KERNELS
