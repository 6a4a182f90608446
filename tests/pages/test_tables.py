"""Block tables, page indices and slots: what our sequences make, and what is accepted of others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import pages
from tilewright.diag import TilewrightError
from tilewright.pages import BlockTable, Discharge, PageIndices, SlotMapping


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(TilewrightError) as caught:
        call()
    assert caught.value.code == "PAG024"
    return str(caught.value)


def foreign(table: object, lengths: object, **options: int) -> BlockTable:
    return BlockTable.foreign(np.array(table), np.array(lengths), page_tokens=16, pages=8, **options)


def test_junk_behind_a_length_is_accepted() -> None:
    table = foreign([[3, -7, 99], [1, 2, 2**31 - 1]], [16, 32])
    assert table.unique is Discharge.OPEN
    assert table.used().sum() == 3
    assert table.checked().unique is Discharge.CHECKED


@pytest.mark.parametrize(
    ("table", "lengths", "found"),
    [
        ([[3, 8]], [17], "entry [0, 1] is 8"),
        ([[3, -1]], [17], "entry [0, 1] is -1"),
        ([[3, 7]], [33], "length 33"),
        ([[3, 7]], [-1], "length -1"),
        ([[3, 7]], [1, 1], "1 rows, 2 lengths"),
        ([3, 7], [1, 1], "rank 1"),
        ([[3.0]], [1], "dtype float64"),
        ([[2**40]], [1], "integers of int32"),
    ],
)
def test_tables_that_read_outside_are_refused(table: object, lengths: object, found: str) -> None:
    assert found in refused(lambda: foreign(table, lengths))


def test_tables_just_inside() -> None:
    assert foreign([[3, 7]], [32]).used().all()
    assert not foreign([[8, 8]], [0]).used().any()


def test_a_page_that_two_sequences_write_is_refused() -> None:
    assert foreign([[3, 1], [3, 2]], [17, 17]).checked().unique is Discharge.CHECKED  # shared and full
    assert "page 2" in refused(lambda: foreign([[3, 2], [1, 2]], [17, 17]).checked())
    assert "page 3" in refused(lambda: foreign([[3, 2], [1, 3]], [17, 17]).checked())


def test_before_a_window_nothing_is_read() -> None:
    table = foreign([[-1, -1, 3, 4]], [50], window=10)
    assert table.used().tolist() == [[False, False, True, True]]
    refused(lambda: foreign([[-1, -1, 3, 4]], [50], window=19))
    assert "before the window" in refused(table.indices)


@pytest.mark.parametrize(
    ("indptr", "indices", "last"),
    [
        ([0, 2], [1, 8], [1]),
        ([0, 2], [1, -1], [1]),
        ([0, 2], [1, 2], [17]),
        ([0, 2], [1, 2], [0]),
        ([0, 3], [1, 2], [1]),
        ([1, 2], [1, 2], [1]),
        ([0, 0], [], [1]),
        ([0, 1], [1], [1, 1]),
    ],
)
def test_page_indices_that_read_outside_are_refused(indptr: list[int], indices: list[int], last: list[int]) -> None:
    arrays = [np.array(a, np.int32) for a in (indptr, indices, last)]
    refused(lambda: PageIndices.foreign(*arrays, page_tokens=16, pages=8))


def test_a_sequence_without_tokens_has_no_last_page() -> None:
    refused(foreign([[1], [2]], [0, 1]).indices)


@given(st.lists(st.integers(1, 70), min_size=1, max_size=6), st.sampled_from([-1, 0]))
def test_layouts_convert_there_and_back(lengths: list[int], pad: int) -> None:
    pool = pages.PagePool(64)
    sequences = [pages.PageSequence(pool) for _ in lengths]
    pages.append(sequences, lengths)
    table = pages.block_table(sequences, pad=pad)
    indices = table.indices()
    assert PageIndices.foreign(
        indices.kv_indptr, indices.kv_indices, indices.kv_last_page_len, page_tokens=16, pages=64
    ).kv_indptr[-1] == len(indices.kv_indices)
    again = indices.table(pad=pad)
    assert (again.block_table == table.block_table).all()
    assert (again.seq_lens == lengths).all()
    assert {a.dtype for a in (table.block_table, table.seq_lens, indices.kv_indptr, indices.kv_indices)} == {
        np.dtype(np.int32)
    }
    assert table.unique is again.unique is Discharge.BY_CONSTRUCTION


def test_slots() -> None:
    assert SlotMapping.foreign([5, -1, 7, -1], limit=8).checked().unique is Discharge.CHECKED
    for slots in ([5, 5], [8], [-2]):
        refused(lambda slots=slots: SlotMapping.foreign(slots, limit=8).checked())


def test_rows_wider_than_asked_are_refused() -> None:
    pool = pages.PagePool(8)
    sequence = pages.PageSequence(pool)
    sequence.append(33)
    assert pages.block_table([sequence], width=5).block_table.shape == (1, 5)
    refused(lambda: pages.block_table([sequence], width=2))
