"""Shared bytes, against enumeration of every byte."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.runtime.overlap import footprint, overlap, overlaps_itself

layouts = st.integers(0, 3).flatmap(
    lambda rank: st.tuples(
        st.lists(st.integers(0, 4), min_size=rank, max_size=rank),
        st.lists(st.integers(-9, 9), min_size=rank, max_size=rank),
        st.sampled_from([1, 2, 4]),
    )
)


def elements(shape: list[int], strides: list[int], item: int, base: int) -> list[set[int]]:
    """Bytes of every element."""
    return [
        {base + item * sum(i * s for i, s in zip(index, strides, strict=True)) + b for b in range(item)}
        for index in itertools.product(*map(range, shape))
    ]


@given(layouts)
def test_self_overlap(layout: tuple[list[int], list[int], int]) -> None:
    every = elements(*layout, 0)
    touched = sum(map(len, every))
    assert overlaps_itself(footprint(*layout)) == (len(set().union(*every)) != touched)


@given(layouts, layouts, st.integers(-40, 40))
def test_overlap_of_two(a: tuple[list[int], list[int], int], b: tuple[list[int], list[int], int], delta: int) -> None:
    ours, theirs = set().union(*elements(*a, 1000)), set().union(*elements(*b, 1000 + delta))
    assert overlap(footprint(*a), 1000, footprint(*b), 1000 + delta) == bool(ours & theirs)


@given(layouts)
def test_range_is_tight(layout: tuple[list[int], list[int], int]) -> None:
    f = footprint(*layout)
    touched = set().union(*elements(*layout, 0))
    assert (f.low, f.high) == ((min(touched), max(touched) + 1) if touched else (0, 0))


@pytest.mark.parametrize(("gap", "shared"), [(64, False), (63, True)])
def test_column_slices_of_one_large_buffer(gap: int, shared: bool) -> None:
    left = footprint((65536, 64), (8192, 1), 2)
    assert overlap(left, 0, left, gap * 2) is shared


def test_large_transposes_are_settled_at_once() -> None:
    assert not overlaps_itself(footprint((8192, 4096, 128), (128, 8192 * 128, 1), 2))
    assert overlaps_itself(footprint((8192, 4096, 128), (127, 8192 * 128, 1), 2))


def test_a_search_without_end_counts_as_overlap() -> None:
    strange = footprint((100_000, 100_000, 100_000), (99_991, 99_989, 99_971), 1)
    assert overlaps_itself(strange)
