"""Examples at computed and loaded coordinates agree with NumPy in the simulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.example_cases import load

pytestmark = pytest.mark.sample(1)

indexing = load("indexing")
BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_embedding_and_its_gradient(dtype: type) -> None:
    index = RNG.integers(-1, 51, 40).astype(np.int64)
    table, y = drawn(50, 72, dtype=dtype), np.full((40, 72), 7, dtype)
    indexing.embedding(index, table, y)
    inside = (index >= 0) & (index < 50)
    assert np.array_equal(y, np.where(inside[:, None], table[np.where(inside, index, 0)], dtype(0)))
    sums, expected = np.zeros((50, 72), np.float32), np.zeros((50, 72))
    indexing.index_add(index, y.astype(np.float32), sums)
    np.add.at(expected, index[inside], y[inside].astype(np.float64))
    np.testing.assert_allclose(sums, expected, 1e-5, 1e-5)


def test_causal_conv1d() -> None:
    x, w, y = drawn(33, 40), drawn(4, 40), np.full((33, 40), 7, np.float32)
    indexing.causal_conv1d(x, w, y)
    padded = np.r_[np.zeros((3, 40)), x]
    np.testing.assert_allclose(y, sum(padded[3 - j : 36 - j] * w[j] for j in range(4)), 1e-5, 1e-5)


def test_rotate_halves() -> None:
    x, angles, y = drawn(9, 2, 128), drawn(9, 64), np.full((9, 2, 128), 7, np.float32)
    indexing.rotate_halves(x, np.cos(angles), np.sin(angles), y)
    turned = (x[..., :64] + 1j * x[..., 64:]) * np.exp(1j * angles)[:, None]
    np.testing.assert_allclose(y, np.concatenate([turned.real, turned.imag], -1), 1e-5, 1e-5)


def test_label_loss() -> None:
    logits, label, loss = drawn(12, 300), RNG.integers(0, 300, 12), np.full(12, 7, np.float32)
    label[3] = -100
    indexing.label_loss(logits, label, loss)
    wide = logits.astype(np.float64)
    expected = np.log(np.exp(wide).sum(1)) - wide[np.arange(12), np.maximum(label, 0)]
    np.testing.assert_allclose(loss, np.where(label < 0, 0, expected), 1e-5, 1e-5)


def test_append_to_pages() -> None:
    slots = RNG.permutation(192)[:10].astype(np.int64)
    slots[[2, 5]] = -1
    k, pool = drawn(10, 2, 128), np.full((3, 64, 2, 128), 7, np.float32)
    expected = pool.reshape(192, 2, 128).copy()
    expected[slots[slots >= 0]] = k[slots >= 0]
    indexing.append_to_pages(slots, k, pool)
    assert np.array_equal(pool.reshape(192, 2, 128), expected)


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_grouped_rmsnorm(dtype: type) -> None:
    offsets, x, w = np.array([0, 3, 3, 11], np.int32), drawn(13, 200, dtype=dtype), drawn(3, 200, dtype=dtype)
    y = np.full((13, 200), 7, dtype)
    indexing.grouped_rmsnorm(offsets, x, w, y)
    wide, group = x.astype(np.float64), np.repeat([0, 2], [3, 8])
    norm = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6)
    expected = np.r_[norm[:11] * w[group].astype(np.float64), np.zeros((2, 200))]
    within = 1e-5 if dtype is np.float32 else 2e-2
    np.testing.assert_allclose(y.astype(np.float64), expected, within, within)
