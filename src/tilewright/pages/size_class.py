"""The pages of one size: how often each is held, their handles, and the free list."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.pages.handles import GENERATION, PAGE_BITS

Handles = NDArray[np.int64]
Pages = NDArray[np.int32]


class SizeClass:
    """The pages of one size. The memoryviews are the arrays, with quick access to one element."""

    def __init__(self, number: int, tokens: int, count: int) -> None:
        self.number, self.tokens, self.count = number, tokens, count
        self.refs_array = np.zeros(count, np.int32)
        self.handles_array = np.arange(count, dtype=np.int64) | (number << PAGE_BITS)
        self.free_array = np.arange(count - 1, -1, -1, dtype=np.int32)
        self.marks = np.zeros(count, np.int32)
        self.refs = memoryview(_buffer(self.refs_array))
        self.handles = memoryview(_buffer(self.handles_array))
        self.free = memoryview(_buffer(self.free_array))
        self.top = count
        self.least_free = count

    @property
    def peak(self) -> int:
        """Most pages that were not free at once."""
        return self.count - self.least_free

    def pop(self, number: int) -> Handles:
        """Handles of ``number`` pages of the free list, the last freed first."""
        self.top = top = self.top - number
        if top < self.least_free:
            self.least_free = top
        pages = self.free_array[top : top + number][::-1]
        self.refs_array[pages] = 1
        return self.handles_array[pages]

    def retag(self, pages: Pages) -> None:
        """The next generation: handles so far are dead."""
        tags = self.handles_array[pages] + GENERATION
        tags[tags < 0] &= GENERATION - 1
        self.handles_array[pages] = tags

    def push(self, pages: Pages) -> None:
        """Onto the free list, the last page on top."""
        self.free_array[self.top : self.top + len(pages)] = pages
        self.top += len(pages)

    def distinct(self, pages: Pages) -> bool:
        """Whether no page is named twice."""
        order = np.arange(len(pages), dtype=np.int32)
        self.marks[pages] = order
        return bool((self.marks[pages] == order).all())


def longest_run(free: Pages) -> int:
    """Of sorted numbers, the most that follow each other."""
    if not len(free):
        return 0
    breaks = np.flatnonzero(np.diff(free) != 1)
    ends = np.concatenate(([-1], breaks, [len(free) - 1]))
    return int(np.diff(ends).max())


def _buffer(array: NDArray[Any]) -> Any:
    """Arrays are buffers, which their type stubs say of Python 3.12 on."""
    return array
