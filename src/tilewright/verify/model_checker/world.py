"""The state of an explored instance, and what is wrong with it.

Nothing here orders accesses; it keeps, at every moment, which accesses *could* be under way. A thread's access is open
from the step after its last synchronising op to its next releasing one, a copy's from issue to the moment its
completion is observed. Two open accesses that clash are a race: both could happen now.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tilewright.verify.model_checker.thread_program import Position, Trips
from tilewright.verify.rules import Rule

Queue: TypeAlias = tuple[object, ...]
"""Asynchronous ops that complete together or in order: a thread's groups of one kind, or one copy."""


WordKey: TypeAlias = tuple[str, int]
"""A word of a counter in global memory."""

FREED = -1
"""The site of a deallocation: the CTAs of a pair may free their tensor memory in any order."""

LANDED = -1
"""Stands for a thread: a copy whose phase has completed, which every thread acquires by a wait of its own."""


class Bytes(NamedTuple):
    """An interval of one memory."""

    space: tuple[object, ...]
    begin: int
    end: int

    def meets(self, other: Bytes) -> bool:
        """Whether they share a byte."""
        return self.begin < other.end and other.begin < self.end and self.space == other.space

    @property
    def empty(self) -> bool:
        """Whether it has no byte."""
        return self.begin >= self.end

    def inside(self, other: Bytes) -> bool:
        """Whether all of it lies in the other."""
        return self.space == other.space and other.begin <= self.begin and self.end <= other.end


class OpenAccess(NamedTuple):
    """An access of a thread that may still be in flight."""

    bytes: Bytes
    writes: bool
    private: bool
    site: int = 0
    """Identity of the step: the threads of a role share one write among them."""
    init: bool = False
    """An mbarrier initialisation, which an init fence lets a relaxed arrive publish."""


class AsyncAccess(NamedTuple):
    """An asynchronous op in flight. ``number`` is its group within ``queue``."""

    engine: str
    owner: int
    role: tuple[str, int]
    bytes: Bytes
    writes: bool
    queue: Queue
    number: int


class GlobalAccess(NamedTuple):
    """An access of a thread to global memory, or its strong operation on a word; ``wide``: one of scope gpu."""

    bytes: Bytes
    writes: bool
    owner: int
    site: int
    engine: str
    wide: bool = False


class Completion(NamedTuple):
    """Something that will happen to a barrier once: ``tx`` bytes land, or ``arrivals`` arrive; it ``closes`` queues."""

    bar: int
    tx: int
    arrivals: int
    owner: int
    closes: tuple[tuple[Queue, int], ...]


class MbarrierState(NamedTuple):
    """An mbarrier's hardware state: pending arrivals, pending bytes, parity of the current phase."""

    pending: int
    tx: int
    parity: int
    initial: int
    alive: bool
    fenced: bool
    owner: int = -1
    """The initialising thread."""
    peer_arrivals: frozenset[tuple[int, bool]] = frozenset()
    """Of this phase: other CTAs that have arrived, and whether of a scope that reaches this one."""
    unreleased_peers: frozenset[int] = frozenset()
    """Of the phase before: other CTAs whose arrivals handed on no memory."""


class EnteredBarrier(NamedTuple):
    """A named barrier or warp sync that some threads have entered."""

    arrived: int
    size: int
    members: frozenset[int]
    waiting: frozenset[int]
    """The members that stay until it is complete."""
    sites: frozenset[str]


class Published(NamedTuple):
    """An access that a thread of a CTA left at a word, for its own CTA or ``wide`` for all."""

    access: GlobalAccess
    thread: int
    cta: int
    wide: bool


@dataclass
class Causality:
    """The accesses that each thread knows of. Containers are copied shallowly, their contents never change."""

    accesses: frozenset[GlobalAccess]
    known: list[frozenset[GlobalAccess]]
    """Per thread."""
    released: dict[object, frozenset[GlobalAccess]] = field(default_factory=dict[object, frozenset[GlobalAccess]])
    """Per barrier: what the arrivals at the phase, or use, under way have released."""
    passed: dict[object, frozenset[GlobalAccess]] = field(default_factory=dict[object, frozenset[GlobalAccess]])
    """Per mbarrier: what its completed phases publish."""
    values: dict[WordKey, int] = field(default_factory=dict[WordKey, int])
    left: dict[WordKey, frozenset[Published]] = field(default_factory=dict[WordKey, frozenset[Published]])
    fenced: dict[tuple[int, bool], frozenset[GlobalAccess]] = field(
        default_factory=dict[tuple[int, bool], frozenset[GlobalAccess]]
    )
    """Per thread and whether of scope gpu: what it knew at its last fence.acq_rel."""
    seen: dict[int, frozenset[Published]] = field(default_factory=dict[int, frozenset[Published]])
    """Per thread: what its relaxed reads saw, which a fence makes known."""

    def copy(self) -> Causality:
        """An independent copy."""
        dicts = (self.released, self.passed, self.values, self.left, self.fenced, self.seen)
        return Causality(self.accesses, self.known.copy(), *(d.copy() for d in dicts))  # pyright: ignore

    def key(self) -> Hashable:
        """Equal for states with the same future."""
        dicts = (self.released, self.passed, self.values, self.left, self.fenced, self.seen)
        return self.accesses, tuple(self.known), *(frozenset(d.items()) for d in dicts)


class WrittenMap(NamedTuple):
    """Bytes of a tensor map that a thread may not use yet: who wrote them, and whether that was released."""

    bytes: Bytes
    thread: int
    writer: int
    released: bool


@dataclass
class Problem(Exception):
    """A violation: the rule, the threads, and a message."""

    rule: Rule
    threads: tuple[int, ...]
    detail: str


@dataclass
class World:
    """One state. Containers are copied shallowly, their contents never change."""

    at: list[Position]
    open: list[frozenset[OpenAccess]]
    groups: list[dict[str, int]]
    """Per thread and engine: number of the open group."""
    bars: list[MbarrierState]
    in_flight: frozenset[AsyncAccess] = frozenset()
    completions: tuple[Completion, ...] = ()
    named: dict[Queue, EnteredBarrier] = field(default_factory=dict[Queue, EnteredBarrier])
    released: frozenset[int] = frozenset()
    """Threads whose rendezvous is complete but who have not left it yet."""
    inside: frozenset[int] = frozenset()
    cluster: tuple[int, ...] = ()
    """Per thread: 0 outside, 1 arrived, 2 free to leave the cluster barrier."""
    unfenced: frozenset[tuple[Bytes, int, int]] = frozenset()
    """Generic writes (thread, site) that their own thread has not fenced since."""
    bare: frozenset[tuple[Bytes, int, bool, int]] = frozenset()
    """Generic accesses (thread, is a write, site) that no thread has fenced since they were released."""
    written: frozenset[Bytes] = frozenset()
    unseen: frozenset[tuple[int, Bytes, bool, int]] = frozenset()
    """Accesses released or complete (bytes, is a write, by whom) that a thread with relaxed waits has not acquired."""
    stale: frozenset[tuple[Bytes, int, int, str]] = frozenset()
    """Tensor-memory bytes, the thread that has no after-fence since, and who touched them by which engine."""
    unsent: frozenset[tuple[int, Bytes, str]] = frozenset()
    """Tensor-memory accesses done but not behind a before-fence of their thread."""
    dirty: frozenset[int] = frozenset()
    """Threads whose registers were touched since their last wgmma.fence."""
    tmem: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    widest: dict[int, int] = field(default_factory=dict[int, int])
    """Per CTA: columns of its last allocation of tensor memory, which none after it may exceed."""
    relinquished: frozenset[int] = frozenset()
    """CTAs that may allocate tensor memory no more."""
    peeked: frozenset[tuple[int, int]] = frozenset()
    """Thread and barrier of every test_wait that returned true and was not looked at yet."""
    maps: frozenset[WrittenMap] = frozenset()
    """Bytes of tensor maps that were written, by each thread that has not acquired them since."""
    begun: frozenset[int] = frozenset()
    """CTAs of which a thread has moved; the others may not run yet."""
    pool: dict[int, int] = field(default_factory=dict[int, int])
    registers: list[int] = field(default_factory=list[int])
    causality: Causality | None = None
    """The threads' knowledge of each other's accesses to global memory, where CTAs of a grid share it (``grid``)."""
    trips: Trips = field(default_factory=dict[tuple[str, int], tuple[int, bool]])
    """Trip counts met so far where they are open."""

    def copy(self) -> World:
        """An independent copy."""
        new = object.__new__(World)
        new.__dict__.update(self.__dict__)
        new.at = self.at.copy()
        new.open = self.open.copy()
        new.groups = [g.copy() for g in self.groups]
        new.bars = self.bars.copy()
        new.named = self.named.copy()
        new.tmem = self.tmem.copy()
        new.pool = self.pool.copy()
        new.registers = self.registers.copy()
        new.trips = self.trips.copy()
        if self.causality is not None:
            new.causality = self.causality.copy()
        return new

    def key(self) -> tuple[object, ...]:
        """Equal for states with the same future, where trip counts are fixed."""
        return (
            tuple(self.at),
            tuple(self.bars),
            self.in_flight,
            frozenset(self.completions),
            len(self.completions),
            tuple(self.open),
            frozenset(self.named.items()),
            self.released,
            self.inside,
            self.cluster,
            self.unfenced,
            self.bare,
            self.unseen,
            self.stale,
            self.unsent,
            self.dirty,
            tuple(self.pool.values()),
            tuple(self.tmem.items()),
            tuple(self.widest.items()),
            self.maps,
            self.relinquished,
            self.peeked,
            self.begun,
            None if self.causality is None else self.causality.key(),
        )
