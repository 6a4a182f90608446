"""Examples with loaded bounds agree with float64 in the simulator, whatever lies beyond the bounds."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.example_cases import load
from support.ptx_driver import run_artifact

pytestmark = pytest.mark.sample(1)

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
    """By tensor copies, those of groups clipped at their end, not staged by the threads that multiply."""
    types = {"lengths": tw.i32, **dict.fromkeys("qkvo", tw.bf16)}
    plan = ragged.attention_over_lengths.explain(dtypes=types)
    assert "load of v [1 x 128 x 128] legal for tensor copies; by tensor copies" in plan
    types = {"offsets": tw.i32, "x": tw.bf16, "y": tw.bf16}
    plan = ragged.grouped_weight_gradient.explain(dtypes=types)
    assert (
        "load of x [64 x 64] legal for tensor copies; by tensor copies that the hardware clips at min(T, $b1)" in plan
    )


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


@pytest.mark.slow
def test_operands_of_groups_are_brought_by_tensor_copies() -> None:
    types = {"offsets": tw.i32, "a": tw.bf16, "b": tw.bf16, "c": tw.bf16}
    plan = grouped.grouped_matmul.explain(dtypes=types).splitlines()
    assert sum("legal for tensor copies; by tensor copies" in line for line in plan if "load of" in line) >= 2
    assert any("2 consumer warpgroups" in line and "given up" not in line for line in plan)


E4M3 = ml_dtypes.float8_e4m3fn
OFFSETS = np.array([0, 5, 5, 140, 150, 290], np.int32)


def scaled(kernel: str) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Operands of a product of groups of 8 bits with their scales, and the product in float64."""
    a, b = RNG.standard_normal((300, 400)).astype(E4M3), RNG.standard_normal((5, 200, 400)).astype(E4M3)
    shapes = ((300,), (5, 200)) if kernel == "scaled_rows" else ((300, 4), (5, 2, 4))
    of_a, of_b = (RNG.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes)
    if kernel == "scaled_rows":
        wide_a, wide_b = of_a[:, None], of_b[..., None]
    else:
        wide_a = of_a.repeat(128, 1)[:, :400]
        wide_b = of_b.repeat(128, 1).repeat(128, 2)[:, :200, :400]
    exact = np.zeros((300, 200))
    for g, (low, high) in enumerate(pairwise(OFFSETS)):
        exact[low:high] = (a.astype(float) * wide_a)[low:high] @ (b.astype(float) * wide_b)[g].T
    return (OFFSETS, a, of_a, b, of_b, np.full((300, 200), 7, BF16)), exact


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["scaled_rows", "scaled_blocks"])
def test_groups_of_8_bits_with_scales(kernel: str) -> None:
    arrays, exact = scaled(kernel)
    getattr(grouped, kernel)(*arrays)
    assert np.abs(arrays[-1].astype(float) - exact).max() < 0.005 * np.abs(exact).max()
    names = ("offsets", "a", "a_scale", "b", "b_scale", "c")
    types = dict(zip(names, ("i32", "e4m3", "f32", "e4m3", "f32", "bf16"), strict=True))
    artifact = getattr(grouped, kernel).compile(dtypes=types)
    executed, _ = scaled(kernel)
    executed = (*arrays[:-1], executed[-1])
    driver = run_artifact(artifact, dict(zip(names, executed, strict=True)))
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_array_equal(executed[-1], arrays[-1])
    assert any("2 consumer warpgroups, tensor copies" in line for line in artifact.plan)
