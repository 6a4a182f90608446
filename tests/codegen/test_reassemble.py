"""Machine code from PTX again: the same bytes, and others where the PTX or the code is another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.schema import Artifact, KernelImage
from tilewright.base.dtypes import DTYPES
from tilewright.codegen.reassemble import machine_code_differs

pytestmark = pytest.mark.sample(1)


def compiled(example: str) -> Artifact:
    case = EXAMPLES_BY_NAME[example]
    return case.kernel.compile(dtypes={n: d.name for n, d in case.tensor_dtypes(DTYPES["bf16"]).items()})


@pytest.fixture(scope="module")
def image() -> KernelImage:
    return compiled("add").kernels[0]


@pytest.mark.parametrize("example", ["add", "row_max", "attention"])
def test_the_same_bytes(example: str) -> None:
    for kernel in compiled(example).kernels:
        assert machine_code_differs(kernel, "sm_90a") == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("add.rn.f32", "sub.rn.f32"),
        (".version 9.0", ".version 8.7"),
        (".target sm_90a", ".target sm_90"),
        (".target sm_90a", ".target sm_90a, debug"),
        ("ret;", "ret"),
        ("\n}", "\n} // and more"),
        ("ret;", '.pragma "\\"); } int other; void f() { asm(\\"";\n\tret;'),
        ("\tret;", '\t.file 1 "/*"\n\ttrap;\n\t.file 2 "*/"\n\tret;'),
    ],
)
def test_other_ptx(image: KernelImage, before: str, after: str) -> None:
    changed = image.ptx.replace(before, after)
    assert changed != image.ptx
    assert machine_code_differs(replace(image, ptx=changed), "sm_90a")


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_one_bit_of_the_code(image: KernelImage, place: float) -> None:
    at = int(place * len(image.cubin))
    cubin = image.cubin[:at] + bytes([image.cubin[at] ^ 4]) + image.cubin[at + 1 :]
    assert "other machine code" in machine_code_differs(replace(image, cubin=cubin), "sm_90a")


@pytest.mark.parametrize("name", ["registers", "spill_bytes", "static_shared_bytes"])
def test_what_a_kernel_takes(image: KernelImage, name: str) -> None:
    assert "registers, spilled" in machine_code_differs(replace(image, **{name: getattr(image, name) + 1}), "sm_90a")
