"""When one state of a canonical run may stand for another: same shape, and no more knowledge.

The *shape* of a state is everything but its clocks: positions, counters as far as their uses tell values apart
(``values.Usage``), phases and groups relative to the current ones, trip counts relative to the counters compared with
them, and the list of live records (marks, accesses, arrivals, ...). The *knowledge* is one bit for each clock and live
record: whether the clock has passed the record's epoch. Clocks are only ever compared with live or future epochs, so
shape and knowledge determine the future; and what is proved from little knowledge holds with more, because no rule is
broken by knowing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from math import lcm
from typing import cast

from tilewright.protocol import effects
from tilewright.protocol.effects import CP_ASYNC, TENSOR, Proxy
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.canonical_runs.interpreter import Interpreter
from tilewright.verify.canonical_runs.stage_shift import StageShift
from tilewright.verify.canonical_runs.state import (
    QUEUE_OF,
    A,
    AgentState,
    BarState,
    ByteHistory,
    Clock,
    CompletionMark,
    F,
    M,
    MapBytes,
    Record,
    Rendezvous,
    RunState,
    S,
    Stream,
    T,
    TripKey,
    X,
    begun,
    stream_of,
)
from tilewright.verify.canonical_runs.values import FAR


def normal(m: Interpreter, st: RunState, deciding: TripKey) -> Normal:
    """The shape and knowledge of ``st``, about to decide ``deciding``. Also drops records that can no longer be
    queried."""
    st.outlived = {k: seq for k, seq in st.outlived.items() if not m.known_done(st, k[0], k[2], seq)}
    needed = _needed(st)
    _prune(m, st, needed)
    return Normal(m, st, {s: sorted(set(seqs)) for s, seqs in needed.items()}, deciding)


def _needed(st: RunState) -> dict[Stream, list[int]]:
    """Per stream, the completions that recorded accesses, and CTAs that reach their end, wait for."""
    needed: dict[Stream, list[int]] = {}
    for (_, _, stream), seq in st.outlived.items():
        needed.setdefault(stream, []).append(seq)
    for _, cells in st.memory.values():
        for writes, reads, older in cells:
            for x in (*writes, *reads, *(y for y, _ in older)):
                if x.stream is not None:
                    needed.setdefault(x.stream, []).append(x.seq)
    return needed


def _prune(m: Interpreter, st: RunState, needed: dict[Stream, list[int]]) -> None:
    for stream, marks in st.marks.items():
        if len(marks) > 1:
            st.marks[stream] = _pruned(marks, needed.get(stream, []))
    for key in [k for k in st.trips if not any(m.future_uses(x, st.agents[x.index], k) for x in m.agents)]:
        del st.trips[key]


def _pruned(marks: tuple[CompletionMark, ...], needed: list[int]) -> tuple[CompletionMark, ...]:
    """Of each agent's marks: the newest, and the first that covers some access."""
    last: dict[tuple[int, bool], int] = {}
    newest = {(mark.c, mark.acquired): mark.upto for mark in marks}
    kept: list[CompletionMark] = []
    for mark in marks:
        by = mark.c, mark.acquired
        before = last.get(by, -2)
        last[by] = mark.upto
        if mark.upto == newest[by] or any(before < seq <= mark.upto for seq in needed):
            kept.append(mark)
    return tuple(kept)


class Normal:
    """One pass over a state: collects the shape and the live records, then asks every clock about every record."""

    def __init__(self, m: Interpreter, st: RunState, needed: dict[Stream, list[int]], deciding: TripKey):
        self.m, self.st, self.n, self.needed = m, st, m.n, needed
        self.carried = {s for bar in st.bars for s, _ in bar.carries}
        self.carried |= {
            s for b, bar in enumerate(st.bars) if bar.done_carries and self.handed_on(b) for s, _ in bar.done_carries
        }
        self.back = StageShift(m, st)
        self.turned, self.laps = self.back.numbers, self.back.laps
        self.asked: list[tuple[int, int]] = []
        """Per record: a segment and the steps of which one must be known there."""
        self.settled = 0
        """The records, as bits, that every agent that may query them knows, so that knowledge of them no longer
        matters."""
        self.clocks: list[Clock] = []
        self.shape = self._shape(deciding)
        m.spend(len(st.bars) + len(self.clocks) * len(self.asked) // 8)
        self.knowledge = self._knowledge()

    def ask(
        self, marks: tuple[tuple[int, int], ...], segments: tuple[int, ...], watchers: tuple[int, ...], own: bool
    ) -> None:
        """Notes a live record, known to be past by one of ``marks`` (agent, step). ``own``: an agent's own steps
        count as known to it."""
        steps = 0
        for _, e in marks:
            steps |= 1 << e
        agents = self.st.agents
        settled = all(
            agents[w].clock[s] & steps or (own and s in (S, M, A) and agents[w].past & steps)
            for w in watchers
            for s in segments
        )
        for s in segments:
            self.settled |= settled << len(self.asked)
            self.asked.append((s, steps))

    def record(self, c: int, e: int, segments: tuple[int, ...], watchers: tuple[int, ...], own: bool = True) -> int:
        """Notes a live record of one step; its shape is its agent."""
        self.ask(((c, e),), segments, watchers, own)
        return c

    def records(
        self, pairs: Iterable[tuple[int, int]] | None, watchers: tuple[int, ...], own: bool, segment: int = S
    ) -> Hashable:
        if pairs is None:
            return None
        return tuple([self.record(c, e, (segment,), watchers, own) for c, e in sorted(pairs)])

    def clock(self, clock: Clock | None) -> bool:
        """Notes a clock; its shape is that it exists."""
        if clock is not None:
            self.clocks.append(clock)
        return clock is not None

    def _shape(self, deciding: TripKey) -> Hashable:
        m, st = self.m, self.st
        return (
            deciding[0],
            tuple([self.agent(x, st.agents[x.index]) for x in m.agents]),
            tuple([self.bar(b, st.bars[b]) for b in sorted(range(len(st.bars)), key=self.turned.__getitem__)]),
            tuple([(k, self.rendezvous(k, st.rendezvous[k])) for k in self.sorted(st.rendezvous)]),
            tuple([(k, self.cells(k, *st.memory[k])) for k in self.sorted(st.memory)]),
            tuple([(self.back.stream(k), self.marks(k, st.marks[k])) for k in self.sorted(st.marks)]),
            tuple([(self.issue(k), self.clock(st.issues[k])) for k in self.sorted(st.issues)]),
            tuple([(k, v[0], self.record(v[1], v[2], (S, M), m.everyone)) for k, v in sorted(st.tmem.items())]),
            tuple([(k, self.map_bytes(st.maps[k])) for k in sorted(st.maps)]),
            tuple([(k, self.record(k[1], st.remote[k], (S,), m.everyone, False)) for k in sorted(st.remote)]),
            self.ctas(),
            tuple(st.pool.values()),
            st.relinquished,
        )

    def map_bytes(self, b: MapBytes) -> Hashable:
        """Who wrote bytes of a tensor map, who has released them and who may use them."""
        everyone = self.m.everyone
        writers = tuple([self.record(c, e, (M,), everyone, False) for c, e in sorted(b.writers)])
        releases = tuple([self.record(c, e, (M,), everyone, False) for c, e in sorted(b.releases)])
        return writers, releases, b.acquired, b.by_copy

    def ctas(self) -> Hashable:
        """Who knows that which CTA runs, and what has yet to be done before which one may end."""
        m, st = self.m, self.st
        if m.protocol.cluster == 1:
            return ()
        for rank in range(m.protocol.cluster):
            self.ask(((0, begun(rank)),), (S,), m.everyone, True)
        out: list[Hashable] = []
        for stream in self.sorted({k[2] for k in st.outlived}):
            for cta, c, seq in sorted((k[0], k[1], seq) for k, seq in st.outlived.items() if k[2] == stream):
                marks = tuple([(k.c, k.e) for k in st.marks.get(stream, ()) if k.covers(seq)])
                if marks:
                    self.ask(marks, (S,), tuple(x.index for x in m.agents if x.cta == cta), True)
                out.append((self.back.stream(stream), cta, c, -1 if marks else self.relative(stream, seq)))
        return tuple(out)

    def sorted(self, keys: Iterable[Stream]) -> list[Stream]:
        """Keys in an order that does not depend on the history of the run."""
        number = self.m.numbers
        return sorted(keys, key=lambda k: number.setdefault(self.back.stream(k), len(number)))

    def _knowledge(self) -> int:
        """Per clock a bit for each record, then for each agent those that its own steps and fences cover."""
        self.bytes_each = len(self.asked) // 8 + 1
        records: dict[tuple[int, int], int] = {}  # by what they ask: many are of one step
        for n, question in enumerate(self.asked):
            if not self.settled >> n & 1:
                records[question] = records.get(question, 0) | 1 << n
        answers: dict[Clock, bytes] = {}
        parts: list[bytes] = []
        for clock in self.clocks:
            if clock not in answers:
                known = self.settled
                for (s, steps), which in records.items():
                    if clock[s] & steps:
                        known |= which
                answers[clock] = known.to_bytes(self.bytes_each)
            parts.append(answers[clock])
        for mine, segments in _OWN:
            settled = self.settled & self._in(segments)
            about = [(steps, which) for (s, steps), which in records.items() if s in segments]
            for a in self.st.agents:
                value: int = getattr(a, mine)
                known = settled
                for steps, which in about if value else ():
                    if value & steps:
                        known |= which
                parts.append(known.to_bytes(self.bytes_each))
        self.size = len(parts) * self.bytes_each
        return int.from_bytes(b"".join(parts))

    def _in(self, segments: tuple[int, ...]) -> int:
        """The records, as bits, that are asked about in some segments."""
        return sum(1 << n for n, (s, _) in enumerate(self.asked) if s in segments)

    def forget(self, known: int) -> None:
        """Takes from the state what is outside ``known``: then it stands for every state of its shape that knows it."""
        whole = known.to_bytes(self.size)
        parts = (int.from_bytes(whole[at : at + self.bytes_each]) for at in range(0, self.size, self.bytes_each))
        lowered: dict[int, Clock] = {}
        for clock in self.clocks:
            kept = next(parts)
            segments = list(lowered.get(id(clock), clock))
            for n, (s, steps) in enumerate(self.asked):
                if not kept >> n & 1:
                    segments[s] &= ~steps
                elif self.settled >> n & 1:
                    segments[s] |= steps  # harmless, and what the knowledge bits claim
            lowered[id(clock)] = cast(Clock, tuple(segments))
        for mine, segments in _OWN:
            about = [(n, steps) for n, (s, steps) in enumerate(self.asked) if s in segments]
            for a in self.st.agents:
                kept = next(parts)
                value: int = getattr(a, mine)
                for n, steps in about:
                    if not kept >> n & 1:
                        value &= ~steps
                setattr(a, mine, value)
        self._replace(lowered)

    def _replace(self, lowered: dict[int, Clock]) -> None:
        def new(clock: Clock | None) -> Clock | None:
            return None if clock is None else lowered.get(id(clock), clock)

        st = self.st
        for a in st.agents:
            a.clock = lowered.get(id(a.clock), a.clock)
            a.gift = new(a.gift)
            a.fenced_widely, a.fenced_narrowly = new(a.fenced_widely), new(a.fenced_narrowly)
            a.extra = lowered.get(id(a.extra), a.extra)
        for bar in st.bars:
            bar.clock, bar.remote, bar.copies = new(bar.clock), new(bar.remote), new(bar.copies)
            bar.done_clock, bar.done_remote = new(bar.done_clock), new(bar.done_remote)
        for r in st.rendezvous.values():
            r.clock, r.done_clock = new(r.clock), new(r.done_clock)
        st.issues = {k: lowered.get(id(c), c) for k, c in st.issues.items()}

    # -- shapes -----------------------------------------------------------------------------------------------------
    def agent(self, agent: CompiledAgent, a: AgentState) -> Hashable:
        bars, rendezvous = self.st.bars, self.st.rendezvous
        return (
            a.pc,
            a.done,
            tuple([self.counter(agent, k, a.env[k]) for k in sorted(a.env)]),
            self.clock(a.clock),
            self.clock(a.extra),
            None if a.inside is None else (a.inside[0], a.inside[1] - rendezvous[a.inside[0]].generation),
            self.clock(a.gift),
            None if a.waiting is None else (self.turned[a.waiting[0]], a.waiting[1] - bars[a.waiting[0]].phase),
            a.cluster - rendezvous[("cluster",)].generation if a.cluster >= 0 else None,
            tuple([self.group(agent, k, g, k in a.issued, a.filled.get(k, -1)) for k, g in sorted(a.groups.items())]),
            a.dirty,
            a.registers,
            self.clock(a.fenced_widely),
            self.clock(a.fenced_narrowly),
            tuple(sorted([(self.turned[b], bars[b].phase - k) for b, k in a.waited.items() if bars[b].phase - k <= 2])),
            tuple(
                sorted([(self.turned[b], bars[b].phase - k) for b, k in a.signalled.items() if bars[b].phase - k <= 2])
            ),
            tuple(sorted([(self.turned[x.b], bars[x.b].phase - x.k, x.acquire, x.wide) for x in a.peeked])),
            self.trips(agent, a),
        )

    def counter(self, agent: CompiledAgent, name: str, value: int) -> int:
        """A counter's value, reduced to what its future uses distinguish."""
        if name in self.back.shift:
            return (value - self.back.shift[name]) % agent.usage.period.get(name, 1)
        return agent.usage.normal(name, value)

    def trips(self, agent: CompiledAgent, a: AgentState) -> Hashable:
        """The agent's counters relative to the trip counts; a count that it has not met is kept in full."""
        out: list[tuple[str, str, int, int, bool]] = []
        for key, trip in self.st.trips.items():
            uses = self.m.future_uses(agent, a, key)
            if not uses:
                continue
            name, context = key
            per = self.m.per[name]
            behind = 0 if per is None else context - a.env.get(per, 0)
            cutoff, period = 0, 1
            for use in uses:
                if use.counter and use.counter in a.env and behind == 0:
                    out.append((name, use.counter, behind, trip.low - a.env[use.counter], trip.exact))
                elif use.counter or use.raw:
                    cutoff = FAR
                cutoff, period = max(cutoff, use.cutoff), lcm(period, use.period)
            low = trip.low if trip.low < cutoff + period else cutoff + (trip.low - cutoff) % period
            out.append((name, "", behind, low, trip.exact))
        return tuple(sorted(set(out)))

    def bar(self, b: int, bar: BarState) -> Hashable:
        local, last = b % self.m.slots_per_cta, bar.phase - 1
        users = self.m.users.bars[local]
        live = self.handed_on(b)
        return (
            bar.pending,
            min(bar.phase - bar.begin, 2),
            (bar.phase - self.laps[b]) % 2,
            bar.tx,
            self.clock(bar.clock),
            self.clock(bar.remote),
            self.clock(bar.copies),
            self.records(bar.arrivals, users, False),
            self.records(bar.expects, users, False),
            self.carries(bar.carries),
            self.carries(bar.done_carries) if live else (),
            bar.landed,
            bar.done_landed,
            self.clock(bar.done_clock) if live else False,
            self.clock(bar.done_remote) if live else False,
            self.arrivals(b, bar, users),
            self.records([(c, e) for k, c, e in bar.waiters if k == last], self.m.users.signallers[local], False),
            self.records(bar.asked, users, False, M),
            None if bar.ended is None else self.record(*bar.ended, (M,), users),
            None if bar.init is None else self.record(*bar.init, (S, M), users),
            None if bar.init_fence is None else self.record(*bar.init_fence, (S,), users),
        )

    def arrivals(self, b: int, bar: BarState, users: tuple[int, ...]) -> Hashable:
        """The last phase's arrivals: to know them all is to know the phase, as is to know of a wait for it."""
        if bar.done_arrivals is None:
            return None
        seen = tuple([(k.c, k.e) for k in self.st.marks.get(("bar", b), ()) if k.upto >= bar.phase - 1])
        for c, e in sorted(bar.done_arrivals):
            self.ask(((c, e), *seen), (S,), users, False)
        return tuple(sorted([c for c, _ in bar.done_arrivals]))

    def handed_on(self, b: int) -> bool:
        """Whether some agent has yet to acquire what the last phase of a barrier publishes."""
        last = self.st.bars[b].phase - 1
        waiters = self.m.users.waiters[b % self.m.slots_per_cta]
        return any(self.st.agents[w].waited.get(b, -1) < last for w in waiters if not self.st.agents[w].done)

    def rendezvous(self, key: Stream, r: Rendezvous) -> Hashable:
        users = self.m.everyone if key[0] != "named" else self.m.users.named(key)
        return (
            r.generation > 0,
            r.arrived,
            r.threads if r.arrived else 0,
            self.clock(r.clock),
            self.records(r.arrivals, users, False),
            r.sites,
            self.clock(r.done_clock) if key == ("cluster",) else False,
            self.records(r.done_arrivals, users, False),
            self.records(r.passed, users, True),
        )

    def relative(self, stream: Stream, seq: int) -> int:
        """A completion number relative to what is current in its stream."""
        kind, owner = stream
        if kind == "bar":
            assert isinstance(owner, int)
            return self.st.bars[owner].phase - seq
        index = owner if isinstance(owner, int) else self.m.first_of[owner]
        return self.st.agents[index].groups.get(QUEUE_OF[str(kind)].name, (0, -1))[0] - seq

    def issue(self, key: Stream) -> Hashable:
        _, role, seq = key
        assert isinstance(seq, int)
        return role, self.relative((effects.WGMMA.name, role), seq)

    def group(self, agent: CompiledAgent, engine: str, group: tuple[int, int], busy: bool, last: int) -> Hashable:
        """An engine's groups: how many are not waited for by the thread, the newest of them with ops in it, and whether
        all are known to be done."""
        number, waited = group
        stream = stream_of(QUEUE_OF[engine], agent)
        seen = any(k.upto >= last for k in self.st.marks.get(stream, ()))
        newest = number - last if last > waited else -1
        return engine, busy, number - waited if waited >= 0 else -min(number, 1), newest, seen

    def carries(self, carries: tuple[tuple[Stream, int], ...]) -> Hashable:
        """What a phase tracks, by how many of the recorded accesses it covers."""
        return tuple([(s, bisect_right(self.needed.get(s, []), upto)) for s, upto in carries])

    def marks(self, stream: Stream, marks: tuple[CompletionMark, ...]) -> Hashable:
        """Who is known to have seen a barrier's last phases; other marks matter through the accesses they cover."""
        if stream[0] != "bar":
            return ()
        b = stream[1]
        assert isinstance(b, int)
        bar, users = self.st.bars[b], self.m.users.bars[b % self.m.slots_per_cta]
        return tuple([self.seen(b, marks, lag, users) for lag in (1, 2) if bar.phase - bar.begin >= lag])

    def seen(self, b: int, marks: tuple[CompletionMark, ...], lag: int, users: tuple[int, ...]) -> bool:
        """Asks who knows that someone saw the phase ``lag`` before the current one complete."""
        found = tuple([(k.c, k.e) for k in marks if self.st.bars[b].phase - k.upto <= lag])
        if found:
            self.ask(found, (S,), users, True)
        return bool(found)

    def cells(self, space: Stream, starts: list[int], cells: list[ByteHistory]) -> Hashable:
        pieces: list[Hashable] = []
        ends = [*starts[1:], starts[-1] + 1]
        turned = sorted(
            (self.back.begin(s, space[0]), s, e, c) for s, e, c in zip(starts, ends, range(len(cells)), strict=True)
        )
        for begin, start, end, index in turned:
            writes, reads, older = cells[index]
            if not writes and not reads:
                continue
            users = self.m.users.of_bytes(space, start, end)
            writers = self.m.users.writers(space, start, end)
            written = [self.access(space, x, users) for x in sorted(writes, key=_who)]
            before = tuple([(wrote, self.access(space, x, users)) for x, wrote in older])
            accesses = [self.access(space, x, writers) for x in sorted(reads, key=_who)]
            pieces.append((begin, end - start, tuple(written), tuple(accesses), before))
        return tuple(pieces)

    def access(self, space: Stream, x: Record, users: tuple[int, ...]) -> Hashable:
        if x.stream is None:
            segments = (M,) if space[0] == "register" else (M, F, X)
            return (self.record(x.agent, x.e, segments, users, False), x.effect.name, x.effect.part, id(x.step))
        marks = [k for k in self.st.marks.get(x.stream, ()) if k.covers(x.seq) and k.acquired]
        segments = (A, M, T) if space[0] == "tmem" else (A, M, F, X) if x.effect.proxy is Proxy.GENERIC else (A, M)
        order = bisect_right(self.needed[x.stream], x.seq) if x.stream in self.carried else 0
        if not marks:
            pending = self.relative(x.stream, x.seq)
            if x.effect.queue in (CP_ASYNC, TENSOR):
                pending = min(pending, 3)
            return (x.effect.name, self.back.stream(x.stream), pending, order, x.agent, id(x.step))
        # a thread's wait for its own ops tells it nothing of those of its class
        own = not any(k.own and self.m.agents[k.c].group.size > 1 for k in marks)
        self.ask(tuple([(k.c, k.e) for k in marks]), segments, users, own)
        return (x.effect.name, self.back.stream(x.stream), "done", order, x.agent, id(x.step))


_OWN = (("past", (S, M, A)), ("fence", (F, X)), ("before", (T,)), ("after", (T,)), ("tensor", (T,)))
"""What an agent has done itself, and the segments in which it will be asked for."""


def _who(x: Record) -> tuple[int, str]:
    return x.agent, x.effect.name
