"""Canonical execution of a protocol with causality clocks.

One schedule is run: among the agents that can go on, the one least far in the symbolic loops. It stands for all
schedules, because every rule it checks speaks of what holds in *every* execution (the clocks) and, while the rules of
counts, phases and recycling hold, no execution orders things otherwise (``docs/contracts.md``, the theorem).

It stops at a breach, at the end, or where a trip count (``OpenTripCount``) or the order of strong operations
on counters (``OpenOrder``) must be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tilewright.base.expr import Expr
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.effects import Await, Effect, Strong
from tilewright.protocol.model import Loop, Protocol, Step
from tilewright.verify.canonical_runs.agents import CompiledAgent, TripUse, agents_of
from tilewright.verify.canonical_runs.counter_order import operations
from tilewright.verify.canonical_runs.evaluation import Breach, Evaluation, NeedsExact, OpenTripCount, OutOfReach
from tilewright.verify.canonical_runs.stage_symmetry import stage_symmetry
from tilewright.verify.canonical_runs.state import (
    A,
    AgentState,
    BarState,
    Clock,
    F,
    M,
    Rendezvous,
    RunState,
    S,
    StepEvent,
    Stream,
    T,
    TripKey,
    WordState,
    X,
    begun,
    join,
)
from tilewright.verify.canonical_runs.users import Users
from tilewright.verify.op_constraints import broken
from tilewright.verify.rules import Policy, Rule
from tilewright.verify.threads import (
    BackEdge,
    Branch,
    Jump,
    LoopEntry,
    LoopTest,
    RunStep,
)

MAX_WORK = 500_000
"""Budget of a search, in instructions of its runs and what else takes as long."""
BITS_OF_A_STEP = 512
"""The clock bits that cost as much as one instruction: clocks grow with the iterations of a loop up to a limit."""

_RANK = frozenset((ops.CTA_RANK,))

Transfer: TypeAlias = Callable[["StepExecution", Any], bool]
"""The effect of an op on a state; false if it blocks, then it is retried."""


class StepExecution(NamedTuple):
    """A step that an agent executes in a state."""

    m: Interpreter
    st: RunState
    agent: CompiledAgent
    a: AgentState
    step: Step

    def breach(self, rule: Rule, detail: str, other: tuple[int, Step] | None = None, buffer: str = "") -> Breach:
        """A rule broken by this step."""
        return Breach(rule, self.agent.index, self.step, detail, other, buffer)

    @property
    def label(self) -> str:
        """The agent for people."""
        return self.agent.label

    def value(self, e: Expr) -> int:
        """An integer here."""
        return self.m.value(self.st, self.agent, self.a, e)

    def rank(self, e: Expr) -> int:
        """A CTA rank, checked."""
        rank = self.value(e)
        return self.m.rank(self.agent, self.a, self.step, lambda env: rank)

    def bar(self, slot: ops.Slot, rank: int | None = None) -> int:
        """Index of a slot among all barriers; ``rank`` overrides the CTA (multicast)."""
        return self.m.bar(self.agent, self.a, self.step, slot, rank)

    def knows(self, segment: int, c: int, e: int) -> bool:
        """Whether step ``e`` of all threads of agent ``c`` is known to be past. One thread knows itself."""
        if self.a.clock[segment] >> e & 1:
            return True
        return c == self.agent.index and self.agent.group.size == 1 and segment in (S, M, A)

    def saw(self, segment: int, c: int, e: int) -> bool:
        """Whether the agent knows of a completion seen by ``c`` in step ``e``, directly or by synchronisation."""
        return _saw(self.agent, self.a, segment, c, e)

    def released(self, memory: bool = True) -> Clock:
        """What an arrive of the agent hands on; without ``memory`` (relaxed, too narrow a scope) only the schedule."""
        a = self.a
        if not memory:
            return (a.clock[S] | a.past, 0, 0, 0, 0, a.clock[A] | a.past)
        own = (a.past, a.past, a.fence, a.fence, a.before | a.tensor, a.past)
        return join(join(a.clock, own), a.extra)

    def committed(self) -> Clock:
        """What a tcgen05.commit of the agent hands on: it implies the before-fence, and releases nothing."""
        a, (s, *_, y) = self.a, self.released(memory=False)
        return (s, 0, 0, 0, a.clock[T] | a.extra[T] | a.before | a.tensor, y)

    def acquire(self, clock: Clock) -> None:
        """Adds what a barrier publishes to the agent's knowledge; tensor-memory knowledge requires its fence."""
        (s, m, f, x, t, y), mine = clock, self.a.clock
        self.a.clock = (mine[S] | s, mine[M] | m, mine[F] | f, mine[X] | x, mine[T], mine[A] | y)
        self.a.tensor |= t

    @property
    def once(self) -> bool:
        """Whether the agent does what its role does once."""
        return self.agent.group.primary


def _saw(agent: CompiledAgent, a: AgentState, segment: int, c: int, e: int) -> bool:
    return c == agent.index or a.clock[segment] >> e & 1 == 1


class Interpreter(Evaluation):
    """The fixed part of a run: agents, compiled expressions, policy. States are run, copied and compared by it."""

    def __init__(
        self,
        protocol: Protocol,
        transfers: Mapping[type[object], Transfer],
        serve: Callable[[Interpreter, RunState], None],
        policy: Policy,
    ):
        """``transfers`` implement each kind of effect; ``serve`` chooses who continues when all agents wait for one
        another or for their turn."""
        super().__init__(protocol)
        self.transfers, self.serve = transfers, serve
        self.policy = policy
        self.agents = agents_of(protocol, self.trip_names)
        self.n = len(self.agents)
        self.tensor = any(b.space is Space.TMEM for b in protocol.buffers)
        self.role_agents: dict[Stream, list[CompiledAgent]] = {}
        for agent in self.agents:
            self.role_agents.setdefault(agent.role, []).append(agent)
        self.everyone = tuple(range(self.n))
        self.operations = operations(self.agents)
        self.users = Users(protocol, self.agents)
        self.symmetry = stage_symmetry(protocol)
        self.first_of: dict[object, int] = {role: found[0].index for role, found in self.role_agents.items()}
        self.numbers: dict[Stream, int] = {}
        """Streams and spaces numbered as they come up."""
        self.warnings: dict[tuple[Rule, str], Breach] = {}
        self.doubt = ""
        """Why no number of right runs is a proof; empty if they are."""
        self.spent = 0
        """Work done, in instructions; other work is converted to the same unit."""
        self._found: dict[int, tuple[Step, list[tuple[Transfer, Effect]]]] = {}
        self._formed: dict[tuple[int, int], Step] = {}
        """Steps, by CTA, whose form is right whatever the counters are."""

    def future_uses(self, agent: CompiledAgent, a: AgentState, key: TripKey) -> list[TripUse]:
        """The future uses of this instance of a trip symbol by the agent."""
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

    def _from(self, agent: CompiledAgent, pc: int, per: str | None) -> int:
        """First instruction that may still run: the start of the outermost loop around ``pc`` (inside ``per``'s)."""
        inside = per is None
        for counter, test, out in agent.loops:
            if test <= pc < out:
                if inside:
                    return test
                inside = counter == per
        return pc

    # -- start ------------------------------------------------------------------------------------------------------
    def start(self) -> RunState:
        """The state before the first step."""
        agents: list[AgentState] = []
        for agent in self.agents:
            role = self.protocol.role(agent.group.role)
            env = {**dict.fromkeys(self.protocol.tickets, 0), **dict(role.counters), ops.CTA_RANK: agent.cta}
            past = 1 << begun(agent.cta)
            agents.append(AgentState(0, env, past=past, registers=self.protocol.registers_per_thread))
        bars = [
            BarState(b.count) for _ in range(self.protocol.ctas) for b in self.protocol.barriers for _ in range(b.slots)
        ]
        pool = dict.fromkeys(range(self.protocol.ctas), 0)
        return RunState(agents, bars, pool=pool, steps=begun(self.protocol.ctas))

    # -- causality --------------------------------------------------------------------------------------------------
    def known_done(self, st: RunState, cta: int, stream: Stream, seq: int) -> bool:
        """Whether some thread of a CTA knows that a stream is done up to a number."""
        marks = [k for k in st.marks.get(stream, ()) if k.covers(seq)]
        return any(_saw(x, st.agents[x.index], S, k.c, k.e) for x in self.agents if x.cta == cta for k in marks)

    def wake(self, st: RunState) -> None:
        """Something changed that blocked agents may wait for."""
        st.blocked.clear()

    def spend(self, work: int) -> None:
        """Counts work; raises ``OutOfReach`` beyond the budget, which is the same for the same protocol anywhere."""
        self.spent += work
        if self.spent > MAX_WORK:
            raise OutOfReach(f"the search of canonical runs used up its {MAX_WORK} steps")

    # -- running ----------------------------------------------------------------------------------------------------
    def run(self, st: RunState) -> None:
        """Runs to the end. Raises ``OpenTripCount`` or ``OpenOrder`` (state intact: call again once decided),
        ``Breach``, or ``OutOfReach``."""
        agents, states = self.agents, st.agents
        ranks = [self._rank(agent, states[agent.index]) for agent in agents]
        while True:
            ready = [ranks[i] for i, a in enumerate(states) if not a.done and i not in st.blocked]
            if ready:
                i = min(ready)[1]
                self._advance(st, agents[i], states[i])
                ranks[i] = self._rank(agents[i], states[i])
            elif all(a.done for a in states):
                return
            else:
                self._stuck(st)

    def _rank(self, agent: CompiledAgent, a: AgentState) -> tuple[tuple[int, ...], int]:
        """The progress of an agent in the loops around its position; the least advanced runs first."""
        return tuple([a.env[c] for c in agent.active[a.pc]]), agent.index

    def _advance(self, st: RunState, agent: CompiledAgent, a: AgentState) -> None:
        """Runs one agent until it blocks, ends, or passes a symbolic loop's test."""
        code, i = agent.code, agent.index
        while a.pc < len(code):
            self.spend(1 + a.clock[S].bit_length() // BITS_OF_A_STEP)
            ins = code[a.pc]
            match ins:
                case RunStep():
                    if not self._do(st, agent, a, ins.step):
                        st.blocked.add(i)
                        return
                    a.pc += 1
                case LoopTest():
                    symbolic = bool(ins.loop.end.symbols & self.trip_names)
                    if self._goes_on(st, agent, a, ins.loop):
                        a.pc += 1
                    else:
                        del a.env[ins.loop.counter]
                        a.pc = ins.out
                    if symbolic:
                        return
                case LoopEntry():
                    try:
                        a.env[ins.loop.counter] = self.value(st, agent, a, ins.loop.begin)
                    except NeedsExact:
                        st.blocked.add(i)
                        return
                    a.pc += 1
                case BackEdge():
                    a.env[ins.loop.counter] += ins.loop.step
                    a.pc = ins.back
                    if ins.loop.end.symbols & self.trip_names:
                        return  # let those behind catch up before a trip count is decided
                case Branch():
                    a.pc = a.pc + 1 if self.truth(st, agent, a, ins.node.condition) else ins.out
                case Jump():
                    a.pc = ins.out
        self.finish(st, a)

    def _goes_on(self, st: RunState, agent: CompiledAgent, a: AgentState, loop: Loop) -> bool:
        end = loop.end
        if not end.symbols & self.trip_names:
            return a.env[loop.counter] < self.thunk(end)(a.env)
        return self.truth(st, agent, a, self.below(loop))

    def _do(self, st: RunState, agent: CompiledAgent, a: AgentState, step: Step) -> bool:
        a.epoch = st.steps
        a.past |= 1 << a.epoch
        st.steps += 1  # even of a step that blocks: entering a rendezvous leaves a record
        exact: dict[str, int] = {}
        try:
            exact = self.exact(st, agent, a, step)
            a.env.update(exact)
            self._form(st, agent, a, step)
            execution = StepExecution(self, st, agent, a, step)
            ran = True
            for transfer, effect in self._transfers_of(step):
                if not transfer(execution, effect):
                    ran = False
                    break
        except NeedsExact:
            ran = False
        if ran:
            st.trace = StepEvent(agent.index, step, tuple(a.env.items()), st.trace)
        for name in exact:
            del a.env[name]
        return ran

    def _transfers_of(self, step: Step) -> list[tuple[Transfer, Effect]]:
        """The effects of a step's op, each with what it does; looked up once."""
        found = self._found.get(id(step))
        if found is None:
            found = self._found[id(step)] = step, [(self.transfers[type(e)], e) for e in step.op.effects]
        return found[1]

    def _form(self, st: RunState, agent: CompiledAgent, a: AgentState, step: Step) -> None:
        """The op is one that the target has, with operands that it takes; asked once where no counter bears on it."""
        key = id(step), agent.cta
        if key in self._formed:
            return
        varies = False

        def value(e: Expr) -> int:
            nonlocal varies
            varies |= e.constant is None and e.symbols != _RANK
            return self.value(st, agent, a, e)

        for rule, detail in broken(self.protocol, step.op, agent.cta, value, lambda e, n: value(e) % n):
            raise Breach(rule, agent.index, step, f"{agent.label}: {detail}")
        if not varies:
            self._formed[key] = step

    def finish(self, st: RunState, a: AgentState) -> None:
        """The agent's program ended."""
        a.done = True
        self.wake(st)

    def _stuck(self, st: RunState) -> None:
        """Nobody can go on: decide a trip count someone waits for, else it is a deadlock."""
        for agent in self.agents:
            a = st.agents[agent.index]
            if a.done:
                continue
            key = self._needed(st, agent, a)
            if key is not None:
                st.blocked.discard(agent.index)
                raise OpenTripCount(key)
        self.serve(self, st)
        waiting = [ag for ag in self.agents if not st.agents[ag.index].done]
        raise Breach(
            Rule.DEADLOCK,
            waiting[0].index,
            self.step_at(waiting[0], st.agents[waiting[0].index]),
            self.waits(st, waiting),
        )

    def step_at(self, agent: CompiledAgent, a: AgentState) -> Step | None:
        """The step at the agent's position."""
        ins = agent.code[a.pc] if a.pc < len(agent.code) else None
        return ins.step if isinstance(ins, RunStep) else None

    def _needed(self, st: RunState, agent: CompiledAgent, a: AgentState) -> TripKey | None:
        ins = agent.code[a.pc]
        match ins:
            case LoopEntry():
                exprs = [ins.loop.begin]
            case RunStep():
                exprs = ins.step.op.expressions
            case _:
                return None
        for e in exprs:
            try:
                self.value(st, agent, a, e)
            except NeedsExact as need:
                return need.key
        return None

    def waits(self, st: RunState, agents: Iterable[CompiledAgent]) -> str:
        """What blocked agents wait for, those that wait for one thing together; phases and words before threads."""
        who: dict[str, list[str]] = {}
        for agent in agents:
            who.setdefault(self._waited_for(st, agent), []).append(agent.label)
        said = [f"{', '.join(x)} wait{'s' if len(x) == 1 else ''} {what}" for what, x in who.items()]
        return "; ".join(sorted(said, key=lambda words: " at " in words))

    def _waited_for(self, st: RunState, agent: CompiledAgent) -> str:
        a = st.agents[agent.index].copy()
        step = self.step_at(agent, a)
        if step is None:
            return "at a loop"
        a.env.update(self.exact(st, agent, a, step))
        for wait in step.op.of(Await):
            b = self.bar(agent, a, step, wait.bar)
            bar = st.bars[b]
            return (
                f"for {self.bar_name(b)} parity {self.value(st, agent, a, wait.parity)}: phase "
                f"{bar.phase} has {bar.pending} arrivals and {bar.tx} bytes to come"
            )
        for effect in step.op.of(Strong):
            index, least = (self.value(st, agent, a, e) for e in (effect.word.index, effect.value))
            word = st.words.get((effect.word.counter, index), WordState())
            name = f"{effect.word.counter}[{index}]"
            return f"until {name} is {least}: it is {word.value}"
        return f"at {type(step.op).__name__}"


def rendezvous(st: RunState, key: Stream) -> Rendezvous:
    """The state of a barrier of threads, made on first use."""
    found = st.rendezvous.get(key)
    if found is None:
        found = st.rendezvous[key] = Rendezvous()
    return found
