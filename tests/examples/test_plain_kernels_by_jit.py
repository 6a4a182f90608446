"""Every example without a matrix product, compiled by the jit and run in the simulator, agrees with its reference."""

from __future__ import annotations

import numpy as np
import pytest

from support.arrangement import ARRANGEMENTS, arranged
from support.example_cases import EXAMPLES_BY_NAME, Example
from tilewright.base.dtypes import DType, bf16, f16, f32
from tilewright.jit import Kernel

pytestmark = pytest.mark.sample(10)

PLAIN = [e for e in EXAMPLES_BY_NAME.values() if e.name not in ("matmul", "attention")]
TOLERANCE = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
OUTPUTS = {"reversed": "sliced"}  # outputs with negative strides are fine too, but one arrangement each is enough


def agrees(example: Example, extents: dict[str, int], dtype: DType, how: str, kernel: Kernel) -> None:
    arrays, expected = example.arrays(extents, dtype)
    placed = {n: arranged(a, OUTPUTS.get(how, how) if n in expected else how) for n, a in arrays.items()}
    kernel(**{n: p.view for n, p in placed.items()}, **example.scalars, **example.keywords)
    tolerance = TOLERANCE[dtype.name]
    for name, value in expected.items():
        got = placed[name].view.astype(np.float64)
        np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance, err_msg=f"{name} {extents} {how}")
    for name, place in placed.items():
        assert place.untouched(), f"{name}: {extents} {how}"


@pytest.mark.parametrize("dtype", [f32, bf16, f16], ids=str)
@pytest.mark.parametrize("example", PLAIN, ids=lambda e: e.name)
def test_agrees_with_reference(example: Example, dtype: DType) -> None:
    kernel = Kernel(example.kernel)
    for extents in example.shapes:
        agrees(example, dict(extents), dtype, "plain", kernel)


@pytest.mark.parametrize("how", ARRANGEMENTS[1:])
@pytest.mark.parametrize("example", PLAIN, ids=lambda e: e.name)
def test_any_strides_and_bases(example: Example, how: str) -> None:
    dtype = (f32, bf16, f16)[(PLAIN.index(example) + ARRANGEMENTS.index(how)) % 3]
    kernel = Kernel(example.kernel)
    for extents in example.shapes[1:3]:
        agrees(example, dict(extents), dtype, how, kernel)
