"""Kernels of many shapes without products, each run in the simulator against NumPy at awkward extents."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.sample(2)

BF = ml_dtypes.bfloat16
Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)


@tw.kernel
def pair_stats(
    x: tw.Tensor["B", "M", "N"],
    mean: tw.Tensor["B", "N"],
    var: tw.Tensor["B", "N"],
    pos: tw.Tensor["B", "N"],
    *,
    bn=tw.auto,
    bm: int = 16,
):
    """Three outputs (one bool), reduction over a middle axis in two nested streams."""
    b, n = tw.grid(mean, (None, bn))
    s, q, low = tw.zeros(n, tw.f32), tw.zeros(n, tw.f32), tw.full(n, tw.inf, tw.f32)
    for m in tw.stream(x.shape[1], bm):
        v = x[b, m, n].to(tw.f32)
        s += v.sum(0)
        q += (v * v).sum(0)
        low.set(tw.minimum(low, v.min(0)))
    mu = s / x.shape[1]
    mean[b, n] = mu
    var[b, n] = q / x.shape[1] - mu * mu
    pos[b, n] = low > 0


@tw.kernel
def quantise(x: tw.Tensor["M", "N"], q: tw.Tensor["M", "N"], scale: tw.Tensor["M"], *, bm=tw.auto, upto: int = 2048):
    """Row-wise int8 quantisation: mixed dtypes, two outputs."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    s = tw.maximum(tw.abs(row).max(1), 1e-12) / 127.0
    v = row / s[:, None]
    q[m, n] = tw.where(v >= 0, v + 0.5, v - 0.5).to(tw.i32).to(tw.i8)
    scale[m] = s


@tw.kernel
def interleave(x: tw.Tensor["N"], y: tw.Tensor["N"], z: tw.Tensor["N"], *, bn=tw.auto, k: tw.i32 = 3):
    """Integer // and % with a run-time divisor, shifts, select."""
    n = tw.grid(x.shape[0], bn)
    a, b = x[n], y[n]
    z[n] = tw.where((n.index % k) == 0, a // b, (a % b) + ((a & 7) << 2) - (n.index // k))


@tw.kernel
def outer_broadcast(
    a: tw.Tensor["I", "K"],
    b: tw.Tensor["J", "K"],
    c: tw.Tensor["K"],
    y: tw.Tensor["I", "J", "K"],
    *,
    bi: int = 4,
    bj: int = 4,
    bk=tw.auto,
):
    """Broadcasting along several axes."""
    i, j, k = tw.grid(y, (bi, bj, bk))
    y[i, j, k] = (a[i, k][:, None, :] - b[j, k][None, :, :]) * c[k][None, None, :]


@tw.kernel
def ema_in_place(x: tw.Tensor["M", "N"], state: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto, decay: tw.f32 = 0.9):
    m, n = tw.grid(x, (bm, bn))
    state[m, n] = (state[m, n].to(tw.f32) * decay + x[m, n].to(tw.f32) * (1.0 - decay)).to(state.dtype)


@tw.kernel
def log_sum_exp_groups(
    x: tw.Tensor["M", "G", "N"], y: tw.Tensor["M", "G"], am: tw.Tensor["M", "G"], *, bm: int = 2, bn: int = 32
):
    """Two streams after each other, group axis whole, argmax over the last axis."""
    m = tw.grid(x.shape[0], bm)
    g = tw.axis(x.shape[1], upto=8)
    top = tw.full((m, g), -tw.inf, tw.f32)
    for n in tw.stream(x.shape[2], bn):
        top.set(tw.maximum(top, x[m, g, n].max(2)))
    total = tw.zeros((m, g), tw.f32)
    hits = tw.zeros((m, g), tw.i32)
    for n in tw.stream(x.shape[2], bn):
        v = x[m, g, n]
        total += tw.exp(v - top[:, :, None]).sum(2)
        hits += (v == top[:, :, None]).to(tw.i32).sum(2)
    y[m, g] = tw.log(total) + top
    am[m, g] = hits


@tw.kernel
def prefix_free_pool(x: tw.Tensor["C", "H", "W"], y: tw.Tensor["C", "H"], z: tw.Tensor["W"], *, bh=tw.auto, bw=tw.auto):
    """A row result per program, and an atomic sum over everything else."""
    c, h = tw.grid(y, (None, bh))
    row = tw.zeros(h, tw.f32)
    for w in tw.stream(x.shape[2], bw):
        t = x[c, h, w]
        row += t.sum(1)
        tw.reduce_add(z, w, t.sum(0))
    y[c, h] = row


@tw.kernel
def triangle(x: tw.Tensor["N", "N"], y: tw.Tensor["N", "N"], *, b: int = 16):
    """Two ranges of one dimension, predicates affine in both indices."""
    i, j = tw.grid(x, (b, b))
    t = x[i, j]
    y[i, j] = tw.where(i.index[:, None] > j.index[None, :], t, tw.where(i.index[:, None] == j.index[None, :], 1.0, 0.0))


@tw.kernel
def window(x: tw.Tensor["B", "S", "D"], y: tw.Tensor["B", "S"], *, bs: int = 8, bd: int = 32):
    """A stream that ends where the program's rows end; nested with another."""
    b, s = tw.grid(y, (None, bs))
    acc = tw.zeros(s, tw.f32)
    for t in tw.stream(x.shape[1], bs, until=s.stop):
        for d in tw.stream(x.shape[2], bd):
            key = x[b, t, d].sum(1)
            acc += tw.where(t.index[None, :] <= s.index[:, None], key[None, :], 0.0).sum(1)
    y[b, s] = acc


@tw.kernel
def clip_report(
    x: tw.Tensor["M", "N"],
    lo: tw.Tensor["M", 1],
    hi: tw.Tensor[1, "N"],
    y: tw.Tensor["M", "N"],
    mask: tw.Tensor["M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
):
    """Dimensions of one element, broadcast both ways, a bool output."""
    m, n = tw.grid(x, (bm, bn))
    v = x[m, n].to(tw.f32)
    low, high = lo[m, 0].to(tw.f32)[:, None], hi[0, n].to(tw.f32)[None, :]
    c = tw.minimum(tw.maximum(v, low), high)
    y[m, n] = c.to(x.dtype)
    mask[m, n] = (c != v) & ~(v == 0)


@tw.kernel
def symmetrise(x: tw.Tensor["N", "N"], y: tw.Tensor["N", "N"], *, b=tw.auto):
    i, j = tw.grid(x, (b, b))
    y[i, j] = (x[i, j] + x[j, i].T) * 0.5


@tw.kernel
def chunked_norm(
    x: tw.Tensor["M", "K", "C"], y: tw.Tensor["M", "K", "C"], inv: tw.Tensor["M", "K"], *, bm=tw.auto, upto: int = 64
):
    m = tw.grid(x.shape[0], bm)
    c = tw.axis(x.shape[2], upto=upto)
    for k in tw.stream(x.shape[1], 4):
        v = x[m, k, c].to(tw.f32)
        r = tw.rsqrt((v * v).mean(2) + 1e-6)
        y[m, k, c] = v * r[:, :, None]
        inv[m, k] = r


@tw.kernel
def triangular_sum(x: tw.Tensor["N", "N"], y: tw.Tensor["N"], *, b: int = 8):
    i = tw.grid(x.shape[0], b)
    acc = tw.zeros(i, tw.f32)
    for j in tw.stream(x.shape[1], b, until=i.stop):
        acc += tw.where(j.index[None, :] <= i.index[:, None], x[i, j].to(tw.f32), 0.0).sum(1)
    y[i] = acc


@tw.kernel
def topvalue(
    x: tw.Tensor["M", "N"], v: tw.Tensor["M"], p: tw.Tensor["M"], e: tw.Tensor["M"], *, bm=tw.auto, upto: int = 1024
):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n]
    best = row.max(1)
    v[m] = best
    p[m] = row.argmax(1)
    e[m] = (row == best[:, None]).to(tw.i32).sum(1) > 1


@tw.kernel
def head_gather(k: tw.Tensor["H", "S", "D"], y: tw.Tensor["Q", "S", "D"], *, group: int = 3, bs=tw.auto):
    q, s = tw.grid((y.shape[0], y.shape[1]), (None, bs))
    d = tw.axis(y.shape[2], upto=128)
    y[q, s, d] = k[q // group, s, d]


@tw.kernel
def bits(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], z: tw.Tensor["M"], *, bm=tw.auto, bn=tw.auto):
    m = tw.grid(x.shape[0], bm)
    acc = tw.zeros(m, tw.i64)
    for n in tw.stream(x.shape[1], bn):
        v = x[m, n]
        y[m, n] = ((v >> 2) ^ (v << 1)) | (n.index[None, :] & 3).to(tw.i64)
        acc += (v % 7).sum(1)
    z[m] = acc


@tw.kernel
def snapshot(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bm: int = 4, bn: int = 16):
    m = tw.grid(x.shape[0], bm)
    a, b = tw.zeros(m, tw.f32), tw.full(m, 1.0, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        old = a.copy()
        a.set(b + x[m, n].sum(1))
        b.set(old * 0.5)
    y[m] = a - b


@tw.kernel
def two_rows(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, upto: int = 4096):
    i = tw.grid(x.shape[0], None)
    n = tw.axis(x.shape[1], upto=upto)
    a = x[i, n].to(tw.f32)
    y[i, n] = a - a.mean(0) + x[x.shape[0] - 1 - i, n].to(tw.f32)


@tw.kernel
def planes(x: tw.Tensor["A", "B", "C", "D"], y: tw.Tensor["C", "A"], *, bc: int = 4, bd=tw.auto):
    a, c = tw.grid((x.shape[0], x.shape[2]), (None, bc))
    t = tw.full(c, -tw.inf, tw.f32)
    for b in tw.stream(x.shape[1], 2):
        for d in tw.stream(x.shape[3], bd):
            t.set(tw.maximum(t, x[a, b, c, d].max(2).max(0)))
    y[c, a] = t


@tw.kernel
def cond(
    x: tw.Tensor["M", "N"],
    y: tw.Tensor["M", "N"],
    *,
    causal: bool = True,
    k: tw.i32 = 2,
    s: tw.f32 = 1.5,
    bm=tw.auto,
    bn=tw.auto,
):
    m, n = tw.grid(x, (bm, bn))
    v = x[m, n]
    if causal:
        v = tw.where(n.index[None, :] <= m.index[:, None] + k, v, 0.0)
    y[m, n] = tw.tanh(v * s) + tw.erf(v)


# -- what they must give ----------------------------------------------------------------------------------------------
def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def blank(shape: tuple[int, ...], dtype: Any) -> Array:
    """An output that holds something else before."""
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fV" else 1, dtype)


def close(got: Array, wanted: Array, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(
        np.asarray(got, np.float64), np.asarray(wanted, np.float64), rtol=tolerance, atol=tolerance
    )


def check_pair_stats(b: int, m: int, n: int) -> None:
    x = normal(b, m, n).astype(BF)
    x[0, :, 0] = np.abs(x[0, :, 0]) + BF(1)
    mean, var, positive = blank((b, n), np.float32), blank((b, n), np.float32), blank((b, n), np.bool_)
    pair_stats(x, mean, var, positive)
    exact = x.astype(np.float64)
    close(mean, exact.mean(1), 1e-3)
    close(var, exact.var(1), 1e-2)
    np.testing.assert_array_equal(positive, exact.min(1) > 0)


def check_quantise(m: int, n: int) -> None:
    x = normal(m, n) * 3
    q, scale = blank((m, n), np.int8), blank((m,), np.float32)
    quantise(x, q, scale)
    step = np.maximum(np.abs(x).max(1), 1e-12) / 127
    close(scale, step, 1e-5)
    assert np.abs(q.astype(int) - np.trunc(x / step[:, None] + np.where(x >= 0, 0.5, -0.5))).max() <= 1


def check_interleave(n: int) -> None:
    a = rng.integers(-1000, 1000, n).astype(np.int32)
    b = (rng.integers(1, 50, n) * rng.choice([-1, 1], n)).astype(np.int32)
    z, i = blank((n,), np.int32), np.arange(n)
    interleave(a, b, z, k=5)
    np.testing.assert_array_equal(z, np.where(i % 5 == 0, a // b, (a % b) + ((a & 7) << 2) - i // 5))


def check_outer_broadcast(i: int, j: int, k: int) -> None:
    a, b, c, y = normal(i, k), normal(j, k), normal(k), blank((i, j, k), np.float32)
    outer_broadcast(a, b, c, y)
    close(y, (a[:, None] - b[None]) * c)


def check_ema_in_place(m: int, n: int) -> None:
    x, state = normal(n, m).T, normal(m, n).astype(np.float16)
    wanted = state.astype(np.float64) * 0.75 + x * 0.25
    ema_in_place(x, state, decay=0.75)
    close(state, wanted, 2e-3)


def check_log_sum_exp_groups(m: int, g: int, n: int) -> None:
    x = np.round(normal(m, g, n) * 3)
    y, hits = blank((m, g), np.float32), blank((m, g), np.int32)
    log_sum_exp_groups(x, y, hits)
    close(y, np.log(np.exp(x.astype(np.float64)).sum(2)), 1e-5)
    np.testing.assert_array_equal(hits, (x == x.max(2, keepdims=True)).sum(2))


def check_prefix_free_pool(c: int, h: int, w: int) -> None:
    x = normal(c, w, h).transpose(0, 2, 1)
    y, z = blank((c, h), np.float32), np.zeros(w, np.float32)
    prefix_free_pool(x, y, z)
    close(y, x.sum(2), 1e-3)
    close(z, x.sum((0, 1)), 1e-3)


def check_triangle(n: int) -> None:
    x, y = normal(n, n).astype(BF)[::-1], blank((n, n), BF)
    triangle(x, y)
    close(y, np.where(np.arange(n)[:, None] > np.arange(n), x, np.eye(n)), 1e-2)


def check_window(b: int, s: int, d: int) -> None:
    x, y = normal(b, s, d), blank((b, s), np.float32)
    window(x, y)
    close(y, np.cumsum(x.sum(2), 1), 1e-3)


def check_clip_report(m: int, n: int) -> None:
    x = normal(m, 2 * n).astype(BF)[:, ::2]
    low, high = -rng.random((m, 1)).astype(np.float32), rng.random((1, n)).astype(np.float16)
    y, mask = blank((m, n), BF), blank((m, n), np.bool_)
    clip_report(x, low, high, y, mask)
    given = x.astype(np.float32)
    clipped = np.minimum(np.maximum(given, low), high.astype(np.float32))
    close(y, clipped, 1e-2)
    np.testing.assert_array_equal(mask, (clipped != given) & (given != 0))


def check_symmetrise(n: int) -> None:
    x, y = normal(n, n), blank((n, n), np.float32)
    symmetrise(x, y)
    close(y, (x + x.T) / 2)


def check_chunked_norm(m: int, k: int, c: int) -> None:
    x = normal(m, k, c).astype(BF)
    y, inverse = blank((m, k, c), BF), blank((m, k), np.float32)
    chunked_norm(x, y, inverse)
    exact = x.astype(np.float64)
    wanted = 1 / np.sqrt((exact * exact).mean(2) + 1e-6)
    close(inverse, wanted, 1e-3)
    close(y, exact * wanted[..., None], 2e-2)


def check_triangular_sum(n: int) -> None:
    x, y = normal(n, n).astype(np.float16), blank((n,), np.float32)
    triangular_sum(x, y)
    close(y, np.tril(x.astype(np.float64)).sum(1), 1e-3)


def check_topvalue(m: int, n: int) -> None:
    x = np.round(normal(m, n) * 2)
    top, place, equal = blank((m,), np.float32), blank((m,), np.int32), blank((m,), np.bool_)
    topvalue(x, top, place, equal)
    np.testing.assert_array_equal(top, x.max(1))
    np.testing.assert_array_equal(place, x.argmax(1))
    np.testing.assert_array_equal(equal, (x == x.max(1, keepdims=True)).sum(1) > 1)


def check_head_gather(q: int, s: int, d: int) -> None:
    k, y = normal(-(-q // 3), s, d).astype(BF), blank((q, s, d), BF)
    head_gather(k, y)
    np.testing.assert_array_equal(y, k[np.arange(q) // 3])


def check_bits(m: int, n: int) -> None:
    x, y, z = rng.integers(-(2**40), 2**40, (m, n)), blank((m, n), np.int64), blank((m,), np.int64)
    bits(x, y, z)
    np.testing.assert_array_equal(y, ((x >> 2) ^ (x << 1)) | (np.arange(n) & 3))
    np.testing.assert_array_equal(z, (x % 7).sum(1))


def check_snapshot(m: int, n: int) -> None:
    x, y = normal(m, n), blank((m,), np.float32)
    snapshot(x, y)
    a, b = np.zeros(m), np.ones(m)
    for first in range(0, n, 16):
        a, b = b + x[:, first : first + 16].sum(1), a * 0.5
    close(y, a - b, 1e-3)


def check_two_rows(m: int, n: int) -> None:
    """Both tensors begin one element beyond a boundary and have an odd pitch."""
    x, y = normal(m, n + 3).astype(BF)[:, 1 : n + 1], blank((m, n + 3), BF)[:, 1 : n + 1]
    two_rows(x, y)
    exact = x.astype(np.float64)
    close(y, exact - exact.mean(1, keepdims=True) + exact[::-1], 3e-2)


def check_planes(a: int, b: int, c: int, d: int) -> None:
    x, y = normal(d, a, c, b).transpose(1, 3, 2, 0), blank((c, a), np.float32)
    planes(x, y)
    np.testing.assert_array_equal(y, x.max((1, 3)).T)


def check_cond(m: int, n: int) -> None:
    x, y = normal(m, n)[::-1, ::-1], blank((m, n), np.float32)
    cond(x, y, k=1, s=0.5)
    masked = np.where(np.arange(n) <= np.arange(m)[:, None] + 1, x, 0)
    close(y, np.tanh(masked * 0.5) + np.vectorize(erf)(masked))


CASES: tuple[tuple[Callable[..., None], tuple[int, ...]], ...] = (
    (check_pair_stats, (3, 33, 257)),
    (check_quantise, (3, 1000)),
    (check_interleave, (4100,)),
    (check_outer_broadcast, (5, 3, 130)),
    (check_ema_in_place, (33, 70)),
    (check_log_sum_exp_groups, (3, 5, 127)),
    (check_prefix_free_pool, (2, 70, 33)),
    (check_triangle, (70,)),
    (check_window, (2, 33, 40)),
    (check_clip_report, (65, 130)),
    (check_symmetrise, (130,)),
    (check_chunked_norm, (3, 5, 33)),
    (check_triangular_sum, (50,)),
    (check_topvalue, (3, 1000)),
    (check_head_gather, (7, 33, 100)),
    (check_bits, (33, 65)),
    (check_snapshot, (5, 33)),
    (check_two_rows, (3, 3001)),
    (check_planes, (2, 3, 5, 7)),
    (check_cond, (33, 130)),
)


@pytest.mark.parametrize(("check", "extents"), CASES, ids=[c.__name__.removeprefix("check_") for c, _ in CASES])
def test_agrees_with_numpy(check: Callable[..., None], extents: tuple[int, ...]) -> None:
    check(*extents)


@pytest.mark.parametrize("check", [c for c, _ in CASES[::3]], ids=lambda c: c.__name__.removeprefix("check_"))
def test_one_element_along_every_axis(check: Callable[..., None]) -> None:
    extents = next(e for c, e in CASES if c is check)
    check(*(1 for _ in extents))
