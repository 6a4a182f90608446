"""Evaluates the expressions, regions and slots of a protocol in a state of a canonical run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.base.expr import Expr, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.effects import Proxy
from tilewright.protocol.model import Buffer, Loop, MbarrierArray, Node, Protocol, Step, steps
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.canonical_runs.state import AgentState, RunState, Trip, TripKey
from tilewright.verify.canonical_runs.values import FAR, Thunk, compiled, monotone_in, settled
from tilewright.verify.rules import Rule


@dataclass
class Breach(Exception):
    """A rule broken at ``step`` of ``agent``; ``other`` is the agent and step it clashes with."""

    rule: Rule
    agent: int
    step: Step | None
    detail: str
    other: tuple[int, Step] | None = None
    buffer: str = ""
    """What is read, where nothing was written to it before."""
    hint: str = ""
    """What to look at beside the rule's help."""

    def __str__(self) -> str:
        return self.detail


@dataclass
class OpenTripCount(Exception):
    """The run can't go on before the trip count ``key`` is known to end at its low bound or to exceed it."""

    key: TripKey


@dataclass
class OpenOrder(Exception):
    """The run can't go on before it is known which of these agents does its strong operation next."""

    agents: tuple[int, ...]


@dataclass
class OutOfReach(Exception):
    """The method does not decide this protocol; the reason is part of the answer ``Unknown``."""

    reason: str


@dataclass
class NeedsExact(Exception):
    """An integer depends on an undecided trip count; the agent waits."""

    key: TripKey


class CompiledRegion(NamedTuple):
    """A compiled region: where its space lies and its bytes."""

    space: Space
    cta: Thunk | None
    begin: Thunk
    size: int
    buffer: Buffer


class BarPlace(NamedTuple):
    """A compiled slot."""

    cta: Thunk | None
    slot: Thunk
    barrier: MbarrierArray
    base: int


def _with_tensor_maps(protocol: Protocol) -> frozenset[str]:
    accesses = [x for role in protocol.roles for step in steps(role.body) for x in step.op.accesses]
    names = {x.region.buffer for x in accesses if x.proxy is Proxy.TENSORMAP}
    maps = [b for b in protocol.buffers if b.name in names]
    return frozenset(
        b.name
        for b in protocol.buffers
        if any(b.space is m.space and b.offset < m.offset + m.size and m.offset < b.offset + b.size for m in maps)
    )


class Evaluation:
    """A protocol with its expressions compiled, and what a run knows of its trip counts."""

    def __init__(self, protocol: Protocol):
        self.protocol = protocol
        self.symbols = {s.name: s for s in protocol.symbols}
        self.trip_names = frozenset(self.symbols)
        self.per = {s.name: s.per for s in protocol.symbols}
        self.relaxed: set[str] = set()
        for role in protocol.roles:
            self._relax(role.body, ())
        self.buffers = {b.name: b for b in protocol.buffers}
        self.barriers = {b.name: b for b in protocol.barriers}
        self.counters = {c.name: c for c in protocol.global_counters}
        self.described = _with_tensor_maps(protocol)
        """Buffers that share bytes with tensor maps."""
        self.bar_base: dict[str, int] = {}
        self.slots_per_cta = 0
        for b in protocol.barriers:
            self.bar_base[b.name] = self.slots_per_cta
            self.slots_per_cta += b.slots
        self._arrays = [b for b in protocol.barriers for _ in range(b.slots)]
        self._wholes: dict[str, ops.Region] = {}
        self._thunks: dict[int, tuple[Expr, Thunk]] = {}
        self._named: dict[int, tuple[Step, tuple[str, ...]]] = {}
        self._places: dict[int, tuple[object, CompiledRegion | BarPlace]] = {}

    def _relax(self, nodes: tuple[Node, ...], outer: tuple[str, ...]) -> None:
        """A trip symbol used inside a loop of symbolic count gets a new value in each of its iterations."""
        for node in nodes:
            if isinstance(node, Step):
                continue
            if isinstance(node, Loop):
                names = node.end.symbols & self.trip_names
                for name in sorted(names):
                    if outer and self.per[name] is None:
                        self.per[name] = outer[0]
                        self.relaxed.add(name)
                self._relax(node.body, (*outer, node.counter) if names else outer)
            else:
                self._relax(node.then + node.otherwise, outer)

    def thunk(self, e: Expr) -> Thunk:
        """``e`` compiled, once."""
        entry = self._thunks.get(id(e))
        if entry is None:
            entry = self._thunks[id(e)] = (e, compiled(e))
        return entry[1]

    def below(self, loop: Loop) -> Expr:
        """That a loop's counter is below its end, made once."""
        entry = self._thunks.get(-id(loop))
        if entry is None:
            condition = sym(loop.counter) < loop.end
            entry = self._thunks[-id(loop)] = (condition, compiled(condition))
            self._thunks[id(condition)] = entry
        return entry[0]

    def trip_key(self, name: str, agent: CompiledAgent, a: AgentState) -> TripKey:
        """The instance of a trip symbol that the agent refers to."""
        per = self.per[name]
        if per is None:
            return name, -1
        if per not in a.env:
            raise OutOfReach(f"symbol {name} is used by {agent.label} outside the loop {per} that it varies with")
        return name, a.env[per]

    def trip(self, st: RunState, key: TripKey) -> Trip:
        """The knowledge of a trip count."""
        found = st.trips.get(key)
        if found is None:
            s = self.symbols[key[0]]
            found = st.trips[key] = Trip(s.least, s.least == s.most)
        return found

    def value(self, st: RunState, agent: CompiledAgent, a: AgentState, e: Expr) -> int:
        """An integer; raises ``NeedsExact`` where it depends on an undecided trip count."""
        names = e.symbols & self.trip_names
        if not names:
            return self.thunk(e)(a.env)
        env = dict(a.env)
        for name in sorted(names):
            key = self.trip_key(name, agent, a)
            trip = self.trip(st, key)
            if not trip.exact:
                raise NeedsExact(key)
            env[name] = trip.low
        return self.thunk(e)(env)

    def exact(self, st: RunState, agent: CompiledAgent, a: AgentState, step: Step) -> dict[str, int]:
        """The trip symbols that a step names, with their values; raises ``NeedsExact``."""
        entry = self._named.get(id(step))
        if entry is None:
            names = step.op.symbols & self.trip_names
            entry = self._named[id(step)] = (step, tuple(sorted(names)))
        return {name: self.value(st, agent, a, sym(name)) for name in entry[1]}

    def truth(self, st: RunState, agent: CompiledAgent, a: AgentState, e: Expr) -> bool:
        """A predicate; raises ``OpenTripCount`` where trip counts leave it open."""
        names = e.symbols & self.trip_names
        if not names:
            return bool(self.thunk(e)(a.env))
        env = dict(a.env)
        undecided: dict[str, tuple[int, int]] = {}
        keys: list[TripKey] = []
        for name in sorted(names):
            key = self.trip_key(name, agent, a)
            trip = self.trip(st, key)
            if trip.exact:
                env[name] = trip.low
            else:
                most = self.symbols[name].most
                undecided[name] = (trip.low, FAR if most is None else most)
                keys.append(key)
        if not undecided:
            return bool(self.thunk(e)(env))
        if monotone_in(e, frozenset(undecided)):
            known = settled(self.thunk(e), env, undecided)
            if known is not None:
                return known
        raise OpenTripCount(keys[0])

    def place(self, region: ops.Region) -> CompiledRegion:
        """A region compiled."""
        entry = self._places.get(id(region))
        if entry is None:
            buffer = self.buffers[region.buffer]
            begin = compiled(region.begin)
            made = CompiledRegion(
                buffer.space,
                None if region.cta is None else compiled(region.cta),
                _shifted(begin, buffer.offset),
                region.size,
                buffer,
            )
            entry = self._places[id(region)] = (region, made)
        assert isinstance(entry[1], CompiledRegion)
        return entry[1]

    def whole(self, buffer: Buffer) -> ops.Region:
        """All bytes of a buffer."""
        return self._wholes.setdefault(buffer.name, ops.Region(buffer.name, ops.ZERO, buffer.size))

    def bar(self, agent: CompiledAgent, a: AgentState, step: Step, slot: ops.Slot, rank: int | None = None) -> int:
        """Index of a slot among all barriers; ``rank`` overrides the CTA (multicast)."""
        entry = self._places.get(id(slot))
        if entry is None:
            made = BarPlace(
                None if slot.cta is None else compiled(slot.cta),
                compiled(slot.index),
                self.barriers[slot.barrier],
                self.bar_base[slot.barrier],
            )
            entry = self._places[id(slot)] = (slot, made)
        place = entry[1]
        assert isinstance(place, BarPlace)
        index = place.slot(a.env)
        if not 0 <= index < place.barrier.slots:
            raise Breach(
                Rule.SLOT_RANGE, agent.index, step, f"slot {index} of {slot.barrier}, which has {place.barrier.slots}"
            )
        cta = self.rank(agent, a, step, place.cta) if rank is None else rank
        return cta * self.slots_per_cta + place.base + index

    def rank(self, agent: CompiledAgent, a: AgentState, step: Step, thunk: Thunk | None) -> int:
        """A CTA rank, checked; without a thunk the agent's own."""
        if thunk is None:
            return agent.cta
        cta = thunk(a.env)
        if not 0 <= cta < self.protocol.ctas:
            raise Breach(Rule.SLOT_RANGE, agent.index, step, f"CTA rank {cta} of {self.protocol.ctas} CTAs")
        return cta

    def barrier_of(self, index: int) -> MbarrierArray:
        """The array of a barrier."""
        return self._arrays[index % self.slots_per_cta]

    def bar_name(self, index: int) -> str:
        """``full[2]`` for people, with the CTA where there are several."""
        cta, local = divmod(index, self.slots_per_cta)
        b = self.barrier_of(index)
        return f"{b.name}[{local - self.bar_base[b.name]}]" + (f"@{cta}" if self.protocol.ctas > 1 else "")


def _shifted(begin: Thunk, offset: int) -> Thunk:
    return (lambda env: offset + begin(env)) if offset else begin
