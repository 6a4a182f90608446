"""Kernels as people bring them from Triton, CuPy and PyTorch: the simulator and the PTX machine agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from support.arrangement import ARRANGEMENTS
from support.generality import agrees
from support.indexed import facts_of
from support.more_ported_kernels import MORE_PORTED
from support.ported_kernels import PORTED
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright.jit import Kernel

ALL = {**PORTED, **MORE_PORTED}
QUICK_PTX = [
    "info_nce",
    "entropy",
    "unpack_words",
    "swapped_pairs",
    "loaded_bits",
    "conv_with_state",
    "periodic_laplacian",
    "turned_rows",
]
"""What was refused before, or reads its coordinates from bits."""


@pytest.mark.parametrize("name", ALL)
def test_simulator_agrees_with_numpy(name: str) -> None:
    case = ALL[name]
    kernel = Kernel(case.kernel)
    for i, shape in enumerate(case.shapes):
        agrees(case, shape, "plain", kernel)
        agrees(case, shape, ARRANGEMENTS[1 + (i + len(name)) % (len(ARRANGEMENTS) - 1)], kernel)


@pytest.mark.parametrize("name", rest_slow(list(ALL), QUICK_PTX))
def test_ptx_machine_agrees_with_numpy(name: str) -> None:
    case = ALL[name]
    arrays, expected = case.arrays(case.shapes[-1])
    artifact = case.kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    driver = run_artifact(artifact, arrays, case.scalars, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    for result, value in expected.items():
        np.testing.assert_allclose(arrays[result], value, rtol=case.tolerance, atol=case.tolerance, err_msg=result)
