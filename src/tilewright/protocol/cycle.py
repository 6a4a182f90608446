"""What bounds the throughput of a loop: the critical cycle of its event graph.

One iteration of an innermost loop in its steady state is a graph whose edges ``u -(w, d)-> v`` say that v of an
iteration ends at least ``w`` cycles after u of ``d`` iterations before. An iteration takes no less than the greatest
ratio of cycles to iterations around any circle of it (max-plus spectral theory; Cohen, Dubois, Quadrat, Viot 1985),
and takes that long once the pipelines are full. The circle that attains it names the bottleneck: an engine that never
rests, or a pipeline with too few stages to cover a latency.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.diag import Location
from tilewright.protocol import ops
from tilewright.protocol.effects import Await, BarrierScope, Commit, Retire, Signal, Stage, Sync
from tilewright.protocol.graph import EventGraph, IterationIndex, Site
from tilewright.protocol.labels import issued, served
from tilewright.protocol.model import Step
from tilewright.protocol.prices import Prices, prices_of
from tilewright.protocol.product_graph import OutsideFragment, numbered


@dataclass(frozen=True)
class CycleEvent:
    """An event of a circle: a role or an engine has done something, at the user's line ``where``. It comes ``cycles``
    after the event before it or later, and ``iterations`` of the loop on."""

    who: str
    what: str
    where: Location | None
    cycles: float = 0.0
    iterations: int = 0


@dataclass(frozen=True)
class CriticalCycle:
    """The slowest circle of a loop: ``cycles`` for each iteration of the loop over ``counter``, ``iterations`` once
    around its ``links``."""

    counter: str
    cycles: float
    iterations: int
    links: tuple[CycleEvent, ...]

    @property
    def events(self) -> tuple[tuple[str, str], ...]:
        """A role (or engine) and what it does, in order."""
        return tuple((link.who, link.what) for link in self.links)


def critical_cycle(graph: EventGraph, prices: Prices | None = None) -> tuple[CriticalCycle, ...]:
    """The critical cycle of every innermost loop in its steady state; raises ``OutsideFragment`` outside the fragment.

    ``prices`` are those of ``hw`` unless given. All roles are taken to be in the loop at once, which for consumers that
    alternate is each one's own loop. Cycles are infinite where a loop waits for itself.
    """
    prices = prices or prices_of(graph.protocol)
    found: list[CriticalCycle] = []
    for f in graph.product.edges:
        if f.source == f.target:
            counter = next(x.counter for x in graph.product.loops if x.index == f.advances[-1])
            found.append(_Iteration(graph, f.source, frozenset(f.advances), prices).slowest(counter))
    return tuple(found)


@dataclass(frozen=True)
class _Edge:
    source: int
    target: int
    cycles: float
    iterations: int


class _Iteration:
    """One iteration of a steady loop as a graph."""

    def __init__(self, graph: EventGraph, block: int, loop: frozenset[int], prices: Prices):
        self.graph, self.block, self.loop, self.prices = graph, block, loop, prices
        self.names: list[CycleEvent] = []
        self.edges: list[_Edge] = []
        self.end: dict[Site, int] = {}
        self.served: dict[Site, int] = {}
        self.codes = [graph.sites[p][block] for p, (_, cta) in enumerate(graph.product.parties) if cta == 0]
        self._programs()
        self._engines()
        for code in self.codes:
            for site in code:
                for effect in site.step.op.effects:
                    match effect:
                        case Await(blocks=True):
                            self._phase(site, effect)
                        case Retire():
                            self._groups(code, site, effect)
                        case Sync(BarrierScope.CTA, waits=True):
                            self._thread_barrier(site, effect)
                        case _:
                            pass

    def _node(self, who: str, what: str, step: Step) -> int:
        self.names.append(CycleEvent(who, what, step.where))
        return len(self.names) - 1

    def _link(self, source: int, target: int, cycles: float, iterations: int = 0) -> None:
        self.edges.append(_Edge(source, target, cycles, iterations))

    def _programs(self) -> None:
        for code in self.codes:
            for site in code:
                self.end[site] = self._node(self._role(site), issued(site.step.op), site.step)
            for before, site in zip((code[-1:] + code)[: len(code)], code, strict=True):
                self._link(self.end[before], self.end[site], self.prices(site.step).issue, int(site is code[0]))

    def _role(self, site: Site) -> str:
        return self.graph.product.parties[site.party][0].name

    def _engines(self) -> None:
        """An engine takes the ops of an iteration one after the other."""
        queues: dict[str, list[Site]] = {}
        for code in self.codes:
            for site in code:
                cost = self.prices(site.step)
                if cost.engine:
                    queues.setdefault(cost.engine, []).append(site)
        for name, sites in queues.items():
            for site in sites:
                self.served[site] = self._node(name, served(site.step.op, self._role(site)), site.step)
                self._link(self.end[site], self.served[site], self.prices(site.step).service)
            for before, site in zip((sites[-1:] + sites)[: len(sites)], sites, strict=True):
                iterations = int(site is sites[0])
                self._link(self.served[before], self.served[site], self.prices(site.step).service, iterations)

    # -- who waits for whom -------------------------------------------------------------------------------------------
    def _phase(self, site: Site, op: Await) -> None:
        """A wait ends after the arrivals and copies of its phase, as many iterations before as their numbers differ."""
        slots = self.graph.protocol.barrier(op.bar.barrier).slots
        awaited = self.graph.awaited(site, op)
        signals = [(s, n) for code in self.codes for s, n in self._numbers(code, op.bar.barrier, awaited, slots)]
        if not signals:
            return
        latest = min(n for _, n in signals)
        number = latest - (latest - awaited.offset) % (2 * slots)
        for s, n in signals:
            cost = self.prices(s.step)
            if s in self.served:
                self._link(self.served[s], self.end[site], cost.latency, n - number)
            else:
                self._link(self.end[s], self.end[site], 0.0, n - number)

    def _numbers(
        self, code: tuple[Site, ...], barrier: str, awaited: IterationIndex, slots: int
    ) -> list[tuple[Site, int]]:
        """Arrivals and copies of a party on a barrier in this block, each with the use it belongs to."""
        out: list[tuple[Site, int]] = []
        for site in code:
            signal = next(site.step.op.of(Signal), None)
            if signal is None or signal.bar.barrier != barrier:
                continue
            _, index = self.graph.slot(site, signal.bar)
            lead = self._lead(site, barrier, awaited)
            if index is None:
                out.append((site, 0 if lead is None else lead))
            else:
                near = 0 if lead is None else lead
                out.append((site, near - (near - index.offset) % slots))
        return out

    def _lead(self, site: Site, barrier: str, awaited: IterationIndex) -> int | None:
        """How many uses ahead of its loop the party's arrivals are here, if that does not depend on the way."""
        kind = type(site.step.op)
        uses = {
            s: sum(
                isinstance(x.step.op, kind) and any(e.bar.barrier == barrier for e in x.step.op.of(Signal))
                for x in code
            )
            for s, code in enumerate(self.graph.sites[site.party])
        }
        most = max(uses.values())
        lead = numbered(self.graph.product, awaited.iv, {s: min(n, 1) for s, n in uses.items()} if most else {}, 0)
        return None if lead is None else lead.get(site.block)

    def _groups(self, code: tuple[Site, ...], wait: Site, retired: Retire) -> None:
        """A group wait ends after the ops of the newest group it retires."""
        group, committed = 0, -1
        groups: dict[int, list[Site]] = {}
        for site in code:
            if any(x.queue is retired.queue for x in site.step.op.accesses):
                groups.setdefault(group, []).append(site)
            if any(x.queue is retired.queue for x in site.step.op.of(Commit)):
                group += 1
            if site is wait:
                committed = group - 1
        if not group or not groups:
            return
        iterations, index = divmod(committed - retired.pending, group)
        for site in groups.get(index, []):
            latency = 0.0 if retired.stage is Stage.SOURCE else self.prices(site.step).latency
            self._link(self.served.get(site, self.end[site]), self.end[wait], latency, -iterations)

    def _thread_barrier(self, site: Site, sync: Sync) -> None:
        """A named barrier ends after all who take part got there."""

        def alike(other: ops.Op) -> bool:
            return any(x.scope is sync.scope and x.number == sync.number for x in other.of(Sync))

        mine = [x for x in self.graph.sites[site.party][site.block] if alike(x.step.op)]
        for code in self.codes:
            theirs = [x for x in code if alike(x.step.op)]
            if not theirs or theirs[0].party == site.party:
                continue
            ahead = self._ahead(theirs[0].party, site.party, alike)
            iterations, index = divmod(mine.index(site) - ahead, len(theirs))
            before = theirs[index].position - 1
            who = code[before] if before >= 0 else code[-1]
            self._link(self.end[who], self.end[site], self.prices(site.step).issue, -iterations + int(before < 0))

    def _ahead(self, other: int, party: int, alike: Callable[[ops.Op], bool]) -> int:
        """By how many uses of a thread barrier one party is ahead of another on entry to this block."""
        difference = {
            s: sum(alike(x.step.op) for x in self.graph.sites[other][s])
            - sum(alike(x.step.op) for x in self.graph.sites[party][s])
            for s in range(len(self.graph.product.blocks))
        }
        lead = numbered(self.graph.product, frozenset(), difference, 0)
        if lead is None:
            raise OutsideFragment("a thread barrier used at different paces")
        return lead[self.block]

    # -- the slowest circle -------------------------------------------------------------------------------------------
    def slowest(self, counter: str) -> CriticalCycle:
        """Raises the interval until no circle is slower: each found circle's own ratio is the next to try."""
        best = CriticalCycle(counter, 0.0, 1, ())
        while (circle := self._circle(best.cycles)) is not None:
            cycles, iterations = sum(e.cycles for e in circle), sum(e.iterations for e in circle)
            links = tuple(replace(self.names[e.target], cycles=e.cycles, iterations=e.iterations) for e in circle)
            if iterations <= 0:
                return CriticalCycle(counter, float("inf"), 0, links)
            if cycles / iterations <= best.cycles * (1 + 1e-12):
                break
            best = CriticalCycle(counter, cycles / iterations, iterations, links)
        return best

    def _circle(self, interval: float) -> list[_Edge] | None:
        """A circle that takes longer than ``interval`` an iteration (Bellman and Ford, longest paths)."""
        late = [0.0] * len(self.names)
        through: list[_Edge | None] = [None] * len(self.names)
        last = -1
        for _ in range(len(self.names) + 1):
            last = -1
            for e in self.edges:
                when = late[e.source] + e.cycles - interval * e.iterations
                if when > late[e.target] + 1e-9 * (1 + abs(when)):
                    late[e.target], through[e.target], last = when, e, e.target
            if last < 0:
                return None
        for _ in self.names:  # walk back until surely on the circle
            edge = through[last]
            if edge is None:
                return None
            last = edge.source
        circle: list[_Edge] = []
        at = last
        while True:
            edge = through[at]
            if edge is None:
                return None
            circle.insert(0, edge)
            at = edge.source
            if at == last:
                return circle
