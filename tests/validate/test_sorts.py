"""Sorts are compared with Tile IR by their networks, which sort; mistakes planted in them are seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support.indexed import SHORT
from support.lowered import lowered
from support.sorts import CASES
from tilewright.schedule.sort import SortLowering
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.compare import compare
from tilewright.validate.tile_to_transport.sorting import Network
from tilewright.validate.undecided import Undecided

pytestmark = pytest.mark.sample(4)

NUMBERS = Network(np.minimum, np.maximum, 1)
"""The networks on numbers of 0 and 1."""


def zeros_and_ones(size: int) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=size)), np.int8)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 16])
def test_the_network_sorts_zeros_and_ones(size: int) -> None:
    keys = zeros_and_ones(size)
    assert np.array_equal(NUMBERS.sorted(keys), np.sort(keys, 1))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 4, 0, 1, 3), (5, 4, 3, 0, 1, 2)])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_network_selects_zeros_and_ones(count: int, order: tuple[int, ...]) -> None:
    keys = zeros_and_ones(13)
    assert np.array_equal(NUMBERS.least(keys, count, order), np.sort(keys, 1)[:, :count])


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 2, 2), (0, 1, 2, 4)])
def test_what_is_no_order_of_the_bits_is_not_taken(order: tuple[int, ...]) -> None:
    with pytest.raises(Undecided):
        NUMBERS.least(zeros_and_ones(8), 2, order)


def kernels(name: str) -> list[tuple[tile.Kernel, t.Kernel]]:
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(0))
    dtypes = {n: SHORT[a.dtype.name] for n, a in arrays.items()}
    return list(lowered(case.kernel, dtypes, keywords=dict(case.keywords)).values())


@pytest.mark.parametrize("name", sorted(CASES))
def test_equal(name: str) -> None:
    for source, kernel in kernels(name):
        assert compare(source, kernel) == ()


def one_lane(patch: pytest.MonkeyPatch) -> None:
    """The elements of another lane."""
    exchanged = SortLowering.exchanged
    patch.setattr(SortLowering, "exchanged", lambda self, keys, bit: exchanged(self, keys, bit ^ 1))


def undirected(patch: pytest.MonkeyPatch) -> None:
    """Every step sorts upwards."""
    compared = SortLowering.compared
    patch.setattr(SortLowering, "compared", lambda self, keys, bit, _: compared(self, keys, bit, None))


def not_merged(patch: pytest.MonkeyPatch) -> None:
    """Bitonic sequences stay what they are."""
    patch.setattr(SortLowering, "merged", lambda _self, keys, _bits: keys)


def not_joined(patch: pytest.MonkeyPatch) -> None:
    """The first run alone."""
    patch.setattr(SortLowering, "joined", lambda _self, keys, _run, _bit: keys)


def unpadded(patch: pytest.MonkeyPatch) -> None:
    """What lies beyond the domain is sorted with the rest."""
    init = SortLowering.__init__

    def zero(self: SortLowering, lowering: Any, op: tile.Sort) -> None:
        init(self, lowering, op)
        self.most = 0

    patch.setattr(SortLowering, "__init__", zero)


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (one_lane, "float32 ascending"),
    (undirected, "float32 ascending"),
    (unpadded, "float32 ascending"),
    (not_merged, "greatest of float32"),
    (not_joined, "greatest of float32"),
]


@pytest.mark.parametrize(("plant", "name"), PLANTED, ids=[p.__name__ for p, _ in PLANTED])
def test_planted_mistakes_are_seen(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(compare(source, kernel) for source, kernel in kernels(name))
