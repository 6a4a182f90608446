"""mbarrier objects (PTX ISA 9.1, 9.7.13.15): pending arrivals, transaction bytes, phase, and the clock that each phase
publishes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ptx.machine.clocks import Clocks
from tilewright.ptx.opcodes.rows import Bits

Key = tuple[int, int]
"""(instance, offset in its window)."""


@dataclass
class MbarrierObject:
    """Phase ``phase`` still needs ``pending`` of ``count`` arrivals, and ``bytes`` transaction bytes."""

    count: int
    pending: int
    column: int
    into: Bits
    across: Bits
    bytes: int = 0
    phase: int = 0
    done: Bits | None = None
    done_across: Bits | None = None


class MbarrierTable:
    """The objects of a batch by place. ``woken`` turns true when a phase ends, so that waiting lanes look again."""

    def __init__(self, clocks: Clocks):
        self.clocks = clocks
        self.objects: dict[Key, MbarrierObject] = {}
        self.columns: dict[int, int] = {}
        self.woken = False

    def initialise(self, key: Key, count: int) -> None:
        """``mbarrier.init``."""
        last = self.clocks.columns - self.clocks.participants - 1
        column = self.clocks.participants + self.columns.setdefault(key[1], min(len(self.columns), last))
        none = np.zeros(self.clocks.columns, np.int32)
        self.objects[key] = MbarrierObject(count, count, column, none, none.copy())

    def expect(self, key: Key, count: int) -> None:
        """Add transaction bytes that the current phase expects."""
        self.objects[key].bytes += count

    def arrive(self, key: Key, lanes: Bits, count: int, drop: bool = False) -> int:
        """Arrivals, ``count`` in all, by ``lanes``; the phase they arrive in."""
        m = self.objects[key]
        self.clocks.release(lanes, m.into, m.across)
        phase = m.phase
        m.pending -= count
        m.count -= count if drop else 0
        self._turn(m)
        return phase

    def complete(self, key: Key, count: int) -> None:
        """Count the transaction bytes of a completed copy; its writes become visible to threads that wait on the
        phase."""
        m = self.objects[key]
        m.bytes -= count
        m.into[m.column] = self.clocks.now
        self._turn(m)

    def _turn(self, m: MbarrierObject) -> None:
        if m.pending == 0 and m.bytes == 0:
            m.phase += 1
            m.pending = m.count
            m.done, m.done_across = m.into.copy(), m.across.copy()
            self.woken = True

    def ended(self, key: Key, parity: Bits) -> Bits:
        """Whether the phases of those parities have completed: the current phase has the other parity."""
        return np.not_equal(parity, self.objects[key].phase % 2)

    def acquire(self, key: Key, lanes: Bits) -> None:
        """Join the clock that the last completed phase published into those of lanes."""
        m = self.objects[key]
        if m.done is not None and m.done_across is not None:
            self.clocks.acquire(lanes, m.done, m.done_across)
