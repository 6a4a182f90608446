"""Kernels with products of unusual shapes: proved for all trip counts at once, and right at awkward extents."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownLambdaType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.product_cases import (
    F32,
    I8,
    Array,
    Arrays,
    Case,
    assert_agrees,
    assert_proved_for_all_trip_counts,
    by_name,
)

pytestmark = pytest.mark.sample(2)


@tw.kernel
def row_times_matrix(x: tw.Tensor["K"], b: tw.Tensor["K", "N"], y: tw.Tensor["N"]):
    """A product of one row, which matrix instructions don't have."""
    n = tw.grid(y, 64)
    acc = tw.zeros((1, n), tw.f32)
    for k in tw.stream(b.shape[0], 64):
        acc += tw.dot(x[k][None, :], b[k, n])
    y[n] = acc.sum(0)


@tw.kernel
def matrix_times_column(a: tw.Tensor["M", "K"], x: tw.Tensor["K", 1], y: tw.Tensor["M", 1]):
    m = tw.grid(a.shape[0], 64)
    acc = tw.zeros((m, 1), tw.i32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], x[k, :])
    y[m, :] = acc.to(tw.f32)


@tw.kernel
def nibbles(
    a: tw.Tensor["M", "K", 2], w: tw.Tensor["N", "K"], s: tw.Tensor["N", "G"], c: tw.Tensor["M", "N"], *, per: int = 32
):
    """Two 4-bit weights in a byte, scaled by groups: a product in a stream whose bounds the stream around it gives."""
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for g in tw.stream(s.shape[1], None):
        part = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], per, start=g * per, until=(g + 1) * per):
            both = w[n, k].to(tw.i32)
            low, high = (both & 15) - 8, ((both >> 4) & 15) - 8
            part += tw.dot(a[m, k, 0], low.to(a.dtype).T)
            part += tw.dot(a[m, k, 1], high.to(a.dtype).T)
        acc += part * s[n, g][None, :]
    c[m, n] = acc


@tw.kernel
def column_norms(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], s: tw.Tensor["N"]):
    """Sums over the rows of 48 columns: warps have partial results of 192 cells, threads are 128."""
    m, n = tw.grid(c, (64, 48))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[k, n])
    c[m, n] = acc
    tw.reduce_add(s, n, (acc * acc).sum(0))


@tw.kernel
def wide_residual(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], bias: tw.Tensor["N"], x: tw.Tensor["M", "N"], c: tw.Tensor["M", "N"]
):
    """104 registers of a sum and as many of a tile added to it: stored in parts, the last of which is smaller."""
    m, n = tw.grid(c, (64, 208))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc * bias[n][None, :] + x[m, n].to(tw.f32)


@tw.kernel
def gated_rows(
    q: tw.Tensor["S", "E"], k: tw.Tensor["T", "E"], gate: tw.Tensor["S", "E"], o: tw.Tensor["S", "E"], *, upto: int = 96
):
    """A tile is loaded for the store alone, whose 48 registers are stored at once."""
    s, e = tw.grid(q.shape[0], 64), tw.axis(q.shape[1], upto=upto)
    rows = q[s, e]
    acc = tw.zeros((s, e), tw.f32)
    for t in tw.stream(k.shape[0], 64):
        keys = k[t, e]
        acc += tw.dot(tw.sigmoid(tw.dot(rows, keys.T)).to(q.dtype), keys)
    o[s, e] = acc * tw.sigmoid(gate[s, e].to(tw.f32))


@tw.kernel
def attention_gradients(
    q: tw.Tensor["S", 64],
    k: tw.Tensor["T", 64],
    v: tw.Tensor["T", 64],
    g: tw.Tensor["S", 64],
    lse: tw.Tensor["S"],
    delta: tw.Tensor["S"],
    dk: tw.Tensor["T", 64],
    dv: tw.Tensor["T", 64],
):
    """Scores turned over are left operands: what were columns of one product become rows of the next."""
    t = tw.grid(k.shape[0], 64)
    keys, values = k[t], v[t]
    to_k, to_v = tw.zeros((t, 64), tw.f32), tw.zeros((t, 64), tw.f32)
    for s in tw.stream(q.shape[0], 64):
        rows, back = q[s], g[s]
        p = tw.exp(tw.dot(rows, keys.T) - lse[s][:, None])
        to_v += tw.dot(p.to(q.dtype).T, back)
        ds = p * (tw.dot(back, values.T) - delta[s][:, None])
        to_k += tw.dot(ds.to(q.dtype).T, rows)
    dk[t], dv[t] = to_k, to_v


@tw.kernel
def retention(
    q: tw.Tensor["H", "S", 64],
    k: tw.Tensor["H", "S", 64],
    v: tw.Tensor["H", "S", 64],
    decay: tw.Tensor["H"],
    o: tw.Tensor["H", "S", 64],
):
    """A state that fades: one index tile says how much along the rows and along the columns of a product."""
    h = tw.grid(q.shape[0], None)
    state = tw.zeros((64, 64), tw.f32)
    fade = -tw.abs(decay[h]) / 8
    for s in tw.stream(q.shape[1], 64):
        a, b, c = q[h, s], k[h, s], v[h, s]
        i = (s.index - s.start).to(tw.f32)
        near = tw.where(s.index[:, None] >= s.index[None, :], tw.exp2((i[:, None] - i[None, :]) * fade), 0.0)
        far = tw.dot(a, state.to(q.dtype)) * tw.exp2((i + 1.0) * fade)[:, None]
        o[h, s] = tw.dot((tw.dot(a, b.T) * near).to(q.dtype), c) + far
        late = (b.to(tw.f32) * tw.exp2((63.0 - i) * fade)[:, None]).to(q.dtype)
        state.set(state * tw.exp2(64.0 * fade))
        state += tw.dot(late.T, c)


@tw.kernel
def iterated(a: tw.Tensor["B", 64, 64], v: tw.Tensor["B", 64, 32], o: tw.Tensor["B", 64, 32], *, steps: tw.i32 = 4):
    """As many products as the launch says, the last one's result an operand of the next."""
    b = tw.grid(a.shape[0], None)
    matrix = a[b]
    x = tw.zeros((64, 32), tw.f32)
    x.set(v[b])
    for _ in tw.stream(steps, None):
        y = tw.dot(matrix, x.to(a.dtype))
        x.set(y * tw.rsqrt((y * y).sum(0))[None, :])
    o[b] = x


def _iterated(a: Array, v: Array) -> Arrays:
    for _ in range(4):
        v = a @ v
        v = v / np.sqrt((v * v).sum(1, keepdims=True))
    return {"o": v}


def _gated_rows(q: Array, k: Array, gate: Array) -> Arrays:
    return {"o": 1 / (1 + np.exp(-q @ k.T)) @ k / (1 + np.exp(-gate))}


def _attention_gradients(q: Array, k: Array, v: Array, g: Array, lse: Array, delta: Array) -> Arrays:
    p = np.exp(q @ k.T - lse[:, None])
    return {"dk": (p * (g @ v.T - delta[:, None])).T @ q, "dv": p.T @ g}


def _retention(q: Array, k: Array, v: Array, decay: Array) -> Arrays:
    i, j = np.indices((q.shape[1], q.shape[1]))
    fading = np.where(i >= j, np.exp2(-(i - j) * abs(decay)[:, None, None] / 8), 0)
    return {"o": (q @ k.transpose(0, 2, 1) * fading) @ v}


def _nibbles(a: Array, w: Array, s: Array) -> Arrays:
    whole = np.stack([(w & 15) - 8, ((w >> 4) & 15) - 8], -1)
    scales = np.repeat(s, 32, 1)[:, : w.shape[1], None]
    return {"c": np.einsum("mkj,nkj->mn", a, whole * scales)}


CASES = by_name(
    Case(
        row_times_matrix,
        {"x": "K", "b": "KN"},
        lambda x, b: {"y": x @ b},
        ({"K": 64, "N": 128}, {"K": 129, "N": 67}, {"K": 1, "N": 1}),
    ),
    Case(
        matrix_times_column,
        {"a": "MK", "x": "K1"},
        lambda a, x: {"y": a.astype(np.int64) @ x},
        ({"M": 64, "K": 64}, {"M": 67, "K": 129}, {"M": 1, "K": 1}),
        {"a": I8, "x": I8, "y": F32},
        tolerance=0,
    ),
    Case(
        nibbles,
        {"a": "MK2", "w": "NK", "s": "NG"},
        _nibbles,
        ({"M": 64, "N": 64, "K": 64, "G": 2}, {"M": 67, "N": 33, "K": 70, "G": 3}),
        {"w": I8, "s": F32},
    ),
    Case(
        column_norms,
        {"a": "MK", "b": "KN", "s": "N"},
        lambda a, b, s: {"c": a @ b, "s": s + ((a @ b) ** 2).sum(0)},
        ({"M": 64, "N": 48, "K": 64}, {"M": 67, "N": 50, "K": 70}),
        {"s": F32},
    ),
    Case(
        wide_residual,
        {"a": "MK", "b": "NK", "bias": "N", "x": "MN"},
        lambda a, b, bias, x: {"c": a @ b.T * bias + x},
        ({"M": 64, "N": 208, "K": 64}, {"M": 67, "N": 215, "K": 70}),
        {"bias": F32, "c": F32},
    ),
    Case(
        gated_rows,
        {"q": "SE", "k": "TE", "gate": "SE"},
        _gated_rows,
        ({"S": 64, "T": 128, "E": 96}, {"S": 67, "T": 70, "E": 90}),
    ),
    Case(
        attention_gradients,
        {"q": "Sd", "k": "Td", "v": "Td", "g": "Sd", "lse": "S", "delta": "S"},
        _attention_gradients,
        ({"S": 64, "T": 128}, {"S": 67, "T": 70}),
        {"lse": F32, "delta": F32},
    ),
    Case(
        retention,
        {"q": "HSd", "k": "HSd", "v": "HSd", "decay": "H"},
        _retention,
        ({"H": 2, "S": 128}, {"H": 1, "S": 70}),
        {"decay": F32},
        tolerance=6e-3,
    ),
    Case(iterated, {"a": "Bdd", "v": "Bdr"}, _iterated, ({"B": 1}, {"B": 2}), {"o": F32}, 6e-3, {"steps": 4}),
)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy(name: str) -> None:
    assert_agrees(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_is_proved_for_all_trip_counts_at_once(name: str) -> None:
    assert_proved_for_all_trip_counts(CASES[name])


@pytest.mark.parametrize("name", ["attention_gradients", "retention"])
def test_tensor_cores_multiply(name: str) -> None:
    plan = CASES[name].kernel.explain(dtypes=CASES[name].argument_dtypes)
    taken = [line for line in plan.splitlines() if "given up" not in line]
    assert not any("ordinary arithmetic" in line for line in taken)


def test_a_stream_of_single_steps_is_one_loop() -> None:
    """A second one for its edge would have no steps: the assembler drops it, and synchronisation would differ."""
    (kernel,) = CASES["iterated"].kernel.compile(dtypes=CASES["iterated"].argument_dtypes).kernels
    assert kernel.source.count("for (int k0 ") == 1


def test_a_wide_residual_is_not_spilled() -> None:
    (kernel,) = CASES["wide_residual"].kernel.compile(dtypes=CASES["wide_residual"].argument_dtypes).kernels
    assert kernel.spill_bytes == 0
