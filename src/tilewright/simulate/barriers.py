"""Barriers at which agents wait: CTA and named barriers, and mbarriers with phases, arrivals and transaction bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.simulate.clocks import Clock

_REMEMBERED = 8  # rounds; an agent that has arrived can't be more than one behind


@dataclass(frozen=True)
class Waiting:
    """An agent is blocked until ``ready`` holds; ``what`` describes the wait in a deadlock report."""

    ready: Callable[[], bool]
    what: Callable[[], str]


@dataclass
class ArrivalBarrier:
    """A barrier for ``threads`` threads; ``rounds`` counts how often all have arrived."""

    threads: int
    arrived: int = 0
    rounds: int = 0
    epoch: int = 0
    clocks: dict[int, Clock] = field(default_factory=dict[int, Clock])  # of the last rounds
    _gathering: Clock | None = None

    def arrive(self, threads: int, clock: Clock, epoch: Callable[[], int]) -> None:
        """Threads arrive; the last ones complete the round."""
        self.arrived += threads
        self._gathering = clock.joined(self._gathering)
        if self.arrived == self.threads:
            self.rounds += 1
            self.arrived = 0
            self.clocks[self.rounds], self._gathering = self._gathering, None
            self.clocks.pop(self.rounds - _REMEMBERED, None)
            self.epoch = epoch()


@dataclass
class SimulatedMbarrier:
    """An mbarrier (PTX ISA, 9.7.13.15): a phase completes when its pending count and its tx-count are both zero."""

    name: str
    slot: int
    count: int
    initialised: tuple[int, int] | None = None  # thread and time
    fenced: bool = False
    pending: int = 0
    tx_bytes: int = 0
    completed: int = 0
    clock: Clock | None = None  # of the completed phases
    _gathering: Clock | None = None

    def init(self, thread: int, time: int) -> None:
        """mbarrier.init."""
        self.initialised, self.fenced = (thread, time), False
        self.pending, self.tx_bytes, self.completed = self.count, 0, 0
        self.clock = self._gathering = None

    def arrive(self, times: int, clock: Clock) -> bool:
        """Arrivals; False if the phase did not expect so many."""
        if times > self.pending:
            return False
        self.pending -= times
        self._gathering = clock.joined(self._gathering)
        self._settle()
        return True

    def expect(self, tx_bytes: int) -> None:
        """Add transaction bytes that the current phase must receive."""
        self.tx_bytes += tx_bytes

    def complete(self, tx_bytes: int) -> None:
        """Count transaction bytes that a copy has written."""
        self.tx_bytes -= tx_bytes
        self._settle()

    def __str__(self) -> str:
        return f"{self.name} in phase {self.completed}, {self.pending} arrivals and {self.tx_bytes} bytes short"

    def passed(self, parity: int) -> bool:
        """Whether the phase of this parity has completed, which is so when the current one has the other parity."""
        return self.completed % 2 != parity

    def _settle(self) -> None:
        if self.pending == 0 and self.tx_bytes == 0:
            self.completed += 1
            self.pending = self.count
            if self._gathering is not None:
                self.clock, self._gathering = self._gathering.joined(self.clock), None
