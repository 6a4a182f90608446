"""Abstract states of a cache program: who holds which storage, and what is in flight on it.

A *cover* is the set of events and streams that come after a launch: fencing one of its events ends the launch, and work
on one of its streams is ordered behind it. A *duty* is the covers of the launches that must have ended before a handle
is released. A *storage* is a page, or the pages of one table.

The requests that no iteration is about are summarised by the set of their records: what the slots of one hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.diag import Location

Cover = frozenset[int | str]
"""Events (numbers) and streams (names)."""

Duty = frozenset[Cover]
NO_DUTY: Duty = frozenset()

Hazard = tuple[str, bool, Cover]
"""An access in flight: its stream, whether it writes, its cover."""

StorageId = tuple[int, int]
"""The op that made a storage and a number among those alive of that op; (-1, n) are those of a record."""


class _Hashed:
    """A value that is hashed once: states are compared all the time."""

    _hash: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(tuple(vars(self).values())))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Held(_Hashed):
    """The storage that a handle owns. ``cow``: copy on write."""

    storage: StorageId
    cow: bool = False
    duty: Duty = NO_DUTY

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class Stored(_Hashed):
    """A storage: accesses in flight, and launches by handles that left it, for whoever frees it."""

    table: bool
    hazards: frozenset[Hazard] = frozenset()
    duty: Duty = NO_DUTY

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class RequestSlots(_Hashed):
    """What the slots of a request hold, in the order of names; ``local`` storages no other request reaches."""

    slots: tuple[tuple[str, Held], ...] = ()
    local: tuple[tuple[StorageId, Stored], ...] = ()

    __hash__ = _Hashed.__hash__


@dataclass(frozen=True)
class PathStep:
    """One step of the path that led to a state; ``handle`` 0 is a turn of control."""

    before: PathStep | None
    where: Location
    what: str
    handle: int = 0


Records = frozenset[RequestSlots]
NONE: Records = frozenset()


class Heap:
    """One abstract state. ``records`` are those of all requests before a loop, ``done`` those of them that had their
    iteration, ``after`` what became of them, ``chosen`` the one of this iteration. ``others``: records that
    only events reach, while an iteration is interpreted that does not depend on them. ``graphs``: of each captured
    graph the handles that hold what they held then."""

    __slots__ = (
        "after", "chosen", "done", "facts", "graphs", "handles", "others", "path", "places", "records", "storages",
    )  # fmt: skip

    def __init__(self) -> None:
        self.handles: dict[int, Held] = {}
        self.storages: dict[StorageId, Stored] = {}
        self.places: dict[str, Held] = {}
        self.facts: dict[int, bool] = {}
        self.graphs: dict[int, frozenset[int]] = {}
        self.records = self.done = self.after = NONE
        self.chosen: RequestSlots | None = None
        self.others: tuple[RequestSlots, ...] = ()
        self.path: PathStep | None = None

    def copy(self) -> Heap:
        made = object.__new__(Heap)
        made.handles, made.storages = self.handles.copy(), self.storages.copy()
        made.places, made.facts, made.graphs = self.places.copy(), self.facts.copy(), self.graphs.copy()
        made.records, made.done, made.after = self.records, self.done, self.after
        made.chosen, made.others, made.path = self.chosen, self.others, self.path
        return made

    def key(self) -> tuple[object, ...]:
        """Equal for states from which the same is possible."""
        return (
            frozenset(self.handles.items()),
            frozenset(self.storages.items()),
            frozenset(self.places.items()),
            frozenset(self.facts.items()),
            frozenset(self.graphs.items()),
            self.records,
            self.done,
            self.after,
            self.chosen,
            self.others,
        )

    def step(self, where: Location, what: str, handle: int = 0) -> None:
        self.path = PathStep(self.path, where, what, handle)

    # -- holders ------------------------------------------------------------------------------------------------------
    def holders(self) -> Iterator[Held]:
        """Of the handles, cells and slots that this point of the program reaches."""
        yield from self.handles.values()
        yield from self.places.values()

    def surely_shared(self, of: Held) -> bool:
        """True if the storage has another owner in every execution that gets here."""
        if sum(h.storage == of.storage for h in self.holders()) > 1:
            return True
        pending = self.records - self.done
        if self.chosen is not None:
            pending -= {self.chosen}
        return any(_reaches(r, of.storage) for r in (*self.after, *pending))

    def maybe_shared(self, of: Held) -> bool:
        """Whether somebody else holds its storage in some execution that gets here: other requests may be like this."""
        if sum(h.storage == of.storage for h in self.holders()) > 1:
            return True
        return any(_reaches(r, of.storage) for r in (*self.after, *self.records))

    def forget(self, storage: StorageId) -> None:
        """Drop a storage that nothing can reach any more."""
        if any(h.storage == storage for h in self.holders()):
            return
        if any(_reaches(r, storage) for r in (*self.after, *self.records)):
            return
        self.storages.pop(storage, None)

    def fresh(self, op: int, stored: Stored) -> StorageId:
        number = 0
        while (op, number) in self.storages:
            number += 1
        self.storages[op, number] = stored
        return op, number

    # -- events -------------------------------------------------------------------------------------------------------
    def map_covers(self, change: Callable[[Cover], Cover | None]) -> None:
        """Alter the covers of everything in flight; None: it has ended."""
        if not self._in_flight():
            return
        for handle, held in self.handles.items():
            self.handles[handle] = _held(held, change)
        for name, held in self.places.items():
            self.places[name] = _held(held, change)
        for storage, stored in self.storages.items():
            self.storages[storage] = _stored(stored, change)
        if self.chosen is not None:
            self.chosen = _record(self.chosen, change)
        self.others = tuple(_record(r, change) for r in self.others)
        self.records, self.done, self.after = (
            frozenset(_record(r, change) for r in records) for records in (self.records, self.done, self.after)
        )

    def _in_flight(self) -> bool:
        return (
            any(s.hazards or s.duty for s in self.storages.values())
            or any(h.duty for h in self.holders())
            or any(r.slots for r in (*self.records, *self.after, *self.others))
        )

    # -- records ------------------------------------------------------------------------------------------------------
    def open_record(self, record: RequestSlots) -> None:
        """An iteration begins: what the slots of its request hold becomes reachable."""
        self.chosen = record
        self.places.update(record.slots)
        self.storages.update(record.local)

    def close_record(self, slots: frozenset[str]) -> RequestSlots:
        """The iteration is over: its slots as a record, whose own storages are numbered by the order of names."""
        held = sorted((name, h) for name, h in self.places.items() if name in slots)
        for name, _ in held:
            del self.places[name]
        renamed = self._adopt(frozenset(h.storage for h in self.holders()))
        held = [(name, _moved(h, renamed)) for name, h in held]
        outer = {h.storage for h in self.holders()}
        outer |= {h.storage for r in (*self.records, *self.after) for _, h in r.slots}
        local: dict[StorageId, StorageId] = {}
        for _, h in held:
            if h.storage[0] < 0 or h.storage not in outer:
                local.setdefault(h.storage, (-1, len(local)))
        stored = tuple((new, self.storages[old]) for old, new in local.items())
        for old in [s for s in self.storages if s[0] < 0 or s in local]:
            del self.storages[old]
        return RequestSlots(tuple((name, _moved(h, local)) for name, h in held), stored)

    def _adopt(self, outer: frozenset[StorageId]) -> dict[StorageId, StorageId]:
        """Storages of the request that outlive its iteration elsewhere get other numbers: from old to new ones."""
        renamed = {s: self.fresh(0, self.storages.pop(s)) for s in sorted(outer) if s[0] < 0}
        if renamed:
            self.handles = {n: _moved(h, renamed) for n, h in self.handles.items()}
            self.places = {n: _moved(h, renamed) for n, h in self.places.items()}
        return renamed


def _moved(held: Held, to: dict[StorageId, StorageId]) -> Held:
    return Held(to.get(held.storage, held.storage), held.cow, held.duty)


def apart(records: Records) -> bool:
    """Whether all storages that these hold are their own: no other request, and nothing else, reaches them."""
    return all(h.storage[0] < 0 for r in records for _, h in r.slots)


def _reaches(record: RequestSlots, storage: StorageId) -> bool:
    return storage[0] >= 0 and any(h.storage == storage for _, h in record.slots)


def least(duty: Duty) -> Duty:
    """Without covers that another is part of: whatever orders that one orders them."""
    if len(duty) < 2:
        return duty
    return frozenset(c for c in duty if not any(o < c for o in duty))


def least_hazards(hazards: frozenset[Hazard]) -> frozenset[Hazard]:
    """Without accesses that another of the same stream and kind, of a smaller cover, stands for."""
    if len(hazards) < 2:
        return hazards
    return frozenset(
        (s, w, c) for s, w, c in hazards if not any(o < c and os == s and ow == w for os, ow, o in hazards)
    )


def _duty(duty: Duty, change: Callable[[Cover], Cover | None]) -> Duty:
    return least(frozenset(c for cover in duty if (c := change(cover)) is not None)) if duty else duty


def _held(held: Held, change: Callable[[Cover], Cover | None]) -> Held:
    return Held(held.storage, held.cow, _duty(held.duty, change)) if held.duty else held


def _stored(stored: Stored, change: Callable[[Cover], Cover | None]) -> Stored:
    if not stored.hazards and not stored.duty:
        return stored
    hazards = ((s, w, change(cover)) for s, w, cover in stored.hazards)
    kept = frozenset((s, w, c) for s, w, c in hazards if c is not None)
    return Stored(stored.table, least_hazards(kept), _duty(stored.duty, change))


def _record(record: RequestSlots, change: Callable[[Cover], Cover | None]) -> RequestSlots:
    slots = tuple((name, _held(h, change)) for name, h in record.slots)
    return RequestSlots(slots, tuple((i, _stored(s, change)) for i, s in record.local))
