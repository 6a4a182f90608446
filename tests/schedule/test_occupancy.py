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


@pytest.mark.parametrize(("kept", "threads"), [(0, 256), (1, 256), (2, 512)])
def test_what_a_stream_carries_gets_threads(kept: int, threads: int) -> None:
    """Of rows that are reduced, fragments of twice as many elements as a tile's would leave an SM eight warps."""

    @tw.kernel
    def running(x: tw.Tensor["M", 8192], y: tw.Tensor[3, 8192], *, kept: int):
        n = tw.axis(x.shape[1], upto=8192)
        sums = [tw.zeros(n, tw.f32) for _ in range(1 + kept)]
        for m in tw.stream(x.shape[0], 1):
            row = x[m.start, n]
            for total in sums:
                total += row * row.mean(0)
        for i in range(1 + kept):
            y[i, n] = sums[i]

    kernel = Kernel(running)
    variants = kernel._plan(kernel._ahead("sm_90a", None, None, None, None, {"kept": kept})).variants
    assert {planned.transport.threads.data for planned in variants} == {threads}
