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

from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step
from tilewright.protocol.prices import COPIES, PRODUCTS, Cost, prices_of
from tilewright.protocol.words import issued, served

MAX_STEPS = 50_000


class Doing(Enum):
    """What a span shows."""

    WAIT = "wait"
    ISSUE = "issue"
    COPY = "copy"
    STORE = "store"
    PRODUCT = "product"
    ACCESS = "access"


@dataclass(frozen=True)
class Span:
    """``lane`` does ``what`` from cycle ``begin`` to ``end``; ``slot`` is the stage of the ring it belongs to."""

    lane: str
    doing: Doing
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
    spans: tuple[Span, ...]
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
class _Meeting:
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
    groups: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    open_until: dict[str, float] = field(default_factory=dict[str, float])
    work: _Block | None = None
    blocked: tuple[list[float], int, str] | None = None

    def ready(self) -> bool:
        return self.blocked is None or len(self.blocked[0]) > self.blocked[1]


class _Run:
    def __init__(self, protocol: Protocol, values: dict[str, int]):
        self.protocol = protocol
        self.prices = prices_of(protocol)
        self.spans: list[Span] = []
        self.stuck: list[str] = []
        self.busy: dict[tuple[str, int], float] = {}
        self.phases: dict[tuple[str, int, int], _Phase] = {}
        self.meetings: dict[tuple[object, ...], _Meeting] = {}
        self.steps = 0
        self.agents = [
            _Agent(role, cta, {**values, ops.CTA_RANK: cta, **dict(role.counters)})
            for cta in range(protocol.cluster)
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
        self._span(agent, Doing.WAIT, agent.blocked[2], agent.now, done)
        agent.now, agent.blocked = done, None

    def _span(self, agent: _Agent, doing: Doing, what: str, begin: float, end: float, lane: str = "") -> None:
        if agent.cta == 0 and end > begin:
            self.spans.append(Span(lane or agent.role.name, doing, what, begin, end, agent.slot))

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
        op, words, cost = step.op, issued(step.op), self.prices(step)
        threads = {By.ALL: agent.role.threads, By.ELECTED: 1, By.PER_WARP: -(-agent.role.threads // WARP_THREADS)}
        match op:
            case ops.Advance():
                agent.env[op.counter] += int(op.by.evaluate(agent.env))
                return
            case ops.Wait():
                phase = self._phase(agent, op.bar)
                agent.slot = int(op.bar.index.evaluate(agent.env))
                past = bisect_right(phase.completed, agent.now)
                if past % 2 == int(op.parity.evaluate(agent.env)):
                    yield phase.completed, past, f"{op.bar.barrier}[{agent.slot}]"
            case ops.BarSync() | ops.CtaSync() | ops.ClusterWait():
                yield self._meet(agent, op)
            case ops.BarArrive() | ops.ClusterArrive():
                self._meet(agent, op)
            case ops.WgmmaWait() | ops.BulkWait() | ops.CpAsyncWait():
                self._wait_groups(agent, op)
            case _:
                self._issue(agent, op, threads[step.by], cost)
        doing = Doing.ACCESS if isinstance(op, ops.Read | ops.Write) else Doing.ISSUE
        self._span(agent, doing, words, agent.now, agent.now + cost.issue)
        agent.now += cost.issue

    def _meet(self, agent: _Agent, op: ops.Op) -> tuple[list[float], int, str]:
        threads = agent.role.threads
        match op:
            case ops.BarSync() | ops.BarArrive():
                number = int(op.id.evaluate(agent.env))
                key, of, words = ("named", agent.cta, number), op.threads, f"barrier {number}"
            case ops.ClusterArrive() | ops.ClusterWait():
                key, of, words = ("cluster",), sum(a.role.threads for a in self.agents), "cluster barrier"
            case _:
                of = sum(a.role.threads for a in self.agents if a.cta == agent.cta)
                key, words = ("cta", agent.cta), "CTA barrier"
        meeting = self.meetings.setdefault(key, _Meeting())
        if isinstance(op, ops.ClusterWait):  # waits for the round it arrived in before
            return meeting.completed, int(agent.open_until.get("cluster", 0.0)), words
        turn = meeting.add(agent.now, threads, of)
        agent.open_until["cluster"] = float(turn) if isinstance(op, ops.ClusterArrive) else 0.0
        return meeting.completed, turn, words

    # -- groups and engines -------------------------------------------------------------------------------------------
    def _wait_groups(self, agent: _Agent, op: ops.WgmmaWait | ops.BulkWait | ops.CpAsyncWait) -> None:
        kind = {ops.WgmmaWait: "wgmma", ops.BulkWait: "bulk", ops.CpAsyncWait: "cp.async"}[type(op)]
        kind += " read" if isinstance(op, ops.BulkWait) and op.read else ""
        groups = agent.groups.get(kind, [])
        done = max(groups[: len(groups) - op.pending], default=0.0)
        self._span(agent, Doing.WAIT, f"{kind} groups, {op.pending} left", agent.now, done)
        agent.now = max(agent.now, done)

    def _commit(self, agent: _Agent, *kinds: str) -> None:
        for kind in kinds:
            agent.groups.setdefault(kind, []).append(agent.open_until.pop(kind, 0.0))

    def _occupy(self, agent: _Agent, doing: Doing, what: str, cost: Cost, delay: float = 0.0) -> float:
        """Takes the op's engine from the first moment it is free for as long as the work takes; when that ends."""
        begin = max(agent.now + delay, self.busy.get((cost.engine, agent.cta), 0.0))
        end = self.busy[cost.engine, agent.cta] = begin + cost.service
        self._span(agent, doing, what, begin, end, cost.engine)
        return end

    def _issue(self, agent: _Agent, op: ops.Op, threads: int, cost: Cost) -> None:
        match op:
            case ops.Arrive():
                self._phase(agent, op.bar).add(agent.now, arrivals=op.count * threads)
            case ops.ArriveExpectTx():
                self._phase(agent, op.bar).add(agent.now, arrivals=threads, expected=op.bytes * threads)
            case ops.ExpectTx():
                self._phase(agent, op.bar).add(agent.now, expected=op.bytes * threads)
            case ops.TmaLoad():
                done = self._copy(agent, op, cost)
                targets = [int(e.evaluate(agent.env)) for e in op.ctas] or [self._rank(agent, op.bar)]
                for cta in targets:
                    self._phase(agent, op.bar, cta).add(done, landed=op.dst.size)
            case ops.DsmemCopy():
                done = self._copy(agent, op, cost)
                self._phase(agent, op.bar).add(done, landed=op.dst.size)
            case ops.TmaStore():
                read = self._occupy(agent, Doing.STORE, served(op, agent.role.name), cost)
                self._raise(agent, "bulk read", read)
                self._raise(agent, "bulk", read + cost.latency)
            case ops.CpAsync():
                self._raise(agent, "cp.async", self._copy(agent, op, cost))
            case ops.CpAsyncArrive():
                done = max(agent.now, agent.open_until.get("cp.async", 0.0))
                self._phase(agent, op.bar).add(done, arrivals=threads)
            case ops.BulkCommit():
                self._commit(agent, "bulk", "bulk read")
            case ops.CpAsyncCommit():
                self._commit(agent, "cp.async")
            case ops.WgmmaCommit():
                self._commit(agent, "wgmma")
            case ops.Wgmma() | ops.Tcgen05Mma():
                done = self._occupy(agent, Doing.PRODUCT, served(op, agent.role.name), cost)
                self._raise(agent, "wgmma", done + cost.latency)
            case ops.Tcgen05Commit():
                done = max(agent.now, agent.open_until.get("wgmma", 0.0))
                for cta in [int(e.evaluate(agent.env)) for e in op.ctas] or [self._rank(agent, op.bar)]:
                    self._phase(agent, op.bar, cta).add(done, arrivals=1)
            case _:
                pass

    def _copy(self, agent: _Agent, op: ops.Op, cost: Cost) -> float:
        """When the bytes are there; the engine is taken from the first of them on, which comes a latency late."""
        return self._occupy(agent, Doing.COPY, served(op, agent.role.name), cost, cost.latency)

    def _raise(self, agent: _Agent, kind: str, done: float) -> None:
        agent.open_until[kind] = max(agent.open_until.get(kind, 0.0), done)

    # -- barriers -----------------------------------------------------------------------------------------------------
    @staticmethod
    def _rank(agent: _Agent, bar: ops.Slot) -> int:
        return agent.cta if bar.cta is None else int(bar.cta.evaluate(agent.env))

    def _phase(self, agent: _Agent, bar: ops.Slot, cta: int | None = None) -> _Phase:
        rank = self._rank(agent, bar) if cta is None else cta
        count = self.protocol.barrier(bar.barrier).count
        key = (bar.barrier, int(bar.index.evaluate(agent.env)), rank)
        return self.phases.setdefault(key, _Phase(count, count))
