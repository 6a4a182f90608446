"""A timed run of a protocol: who does what when, on an SM where every op takes the time its price says.

One run of given trip counts, for a picture and for a look at where the time goes; nothing is proved by it. Engines are
queues: tensor copies share one path into shared memory, products the tensor cores. Work between the protocol's ops
(element-wise code) has no price here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tilewright.base.expr import Expr
from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.effects import (
    Access,
    Await,
    BarrierScope,
    Commit,
    Count,
    Counting,
    Engine,
    Queue,
    Retire,
    Signal,
    Stage,
    Strong,
    Sync,
)
from tilewright.protocol.labels import by_threads, issued, served
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step
from tilewright.protocol.prices import COPIES, PRODUCTS, Cost, prices_of

MAX_STEPS = 50_000


class Activity(Enum):
    """The kind of a span."""

    WAIT = "wait"
    ISSUE = "issue"
    COPY = "copy"
    STORE = "store"
    PRODUCT = "product"
    ACCESS = "access"


@dataclass(frozen=True)
class TimelineSpan:
    """``lane`` does ``what`` from cycle ``begin`` to ``end``; ``slot`` is the stage of the ring it belongs to."""

    lane: str
    doing: Activity
    what: str
    begin: float
    end: float
    slot: int | None = None


@dataclass(frozen=True)
class TimedRun:
    """Spans in order of their beginning, a lane for each role and each engine in use.

    ``stuck`` names the waits that never ended.
    """

    lanes: tuple[str, ...]
    spans: tuple[TimelineSpan, ...]
    cycles: float
    stuck: tuple[str, ...] = ()


def run_timed(protocol: Protocol, values: Mapping[str, int]) -> TimedRun:
    """Runs ``protocol`` once with the given values of its symbols; lanes are those of the CTA of rank 0.

    Of the roles that can go on, the one that is earliest goes first. Stops after ``MAX_STEPS`` steps.
    """
    run = _Run(protocol, dict(values))
    run.go()
    spans = tuple(sorted(run.spans, key=lambda s: (s.begin, s.lane)))
    lanes = [r.name for r in protocol.roles if r.ctas is None or 0 in r.ctas]
    engines = [lane for lane in (COPIES, PRODUCTS) if any(s.lane == lane for s in spans)]
    return TimedRun((*lanes, *engines), spans, max((s.end for s in spans), default=0.0), tuple(run.stuck))


@dataclass
class _Phase:
    """The phase under way of one mbarrier: arrivals and bytes still missing, and when the last one so far came."""

    count: int
    missing: int
    tx_bytes: int = 0
    latest: float = 0.0
    completed: list[float] = field(default_factory=list[float])

    def add(self, when: float, arrivals: int = 0, expected: int = 0, landed: int = 0) -> None:
        self.missing -= arrivals
        self.tx_bytes += expected - landed
        self.latest = max(self.latest, when)
        if self.missing <= 0 and self.tx_bytes == 0:
            self.completed.append(self.latest)
            self.missing, self.latest = self.count, 0.0


@dataclass
class _Rounds:
    """A barrier of threads: who has come in this round, and when the rounds before were complete."""

    present: int = 0
    latest: float = 0.0
    completed: list[float] = field(default_factory=list[float])

    def add(self, when: float, threads: int, of: int) -> int:
        """Arrives; the number of the round arrived in."""
        turn = len(self.completed)
        self.present += threads
        self.latest = max(self.latest, when)
        if self.present >= of:
            self.completed.append(self.latest)
            self.present, self.latest = 0, 0.0
        return turn


_Block = Generator["tuple[list[float], int, str]"]
"""A role at work; it yields a list of completion times, the number of the one it waits for, and the wait in words."""


@dataclass
class _Agent:
    role: Role
    cta: int
    env: dict[str, int]
    now: float = 0.0
    slot: int | None = None
    groups: dict[tuple[Queue, Stage], list[float]] = field(default_factory=dict[tuple[Queue, Stage], list[float]])
    open_until: dict[tuple[Queue, Stage], float] = field(default_factory=dict[tuple[Queue, Stage], float])
    rounds: dict[tuple[object, ...], int] = field(default_factory=dict[tuple[object, ...], int])
    """Per barrier of threads, the round arrived in."""
    work: _Block | None = None
    blocked: tuple[list[float], int, str] | None = None

    def ready(self) -> bool:
        return self.blocked is None or len(self.blocked[0]) > self.blocked[1]


class _Run:
    def __init__(self, protocol: Protocol, values: dict[str, int]):
        self.protocol = protocol
        self.prices = prices_of(protocol)
        self.spans: list[TimelineSpan] = []
        self.stuck: list[str] = []
        self.busy: dict[tuple[str, int], float] = {}
        self.phases: dict[tuple[str, int, int], _Phase] = {}
        self.rounds: dict[tuple[object, ...], _Rounds] = {}
        self.words: dict[tuple[str, int], list[float]] = {}
        self.steps = 0
        self.agents = [
            _Agent(
                role, cta, {**values, **dict.fromkeys(protocol.tickets, 0), ops.CTA_RANK: cta, **dict(role.counters)}
            )
            for cta in range(protocol.ctas)
            for role in protocol.roles
            if role.ctas is None or cta in role.ctas
        ]
        for agent in self.agents:
            agent.work = self._nodes(agent, agent.role.body)

    def go(self) -> None:
        running = list(self.agents)
        while running:
            ready = [a for a in running if a.ready()]
            if not ready or self.steps > MAX_STEPS:
                self.stuck = [f"{a.role.name}: {a.blocked[2]}" for a in running if a.blocked is not None]
                return
            agent = min(ready, key=self._when)
            self._resume(agent)
            try:
                agent.blocked = next(agent.work) if agent.work is not None else None
            except StopIteration:
                running.remove(agent)

    @staticmethod
    def _when(agent: _Agent) -> float:
        return agent.now if agent.blocked is None else max(agent.now, agent.blocked[0][agent.blocked[1]])

    def _resume(self, agent: _Agent) -> None:
        if agent.blocked is None:
            return
        done = max(agent.now, agent.blocked[0][agent.blocked[1]])
        self._span(agent, Activity.WAIT, agent.blocked[2], agent.now, done)
        agent.now, agent.blocked = done, None

    def _span(self, agent: _Agent, doing: Activity, what: str, begin: float, end: float, lane: str = "") -> None:
        if agent.cta == 0 and end > begin:
            self.spans.append(TimelineSpan(lane or agent.role.name, doing, what, begin, end, agent.slot))

    # -- programs -----------------------------------------------------------------------------------------------------
    def _nodes(self, agent: _Agent, nodes: tuple[Node, ...]) -> _Block:
        for node in nodes:
            match node:
                case Step():
                    self.steps += 1
                    yield from self._step(agent, node)
                case Loop():
                    begin, end = (int(e.evaluate(agent.env)) for e in (node.begin, node.end))
                    for value in range(begin, end, node.step):
                        agent.env[node.counter] = value
                        yield from self._nodes(agent, node.body)
                case If():
                    taken = node.condition.evaluate(agent.env)
                    yield from self._nodes(agent, node.then if taken else node.otherwise)

    def _step(self, agent: _Agent, step: Step) -> _Block:
        op, cost = step.op, self.prices(step)
        threads = {By.ALL: agent.role.threads, By.ELECTED: 1, By.PER_WARP: -(-agent.role.threads // WARP_THREADS)}
        ready = 0.0
        for effect in op.effects:
            match effect:
                case Count(counter, by):
                    agent.env[counter] += int(by.evaluate(agent.env))
                    return
                case Await(blocks=True):
                    yield from self._await(agent, effect)
                case Strong():
                    yield from self._strong(agent, effect)
                case Sync():
                    yield from self._sync(agent, effect)
                case Retire():
                    self._retire(agent, effect)
                case Access(until=Queue() | ops.Slot()):
                    ready = self._begin(agent, op, effect, cost, ready)
                case Signal():
                    self._signal(agent, effect, threads.get(step.by, 1), ready)
                case Commit(queue):
                    for stage in Stage:
                        agent.groups.setdefault((queue, stage), []).append(agent.open_until.pop((queue, stage), 0.0))
                case _:
                    pass
        doing = Activity.ACCESS if by_threads(op) else Activity.ISSUE
        self._span(agent, doing, issued(op), agent.now, agent.now + cost.issue)
        agent.now += cost.issue

    def _await(self, agent: _Agent, wait: Await) -> _Block:
        phase = self._phase(agent, wait.bar)
        agent.slot = int(wait.bar.index.evaluate(agent.env))
        past = bisect_right(phase.completed, agent.now)
        if past % 2 == int(wait.parity.evaluate(agent.env)):
            yield phase.completed, past, f"{wait.bar.barrier}[{agent.slot}]"

    def _strong(self, agent: _Agent, effect: Strong) -> _Block:
        """A word is the times at which it became one more; who draws a ticket leaves it to all of its CTA."""
        index, value = (int(e.evaluate(agent.env)) for e in (effect.word.index, effect.value))
        units = self.words.setdefault((effect.word.counter, index), [])
        match effect.does:
            case Counting.ADD:
                for other in self.agents:
                    if effect.ticket and other.cta == agent.cta:
                        other.env[effect.ticket] = len(units)
                units += [max([agent.now, *units[-1:]])] * value
            case Counting.SET:
                units[:] = [*units[:value], *[agent.now] * (value - len(units))]
            case Counting.AT_LEAST:
                if len(units) < value:
                    yield units, value - 1, f"{effect.word.counter}[{index}]"

    def _sync(self, agent: _Agent, sync: Sync) -> _Block:
        match sync.scope, sync.number:
            case BarrierScope.CLUSTER, _:
                key, words = ("cluster",), "cluster barrier"
                of = sum(a.role.threads for a in self.agents)
            case BarrierScope.CTA, Expr() as id:
                number = int(id.evaluate(agent.env))
                key, words = (
                    ("named", agent.cta, number),
                    "CTA barrier" if sync.threads is None else f"barrier {number}",
                )
                of = sync.threads or sum(a.role.threads for a in self.agents if a.cta == agent.cta)
            case _:
                return  # the lanes of a warp go side by side
        rounds = self.rounds.setdefault(key, _Rounds())
        if sync.arrives:
            agent.rounds[key] = rounds.add(agent.now, agent.role.threads, of)
        if sync.waits:
            yield rounds.completed, agent.rounds.get(key, 0), words

    # -- groups and engines -------------------------------------------------------------------------------------------
    def _retire(self, agent: _Agent, retired: Retire) -> None:
        groups = agent.groups.get((retired.queue, retired.stage), [])
        done = max(groups[: len(groups) - retired.pending], default=0.0)
        read = " read" if retired.stage is Stage.SOURCE else ""
        self._span(agent, Activity.WAIT, f"{retired.queue.name}{read} groups, {retired.pending} left", agent.now, done)
        agent.now = max(agent.now, done)

    def _occupy(self, agent: _Agent, doing: Activity, what: str, cost: Cost, delay: float) -> float:
        """Takes the op's engine from the first moment it is free for as long as the work takes; when that ends."""
        begin = max(agent.now + delay, self.busy.get((cost.engine, agent.cta), 0.0))
        end = self.busy[cost.engine, agent.cta] = begin + cost.service
        self._span(agent, doing, what, begin, end, cost.engine)
        return end

    def _begin(self, agent: _Agent, op: ops.Op, access: Access, cost: Cost, ready: float) -> float:
        """An asynchronous access begins; when it is done. The accesses of one op take its engine once.

        Of a copy the engine is taken from the first of its bytes on, which comes a latency late; a bulk store has read
        its source before.
        """
        if not cost.engine:
            return ready
        copies = op.engine is not Engine.PRODUCTS and access.stage is Stage.DONE
        if not ready:
            doing = Activity.COPY if copies else Activity.STORE if op.engine is Engine.STORES else Activity.PRODUCT
            ready = self._occupy(agent, doing, served(op, agent.role.name), cost, cost.latency if copies else 0.0)
        if access.queue is not None:
            for stage in Stage:
                late = 0.0 if copies or stage is Stage.SOURCE else cost.latency
                key = access.queue, stage
                agent.open_until[key] = max(agent.open_until.get(key, 0.0), ready + late)
        return ready

    def _signal(self, agent: _Agent, signal: Signal, threads: int, ready: float) -> None:
        """Arrivals of as many threads, or bytes that have landed when a copy is ``ready``."""
        when = agent.now
        if signal.lands:
            when = ready
        elif signal.after is not None:
            key = signal.after, Stage.DONE
            when = max(when, agent.open_until.get(key, 0.0), *agent.groups.get(key, ()))
        by = 1 if signal.lands else threads
        for cta in [int(e.evaluate(agent.env)) for e in signal.ranks] or [self._rank(agent, signal.bar)]:
            phase = self._phase(agent, signal.bar, cta)
            phase.add(when, signal.arrivals * by, signal.expects * by, signal.lands * by)

    # -- barriers -----------------------------------------------------------------------------------------------------
    @staticmethod
    def _rank(agent: _Agent, bar: ops.Slot) -> int:
        return agent.cta if bar.cta is None else int(bar.cta.evaluate(agent.env))

    def _phase(self, agent: _Agent, bar: ops.Slot, cta: int | None = None) -> _Phase:
        rank = self._rank(agent, bar) if cta is None else cta
        count = self.protocol.barrier(bar.barrier).count
        key = (bar.barrier, int(bar.index.evaluate(agent.env)), rank)
        return self.phases.setdefault(key, _Phase(count, count))
