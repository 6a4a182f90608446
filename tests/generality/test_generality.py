"""Kernels of any shape compile at the first try and agree with NumPy in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from support.arrangement import ARRANGEMENTS, arranged
from support.generality import CASES, Case
from tilewright.jit import Kernel


def agrees(case: Case, shape: tuple[int, ...], how: str, kernel: Kernel) -> None:
    arrays, expected = case.arrays(shape)
    outputs = "sliced" if how == "reversed" else how
    placed = {n: arranged(a, outputs if n in expected else how) for n, a in arrays.items()}
    kernel(**{n: p.view for n, p in placed.items()}, **case.scalars)
    for name, value in expected.items():
        got = placed[name].view
        tolerance = max(case.tolerance, {2: 1e-3}.get(got.itemsize, 0) if got.dtype.kind not in "iub" else 0)
        np.testing.assert_allclose(
            got.astype(np.float64), value, rtol=tolerance, atol=tolerance, err_msg=f"{name} {shape} {how}"
        )
    for name, place in placed.items():
        assert place.untouched(), f"{name}: {shape} {how}"


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    kernel = Kernel(case.kernel)
    for shape in case.shapes:
        agrees(case, shape, "plain", kernel)


@pytest.mark.parametrize("name", CASES)
def test_agrees_on_other_strides(name: str) -> None:
    case = CASES[name]
    kernel = Kernel(case.kernel)
    for i, how in enumerate(ARRANGEMENTS[1:]):
        agrees(case, case.shapes[1 + i % (len(case.shapes) - 1)], how, kernel)
