"""Dropout by counters agrees with the numbers that Philox gives, forwards and backwards."""

from __future__ import annotations

import numpy as np
import pytest

from support.example_cases import load
from support.randoms import uniform

dropout = load("dropout").dropout


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_dropout(rate: float) -> None:
    x, y = np.full((5, 70), 3, np.float32), np.full((5, 70), 7, np.float32)
    dropout(x, y, seed=42, rate=rate)
    kept = np.array([[uniform(42, 70 * i + j) >= rate for j in range(70)] for i in range(5)])
    with np.errstate(all="ignore"):
        scaled = x / np.float32(1 - rate)
    assert np.array_equal(y, np.where(kept, scaled, 0))


def test_the_same_places_again_and_others_with_another_seed() -> None:
    x = np.ones((8, 64), np.float32)
    y, dy, other = (np.empty_like(x) for _ in range(3))
    for result, seed in ((y, 1), (dy, 1), (other, 2)):
        dropout(x, result, seed=seed, rate=0.5)
    assert np.array_equal(y, dy)
    assert 0.3 < (y != other).mean() < 0.7
