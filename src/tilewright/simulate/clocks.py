"""Vector clocks: for each thread of a CTA, which events happened before what it does next.

A row is a thread. The first columns are the CTA's threads, counted in intervals between their releases. Further columns
count asynchronous work: for each mbarrier its completed phases, for each warp its cp.async (by the arrivals that wait
for them), and for each warpgroup its completed wgmma groups and bulk groups. An access at ``(column, time)`` happened
before what a thread does next if its row holds at least ``time`` in that column.

``fenced`` holds the same for the async proxy: which generic accesses a proxy fence has made visible to the asynchronous
operations that the thread starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.hw.spaces import WARP_THREADS, WARPGROUP_THREADS
from tilewright.simulate.symbols import Array


@dataclass(frozen=True)
class Clock:
    """The clock values that a release hands to an acquire."""

    known: Array
    fenced: Array

    def joined(self, other: Clock | None) -> Clock:
        """The element-wise maximum of both."""
        if other is None:
            return self
        return Clock(np.maximum(self.known, other.known), np.maximum(self.fenced, other.fenced))


class CtaClocks:
    """The clocks of one CTA."""

    def __init__(self, threads: int, mbarriers: int):
        groups = -(-threads // WARPGROUP_THREADS)
        self.threads = threads
        self._mbarriers = threads
        self._copies = threads + mbarriers
        self._wgmma = self._copies + -(-threads // WARP_THREADS)
        self._bulk = self._wgmma + groups
        self.engines = range(self._wgmma, self._bulk + groups)
        self.known = np.zeros((threads, self._bulk + groups), np.int32)
        self.fenced = np.zeros_like(self.known)
        self.time = np.ones(threads, np.int32)
        self.known[np.arange(threads), np.arange(threads)] = 1

    # -- columns --------------------------------------------------------------------------------------------------
    def mbarrier(self, slot: int) -> int:
        """The column of an mbarrier's phases."""
        return self._mbarriers + slot

    def copies(self, warp: int) -> int:
        """The column of a warp's cp.async."""
        return self._copies + warp

    def generic(self, columns: Array) -> Array:
        """The columns of the generic proxy: threads, and cp.async."""
        return (columns < self.threads) | ((columns >= self._copies) & (columns < self._wgmma))

    def wgmma(self, row: int) -> int:
        """The column of the wgmma groups of a thread's warpgroup."""
        return self._wgmma + row // WARPGROUP_THREADS

    def bulk(self, row: int) -> int:
        """The column of the bulk groups of the thread that issues copies for a warpgroup."""
        return self._bulk + row // WARPGROUP_THREADS

    def name(self, column: int) -> str:
        """The name of a column's agent, for messages."""
        if column < self._mbarriers:
            return f"thread {column}"
        if column < self._copies:
            return f"a tensor copy on mbarrier {column - self._mbarriers}"
        if column < self._wgmma:
            return f"a cp.async of warp {column - self._copies}"
        if column < self._bulk:
            return f"a wgmma of warpgroup {column - self._wgmma}"
        return f"a tensor store of warpgroup {column - self._bulk}"

    # -- events ---------------------------------------------------------------------------------------------------
    def release(self, rows: Array, group: Array) -> Clock:
        """The joined clock of ``rows``; afterwards all threads in lockstep with them (``group``) begin a new
        interval."""
        clock = Clock(self.known[rows].max(axis=0), self.fenced[rows].max(axis=0))
        self.tick(group)
        return clock

    def reached(self, column: int, time: int) -> Clock:
        """A clock that states only that an engine's column has reached ``time``."""
        known = np.zeros_like(self.known[0])
        known[column] = time
        return Clock(known, np.zeros_like(known))

    def acquire(self, rows: Array, clock: Clock) -> None:
        """Join a released clock into those of ``rows``."""
        self.known[rows] = np.maximum(self.known[rows], clock.known)
        self.fenced[rows] = np.maximum(self.fenced[rows], clock.fenced)

    def learn(self, rows: Array, column: int, time: int) -> None:
        """Set an engine's column of ``rows`` to at least ``time``."""
        self.known[rows, column] = np.maximum(self.known[rows, column], time)

    def fence_proxy(self, rows: Array, group: Array) -> None:
        """Generic accesses in the clocks of ``rows`` become visible to asynchronous operations that they start."""
        self.fenced[rows] = np.maximum(self.fenced[rows], self.known[rows])
        self.tick(group)

    def tick(self, group: Array) -> None:
        """Begin a new interval for threads in lockstep."""
        self.time[group] += 1
        self.known[group, group] = self.time[group]
