"""Kernels of further shapes, written once and expected to agree with NumPy at the first try."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

rng = np.random.default_rng(11)


def normal(*shape: int):
    return rng.standard_normal(shape, dtype=np.float32)


@tw.kernel
def manhattan(x: tw.Tensor["M", "D"], y: tw.Tensor["N", "D"], d: tw.Tensor["M", "N"], *, bm: int = 8, bn: int = 16):
    """Three axes in one tile, reduced along the last, over a stream."""
    m, n = tw.grid(d, (bm, bn))
    total = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 8):
        total += tw.abs(x[m, k][:, None, :] - y[n, k][None, :, :]).sum(2)
    d[m, n] = total


@tw.kernel
def bilinear(a: tw.Tensor["B", "I"], w: tw.Tensor["I", "J"], b: tw.Tensor["B", "J"], y: tw.Tensor["B"]):
    """Nested streams into a fragment of rank 0."""
    row = tw.grid(y, None)
    total = tw.zeros((), tw.f32)
    for i in tw.stream(a.shape[1], 16):
        for j in tw.stream(b.shape[1], 32):
            total += ((w[i, j] * b[row, j][None, :]).sum(1) * a[row, i]).sum(0)
    y[row] = total


@tw.kernel
def above(x: tw.Tensor["M", "N"], t: tw.Tensor["K"], y: tw.Tensor["N", "K"], *, upto: int = 8):
    """Truth values counted along the outer axis."""
    n, k = tw.grid(y.shape[0], 16), tw.axis(t.shape[0], upto=upto)
    count = tw.zeros((n, k), tw.i32)
    for m in tw.stream(x.shape[0], 32):
        count += (x[m, n][:, :, None] > t[k][None, None, :]).to(tw.i32).sum(0)
    y[n, k] = count


@tw.kernel
def norm_gradient(
    g: tw.Tensor["M", "N"],
    x: tw.Tensor["M", "N"],
    w: tw.Tensor["N"],
    dx: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
    upto: int = 1024,
):
    """Five reductions of one row."""
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    v, up = x[m, n].to(tw.f32), g[m, n].to(tw.f32) * w[n][None, :]
    centred = v - v.mean(1)[:, None]
    scale = tw.rsqrt((centred * centred).mean(1) + 1e-5)
    h = centred * scale[:, None]
    dx[m, n] = scale[:, None] * (up - up.mean(1)[:, None] - h * (up * h).mean(1)[:, None])


@tw.kernel
def two_largest(x: tw.Tensor["M", "N"], v: tw.Tensor["M", 2], at: tw.Tensor["M", 2], *, bm=tw.auto, upto: int = 512):
    """A reduction whose result decides what the next one sees; outputs written in parts."""
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    row = x[m, n]
    first = row.argmax(1)
    rest = tw.where(n.index[None, :] == first[:, None], -tw.inf, row)
    v[m, 0], at[m, 0] = row.max(1), first
    v[m, 1], at[m, 1] = rest.max(1), rest.argmax(1)


def test_manhattan() -> None:
    x, y, d = normal(19, 13), normal(23, 13), np.full((19, 23), np.nan, np.float32)
    manhattan(x, y, d)
    np.testing.assert_allclose(d, np.abs(x[:, None] - y[None]).sum(2), rtol=1e-5)


@pytest.mark.parametrize(("i", "j"), [(37, 51), (1, 1), (16, 33)])
def test_bilinear(i: int, j: int) -> None:
    a, w, b, y = normal(3, i), normal(i, j), normal(3, j), np.full(3, np.nan, np.float32)
    bilinear(a, w, b, y)
    np.testing.assert_allclose(y, np.einsum("bi,ij,bj->b", a, w, b), rtol=1e-4, atol=1e-5)


def test_above() -> None:
    x, t, y = normal(77, 29), np.linspace(-1, 1, 5, dtype=np.float32), np.zeros((29, 5), np.int32)
    above(x, t, y)
    np.testing.assert_array_equal(y, (x[:, :, None] > t).sum(0))


@pytest.mark.parametrize("n", [1, 130])
def test_norm_gradient(n: int) -> None:
    g, x, w, dx = normal(11, n), normal(11, n), normal(n), np.full((11, n), np.nan, np.float32)
    norm_gradient(g, x, w, dx)
    c, up = x - x.mean(1, keepdims=True), g * w
    scale = 1 / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5)
    h = c * scale
    wanted = scale * (up - up.mean(1, keepdims=True) - h * (up * h).mean(1, keepdims=True))
    np.testing.assert_allclose(dx, wanted, rtol=1e-4, atol=1e-4)


def test_two_largest() -> None:
    x, v, at = normal(13, 50), np.full((13, 2), np.nan, np.float32), np.zeros((13, 2), np.int32)
    two_largest(x, v, at)
    order = np.argsort(-x, 1)[:, :2]
    np.testing.assert_array_equal(at, order)
    np.testing.assert_array_equal(v, np.take_along_axis(x, order, 1))
