"""Examples with loaded bounds agree with float64 in the simulator, whatever lies beyond the bounds."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilewright as tw
from support.example_cases import load

ragged, grouped = load("ragged"), load("grouped_matmul")
BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(4)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(BF16)


def test_attention_over_lengths() -> None:
    lengths = np.array([0, 1, 130, 77, -4, 2**31 - 1], np.int32)
    q, k, v, o = drawn(6, 48, 128), drawn(6, 130, 128), drawn(6, 130, 128), np.full((6, 48, 128), 7, BF16)
    used = np.clip(lengths, 0, 130)
    for b, length in enumerate(used):
        k[b, length:], v[b, length:] = np.nan, np.nan
    ragged.attention_over_lengths(lengths, q, k, v, o, scale=0.1)
    for b, length in enumerate(used):
        x = q[b].astype(np.float64) @ k[b, :length].astype(np.float64).T * 0.1
        p = np.exp(x - x.max(1, initial=-1e9, keepdims=True))
        exact = p / np.maximum(p.sum(1, keepdims=True), 1e-30) @ v[b, :length].astype(np.float64)
        assert np.abs(o[b].astype(np.float64) - exact).max() < 0.03


def test_grouped_weight_gradient() -> None:
    offsets = np.array([0, 0, 50, 51, 200], np.int32)
    x, y, w = drawn(200, 72), drawn(200, 40), np.full((4, 72, 40), 7, np.float32)
    ragged.grouped_weight_gradient(offsets, x, y, w)
    for g in range(4):
        rows = slice(offsets[g], offsets[g + 1])
        exact = x[rows].astype(np.float64).T @ y[rows].astype(np.float64)
        np.testing.assert_allclose(w[g], exact, atol=1e-3)


def test_they_are_copied_asynchronously() -> None:
    """By tensor copies and by cp.async, not staged by the threads that multiply."""
    types = {"lengths": tw.i32, **dict.fromkeys("qkvo", tw.bf16)}
    plan = "\n".join(ragged.attention_over_lengths.compile(dtypes=types).plan)
    assert "load of v [1 x 128 x 128] legal for tensor copies; by tensor copies" in plan
    types = {"offsets": tw.i32, "x": tw.bf16, "y": tw.bf16}
    plan = "\n".join(ragged.grouped_weight_gradient.compile(dtypes=types).plan)
    assert "by cp.async, 16 bytes at a time" in plan


def test_grouped_matmul() -> None:
    offsets = np.array([0, 0, 150, 151, 300], np.int32)
    a, b, c = drawn(310, 72), drawn(4, 264, 72), np.full((310, 264), 7, np.float16)
    a, b = a.astype(np.float16), b.astype(np.float16)
    grouped.grouped_matmul(offsets, a, b, c)
    for g in range(4):
        rows = slice(offsets[g], offsets[g + 1])
        exact = a[rows].astype(np.float64) @ b[g].astype(np.float64).T
        np.testing.assert_allclose(c[rows].astype(np.float64), exact, atol=0.05)
    assert (c[300:] == 0).all()


def test_operands_of_groups_are_brought_by_tensor_copies() -> None:
    plan = grouped.grouped_matmul.compile(dtypes={"offsets": tw.i32, "a": tw.bf16, "b": tw.bf16, "c": tw.bf16}).plan
    assert sum("legal for tensor copies; by tensor copies" in line for line in plan if "load of" in line) >= 2
    assert any("2 consumer warpgroups" in line and "given up" not in line for line in plan)
