"""Examples that sort agree with NumPy in the simulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.example_cases import load

pytestmark = pytest.mark.sample(1)

topk = load("topk")
BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("experts", [8, 60, 256])
def test_topk(experts: int, dtype: type) -> None:
    x = RNG.standard_normal((9, experts)).astype(dtype)
    values, places = np.full((9, 8), 7, dtype), np.full((9, 8), 7, np.int32)
    topk.topk(x, values, places)
    at = np.argsort(-x.astype(np.float64), 1, kind="stable")[:, :8]
    assert np.array_equal(places, at)
    assert np.array_equal(values, np.take_along_axis(x, at, 1))


def test_route() -> None:
    logits = RNG.standard_normal((10, 64)).astype(BF16)
    weight, expert = np.full((10, 8), 7, np.float32), np.full((10, 8), 7, np.int32)
    topk.route(logits, weight, expert)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    best = -np.sort(-p, 1)[:, :8]
    np.testing.assert_allclose(np.take_along_axis(p, expert, 1), best, 1e-5)
    np.testing.assert_allclose(weight, best / best.sum(1, keepdims=True), 1e-5)
    assert all(len(set(row)) == 8 for row in expert)


def test_sort_rows() -> None:
    x = RNG.integers(-9, 9, (3, 700)).astype(np.float32)
    y, order = np.full_like(x, 7), np.full(x.shape, 7, np.int32)
    topk.sort_rows(x, y, order)
    assert np.array_equal(order, np.argsort(x, 1, kind="stable"))
    assert np.array_equal(y, np.sort(x, 1))


@pytest.mark.parametrize("length", [1, 33, 100])
def test_median(length: int) -> None:
    x, y = RNG.standard_normal((5, length)).astype(np.float32), np.full(5, 7, np.float32)
    topk.median(x, y)
    assert np.array_equal(y, np.sort(x, 1)[:, (length - 1) // 2])
