"""Histograms agree with NumPy in the simulator, for keys of one value too."""

from __future__ import annotations

import numpy as np
import pytest

from support.example_cases import load

histogram = load("histogram")
RNG = np.random.default_rng(0)


def counted(keys: np.ndarray, bins: int) -> np.ndarray:
    return np.bincount(keys[(keys >= 0) & (keys < bins)], minlength=bins)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("kind", ["uniform", "one"])
def test_histogram(kind: str, dtype: type) -> None:
    low, high = (-128, 127) if dtype is np.int8 else (-30, 300)
    keys = np.full(20000, 42, dtype) if kind == "one" else RNG.integers(low, high, 20000).astype(dtype)
    counts = np.zeros(256, np.int32)
    histogram.histogram(keys, counts)
    assert np.array_equal(counts, counted(keys, 256))


def test_keys_whose_low_bits_name_a_bin() -> None:
    keys, counts = np.array([1 << 32, (1 << 40) + 3, -(1 << 32) + 3, 3, -1, 256], np.int64), np.zeros(256, np.int32)
    histogram.histogram(keys, counts)
    assert np.array_equal(counts, counted(keys, 256))
    assert counts.sum() == 1


@pytest.mark.parametrize("kind", ["uniform", "one"])
def test_many_bins(kind: str) -> None:
    keys = np.full(9000, 40000, np.int32) if kind == "one" else RNG.integers(-9, 65600, 9000).astype(np.int32)
    counts = np.zeros((2, 32768), np.int32)
    histogram.many_bins(keys, counts, bn=4096)
    assert np.array_equal(counts.ravel(), counted(keys, 65536))


def test_by_row() -> None:
    x, counts = RNG.integers(-1, 17, (3, 2500)).astype(np.int32), np.full((3, 16), 7, np.int32)
    histogram.by_row(x, counts)
    assert np.array_equal(counts, [counted(row, 16) for row in x])
