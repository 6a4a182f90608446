"""CTAs that are asked for of an SM: what registers, threads and the SM itself allow."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.hw.target import SM80, SM90A, SM100A, Target
from tilewright.jit import Kernel


@tw.kernel
def scaled(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b):
    m = tw.grid(x.shape[0], b)
    y[m] = x[m] * 2


@pytest.mark.parametrize("target", [SM80, SM90A, SM100A])
@pytest.mark.parametrize("tile", [32, 512, 4096, 65536])
def test_an_sm_takes_the_ctas_that_are_asked_for(target: Target, tile: int) -> None:
    kernel = Kernel(scaled)
    (planned,) = kernel._plan(kernel._ahead(target.name, None, None, None, None, {"b": tile})).variants
    ctas, threads = planned.transport.min_ctas.data, planned.transport.threads.data
    assert planned.transport.target is target
    assert 1 <= ctas <= target.max_ctas_per_sm
    assert ctas * threads <= target.max_threads_per_sm
    if tile == 32:  # one element a thread: nothing but the SM's own limit holds
        assert ctas == target.max_ctas_per_sm
