"""What an op has to do with others: the bytes it touches, the barriers it signals. Ops that share nothing commute.

A footprint has two sets of objects, ``seen`` and ``changed``. Two ops are dependent when one changes what the other
sees: a read sees its bytes, a write sees and changes them. Where only ops of two kinds disturb each other (a fence and
the accesses it may cover), one kind sees and the other changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.verify.model_checker.world import Bytes, Queue

Key: TypeAlias = int | Queue
"""An mbarrier by its number, a rendezvous by its name."""

CLUSTER: Queue = ("cluster",)


@dataclass
class Signals:
    """The signals to a barrier: arrivals, bytes expected and completed; ``loose``: bytes expected separately from an
    arrival."""

    arrivals: int = 0
    expected: int = 0
    completed: int = 0
    loose: bool = False

    def add(self, other: Signals) -> None:
        """Both together."""
        self.arrivals += other.arrivals
        self.expected += other.expected
        self.completed += other.completed
        self.loose |= other.loose


@dataclass
class OpFootprint:
    """See the module. ``closes`` names queues whose accesses an op may end, ``releases`` the thread's open accesses."""

    seen: int = 0
    changed: int = 0
    signals: dict[Key, Signals] = field(default_factory=dict[Key, Signals])
    waits: set[Key] = field(default_factory=set[Key])
    releases: bool = False
    fences: bool = False
    closes: set[Queue] = field(default_factory=set[Queue])

    def add(self, other: OpFootprint) -> None:
        """Both together."""
        self.seen |= other.seen
        self.changed |= other.changed
        for key, s in other.signals.items():
            self.signal(key, s)
        self.waits |= other.waits
        self.releases |= other.releases
        self.fences |= other.fences
        self.closes |= other.closes

    def signal(self, key: Key, s: Signals) -> None:
        """Adds what reaches a barrier."""
        mine = self.signals.get(key)
        if mine is None:
            mine = self.signals[key] = Signals()
        mine.add(s)


class Objects:
    """Bytes and other objects as bits of an integer."""

    def __init__(self) -> None:
        self.bit: dict[object, int] = {}
        self.meets: list[int] = []
        self.byte_objects: list[tuple[int, Bytes]] = []
        self._spread: dict[int, int] = {}

    def of(self, item: object) -> int:
        """The object's bit."""
        index = self.bit.get(item)
        if index is None:
            index = self.bit[item] = len(self.meets)
            self.meets.append(1 << index)
            if isinstance(item, Bytes):
                for other, place in self.byte_objects:
                    if place.meets(item):
                        self.meets[index] |= 1 << other
                        self.meets[other] |= 1 << index
                self.byte_objects.append((index, item))
            self._spread.clear()
        return 1 << index

    def spread(self, mask: int) -> int:
        """All objects that share something with one of the mask."""
        found = self._spread.get(mask)
        if found is None:
            found, rest = 0, mask
            while rest:
                low = rest & -rest
                found |= self.meets[low.bit_length() - 1]
                rest ^= low
            self._spread[mask] = found
        return found

    def disturb(self, a: OpFootprint, b: OpFootprint) -> bool:
        """Whether one changes what the other sees."""
        return bool((a.changed and self.spread(a.changed) & b.seen) or (b.changed and self.spread(b.changed) & a.seen))
