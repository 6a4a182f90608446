"""Products beside, inside and behind loops: tensor copies in pipelines, proved, and right at awkward extents."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.jit import Kernel

pytestmark = pytest.mark.sample(2)

BF = ml_dtypes.bfloat16
Array = np.ndarray[Any, Any]
rng = np.random.default_rng(7)


@tw.kernel
def normed(x: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], y: tw.Tensor["M", "N"]):
    """A product of normalised rows, whose norm a stream before it finds."""
    m, n = tw.grid(y, (64, 64))
    square = tw.zeros((m,), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        row = x[m, k].to(tw.f32)
        square += (row * row).sum(1)
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        acc += tw.dot(x[m, k], w[n, k].T)
    y[m, n] = acc * tw.rsqrt(square / x.shape[1] + 1e-6)[:, None]


@tw.kernel
def nearest(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], near: tw.Tensor["M"]):
    """The least squared distance of every row to a row of ``b``: products and norms in streams of their own, inside of
    a stream that keeps the least."""
    m = tw.grid(a.shape[0], 64)
    own = tw.zeros((m,), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        row = a[m, k].to(tw.f32)
        own += (row * row).sum(1)
    least = tw.full((m,), tw.inf, tw.f32)
    for j in tw.stream(b.shape[0], 64):
        cross, square = tw.zeros((m, j), tw.f32), tw.zeros((j,), tw.f32)
        for k in tw.stream(a.shape[1], 64):
            cross += tw.dot(a[m, k], b[j, k].T)
        for k in tw.stream(a.shape[1], 64):
            row = b[j, k].to(tw.f32)
            square += (row * row).sum(1)
        least.set(tw.minimum(least, (square[None, :] - 2.0 * cross).min(1)))
    near[m] = least + own


@tw.kernel
def linear_attention(q: tw.Tensor["S", 64], k: tw.Tensor["T", 64], v: tw.Tensor["T", 64], o: tw.Tensor["S", 64]):
    """A masked product that feeds a product, without a softmax between them."""
    s = tw.grid(q.shape[0], 64)
    rows = q[s, :]
    acc = tw.zeros((s, 64), tw.f32)
    for t in tw.stream(k.shape[0], 64, until=s.stop):
        x = tw.maximum(tw.dot(rows, k[t, :].T), 0.0)
        x = tw.where(s.index[:, None] >= t.index[None, :], x, 0.0)
        acc += tw.dot(x.to(q.dtype), v[t, :])
    o[s, :] = acc


@tw.kernel
def adapted(
    x: tw.Tensor["M", "K"],
    w: tw.Tensor["N", "K"],
    down: tw.Tensor[16, "K"],
    up: tw.Tensor["N", 16],
    y: tw.Tensor["M", "N"],
    z: tw.Tensor["M", "N"],
):
    """Two products in one stream, one of which feeds a third after it onto the other's sum; two outputs."""
    m, n = tw.grid(y, (64, 64))
    acc, low = tw.zeros((m, n), tw.f32), tw.zeros((m, 16), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        rows = x[m, k]
        acc += tw.dot(rows, w[n, k].T)
        low += tw.dot(rows, down[:, k].T)
    acc += tw.dot(low.to(x.dtype), up[n, :].T)
    y[m, n] = acc
    z[m, n] = acc * tw.sigmoid(acc)


@tw.kernel
def bilinear(x: tw.Tensor["M", "D"], w: tw.Tensor["H", "D", "E"], y: tw.Tensor["N", "E"], o: tw.Tensor["H", "M", "N"]):
    """A product of a product, with a matrix for each head in the middle."""
    h, m, n = tw.grid(o, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for e in tw.stream(w.shape[2], 64):
        part = tw.zeros((m, e), tw.f32)
        for d in tw.stream(x.shape[1], 64):
            part += tw.dot(x[m, d], w[h, d, e])
        acc += tw.dot(part.to(x.dtype), y[n, e].T)
    o[h, m, n] = acc


@tw.kernel
def symmetric(a: tw.Tensor["M", "K"], b: tw.Tensor["M", "K"], c: tw.Tensor["M", "M"]):
    """Both orders of two operands added up, and half of the sum kept."""
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
        acc += tw.dot(b[m, k], a[n, k].T)
    c[m, n] = tw.where(m.index[:, None] >= n.index[None, :], acc, 0.0)


def exact(x: Array) -> Array:
    return x.astype(np.float64)


def expect_normed(x: Array, w: Array) -> list[Array]:
    return [x @ w.T / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6)]


def expect_nearest(a: Array, b: Array) -> list[Array]:
    return [((a[:, None] - b[None]) ** 2).sum(2).min(1)]


def expect_linear_attention(q: Array, k: Array, v: Array) -> list[Array]:
    return [np.tril(np.maximum(q @ k.T, 0)) @ v]


def expect_adapted(x: Array, w: Array, down: Array, up: Array) -> list[Array]:
    acc = x @ w.T + x @ down.T @ up.T
    return [acc, acc / (1 + np.exp(-acc))]


def expect_bilinear(x: Array, w: Array, y: Array) -> list[Array]:
    return [x @ w @ y.T]


def expect_symmetric(a: Array, b: Array) -> list[Array]:
    return [np.tril(a @ b.T + b @ a.T)]


CASES: list[tuple[tw.Kernel, Callable[..., list[Array]], list[tuple[int, ...]], list[tuple[tuple[int, ...], type]]]] = [
    (normed, expect_normed, [(70, 72), (66, 72)], [((70, 66), BF)]),
    (nearest, expect_nearest, [(70, 72), (130, 72)], [((70,), np.float32)]),
    (linear_attention, expect_linear_attention, [(130, 64)] * 3, [((130, 64), BF)]),
    (adapted, expect_adapted, [(70, 136), (66, 136), (16, 136), (66, 16)], [((70, 66), np.float32), ((70, 66), BF)]),
    (bilinear, expect_bilinear, [(70, 72), (2, 72, 80), (66, 80)], [((2, 70, 66), np.float32)]),
    (symmetric, expect_symmetric, [(130, 72), (130, 72)], [((130, 130), np.float32)]),
]


@pytest.mark.parametrize(("kernel", "expected", "inputs", "outputs"), CASES, ids=[c[0].name for c in CASES])
def test_dots_in_odd_places(
    kernel: tw.Kernel,
    expected: Callable[..., list[Array]],
    inputs: list[tuple[int, ...]],
    outputs: list[tuple[tuple[int, ...], type]],
) -> None:
    given = [rng.normal(size=shape).astype(BF) for shape in inputs]
    found = [np.full(shape, np.nan, dtype) for shape, dtype in outputs]
    kernel(*given, *found)
    for got, wanted in zip(found, expected(*map(exact, given)), strict=True):
        assert np.linalg.norm(exact(got) - wanted) < 5e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("case", CASES, ids=[c[0].name for c in CASES])
def test_their_operands_come_by_tensor_copies(case: tuple[Any, ...]) -> None:
    kernel, _, inputs, outputs = case
    kinds = [*(["bf16"] * len(inputs)), *("bf16" if dtype is BF else "f32" for _, dtype in outputs)]
    dtypes = dict(zip((tensor.name for tensor in kernel.tensors), kinds, strict=True))
    (variant,) = Kernel(kernel).plan(dtypes=dtypes).variants
    assert "tensor copies in pipelines where legal" in variant.notes[0]
    assert "pipelines none" not in variant.notes[1]


@tw.kernel
def chosen(asked: tw.Tensor["Q"], x: tw.Tensor["M", "K"], w: tw.Tensor["E", "N", "K"], y: tw.Tensor["M", "N"]):
    """A product whose weight is chosen by a block of rows; of blocks that choose none nothing is stored."""
    m, n = tw.grid(y, (64, 128))
    e = asked[m.start // 64]
    for _ in tw.stream(1, None, until=tw.where(e >= 0, 1, 0)):
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[1], 64):
            acc += tw.dot(x[m, k], w[e, n, k].T)
        y[m, n] = acc


@pytest.mark.parametrize("asked", [(1, -1, 0, -1), (-1, -1, -1, 1), (-1, -1, -1, -1)])
def test_a_store_in_a_stream_of_one_turn(asked: tuple[int, ...]) -> None:
    x, w = (rng.normal(size=shape).astype(BF) for shape in ((250, 136), (2, 136, 136)))
    found = np.full((250, 136), 7, BF)
    chosen(np.array(asked, np.int32), x, w, found)
    for i, e in enumerate(asked):
        rows = slice(64 * i, 64 * i + 64)
        wanted = exact(x[rows]) @ exact(w[e]).T if e >= 0 else np.full_like(exact(found[rows]), 7)
        assert np.linalg.norm(exact(found[rows]) - wanted) < 5e-3 * np.linalg.norm(wanted)
    (variant,) = Kernel(chosen).plan(dtypes={"asked": "i32", "x": "bf16", "w": "bf16", "y": "bf16"}).variants
    assert "pipelines none" not in variant.notes[1]
