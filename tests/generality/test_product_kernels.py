"""Kernels with products as people who know other compilers write them: proved for all trip counts, and right."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.product_cases import (
    F8,
    F32,
    I8,
    I32,
    Array,
    Arrays,
    Case,
    assert_agrees,
    assert_proved_for_all_trip_counts,
    by_name,
)

pytestmark = pytest.mark.sample(2)


@tw.kernel
def latent_attention(
    qn: tw.Tensor["H", "S", 64],
    qr: tw.Tensor["H", "S", 32],
    c: tw.Tensor["T", 64],
    r: tw.Tensor["T", 32],
    o: tw.Tensor["H", "S", 64],
    *,
    scale: tw.f32 = 0.1,
    bq=64,
    bk=64,
):
    """Logits are the sum of two products, and the keys of one are the values."""
    h, s = tw.grid(qn, (None, bq))
    a, b = qn[h, s], qr[h, s]
    acc = tw.zeros((s, 64), tw.f32)
    top, total = tw.full((s,), -tw.inf, tw.f32), tw.zeros((s,), tw.f32)
    for t in tw.stream(c.shape[0], bk):
        latent = c[t]
        x = (tw.dot(a, latent.T) + tw.dot(b, r[t].T)) * scale
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(qn.dtype), latent)
    o[h, s] = acc / total[:, None]


@tw.kernel
def window_with_sink(
    q: tw.Tensor["H", "S", 64],
    k: tw.Tensor["H", "S", 64],
    v: tw.Tensor["H", "S", 64],
    sink: tw.Tensor["H"],
    o: tw.Tensor["H", "S", 64],
    *,
    scale: tw.f32 = 0.1,
    window: tw.i32 = 50,
    bq=64,
    bk=64,
):
    """The stream begins at a multiple of its step below the window, and a logit of each head has no key."""
    h, s = tw.grid(q, (None, bq))
    rows = q[h, s]
    acc = tw.zeros((s, 64), tw.f32)
    top, total = tw.full((s,), sink[h], tw.f32), tw.full((s,), 1.0, tw.f32)
    for t in tw.stream(k.shape[1], bk, start=tw.maximum(s.start - window, 0) // bk * bk, until=s.stop):
        i, j = s.index[:, None], t.index[None, :]
        x = tw.where((i >= j) & (i - j < window), tw.dot(rows, k[h, t].T) * scale, -tw.inf)
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[h, t])
    o[h, s] = acc / total[:, None]


@tw.kernel
def linear_attention(
    q: tw.Tensor["S", 64],
    k: tw.Tensor["S", 64],
    v: tw.Tensor["S", 64],
    o: tw.Tensor["S", 64],
    state: tw.Tensor[64, 64],
    *,
    bs=64,
):
    """A state is carried along the rows and is an operand of a product in every step."""
    _ = tw.grid(1, None)
    carried = tw.zeros((64, 64), tw.f32)
    for s in tw.stream(q.shape[0], bs):
        a, b, c = q[s], k[s], v[s]
        near = tw.where(s.index[:, None] >= s.index[None, :], tw.dot(a, b.T), 0.0)
        o[s] = tw.dot(near.to(q.dtype), c) + tw.dot(a, carried.to(q.dtype))
        carried += tw.dot(b.T, c)
    state[:, :] = carried


@tw.kernel
def probabilities(
    q: tw.Tensor["S", 64], k: tw.Tensor["T", 64], v: tw.Tensor["T", 64], p: tw.Tensor["S", "T"], o: tw.Tensor["S", 64]
):
    """Three streams after one another, each with the same product, one with a store."""
    s = tw.grid(q.shape[0], 64)
    rows = q[s]
    top, total = tw.full((s,), -tw.inf, tw.f32), tw.zeros((s,), tw.f32)
    acc = tw.zeros((s, 64), tw.f32)
    for t in tw.stream(k.shape[0], 64):
        top.set(tw.maximum(top, tw.dot(rows, k[t].T).max(1)))
    for t in tw.stream(k.shape[0], 64):
        total += tw.exp(tw.dot(rows, k[t].T) - top[:, None]).sum(1)
    for t in tw.stream(k.shape[0], 64):
        w = tw.exp(tw.dot(rows, k[t].T) - top[:, None]) / total[:, None]
        p[s, t] = w
        acc += tw.dot(w.to(q.dtype), v[t])
    o[s] = acc


@tw.kernel
def density(
    x: tw.Tensor["N", "D"], y: tw.Tensor["M", "D"], w: tw.Tensor["M", "C"], o: tw.Tensor["N", "C"], *, bd=32, upto=64
):
    """exp(-|x - y|^2 / 2) @ w: a product in two nested streams, whose operands are also squared and added up."""
    n = tw.grid(x.shape[0], 64)
    c = tw.axis(w.shape[1], upto=upto)
    acc = tw.zeros((n, c), tw.f32)
    for m in tw.stream(y.shape[0], 64):
        both = tw.zeros((n, m), tw.f32)
        rows, columns = tw.zeros((n,), tw.f32), tw.zeros((m,), tw.f32)
        for d in tw.stream(x.shape[1], bd):
            a, b = x[n, d], y[m, d]
            both += tw.dot(a, b.T)
            rows += (a.to(tw.f32) * a.to(tw.f32)).sum(1)
            columns += (b.to(tw.f32) * b.to(tw.f32)).sum(1)
        near = tw.exp(-0.5 * tw.maximum(rows[:, None] + columns[None, :] - 2.0 * both, 0.0))
        acc += tw.dot(near.to(w.dtype), w[m, c])
    o[n, c] = acc


@tw.kernel
def projected_loss(
    h: tw.Tensor["M", "K"],
    w: tw.Tensor["V", "K"],
    target: tw.Tensor["M"],
    loss: tw.Tensor["M"],
    best: tw.Tensor["M"],
):
    """Logits that are never stored: log-softmax, loss and argmax while the vocabulary streams by."""
    m = tw.grid(h.shape[0], 64)
    top, total = tw.full((m,), -tw.inf, tw.f32), tw.zeros((m,), tw.f32)
    hit, place = tw.zeros((m,), tw.f32), tw.zeros((m,), tw.i32)
    wanted = target[m]
    for v in tw.stream(w.shape[0], 64):
        x = tw.zeros((m, v), tw.f32)
        for k in tw.stream(h.shape[1], 64):
            x += tw.dot(h[m, k], w[v, k].T)
        here = x.max(1)
        place.set(tw.where(here > top, x.argmax(1) + v.start, place))
        new = tw.maximum(top, here)
        total.set(total * tw.exp(top - new) + tw.exp(x - new[:, None]).sum(1))
        hit += tw.where(v.index[None, :] == wanted[:, None], x, 0.0).sum(1)
        top.set(new)
    loss[m] = top + tw.log(total) - hit
    best[m] = place


@tw.kernel
def quantised_product(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], q: tw.Tensor["M", "N"], s: tw.Tensor["M"], *, upto=128
):
    """Rows of a product scaled by their largest element, stored as 8-bit floats beside the scales."""
    m, n = tw.grid(a.shape[0], 64), tw.axis(b.shape[0], upto=upto)
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    scale = tw.maximum(tw.abs(acc).max(1), 1e-6) / 448.0
    q[m, n] = acc / scale[:, None]
    s[m] = scale


@tw.kernel
def dequantised_weights(
    a: tw.Tensor["M", "K"],
    w: tw.Tensor["N", "K"],
    z: tw.Tensor["N"],
    s: tw.Tensor["N"],
    c: tw.Tensor["M", "N"],
):
    """Integers with zero points and scales become an operand on the way."""
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        weights = (w[n, k].to(tw.f32) - z[n].to(tw.f32)[:, None]) * s[n][:, None]
        acc += tw.dot(a[m, k], weights.to(a.dtype).T)
    c[m, n] = acc


@tw.kernel
def normed_projection(x: tw.Tensor["M", "K"], g: tw.Tensor["K"], w: tw.Tensor["N", "K"], y: tw.Tensor["M", "N"]):
    """One stream for the rows' norms, one of the same length for the product of what they scale."""
    m, n = tw.grid(y, (64, 64))
    squares = tw.zeros((m,), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        v = x[m, k].to(tw.f32)
        squares += (v * v).sum(1)
    scale = tw.rsqrt(squares / x.shape[1] + 1e-6)
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        v = x[m, k].to(tw.f32) * scale[:, None] * g[k][None, :]
        acc += tw.dot(v.to(w.dtype), w[n, k].T)
    y[m, n] = acc


@tw.kernel
def low_rank(
    x: tw.Tensor["M", "K"],
    w: tw.Tensor["N", "K"],
    a: tw.Tensor["R", "K"],
    b: tw.Tensor["N", "R"],
    y: tw.Tensor["M", "N"],
    *,
    upto=16,
):
    """x (W + B A)^T without W + B A: two sums over one stream, one of them an operand behind it."""
    m, n = tw.grid(y, (64, 64))
    r = tw.axis(a.shape[0], upto=upto)
    acc, low = tw.zeros((m, n), tw.f32), tw.zeros((m, r), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        rows = x[m, k]
        acc += tw.dot(rows, w[n, k].T)
        low += tw.dot(rows, a[r, k].T)
    y[m, n] = acc + tw.dot(low.to(x.dtype), b[n, r].T)


@tw.kernel
def rounded_product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    """f32 operands rounded to tf32 on the way."""
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 32):
        acc += tw.dot(a[m, k].to(tw.tf32), b[n, k].to(tw.tf32).T)
    c[m, n] = acc


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _window(q: Array, k: Array, v: Array, sink: Array) -> Arrays:
    x = np.einsum("hsd,htd->hst", q, k) * 0.1
    i, j = np.indices(x.shape[1:])
    x = np.where((i >= j) & (i - j < 50), x, -np.inf)
    with_sink = np.concatenate([x, np.broadcast_to(sink[:, None, None], (*x.shape[:2], 1))], 2)
    return {"o": softmax(with_sink)[..., :-1] @ v}


def _latent(qn: Array, qr: Array, c: Array, r: Array) -> Arrays:
    return {"o": softmax((qn @ c.T + qr @ r.T) * 0.1) @ c}


def _linear(q: Array, k: Array, v: Array) -> Arrays:
    return {"o": np.tril(q @ k.T) @ v, "state": k.T @ v}


def _probabilities(q: Array, k: Array, v: Array) -> Arrays:
    p = softmax(q @ k.T)
    return {"p": p, "o": p @ v}


def _density(x: Array, y: Array, w: Array) -> Arrays:
    return {"o": np.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(2)) @ w}


def _loss(h: Array, w: Array, target: Array) -> Arrays:
    p = softmax(h @ w.T)
    return {"loss": -np.log(p[np.arange(len(p)), target]), "best": p.argmax(1)}


def _quantised(a: Array, b: Array) -> Arrays:
    x = a @ b.T
    s = abs(x).max(1) / 448
    return {"q": x / s[:, None], "s": s}


def _normed(x: Array, g: Array, w: Array) -> Arrays:
    return {"y": (x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * g) @ w.T}


CASES = by_name(
    Case(
        latent_attention,
        {"qn": "HSd", "qr": "HSr", "c": "Td", "r": "Tr"},
        _latent,
        ({"H": 2, "S": 64, "T": 128}, {"H": 1, "S": 67, "T": 7}),
    ),
    Case(
        window_with_sink,
        {"q": "HSd", "k": "HSd", "v": "HSd", "sink": "H"},
        _window,
        ({"H": 2, "S": 1}, {"H": 1, "S": 199}),
        {"sink": F32},
    ),
    Case(
        linear_attention,
        {"q": "Sd", "k": "Sd", "v": "Sd"},
        _linear,
        ({"S": 128}, {"S": 67}),
        {"state": F32},
        tolerance=6e-3,
    ),
    Case(
        probabilities,
        {"q": "Sd", "k": "Td", "v": "Td"},
        _probabilities,
        ({"S": 64, "T": 128}, {"S": 67, "T": 136}),
        {"p": F32},
    ),
    Case(
        density,
        {"x": "ND", "y": "MD", "w": "MC"},
        _density,
        ({"N": 64, "M": 128, "D": 8, "C": 64}, {"N": 67, "M": 65, "D": 7, "C": 5}),
        {"o": F32},
    ),
    Case(
        projected_loss,
        {"h": "MK", "w": "VK", "target": "M"},
        _loss,
        ({"M": 64, "V": 256, "K": 64}, {"M": 67, "V": 131, "K": 72}),
        {"target": I32, "loss": F32, "best": I32},
        tolerance=1e-5,
    ),
    Case(
        quantised_product,
        {"a": "MK", "b": "NK"},
        _quantised,
        ({"M": 64, "N": 128, "K": 128}, {"M": 3, "N": 1, "K": 7}),
        {"q": F8, "s": F32},
        tolerance=0.03,
    ),
    Case(
        dequantised_weights,
        {"a": "MK", "w": "NK", "z": "N", "s": "N"},
        lambda a, w, z, s: {"c": a @ ((w - z[:, None]) * s[:, None]).T},
        ({"M": 64, "N": 64, "K": 128}, {"M": 67, "N": 33, "K": 70}),
        {"w": I8, "z": I8, "s": F32},
    ),
    Case(
        normed_projection,
        {"x": "MK", "g": "K", "w": "NK"},
        _normed,
        ({"M": 64, "N": 64, "K": 128}, {"M": 67, "N": 33, "K": 72}),
        {"g": F32},
    ),
    Case(
        low_rank,
        {"x": "MK", "w": "NK", "a": "RK", "b": "NR"},
        lambda x, w, a, b: {"y": x @ w.T + (x @ a.T) @ b.T},
        ({"M": 64, "N": 64, "K": 128, "R": 16}, {"M": 67, "N": 33, "K": 72, "R": 7}),
    ),
    Case(
        rounded_product,
        {"a": "MK", "b": "NK"},
        lambda a, b: {"c": a @ b.T},
        ({"M": 64, "N": 64, "K": 64}, {"M": 67, "N": 33, "K": 41}),
        {"a": F32, "b": F32, "c": F32},
        tolerance=1e-3,
    ),
)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy(name: str) -> None:
    assert_agrees(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_is_proved_for_all_trip_counts_at_once(name: str) -> None:
    assert_proved_for_all_trip_counts(CASES[name])


@pytest.mark.parametrize("name", ["quantised_product", "rounded_product"])
def test_assembled_without_a_defect(name: str) -> None:
    """Conversions to 8-bit floats, and sums that the compiler behind us would hold as integers."""
    (kernel,) = CASES[name].kernel.compile(dtypes=CASES[name].argument_dtypes).kernels
    assert "wgmma" in kernel.source
    assert kernel.spill_bytes == 0


@tw.kernel
def one_program(x: tw.Tensor["M"], total: tw.Tensor[1]):
    m = tw.axis(x.shape[0], upto=64)
    total[0] = x[m].sum(0)


def test_a_kernel_without_a_grid_is_one_program() -> None:
    x, total = np.arange(5, dtype=np.float32), np.full(1, np.nan, np.float32)
    one_program(x, total)
    assert total[0] == 10
