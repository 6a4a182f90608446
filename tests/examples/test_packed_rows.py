"""``examples/packed_rows.py`` agrees with NumPy in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from support.example_cases import load

packed_rows = load("packed_rows")


@pytest.mark.parametrize("items", [1, 300])
def test_embedding_bags(items: int) -> None:
    rng = np.random.default_rng(items)
    table, weight = rng.standard_normal((50, 136)).astype(np.float32), rng.standard_normal(items).astype(np.float32)
    row, bag = (rng.integers(-1, n, items).astype(np.int32) for n in (50, 9))
    row = np.maximum(row, 0)
    out, exact = np.zeros((9, 136), np.float32), np.zeros((9, 136))
    packed_rows.embedding_bags(table, row, weight, bag, out)
    held = bag >= 0
    np.add.at(exact, bag[held], (table[row] * weight[:, None].astype(np.float64))[held])
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-4)


def test_rows_that_come_often_are_updated_by_all() -> None:
    rng = np.random.default_rng(0)
    table, gradient = (rng.standard_normal((n, 24)).astype(np.float32) for n in (40, 200))
    index = np.minimum(rng.integers(0, 60, 200), 45).astype(np.int64)  # those from 40 on are no rows
    index[index == 7] = -1
    before, scale, own = table.copy(), np.full(200, -0.5, np.float32), (index >= 0) & (index < 40)
    packed_rows.update_rows(table, index, scale, gradient, np.arange(200, dtype=np.int32))
    exact = before.astype(np.float64)
    np.add.at(exact, index[own], -0.5 * gradient[own].astype(np.float64))
    np.testing.assert_allclose(table, exact, rtol=1e-4, atol=1e-4)
    untouched = np.setdiff1d(np.arange(40), index)
    assert untouched.size
    np.testing.assert_array_equal(table[untouched], before[untouched])


def test_kept_keys_lie_in_pages_of_their_sequence() -> None:
    rng = np.random.default_rng(0)
    cache = rng.standard_normal((90, 16)).astype(np.float32)
    sequence = np.sort(rng.integers(0, 4, 90)).astype(np.int32)
    sequence[sequence == 2] = -1  # all of one are evicted
    sequence[rng.random(90) < 0.5] = -1
    pages, plan = packed_rows.compacted(cache, sequence, 4, 8)
    for own in range(4):
        kept, begin = cache[sequence == own], int(plan.offsets[own])
        assert begin % 8 == 0
        assert plan.kept[own] == len(kept)
        np.testing.assert_array_equal(pages[begin : begin + len(kept)], kept)
        assert (plan.blocks[begin // 8 : -(-(begin + len(kept)) // 8)] == own).all()
