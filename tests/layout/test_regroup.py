"""Register layouts of tiles whose axes are split and merged: each register holds the element it held."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.layout.register import RegisterLayout
from tilewright.layout.regroup import regrouped

CASES = [
    ((4, 64), [((0,), (0,)), ((1,), (1, 2))], (4, 8, 8)),
    ((4, 64), [((0,), (0,)), ((1,), (1, 2, 3))], (4, 4, 4, 4)),
    ((4, 8, 8), [((0,), (0,)), ((1, 2), (1,))], (4, 64)),
    ((8, 64), [((0, 1), (0, 1))], (32, 16)),
    ((96, 4), [((0, 1), (0,))], (384,)),
    ((3, 128), [((0, 1), (0, 1))], (12, 32)),
]


@pytest.mark.parametrize(("before", "groups", "after"), CASES)
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_registers_keep_their_elements(before, groups, after, vector: int) -> None:
    rank = len(before)
    last = lambda n: [1] * (rank - 1) + [n]  # noqa: E731
    lanes = [1] * (rank - 2) + [2, 16] if rank > 1 else [32]
    layout = RegisterLayout.blocked(
        before, vector=last(vector), lanes=lanes, warps=last(2), order=list(reversed(range(rank)))
    )
    assert layout.shape[1:] == before[1:]
    found = regrouped(layout, before, groups, after)
    assert found is not None
    assert found.registers == layout.registers
    for thread in range(layout.threads):
        for register in range(layout.registers):
            place = np.ravel_multi_index(layout.coordinate(thread, register), layout.shape)
            assert np.ravel_multi_index(found.coordinate(thread, register), found.shape) == place


def test_a_layout_that_covers_more_of_a_merged_axis_has_none() -> None:
    layout = RegisterLayout.blocked((4, 16), vector=(1, 1), lanes=(1, 32), warps=(1, 2), order=(1, 0))
    padded = RegisterLayout.blocked((4, 48), vector=(1, 1), lanes=(1, 32), warps=(1, 1), order=(1, 0))
    assert regrouped(layout, (4, 16), [((0, 1), (0,))], (64,)) is not None
    assert padded.shape == (4, 64)
    assert regrouped(padded, (4, 48), [((0, 1), (0,))], (192,)) is None
