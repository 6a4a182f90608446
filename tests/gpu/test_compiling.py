"""Compiling where a driver is: NVRTC then has a cache of its own."""

from __future__ import annotations

import pytest

from tilewright.codegen.assemble import assemble

pytestmark = pytest.mark.gpu


def test_what_ptxas_says_is_there_again() -> None:
    source = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    first, again = (assemble(source, "sm_90a", "twice") for _ in range(2))
    assert first.registers == again.registers > 0
    assert "Used" in again.log
