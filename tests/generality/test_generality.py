"""Kernels of any shape compile at the first try and agree with NumPy in the simulator."""

from __future__ import annotations

import pytest

from support.arrangement import ARRANGEMENTS
from support.generality import CASES, agrees
from tilewright.jit import Kernel

pytestmark = pytest.mark.sample(4)


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
