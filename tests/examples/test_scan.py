"""Examples that scan agree with NumPy in the simulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.example_cases import load

pytestmark = pytest.mark.sample(2)

scan = load("scan")
BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 8192, 16383, 16384, 40000])
def test_running_sums(length: int) -> None:
    x, y = drawn(3, length), np.full((3, length), 7, np.float32)
    scan.running_sums(x, y)
    rounded = 2.0**-24 * np.abs(x).sum(1, keepdims=True)  # one rounding of the greatest sum there could be
    assert (np.abs(y - np.cumsum(x, 1, np.float64)) <= 1e-6 + rounded).all()


def test_running_sums_of_narrow_floats() -> None:
    x, y = np.ones((2, 3000), BF16), np.zeros((2, 3000), BF16)
    scan.running_sums(x, y)
    assert np.array_equal(y, np.broadcast_to(np.arange(1, 3001).astype(np.float32), (2, 3000)).astype(BF16))


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_selective_scan(dtype: type) -> None:
    steps, channels = 70, 12
    x, b, c = drawn(steps, channels, dtype=dtype), drawn(steps, 16, dtype=dtype), drawn(steps, 16, dtype=dtype)
    dt = RNG.uniform(0.01, 0.1, (steps, channels)).astype(dtype)
    a, y = -RNG.uniform(0.5, 1, (channels, 16)).astype(np.float32), np.full((steps, channels), 7, np.float32)
    scan.selective_scan(x, dt, a, b, c, y)
    h = np.zeros((channels, 16))
    for t in range(steps):
        wide = [v[t].astype(np.float64) for v in (x, dt, b, c)]
        h = np.exp(wide[1][:, None] * a) * h + (wide[1] * wide[0])[:, None] * wide[2]
        np.testing.assert_allclose(y[t], h @ wide[3], 2e-2 if dtype is BF16 else 1e-4, 2e-2 if dtype is BF16 else 1e-4)


def test_segment_sums() -> None:
    x, begins, y = drawn(2000), RNG.random(2000) < 0.01, np.full(2000, 7, np.float32)
    scan.segment_sums(x, begins, y)
    first = np.maximum.accumulate(np.where(begins, np.arange(2000), 0))
    total = np.r_[0, np.cumsum(x, dtype=np.float64)]
    np.testing.assert_allclose(y, total[1:] - total[first], 1e-4, 1e-4)


def test_rank_in_bin() -> None:
    bins, rank, counts = RNG.integers(-1, 9, 300), np.full(300, 7, np.int32), np.full(8, 7, np.int32)
    scan.rank_in_bin(bins, rank, counts)
    inside = (bins >= 0) & (bins < 8)
    assert np.array_equal(counts, np.bincount(bins[inside], minlength=8))
    assert np.array_equal(rank, np.where(inside, [(bins[:t] == b).sum() for t, b in enumerate(bins)], 0))


@pytest.mark.parametrize("length", [1, 1500])
def test_pack(length: int) -> None:
    x, y, count = drawn(length), np.zeros(length, np.float32), np.zeros(1, np.int32)
    scan.pack(x, y, count)
    kept = x[x > 0]
    assert count[0] == len(kept)
    assert np.array_equal(y, np.r_[kept, np.zeros(length - len(kept), np.float32)])
