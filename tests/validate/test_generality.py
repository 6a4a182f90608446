"""The PTX of kernels unlike the examples against their Transport IR."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import pytest

import tilewright as tw
from support.generality import CASES
from tilewright.artifact.schema import Launch
from tilewright.jit.arrays import describe
from tilewright.transport.text import transport_kernel
from tilewright.validate.transport_to_ptx import compare


@pytest.mark.parametrize("name", ["mixed_dtypes"])
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    case = CASES[name]
    arrays, *_ = case.arrays(case.shapes[-1])
    artifact = case.kernel.compile(dtypes={name: describe(name, array).dtype.name for name, array in arrays.items()})
    for variant in artifact.variants:
        launch = variant.steps[-1]
        assert isinstance(launch, Launch)
        image = artifact.kernel(launch.kernel)
        assert compare(transport_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0]) == ()


@tw.kernel
def greatest_multiple(x: tw.Tensor["M"], w: tw.Tensor["N"], y: tw.Tensor["M"]):
    """A network of minima whose words are compared as networks themselves."""
    m = tw.grid(x, 1)
    top = tw.full((m,), -(2**31), tw.i32)
    for n in tw.stream(w.shape[0], 8):
        top.set(tw.maximum(top, (x[m][:, None] * n.index[None, :]).max(1)))
    y[m] = top


@pytest.mark.parametrize("dtype", ["i8", "i32"])
def test_words_that_are_networks_are_compared(dtype: str) -> None:
    artifact = greatest_multiple.compile(dtypes={"x": dtype, "w": "i32", "y": "i32"})
    image, variant = artifact.kernels[-1], artifact.variants[-1]  # those before it serve parts
    launch = variant.steps[-1]
    assert isinstance(launch, Launch)
    found = compare(transport_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0])
    assert not any(difference.refuted for difference in found)
