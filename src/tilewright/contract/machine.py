"""Canonical execution of a protocol with causality clocks.

One schedule is run: among the agents that can go on, the one least far in the symbolic loops. It stands for all
schedules, because every rule it checks speaks of what holds in *every* execution (the clocks) and, while the rules of
counts, phases and recycling hold, no execution orders things otherwise (``docs/contracts.md``, the theorem).

The machine stops at a breach, at the end, or where a trip count must be decided (``Undecided``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from tilewright.base.expr import Expr, Sym, sym
from tilewright.contract.rotation import turning
from tilewright.contract.rules import Policy, Rule
from tilewright.contract.state import (
    AgentState,
    BarState,
    Clock,
    Event,
    M,
    Rendezvous,
    S,
    State,
    Stream,
    Trip,
    TripKey,
    join,
)
from tilewright.contract.threads import (
    Again,
    Branch,
    Do,
    Enter,
    Group,
    Instruction,
    Jump,
    Test,
    expressions,
    flatten,
    groups_of,
    program_of,
    ranks,
    step_expressions,
)
from tilewright.contract.values import FAR, Thunk, Usage, compiled, monotone_in, settled, usage
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import Barrier, Buffer, If, Loop, Node, Protocol, Step, steps

MAX_SPLITS = 64
"""How many values of one open trip count are tried one by one for a predicate before giving up."""


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

    def __str__(self) -> str:
        return self.detail


@dataclass
class Undecided(Exception):
    """The run can't go on before the trip count ``key`` is known to end at its low bound or to exceed it."""

    key: TripKey


@dataclass
class OutOfReach(Exception):
    """The method does not decide this protocol; the reason is part of the answer ``Unknown``."""

    reason: str


@dataclass
class _NeedsExact(Exception):
    """An integer depends on a trip count nobody has decided yet; the agent waits."""

    key: TripKey


class Place(NamedTuple):
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
    barrier: Barrier
    base: int


class TripUse(NamedTuple):
    """How an instruction depends on a trip symbol: by its difference to a loop's counter, modulo a period, up to a
    cutoff, or in full."""

    pc: int
    counter: str = ""
    period: int = 1
    cutoff: int = 0
    raw: bool = False


@dataclass(frozen=True)
class Agent:
    """A class of threads in one CTA, with its compiled code. ``index`` is also its clock component."""

    index: int
    group: Group
    cta: int
    role: Stream
    code: tuple[Instruction, ...]
    active: tuple[tuple[str, ...], ...]
    """Per instruction: counters of the symbolic loops around it."""
    usage: Usage
    uses: dict[str, tuple[TripUse, ...]]
    """Per trip symbol: the instructions that depend on it."""
    loops: tuple[tuple[str, int, int], ...]
    """All loops, outer before inner: counter, test, end."""

    @property
    def label(self) -> str:
        """Name for people."""
        return self.group.label


Handler: TypeAlias = Callable[["Machine", State, Agent, AgentState, Step], bool]


class Machine:
    """The fixed part of a run: agents, compiled expressions, policy. States are run, copied and compared by it."""

    def __init__(self, protocol: Protocol, handlers: Mapping[type[object], Handler], policy: Policy, fixed: bool):
        """``handlers`` say what each op does (``semantics``). ``fixed``: trip symbols keep one value for the whole run
        even inside other symbolic loops."""
        self.protocol = protocol
        self.handlers = handlers
        self.policy = policy
        self.symbols = {s.name: s for s in protocol.symbols}
        self.trip_names = frozenset(self.symbols)
        self.per = {s.name: s.per for s in protocol.symbols}
        self.relaxed: set[str] = set()
        if not fixed:
            for role in protocol.roles:
                self._relax(role.body, ())
        self.buffers = {b.name: b for b in protocol.buffers}
        self.barriers = {b.name: b for b in protocol.barriers}
        self.bar_base: dict[str, int] = {}
        self.slots_per_cta = 0
        for b in protocol.barriers:
            self.bar_base[b.name] = self.slots_per_cta
            self.slots_per_cta += b.slots
        self._arrays = [b for b in protocol.barriers for _ in range(b.slots)]
        self.agents = self._agents()
        self.n = len(self.agents)
        self.tensor = any(b.space is Space.TMEM for b in protocol.buffers)
        self.role_agents: dict[Stream, list[Agent]] = {}
        for agent in self.agents:
            self.role_agents.setdefault(agent.role, []).append(agent)
        self.everyone = tuple(range(self.n))
        self.bar_users = self._bar_users(_slots)
        """Per local slot: agents that may ever refer to it."""
        self.bar_waiters = self._bar_users(_waited_slots)
        self.unwatched = _unwatched(protocol)
        self.turning = turning(protocol)
        self.space_names = _SPACES
        self.bar_signallers = self._bar_users(_signalled_slots)
        self._region_users: dict[Stream, tuple[int, ...]] = {}
        self.first_of: dict[object, int] = {role: found[0].index for role, found in self.role_agents.items()}
        self.numbers: dict[Stream, int] = {}
        """Streams and spaces numbered as they come up."""
        self.warnings: dict[tuple[Rule, str], Breach] = {}
        self._wholes: dict[str, ops.Region] = {}
        self._thunks: dict[int, tuple[Expr, Thunk]] = {}
        self._places: dict[int, tuple[object, Place | BarPlace]] = {}

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

    def _agents(self) -> tuple[Agent, ...]:
        out: list[Agent] = []
        for cta in range(self.protocol.cluster):
            for role in self.protocol.roles:
                if cta not in ranks(self.protocol, role):
                    continue
                for group in groups_of(role):
                    program = program_of(role, group)
                    code = flatten(program)
                    found = expressions(program)
                    out.append(
                        Agent(
                            len(out),
                            group,
                            cta,
                            (role.name, cta),
                            code,
                            self._active(code),
                            usage(found, self.trip_names),
                            self._uses(code, usage(found, self.trip_names)),
                            tuple((x.loop.counter, pc, x.out) for pc, x in enumerate(code) if isinstance(x, Test)),
                        )
                    )
        return tuple(out)

    def _active(self, code: tuple[Instruction, ...]) -> tuple[tuple[str, ...], ...]:
        out: list[tuple[str, ...]] = []
        open_loops: list[tuple[str, int]] = []
        for pc, ins in enumerate(code):
            out.append(tuple(c for c, end in open_loops if pc < end))
            if isinstance(ins, Test) and ins.loop.end.symbols & self.trip_names:
                open_loops.append((ins.loop.counter, ins.out))
        return (*out, ())

    def _uses(self, code: tuple[Instruction, ...], found: Usage) -> dict[str, tuple[TripUse, ...]]:
        uses: dict[str, tuple[TripUse, ...]] = {}
        for pc, ins in enumerate(code):
            match ins:
                case Do():
                    exprs = step_expressions(ins.step)
                case Enter():
                    exprs = [ins.loop.begin]
                case Test():
                    exprs = [ins.loop.end]
                case Branch():
                    exprs = [ins.node.condition]
                case Again() | Jump():
                    exprs = []
            for name in frozenset[str]().union(*(e.symbols for e in exprs)) & self.trip_names:
                uses[name] = (*uses.get(name, ()), _trip_use(pc, ins, name, found))
        return uses

    def future_uses(self, agent: Agent, a: AgentState, key: TripKey) -> list[TripUse]:
        """Where the agent's future depends on this instance of a trip symbol."""
        name, context = key
        if a.done or name not in agent.uses:
            return []
        per = self.per[name]
        start, end = self._from(agent, a.pc, per), len(agent.code)
        if per is not None and per in a.env and a.env[per] > context:
            return []
        if per is not None and (per not in a.env or a.env[per] < context):
            start = self._from(agent, a.pc, None)
        elif per is not None:
            end = next(out for counter, test, out in agent.loops if counter == per and test <= a.pc < out)
        return [u for u in agent.uses[name] if start <= u.pc < end]

    def _from(self, agent: Agent, pc: int, per: str | None) -> int:
        """First instruction that may still run: the start of the outermost loop around ``pc`` (inside ``per``'s)."""
        inside = per is None
        for counter, test, out in agent.loops:
            if test <= pc < out:
                if inside:
                    return test
                inside = counter == per
        return pc

    # -- who may ask about what -------------------------------------------------------------------------------------
    def _bar_users(self, slots: Callable[[ops.Op], list[str]]) -> list[tuple[int, ...]]:
        users: dict[str, list[int]] = {b.name: [] for b in self.protocol.barriers}
        for agent in self.agents:
            names = {n for ins in agent.code if isinstance(ins, Do) for n in slots(ins.step.op)}
            for name in names:
                users[name].append(agent.index)
        return [tuple(users[b.name]) for b in self.protocol.barriers for _ in range(b.slots)]

    def named_users(self, key: Stream) -> tuple[int, ...]:
        """Agents that may use a named barrier."""
        found = self._region_users.get(key)
        if found is None:
            found = tuple(
                x.index
                for x in self.agents
                if x.cta == key[1] and any(isinstance(i, Do) and _may_name(i.step.op, key[2]) for i in x.code)
            )
            self._region_users[key] = found
        return found

    def region_users(self, space: Stream, begin: int, end: int) -> tuple[int, ...]:
        """Agents that may access bytes of a space."""
        return self._touching(("all", space, begin, end), space, begin, end, _buffers)

    def region_writers(self, space: Stream, begin: int, end: int) -> tuple[int, ...]:
        """Agents that may write bytes of a space."""
        return self._touching(("writers", space, begin, end), space, begin, end, _written_buffers)

    def _touching(
        self, key: Stream, space: Stream, begin: int, end: int, buffers: Callable[[ops.Op], list[str]]
    ) -> tuple[int, ...]:
        found = self._region_users.get(key)
        if found is None:
            names = {
                b.name
                for b in self.protocol.buffers
                if b.offset < end and begin < b.offset + b.size and _SPACES[b.space] == space[0]
            }
            found = self._region_users[key] = tuple(
                x.index
                for x in self.agents
                if (space[0] != "register" or x.role == space[1])
                and any(isinstance(i, Do) and names & set(buffers(i.step.op)) for i in x.code)
            )
        return found

    # -- start ------------------------------------------------------------------------------------------------------
    def start(self) -> State:
        """The state before the first step."""
        agents: list[AgentState] = []
        for agent in self.agents:
            role = self.protocol.role(agent.group.role)
            env = {**dict(role.counters), ops.CTA_RANK: agent.cta}
            agents.append(AgentState(0, env, registers=self.protocol.registers_per_thread))
        bars = [
            BarState(b.count)
            for _ in range(self.protocol.cluster)
            for b in self.protocol.barriers
            for _ in range(b.slots)
        ]
        return State(agents, bars, pool=dict.fromkeys(range(self.protocol.cluster), 0))

    # -- values -----------------------------------------------------------------------------------------------------
    def thunk(self, e: Expr) -> Thunk:
        """``e`` compiled, once."""
        entry = self._thunks.get(id(e))
        if entry is None:
            entry = self._thunks[id(e)] = (e, compiled(e))
        return entry[1]

    def trip_key(self, name: str, agent: Agent, a: AgentState) -> TripKey:
        """Which instance of a trip symbol the agent refers to."""
        per = self.per[name]
        if per is None:
            return name, -1
        if per not in a.env:
            raise OutOfReach(f"symbol {name} is used by {agent.label} outside the loop {per} that it varies with")
        return name, a.env[per]

    def trip(self, st: State, key: TripKey) -> Trip:
        """What is known of a trip count."""
        found = st.trips.get(key)
        if found is None:
            s = self.symbols[key[0]]
            found = st.trips[key] = Trip(s.least, s.least == s.most)
        return found

    def value(self, st: State, agent: Agent, a: AgentState, e: Expr) -> int:
        """An integer; raises ``_NeedsExact`` where it depends on an undecided trip count."""
        names = e.symbols & self.trip_names
        if not names:
            return self.thunk(e)(a.env)
        env = dict(a.env)
        for name in names:
            key = self.trip_key(name, agent, a)
            trip = self.trip(st, key)
            if not trip.exact:
                raise _NeedsExact(key)
            env[name] = trip.low
        return self.thunk(e)(env)

    def truth(self, st: State, agent: Agent, a: AgentState, e: Expr) -> bool:
        """A predicate; raises ``Undecided`` where trip counts leave it open."""
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
        raise Undecided(keys[0])

    def place(self, region: ops.Region) -> Place:
        """A region compiled."""
        entry = self._places.get(id(region))
        if entry is None:
            buffer = self.buffers[region.buffer]
            begin = compiled(region.begin)
            made = Place(
                buffer.space,
                None if region.cta is None else compiled(region.cta),
                _shifted(begin, buffer.offset),
                region.size,
                buffer,
            )
            entry = self._places[id(region)] = (region, made)
        assert isinstance(entry[1], Place)
        return entry[1]

    def whole(self, buffer: Buffer) -> ops.Region:
        """All bytes of a buffer."""
        return self._wholes.setdefault(buffer.name, ops.Region(buffer.name, ops.ZERO, buffer.size))

    def bar(self, agent: Agent, a: AgentState, step: Step, slot: ops.Slot, rank: int | None = None) -> int:
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

    def rank(self, agent: Agent, a: AgentState, step: Step, thunk: Thunk | None) -> int:
        """A CTA rank, checked; without a thunk the agent's own."""
        if thunk is None:
            return agent.cta
        cta = thunk(a.env)
        if not 0 <= cta < self.protocol.cluster:
            raise Breach(Rule.SLOT_RANGE, agent.index, step, f"CTA rank {cta} in a cluster of {self.protocol.cluster}")
        return cta

    def barrier_of(self, index: int) -> Barrier:
        """The array of a barrier."""
        return self._arrays[index % self.slots_per_cta]

    def bar_name(self, index: int) -> str:
        """``full[2]`` for people, with the CTA where there are several."""
        cta, local = divmod(index, self.slots_per_cta)
        b = self.barrier_of(index)
        return f"{b.name}[{local - self.bar_base[b.name]}]" + (f"@{cta}" if self.protocol.cluster > 1 else "")

    # -- causality --------------------------------------------------------------------------------------------------
    def released(self, agent: Agent, a: AgentState, memory: bool = True) -> Clock:
        """What an arrive of the agent hands on; without ``memory`` (relaxed, too narrow a scope) only the schedule."""
        s, m, f, x, t = a.clock
        if not memory:
            return (s | a.past, 0, 0, 0, 0)
        own = (a.past, a.past, a.fence, a.fence, a.before | a.tensor)
        return join(join((s, m, f, x, t), own), a.extra)

    def acquire(self, a: AgentState, clock: Clock) -> None:
        """Joins what a barrier hands on into the agent's knowledge; tensor-memory knowledge waits for its fence."""
        s, m, f, x, t = clock
        a.clock = (a.clock[0] | s, a.clock[1] | m, a.clock[2] | f, a.clock[3] | x, a.clock[4])
        a.tensor |= t

    def knows(self, agent: Agent, a: AgentState, segment: int, c: int, e: int) -> bool:
        """Whether step ``e`` of all threads of agent ``c`` is known to be past. One thread knows itself."""
        if a.clock[segment] >> e & 1:
            return True
        return c == agent.index and agent.group.size == 1 and segment in (S, M)

    def saw(self, agent: Agent, a: AgentState, segment: int, c: int, e: int) -> bool:
        """Whether the agent knows of a completion seen by ``c`` in step ``e``: it saw it itself, or was told."""
        return c == agent.index or a.clock[segment] >> e & 1 == 1

    def wake(self, st: State) -> None:
        """Something changed that blocked agents may wait for."""
        st.blocked.clear()

    # -- running ----------------------------------------------------------------------------------------------------
    def run(self, st: State) -> None:
        """Runs to the end. Raises ``Undecided`` (state intact: call again once decided), ``Breach``, ``OutOfReach``."""
        agents, states = self.agents, st.agents
        while True:
            best: tuple[tuple[int, ...], int] | None = None
            for agent in agents:
                i = agent.index
                a = states[i]
                if a.done or i in st.blocked:
                    continue
                env = a.env
                rank = (tuple([env[c] for c in agent.active[a.pc]]), i)
                if best is None or rank < best:
                    best = rank
            if best is None:
                if all(a.done for a in states):
                    return
                self._stuck(st)
                continue
            self._advance(st, agents[best[1]], states[best[1]])

    def _advance(self, st: State, agent: Agent, a: AgentState) -> None:
        """Runs one agent until it blocks, ends, or passes a symbolic loop's test."""
        code, i = agent.code, agent.index
        while a.pc < len(code):
            ins = code[a.pc]
            match ins:
                case Do():
                    if not self._do(st, agent, a, ins.step):
                        st.blocked.add(i)
                        return
                    a.pc += 1
                case Test():
                    symbolic = bool(ins.loop.end.symbols & self.trip_names)
                    if self._goes_on(st, agent, a, ins.loop):
                        a.pc += 1
                    else:
                        del a.env[ins.loop.counter]
                        a.pc = ins.out
                    if symbolic:
                        return
                case Enter():
                    try:
                        a.env[ins.loop.counter] = self.value(st, agent, a, ins.loop.begin)
                    except _NeedsExact:
                        st.blocked.add(i)
                        return
                    a.pc += 1
                case Again():
                    a.env[ins.loop.counter] += ins.loop.step
                    a.pc = ins.back
                    if ins.loop.end.symbols & self.trip_names:
                        return  # let those behind catch up before a trip count is decided
                case Branch():
                    a.pc = a.pc + 1 if self.truth(st, agent, a, ins.node.condition) else ins.out
                case Jump():
                    a.pc = ins.out
        self.finish(st, agent, a)

    def _goes_on(self, st: State, agent: Agent, a: AgentState, loop: Loop) -> bool:
        end = loop.end
        if not end.symbols & self.trip_names:
            return a.env[loop.counter] < self.thunk(end)(a.env)
        entry = self._thunks.get(-id(loop))
        if entry is None:
            from_counter = sym(loop.counter) < end
            entry = self._thunks[-id(loop)] = (from_counter, compiled(from_counter))
            self._thunks[id(from_counter)] = entry
        return self.truth(st, agent, a, entry[0])

    def _do(self, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
        a.epoch = st.steps
        a.past |= 1 << a.epoch
        st.steps += 1  # even of a step that blocks: entering a rendezvous leaves a record
        try:
            ran = self.handlers[type(step.op)](self, st, agent, a, step)
        except _NeedsExact:
            ran = False
        if ran:
            st.trace = Event(agent.index, step, tuple(a.env.items()), st.trace)
        return ran

    def finish(self, st: State, agent: Agent, a: AgentState) -> None:
        """The agent's program ended."""
        a.done = True
        self.wake(st)

    def _stuck(self, st: State) -> None:
        """Nobody can go on: decide a trip count someone waits for, else it is a deadlock."""
        for agent in self.agents:
            a = st.agents[agent.index]
            if a.done:
                continue
            key = self._needed(st, agent, a)
            if key is not None:
                st.blocked.discard(agent.index)
                raise Undecided(key)
        waiting = [ag for ag in self.agents if not st.agents[ag.index].done]
        raise Breach(
            Rule.DEADLOCK,
            waiting[0].index,
            self.step_at(waiting[0], st.agents[waiting[0].index]),
            "; ".join(self.describe_wait(st, ag) for ag in waiting),
        )

    def step_at(self, agent: Agent, a: AgentState) -> Step | None:
        """The step the agent stands at."""
        ins = agent.code[a.pc] if a.pc < len(agent.code) else None
        return ins.step if isinstance(ins, Do) else None

    def _needed(self, st: State, agent: Agent, a: AgentState) -> TripKey | None:
        ins = agent.code[a.pc]
        match ins:
            case Enter():
                exprs = [ins.loop.begin]
            case Do(Step(op=ops.Advance(_, by))):
                exprs = [by]
            case _:
                return None
        for e in exprs:
            try:
                self.value(st, agent, a, e)
            except _NeedsExact as need:
                return need.key
        return None

    def describe_wait(self, st: State, agent: Agent) -> str:
        """What a blocked agent waits for."""
        a = st.agents[agent.index]
        step = self.step_at(agent, a)
        if step is None:
            return f"{agent.label} has not ended"
        op = step.op
        if isinstance(op, ops.Wait):
            b = self.bar(agent, a, step, op.bar)
            bar = st.bars[b]
            return (
                f"{agent.label} waits for {self.bar_name(b)} parity {self.value(st, agent, a, op.parity)}: phase "
                f"{bar.phase} has {bar.pending} arrivals and {bar.tx} bytes to come"
            )
        return f"{agent.label} waits at {type(op).__name__}"


def _shifted(begin: Thunk, offset: int) -> Thunk:
    return (lambda env: offset + begin(env)) if offset else begin


def _trip_use(pc: int, ins: Instruction, name: str, found: Usage) -> TripUse:
    match ins:
        case Test(Loop(counter, _, Sym(bound))) if bound == name:
            return TripUse(pc, counter)
        case Do(Step(op=ops.Advance(counter, Sym(by)))) if (
            by == name and counter not in found.raw | found.cutoff.keys()
        ):
            return TripUse(pc, period=found.period.get(counter, 1))
        case Branch(If(condition)) if (
            condition.symbols == frozenset((name,)) and not usage([condition], frozenset()).raw
        ):
            alone = usage([condition], frozenset())
            return TripUse(pc, period=alone.period.get(name, 1), cutoff=alone.cutoff.get(name, 0))
        case Test(Loop(counter, _, end)):
            return _compared(pc, sym(counter) < end, name)
        case Branch(If(condition)):
            return _compared(pc, condition, name)
        case _:
            return TripUse(pc, raw=True)


def _compared(pc: int, predicate: Expr, name: str) -> TripUse:
    alone = usage([predicate], frozenset((name,)))
    counters = [v for v, s in alone.related if s == name]
    plain = len(counters) == 1 and not alone.raw and predicate.symbols == frozenset((name, *counters))
    return TripUse(pc, counters[0]) if plain else TripUse(pc, raw=True)


def rendezvous(st: State, key: Stream) -> Rendezvous:
    """The state of a barrier of threads, made on first use."""
    found = st.rendezvous.get(key)
    if found is None:
        found = st.rendezvous[key] = Rendezvous()
    return found


_SPACES = {
    Space.REGISTER: "register",
    Space.GLOBAL: "global",
    Space.TMEM: "tmem",
    Space.SHARED: "shared",
    Space.DISTRIBUTED_SHARED: "shared",
}


def _slots(op: ops.Op) -> list[str]:
    """Barrier arrays an op refers to."""
    if isinstance(op, ops.MbarrierInit | ops.MbarrierInval):
        return [op.barrier]
    slot = getattr(op, "bar", None)
    return [slot.barrier] if isinstance(slot, ops.Slot) else []


def _waited_slots(op: ops.Op) -> list[str]:
    return [op.bar.barrier] if isinstance(op, ops.Wait | ops.TestWait) else []


def _signalled_slots(op: ops.Op) -> list[str]:
    return [] if isinstance(op, ops.Wait | ops.TestWait) else _slots(op)


def _unwatched(protocol: Protocol) -> frozenset[str]:
    """Barriers of count 1 that are only ever arrived at: each arrival is a phase of its own, and nobody looks."""
    code = [s.op for role in protocol.roles for s in steps(role.body)]
    watched = {name for op in code if not isinstance(op, ops.Arrive | ops.MbarrierInit) for name in _slots(op)}
    counted = {op.bar.barrier for op in code if isinstance(op, ops.Arrive) and op.count > 1}
    return frozenset(b.name for b in protocol.barriers if b.count == 1) - watched - counted


def _may_name(op: ops.Op, number: object) -> bool:
    """Whether an op may use the named barrier of this number."""
    if isinstance(op, ops.CtaSync):
        return number == 0
    return isinstance(op, ops.BarSync | ops.BarArrive) and op.id.constant in (None, number)


def _buffers(op: ops.Op) -> list[str]:
    """Buffers an op accesses."""
    found: list[str] = []
    for value in vars(op).values():
        items = cast(tuple[object, ...], value if isinstance(value, tuple) else (value,))
        found += [x.buffer for x in items if isinstance(x, ops.Region)]
    return [*found, op.buffer] if isinstance(op, ops.Tcgen05Alloc | ops.Tcgen05Dealloc) else found


def _written_buffers(op: ops.Op) -> list[str]:
    """Buffers an op writes (a descriptor's rewrite counts, its use does not)."""
    match op:
        case ops.TmaStore():
            return [] if op.dst is None else [op.dst.buffer]
        case ops.Read() | ops.Tcgen05Ld():
            return []
        case ops.TmaLoad() | ops.DsmemCopy() | ops.Tcgen05Cp():
            return [op.dst.buffer]
        case ops.Wgmma() | ops.Tcgen05Mma():
            return [op.accumulator.buffer]
        case _:
            return _buffers(op)
