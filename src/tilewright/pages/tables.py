"""Block tables and lengths as kernels take them: vLLM's rows, FlashInfer's compressed rows, slots of new tokens.

Arrays are int32 of NumPy; copying them to the device is the caller's. What a kernel that writes relies on, that no
element is written twice, is the *discharge* that a table carries: tables of our pool hold by construction, those of
others are checked here or in the kernel's prologue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.diag import fail, shown

Int32s = NDArray[np.int32]


class Discharge(Enum):
    """Why no element is written twice through a table or slots."""

    BY_CONSTRUCTION = "by construction"
    CHECKED = "checked on the host"
    OPEN = "to be checked on the device"


@dataclass(frozen=True, eq=False)
class BlockTable:
    """``block_table`` [B, max_pages] and ``seq_lens`` [B], vLLM's layout: row b has ceil(seq_lens[b] / page_tokens)
    entries; those behind may be anything, those before a sliding ``window`` too. ``pages``: of the cache."""

    block_table: Int32s
    seq_lens: Int32s
    page_tokens: int
    pages: int
    unique: Discharge
    window: int | None = None

    @staticmethod
    def foreign(
        block_table: ArrayLike, seq_lens: ArrayLike, *, page_tokens: int, pages: int, window: int | None = None
    ) -> BlockTable:
        """A table that others made, taken as it is; PAG024 where a kernel would read outside. Its discharge is open."""
        table, lengths = _int32(block_table, "block_table", 2), _int32(seq_lens, "seq_lens", 1)
        if len(table) != len(lengths):
            _malformed(f"block_table of {len(table)} rows, {len(lengths)} lengths", "a length for each row")
        made = BlockTable(table, lengths, page_tokens, pages, Discharge.OPEN, window)
        _check_lengths(lengths, table.shape[1] * page_tokens)
        used = made.used()
        outside = used & ((table < 0) | (table >= pages))
        if outside.any():
            row, column = (int(i[0]) for i in np.nonzero(outside))
            _malformed(f"entry [{row}, {column}] is {table[row, column]}", f"a page number below {pages}")
        return made

    def used(self) -> NDArray[np.bool_]:
        """The mask of entries that are read: [B, max_pages]."""
        column: Int32s = np.arange(self.block_table.shape[1], dtype=np.int32)[None, :]
        read: NDArray[np.bool_] = column < _page_counts(self.seq_lens, self.page_tokens)[:, None]
        if self.window is not None:
            first = np.maximum(self.seq_lens.astype(np.int64) - self.window, 0) // self.page_tokens
            read &= column >= first[:, None]
        return read

    def checked(self) -> BlockTable:
        """The same, known to be good for appends: the page of each sequence's last token is no other sequence's."""
        if self.unique is not Discharge.OPEN:
            return self
        rows = np.flatnonzero(self.seq_lens > 0)
        written = self.block_table[rows, (self.seq_lens[rows] - 1) // self.page_tokens]
        named, counts = np.unique(self.block_table[self.used()], return_counts=True)
        shared = written[np.isin(written, named[counts > 1])]
        if len(shared):
            _malformed(
                f"page {shared[0]}, the last one of a sequence, is named {counts[named == shared[0]][0]} times",
                "a last page that no other entry names",
            )
        return replace(self, unique=Discharge.CHECKED)

    def indices(self) -> PageIndices:
        """FlashInfer's layout; PAG024 for a sequence of length 0, which has no last page there."""
        if len(self.seq_lens) and int(self.seq_lens.min()) < 1:
            _malformed(f"sequence {int(self.seq_lens.argmin())} of length 0", "lengths of at least 1 in this layout")
        if self.window is not None and not self._whole():
            _malformed("pages before the window, which are gone", "tables whose every page is there, in this layout")
        indptr = np.zeros(len(self.seq_lens) + 1, np.int32)
        np.cumsum(_page_counts(self.seq_lens, self.page_tokens), out=indptr[1:])
        last = (self.seq_lens - 1) % self.page_tokens + 1
        flat = self.block_table[replace(self, window=None).used()]
        return PageIndices(indptr, flat, last.astype(np.int32), self.page_tokens, self.pages, self.unique)

    def _whole(self) -> bool:
        used = self.block_table[replace(self, window=None).used()]
        return not len(used) or int(used.min()) >= 0


@dataclass(frozen=True, eq=False)
class PageIndices:
    """FlashInfer's layout: ``kv_indptr`` [B + 1] in pages, ``kv_indices``, ``kv_last_page_len`` [B] from 1."""

    kv_indptr: Int32s
    kv_indices: Int32s
    kv_last_page_len: Int32s
    page_tokens: int
    pages: int
    unique: Discharge

    @staticmethod
    def foreign(
        kv_indptr: ArrayLike, kv_indices: ArrayLike, kv_last_page_len: ArrayLike, *, page_tokens: int, pages: int
    ) -> PageIndices:
        """Indices that others made; PAG024 where a kernel would read outside. Their discharge is open."""
        indptr, indices = _int32(kv_indptr, "kv_indptr", 1), _int32(kv_indices, "kv_indices", 1)
        last = _int32(kv_last_page_len, "kv_last_page_len", 1)
        if len(indptr) != len(last) + 1 or indptr[0] != 0 or (np.diff(indptr) < 1).any() or indptr[-1] > len(indices):
            _malformed(f"kv_indptr {shown(indptr.tolist())}", "0, then ascending ends of each sequence's pages")
        if len(last) and (int(last.min()) < 1 or int(last.max()) > page_tokens):
            _malformed(f"kv_last_page_len {shown(last.tolist())}", f"1 to {page_tokens} tokens")
        used = indices[: indptr[-1]]
        if len(used) and (int(used.min()) < 0 or int(used.max()) >= pages):
            _malformed(f"page {int(used.max()) if int(used.max()) >= pages else int(used.min())}", f"0 to {pages - 1}")
        return PageIndices(indptr, indices, last, page_tokens, pages, Discharge.OPEN)

    def table(self, *, pad: int = -1, width: int | None = None) -> BlockTable:
        """vLLM's layout."""
        counts = np.diff(self.kv_indptr)
        rows = [self.kv_indices[a:b] for a, b in zip(self.kv_indptr[:-1], self.kv_indptr[1:], strict=True)]
        lengths = (counts - 1) * self.page_tokens + self.kv_last_page_len
        return BlockTable(padded(rows, pad, width), lengths.astype(np.int32), self.page_tokens, self.pages, self.unique)


@dataclass(frozen=True, eq=False)
class SlotMapping:
    """``slots`` [T]: page * page_tokens + offset of each new token, -1: not written. ``limit``: tokens of the cache."""

    slots: Int32s
    limit: int
    unique: Discharge

    @staticmethod
    def foreign(slots: ArrayLike, *, limit: int) -> SlotMapping:
        """Slots that others made, taken as they are: the append's prologue checks them, or ``checked``."""
        return SlotMapping(_int32(slots, "slot_mapping", 1), limit, Discharge.OPEN)

    def checked(self) -> SlotMapping:
        """The same, known to be inside and distinct; PAG024 where they are not."""
        if self.unique is not Discharge.OPEN:
            return self
        written = np.sort(self.slots[self.slots != -1])
        if len(written) and (written[0] < 0 or written[-1] >= self.limit):
            _malformed(f"slot {written[0] if written[0] < 0 else written[-1]}", f"-1, or 0 to {self.limit - 1}")
        twice = written[1:][written[1:] == written[:-1]]
        if len(twice):
            _malformed(f"slot {twice[0]} twice", "each slot once")
        return replace(self, unique=Discharge.CHECKED)


def padded(rows: Sequence[Int32s], pad: int, width: int | None) -> Int32s:
    """Rows of pages side by side, ``pad`` behind them; PAG024 where one is longer than ``width``."""
    longest = max((len(r) for r in rows), default=0)
    if width is not None and longest > width:
        _malformed(f"a sequence of {longest} pages", f"rows of {width}")
    table = np.full((len(rows), longest if width is None else width), pad, np.int32)
    for b, row in enumerate(rows):
        table[b, : len(row)] = row
    return table


def _page_counts(lengths: NDArray[Any], page_tokens: int) -> NDArray[np.int64]:
    return -(-lengths.astype(np.int64) // page_tokens)


def _int32(values: ArrayLike, name: str, rank: int) -> Int32s:
    array = np.asarray(values)
    if array.ndim != rank or array.dtype.kind not in "iu":
        _malformed(f"{name} of rank {array.ndim} and dtype {array.dtype}", f"rank {rank} of int32")
    if array.dtype != np.int32 and array.size and (int(array.min()) < -(2**31) or int(array.max()) >= 2**31):
        _malformed(f"{name} with {int(array.max())}", "integers of int32")
    return array.astype(np.int32, copy=False)


def _check_lengths(lengths: Int32s, most: int) -> None:
    wrong = (lengths < 0) | (lengths > most)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        _malformed(f"length {lengths[at]} of sequence {at}", f"0 to {most} tokens, what a row of the table names")


def _malformed(found: str, required: str) -> NoReturn:
    fail("PAG024", found=found, required=required)
