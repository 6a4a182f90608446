"""The PTX of kernels unlike the examples against their Transport IR."""

from __future__ import annotations

import pytest

from support.generality import CASES
from tilewright.artifact.schema import Launch
from tilewright.compiler.proofs.descriptors import read_kernel
from tilewright.jit.arrays import describe
from tilewright.validate.kernel import compare


@pytest.mark.parametrize("name", ["mixed_dtypes"])
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    case = CASES[name]
    arrays, *_ = case.arrays(case.shapes[-1])
    artifact = case.kernel.compile(dtypes={name: describe(name, array).dtype.name for name, array in arrays.items()})
    for variant in artifact.variants:
        launch = variant.steps[-1]
        assert isinstance(launch, Launch)
        image = artifact.kernel(launch.kernel)
        assert compare(read_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0]) == ()
