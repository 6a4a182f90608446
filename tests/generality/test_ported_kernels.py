"""Kernels as people bring them from Triton, CuPy and PyTorch: the simulator and the PTX machine agree with NumPy."""

from __future__ import annotations

import pytest

from support.agreement import ptx_machine_agrees, simulator_agrees
from support.clamped_kernels import CLAMPED
from support.more_ported_kernels import MORE_PORTED
from support.ported_kernels import PORTED
from support.slow import rest_slow

pytestmark = pytest.mark.sample(4)

ALL = {**PORTED, **MORE_PORTED, **CLAMPED}
QUICK_PTX = [
    "info_nce",
    "entropy",
    "unpack_words",
    "swapped_pairs",
    "loaded_bits",
    "conv_with_state",
    "periodic_laplacian",
    "turned_rows",
    "second_difference",
    "unpack_3_bits",
]
"""What was refused before, or reads its coordinates from bits."""


@pytest.mark.parametrize("name", ALL)
def test_simulator_agrees_with_numpy(name: str) -> None:
    simulator_agrees(name, ALL[name])


@pytest.mark.parametrize("name", rest_slow(list(ALL), QUICK_PTX))
def test_ptx_machine_agrees_with_numpy(name: str) -> None:
    ptx_machine_agrees(ALL[name])
