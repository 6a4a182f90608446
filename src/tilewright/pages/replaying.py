"""A pool in the state that a log leaves behind: each primitive done again, and its outcome compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.diag import fail
from tilewright.pages.handles import GENERATION, PAGE, PAGE_BITS
from tilewright.pages.oplog import OperationLog, Primitive


class ReplayedPool:
    """The pages of one size: free list, owners, generations, what is cached and deferred."""

    def __init__(self, number: int, count: int) -> None:
        self.free = list(range(count - 1, -1, -1))
        self.refs = [0] * count
        self.handles = [page | number << PAGE_BITS for page in range(count)]
        self.out: set[int] = set()  # neither free nor deferred
        self.published: set[int] = set()
        self.deferred: dict[int, list[int]] = {}

    def do(self, what: Primitive, entry: int, values: list[int]) -> bool:
        """Whether the primitive is possible and has the same outcome."""
        pages = [v & PAGE for v in values]
        if any(page >= len(self.refs) for page in pages):
            return False
        match what:
            case Primitive.TAKE:
                taken = [self.free.pop() for _ in pages if self.free]
                self.out |= set(taken)
                for page in taken:
                    self.refs[page] = 1
                return [self.handles[page] for page in taken] == values
            case Primitive.SHARE:
                for page in pages:
                    self.refs[page] += 1
                return [self.handles[page] for page in pages] == values
            case Primitive.RELEASE:
                same = [self.handles[page] for page in pages] == values
                for page in pages:
                    self.refs[page] -= 1
                return same and min((self.refs[page] for page in pages), default=0) >= 0
            case Primitive.FREE | Primitive.DEFER:
                return self._freed(what, entry, pages)
            case Primitive.RETIRE:
                self.free += pages
                return self.deferred.pop(entry, None) == pages
            case Primitive.PUBLISH:
                self.published |= set(pages)
                return all(self.refs[page] > 0 for page in pages)
            case Primitive.UNPUBLISH:
                known = self.published >= set(pages)
                self.published -= set(pages)
                return known

    def _freed(self, what: Primitive, entry: int, pages: list[int]) -> bool:
        if not self.out >= set(pages) or any(self.refs[page] for page in pages):
            return False
        self.out -= set(pages)
        for page in pages:
            self.handles[page] = _next(self.handles[page])
        if what is Primitive.FREE:
            self.free += pages
        else:
            self.deferred[entry] = pages
        return True

    def state(self) -> dict[str, Any]:
        """The same as ``PagePool.state``."""
        return {
            "free": self.free,
            "refs": self.refs,
            "handles": self.handles,
            "published": sorted(self.published),
            "deferred": self.deferred,
        }


def replay(log: OperationLog) -> dict[str, dict[str, Any]]:
    """The state (``PagePool.state``) behind a log; PAG025 where an operation has another outcome."""
    pools = {tokens: ReplayedPool(i, count) for i, (tokens, count) in enumerate(log.sizes.items())}
    for number, (what, tokens, entry, values) in enumerate(log):
        if tokens not in pools or not pools[tokens].do(what, entry, _integers(values)):
            fail(
                "PAG025",
                found=f"operation {number}, {what.name.lower()} of {len(values)} pages, has another outcome",
                required="the pages that the log names",
            )
    return {str(tokens): pool.state() for tokens, pool in pools.items()}


def _integers(values: NDArray[np.int64]) -> list[int]:
    return [int(v) for v in values]


def _next(handle: int) -> int:
    tag = handle + GENERATION
    return tag if tag < 1 << 63 else handle & (GENERATION - 1)
