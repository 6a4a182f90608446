"""The pages of one sequence: grown by appends, forked with copy on write, cut by a sliding window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from tilewright.diag import fail, shown
from tilewright.pages.handles import PAGE
from tilewright.pages.pool import PagePool, PassingEvent, counted
from tilewright.pages.prefix import token_ids
from tilewright.pages.tables import BlockTable, Discharge, Int32s, SlotMapping, padded

_NO_PAGE = -1


class PageSequence:
    """Tokens in pages of ``pool``: ``length`` of them, in ``handles``. Pages before the window are None there.

    Not safe under threads by itself: a sequence belongs to one thread at a time.
    """

    def __init__(self, pool: PagePool, *, page_tokens: int | None = None) -> None:
        if not isinstance(pool, PagePool):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not checked
            _wrong(f"pages of {shown(pool)}", "a PagePool")
        self.pool = pool
        self.page_tokens = pool.page_tokens if page_tokens is None else page_tokens
        self.length = 0
        self.handles: list[int | None] = []
        self.gone = 0
        self._row = np.full(4, _NO_PAGE, np.int32)
        self._shared_tail = False

    @staticmethod
    def matched(
        pool: PagePool, tokens: ArrayLike, *, extra: bytes = b"", page_tokens: int | None = None
    ) -> PageSequence:
        """A sequence that begins with the cached pages of the longest prefix of ``tokens``."""
        made = PageSequence(pool, page_tokens=page_tokens)
        found = pool.match(tokens, extra=extra, page_tokens=page_tokens)
        made._extend(found.tolist())
        made.length = len(found) * made.page_tokens
        made._shared_tail = len(found) > 0
        return made

    @property
    def row(self) -> Int32s:
        """Its row of a block table, -1 for pages before the window."""
        return self._row[: len(self.handles)]

    def missing(self, tokens: int) -> int:
        """The number of pages to take for ``tokens`` more tokens."""
        return -(-(self.length + counted(tokens, "tokens")) // self.page_tokens) - len(self.handles)

    def append(self, tokens: int = 1) -> Appended:
        """Make room for ``tokens`` tokens: where they go, and what to copy before; see ``append``."""
        return append([self], [tokens])

    def fork(self) -> PageSequence:
        """Another sequence of the same tokens; who appends to a page that both hold gets a copy of it."""
        made = PageSequence(self.pool, page_tokens=self.page_tokens)
        self.pool.share(self._held())
        made.handles, made._row = list(self.handles), self._row.copy()
        made.length, made.gone = self.length, self.gone
        self._shared_tail = made._shared_tail = True
        return made

    def release(self, *, after: PassingEvent | None = None) -> None:
        """Give all pages back, the last one first on the free list; the sequence is empty then."""
        held = self._held()
        self.handles, self.length, self.gone, self._shared_tail = [], 0, 0, False
        self.pool.release(held[::-1], after=after)

    def slide(self, window: int, *, after: PassingEvent | None = None) -> int:
        """Give pages back that no token of the last ``window`` is in; how many. PAG026: a negative window."""
        if counted(window, "tokens") < 0:
            _wrong(f"a window of {shown(window)} tokens", "at least 0")
        first = max(self.length - window, 0) // self.page_tokens
        dead = [h for h in self.handles[self.gone : first] if h is not None]
        if dead:
            self.pool.release(np.array(dead, np.int64), after=after)
            self.handles[self.gone : first] = [None] * len(dead)
            self._row[self.gone : first] = _NO_PAGE
            self.gone = first
        return len(dead)

    def publish(self, tokens: ArrayLike, *, extra: bytes = b"") -> int:
        """Let others find its full pages, which hold ``tokens``; how many are cached."""
        if self.gone:
            _wrong("a sequence whose first pages are gone", "one with all of its pages")
        words = token_ids(tokens)
        full = min(self.length, len(words)) // self.page_tokens
        words = words[: full * self.page_tokens]
        return self.pool.publish(self._held()[:full], words, extra=extra, page_tokens=self.page_tokens)

    def _held(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([h for h in self.handles[self.gone :] if h is not None], np.int64)

    def _extend(self, handles: list[int]) -> None:
        begin, end = len(self.handles), len(self.handles) + len(handles)
        if end > len(self._row):
            row = np.full(2 * end, _NO_PAGE, np.int32)
            row[:begin] = self._row[:begin]
            self._row = row
        self._row[begin:end] = [h & PAGE for h in handles]
        self.handles.extend(handles)

    def _own_last(self, leaving: Counter[int]) -> tuple[int, int] | None:
        """Copy on write of the page that is being filled: (to release, the copy). ``leaving``: who copies it before."""
        last = self.handles[-1]
        assert last is not None
        owned, source = self.pool.own(last, leaving=leaving[last])
        if source is None:
            return None
        leaving[source] += 1
        self.handles[-1] = owned
        self._row[len(self.handles) - 1] = owned & PAGE
        return source, owned


@dataclass(frozen=True, eq=False)
class Appended:
    """Where new tokens go: ``slots``, in the order of the sequences; and the pages to copy before any token is
    written, ``sources`` to ``targets``. Once the copies are launched, ``copied`` gives the sources back."""

    slots: SlotMapping
    sources: Int32s
    targets: Int32s
    pool: PagePool
    held: list[int]

    def copied(self, *, after: PassingEvent | None = None) -> None:
        """Release the pages that were copied from, behind the event of the copies. A second call does nothing."""
        if self.held:
            self.pool.release(np.array(self.held, np.int64), after=after)
            self.held.clear()


def append(sequences: Sequence[PageSequence], tokens: Sequence[int]) -> Appended:
    """Make room for ``tokens[i]`` more tokens in each of ``sequences``, of one pool and page size.

    All or nothing: where there are not enough pages (PAG021), nothing has changed. The slots are
    distinct by construction: every page that is written has one owner.
    """
    if (
        len(sequences) != len(tokens)
        or any(counted(t, "tokens") < 0 for t in tokens)
        or len(set(map(id, sequences))) != len(sequences)
    ):
        _wrong(f"{len(sequences)} sequences, tokens {shown(list(tokens))}", "each sequence once, and its tokens")
    if not sequences:
        _wrong("no sequences", "at least one")
    pool, size = sequences[0].pool, sequences[0].page_tokens
    if any(s.pool is not pool or s.page_tokens != size for s in sequences):
        _wrong("sequences of several pools or page sizes", "one pool and page size")
    missing = [s.missing(t) for s, t in zip(sequences, tokens, strict=True)]
    fresh = pool.take(sum(missing), page_tokens=size)
    copies = _copies(sequences, tokens, fresh)
    taken = fresh.tolist()[::-1]
    for sequence, count in zip(sequences, missing, strict=True):
        if count:
            sequence._extend([taken.pop() for _ in range(count)])  # pyright: ignore[reportPrivateUsage]
    slots = [_slots(s, t) for s, t in zip(sequences, tokens, strict=True)]
    for sequence, count in zip(sequences, tokens, strict=True):
        sequence.length += count
        sequence._shared_tail &= not count  # pyright: ignore[reportPrivateUsage]
    sources = np.array([s & PAGE for s, _ in copies], np.int32)
    targets = np.array([t & PAGE for _, t in copies], np.int32)
    limit = pool.pages(size) * size
    mapping = SlotMapping(np.concatenate(slots), limit, Discharge.BY_CONSTRUCTION)
    return Appended(mapping, sources, targets, pool, [s for s, _ in copies])


def _copies(
    sequences: Sequence[PageSequence], tokens: Sequence[int], fresh: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    leaving: Counter[int] = Counter()
    try:
        for sequence, count in zip(sequences, tokens, strict=True):
            if count and sequence._shared_tail and sequence.length % sequence.page_tokens:  # pyright: ignore[reportPrivateUsage]
                copy = sequence._own_last(leaving)  # pyright: ignore[reportPrivateUsage]
                if copy is not None:
                    found.append(copy)
    except BaseException:
        pool = sequences[0].pool
        pool.release(fresh)
        _undo(sequences, found)
        raise
    return found


def _undo(sequences: Sequence[PageSequence], copies: list[tuple[int, int]]) -> None:
    """Sequences hold again what they held before their copies."""
    source_of = {target: source for source, target in copies}
    for sequence in sequences:
        last = sequence.handles[-1] if sequence.handles else None
        if last in source_of:
            sequence.handles[-1] = source_of[last]
            sequence._row[len(sequence.handles) - 1] = source_of[last] & PAGE  # pyright: ignore[reportPrivateUsage]
            sequence.pool.release(np.array([last], np.int64))


def _slots(sequence: PageSequence, tokens: int) -> Int32s:
    size, begin = sequence.page_tokens, sequence.length
    if tokens == 1:
        return np.array([int(sequence.row[begin // size]) * size + begin % size], np.int32)
    at = np.arange(begin, begin + tokens)
    return (sequence.row[at // size] * size + at % size).astype(np.int32)


def block_table(
    sequences: Sequence[PageSequence], *, pad: int = -1, width: int | None = None, window: int | None = None
) -> BlockTable:
    """Tables and lengths of sequences of one pool; ``pad`` (-1 or 0) stands behind rows and for pages that are gone.

    The discharge is by construction where the page of each last token has one owner, as behind an ``append``; it is
    open where a fork shares that page still.
    """
    if not sequences:
        _wrong("no sequences", "at least one")
    table = padded([s.row for s in sequences], pad, width)
    if pad != _NO_PAGE:
        table[table == _NO_PAGE] = pad
    lengths = np.array([s.length for s in sequences], np.int32)
    size = sequences[0].page_tokens
    pages = sequences[0].pool.pages(size)
    tails = [s.handles[-1] for s in sequences if s._shared_tail and s.handles]  # pyright: ignore[reportPrivateUsage]
    distinct = len(set(map(id, sequences))) == len(sequences)
    owned = distinct and sequences[0].pool.sole_owner([t for t in tails if t is not None])
    return BlockTable(table, lengths, size, pages, Discharge.BY_CONSTRUCTION if owned else Discharge.OPEN, window)


def _wrong(found: str, required: str) -> NoReturn:
    fail("PAG026", found=found, required=required)
