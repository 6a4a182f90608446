"""Sums of floats are trees: what stands far apart in a long chain is lost there."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np

import tilewright as tw

LARGE = 2.0**24
"""One added to it by itself changes nothing."""


@tw.kernel
def streamed(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bn: int = 32):
    m = tw.grid(y, 1)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        total += x[m, n].sum(1)
    y[m] = total


@tw.kernel
def whole(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, upto: int = 4096):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=upto)
    y[m] = x[m, n].sum(1)


@tw.kernel
def largest(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bn: int = 32):
    m = tw.grid(y, 1)
    top = tw.full(m, -tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        top.set(tw.maximum(top, x[m, n].max(1)))
    y[m] = top


def lost(kernel: tw.Kernel, length: int) -> float:
    """How many of the ones in a row that begins with a large number are missing in its sum."""
    x, y = np.ones((1, length), np.float32), np.zeros(1, np.float32)
    x[0, 0] = LARGE
    kernel(x, y)
    return LARGE + length - 1 - float(y[0])


def test_steps_of_a_stream_are_added_up_in_runs() -> None:
    assert lost(streamed, 32 * 100) <= 16  # the ones of a run of 16 steps; in one chain 99


def test_a_thread_adds_up_its_elements_in_several_chains() -> None:
    assert lost(whole, 4096) <= 8  # 32 elements in 4 chains; in one chain 31


def test_partial_runs_count() -> None:
    x, y = np.arange(1, 32 * 21, dtype=np.float32)[None], np.zeros(1, np.float32)
    streamed(x, y)
    assert y[0] == x.sum(dtype=np.float64)


def test_infinite_and_missing_numbers_stay_what_they_are() -> None:
    x, y = np.ones((3, 32 * 40), np.float32), np.zeros(3, np.float32)
    x[0, 700], x[1, 30], x[1, 1000], x[2, 5] = np.inf, np.inf, -np.inf, np.nan
    streamed(x, y)
    assert y[0] == np.inf
    assert np.isnan(y[1:]).all()


def test_maxima_need_no_tree() -> None:
    text = largest.compile().kernels[-1].source
    assert "% 16" not in text
    x, y = np.random.default_rng(0).standard_normal((5, 1000)).astype(np.float32), np.zeros(5, np.float32)
    largest(x, y)
    np.testing.assert_array_equal(y, x.max(1))
