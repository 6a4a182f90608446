"""Streams whose bounds are scalars: whole steps, a partial one, none, and ends that lie before the beginning."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

X = np.random.default_rng(0).standard_normal((33, 100)).astype(np.float32)


@tw.kernel
def until(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, hi: tw.i32, bn=16):
    m = tw.grid(y, 8)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn, until=hi):
        total += x[m, n].sum(1)
    y[m] = total


@tw.kernel
def between(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, lo: tw.i32, hi: tw.i32, bn=16):
    m = tw.grid(y, 8)
    total = tw.zeros(m, tw.f32)
    start = tw.maximum(lo, 0)
    for n in tw.stream(x.shape[1], bn, start=start, until=tw.maximum(hi, start)):
        total += x[m, n].sum(1)
    y[m] = total


@tw.kernel
def windowed(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, w: tw.i32):
    m = tw.grid(y, 8)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], 16, start=tw.maximum(m.start - w, 0), until=m.stop):
        inside = (n.index[None, :] <= m.index[:, None]) & (n.index[None, :] > m.index[:, None] - w)
        total += tw.where(inside, x[m, n], 0.0).sum(1)
    y[m] = total


@pytest.mark.parametrize("hi", [-40, -16, -1, 0, 1, 15, 16, 17, 41, 99, 100, 300])
def test_an_end(hi: int) -> None:
    y = np.empty(33, np.float32)
    until(X, y, hi=hi)
    np.testing.assert_allclose(y, X[:, : max(hi, 0)].sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("lo", "hi"), [(0, 100), (5, 41), (-7, 41), (60, 41), (99, 100), (100, 100), (150, 160)])
def test_a_beginning_and_an_end(lo: int, hi: int) -> None:
    y = np.empty(33, np.float32)
    between(X, y, lo=lo, hi=hi)
    np.testing.assert_allclose(y, X[:, max(lo, 0) : max(hi, 0)].sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("w", [1, 8, 20, 33])
def test_a_window_before_each_row(w: int) -> None:
    y = np.empty(33, np.float32)
    windowed(X, y, w=w)
    expected = [X[i, max(0, i - w + 1) : i + 1].sum() for i in range(33)]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [until, between, windowed])
def test_they_compile(kernel: tw.Kernel) -> None:
    assert kernel.compile().certificate
