"""When two states of a canonical run have the same future: their normal forms are equal.

Counters count only as far as their uses tell values apart (``values.Usage``), phases and groups relative to the
current one, trip counts relative to the counters compared with them, and epochs by their order among the live ones,
since clocks are only ever compared with live or future epochs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable

from tilewright.contract.machine import Agent, Machine
from tilewright.contract.state import Access, AgentState, BarState, Clock, Mark, Rendezvous, State, Stream, TripKey


def normal(m: Machine, st: State, deciding: TripKey) -> Hashable:
    """The normal form of ``st``, about to decide ``deciding``. Also forgets marks and trips nobody can need again."""
    needed = _needed(st)
    _prune(m, st, needed)
    return _Normal(m, st).form(deciding)


def _accesses(st: State) -> Iterable[Access]:
    for _, cells in st.memory.values():
        for cell in cells:
            if cell.write is not None:
                yield cell.write
            yield from cell.reads


def _needed(st: State) -> dict[Stream, list[int]]:
    """Per stream, the completions that recorded accesses wait for."""
    needed: dict[Stream, list[int]] = {}
    for x in _accesses(st):
        if x.stream is not None:
            needed.setdefault(x.stream, []).append(x.seq)
    return needed


def _prune(m: Machine, st: State, needed: dict[Stream, list[int]]) -> None:
    for stream, marks in st.marks.items():
        if len(marks) > 1:
            st.marks[stream] = _pruned(marks, needed.get(stream, []))
    for key in [k for k in st.trips if not any(m.will_use(x, st.agents[x.index], k) for x in m.agents)]:
        del st.trips[key]


def _pruned(marks: tuple[Mark, ...], needed: list[int]) -> tuple[Mark, ...]:
    """Of each agent's marks: the two newest, and the first that covers some access."""
    last: dict[int, int] = {}
    kept: list[Mark] = []
    counts: dict[int, int] = {}
    for mark in marks:
        counts[mark.c] = counts.get(mark.c, 0) + 1
    for mark in marks:
        before = last.get(mark.c, -2)
        last[mark.c] = mark.upto
        counts[mark.c] -= 1
        if counts[mark.c] < 2 or any(before < seq <= mark.upto for seq in needed):
            kept.append(mark)
    return tuple(kept)


class _Normal:
    """One pass over a state."""

    def __init__(self, m: Machine, st: State):
        self.m, self.st, self.n = m, st, m.n
        live: list[set[int]] = [set() for _ in range(m.n)]
        for marks in st.marks.values():
            for mark in marks:
                live[mark.c].add(mark.e)
        for x in _accesses(st):
            live[x.c].add(x.e)
        for bar in st.bars:
            for c, e in (*bar.arrivals, *bar.expects, *(bar.done_arrivals or ())):
                live[c].add(e)
            for _, c, e in bar.waiters:
                live[c].add(e)
            for pair in (bar.init, bar.init_fence):
                if pair is not None:
                    live[pair[0]].add(pair[1])
        for r in st.rendezvous.values():
            for c, e in (*r.arrivals, *r.done_arrivals, *r.passed):
                live[c].add(e)
        for _, c, e in st.tmem.values():
            live[c].add(e)
        for c, e in st.maps.values():
            live[c].add(e)
        for (_, c), e in st.remote.items():
            live[c].add(e)
        self.live = [sorted(s) for s in live]
        self.memo: list[dict[int, int]] = [{} for _ in range(m.n)]
        self.lanes = [self.memo[i % m.n] for i in range(m.width)]
        self.sorts = [self.live[i % m.n] for i in range(m.width)]

    def rank(self, c: int, e: int) -> int:
        memo = self.memo[c]
        found = memo.get(e)
        if found is None:
            found = memo[e] = bisect_right(self.live[c], e)
        return found

    def clock(self, clock: Clock | None) -> Hashable:
        if clock is None:
            return None
        try:
            return tuple([memo[e] for memo, e in zip(self.lanes, clock, strict=False)])
        except KeyError:
            for i, e in enumerate(clock):
                self.rank(i % self.n, e)
            return tuple([memo[e] for memo, e in zip(self.lanes, clock, strict=False)])

    def pairs(self, pairs: Iterable[tuple[int, int]] | None) -> Hashable:
        return None if pairs is None else tuple([(c, self.rank(c, e)) for c, e in pairs])

    def form(self, deciding: TripKey) -> Hashable:
        m, st = self.m, self.st
        return (
            deciding[0],
            tuple([self.agent(x, st.agents[x.index]) for x in m.agents]),
            tuple([self.bar(b, bar) for b, bar in enumerate(st.bars)]),
            tuple([(k, self.rendezvous(r)) for k, r in st.rendezvous.items()]),
            tuple([(k, tuple(starts), tuple([self.cell(c) for c in cells])) for k, (starts, cells) in st.memory.items()]),
            tuple([(k, self.marks(k, marks)) for k, marks in sorted(st.marks.items(), key=str) if marks]),
            tuple([(k, self.clock(c)) for k, c in self.issues()]),
            tuple([(k, state, c, self.rank(c, e)) for k, (state, c, e) in st.tmem.items()]),
            tuple([(k, c, self.rank(c, e) if e >= 0 else -1) for k, (c, e) in st.maps.items()]),
            tuple([(k, self.rank(k[1], e)) for k, e in st.remote.items()]),
            tuple(st.pool.values()),
            tuple(sorted(st.blocked)),
        )

    def issues(self) -> list[tuple[Hashable, Clock]]:
        return [((k[1], self.relative(("wgmma", k[1]), k[2])), c) for k, c in self.st.issues.items()]  # pyright: ignore

    def agent(self, agent: Agent, a: AgentState) -> Hashable:
        i, bars = agent.index, self.st.bars
        return (
            a.pc,
            a.done,
            tuple([(k, agent.usage.normal(k, v)) for k, v in a.env.items()]),
            self.clock(a.clock),
            self.rank(i, a.fence),
            self.rank(i, a.before),
            self.rank(i, a.after),
            self.clock(a.tensor),
            tuple([(k, self.rank(k % self.n, v)) for k, v in a.extra]),
            None if a.inside is None else (a.inside[0], a.inside[1] - self.st.rendezvous[a.inside[0]].generation),
            self.clock(a.gift),
            None if a.waiting is None else (a.waiting[0], a.waiting[1] - bars[a.waiting[0]].phase),
            a.cluster - self.st.rendezvous[("cluster",)].generation if a.cluster >= 0 else None,
            tuple([(k, g[0] - g[1]) for k, g in a.groups.items()]),
            a.issued,
            a.dirty,
            a.registers,
            self.clock(a.maps),
            self.rank(i, a.after_map),
            tuple([(b, bars[b].phase - k) for b, k in a.waited.items()]),
            self.trips(agent, a),
        )

    def trips(self, agent: Agent, a: AgentState) -> Hashable:
        """How the agent's counters stand to the trip counts; a count it has yet to meet counts in full."""
        out: list[Hashable] = []
        for key, trip in self.st.trips.items():
            if not self.m.will_use(agent, a, key):
                continue
            per = self.m.per[key[0]]
            here = per is None or a.env.get(per) == key[1]
            related = [v for v, s in agent.usage.related if s == key[0] and v in a.env]
            if here and related:
                out += [(key[0], v, trip.low - a.env[v], trip.exact) for v in related]
            else:
                behind = 0 if per is None else key[1] - a.env.get(per, 0)
                out.append((key[0], behind, trip.low, trip.exact))
        return tuple(out)

    def bar(self, b: int, bar: BarState) -> Hashable:
        return (
            bar.pending,
            bar.phase % 2,
            bar.phase < 2,
            bar.tx,
            self.clock(bar.clock),
            self.clock(bar.remote),
            self.clock(bar.copies),
            self.pairs(bar.arrivals),
            self.pairs(bar.expects),
            tuple([(s, self.relative(s, upto)) for s, upto in (*bar.carries, *bar.done_carries)]),
            len(bar.carries),
            bar.landed,
            bar.done_landed,
            self.clock(bar.done_clock),
            self.clock(bar.done_remote),
            self.pairs(bar.done_arrivals),
            tuple([(bar.phase - k, c, self.rank(c, e)) for k, c, e in bar.waiters]),
            None if bar.init is None else (bar.init[0], self.rank(*bar.init)),
            None if bar.init_fence is None else (bar.init_fence[0], self.rank(*bar.init_fence)),
        )

    def rendezvous(self, r: Rendezvous) -> Hashable:
        return (
            r.generation > 0,
            r.arrived,
            r.threads,
            self.clock(r.clock),
            self.pairs(r.arrivals),
            r.sites,
            self.clock(r.done_clock),
            self.pairs(r.done_arrivals),
            self.pairs(r.passed),
        )

    def relative(self, stream: Stream, seq: int) -> int:
        """A completion number relative to what is current in its stream."""
        kind, owner = stream
        if kind == "bar":
            assert isinstance(owner, int)
            return self.st.bars[owner].phase - seq
        engine = "tma_store" if kind == "tma_write" else str(kind)
        index = owner if isinstance(owner, int) else self.m.role_agents[owner][0].index  # pyright: ignore
        return self.st.agents[index].groups.get(engine, (0, -1))[0] - seq

    def marks(self, stream: Stream, marks: tuple[Mark, ...]) -> Hashable:
        return tuple([(self.relative(stream, k.upto), k.c, self.rank(k.c, k.e), k.own) for k in marks])

    def access(self, x: Access | None) -> Hashable:
        if x is None:
            return None
        seq = 0 if x.stream is None else self.relative(x.stream, x.seq)
        return (x.c, self.rank(x.c, x.e), x.engine, x.stream, seq, x.private)

    def cell(self, cell: tuple[Access | None, tuple[Access, ...]]) -> Hashable:
        write, reads = cell
        return (self.access(write), tuple([self.access(x) for x in reads]))
