"""The parametric proof: every rule asked once of the event graph, for all trip counts together.

First the uses of barriers are numbered (``matching``), then what each class knows where is computed (``knowledge``),
then each op puts its questions to that. Whatever is not understood, or not proved, is ``Open``: another method decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.contract.knowledge import DONE, FAR, FENCED, Class, F, Knowledge, M, Rows, S, X
from tilewright.contract.matching import (
    Array,
    BarrierUse,
    Family,
    Piece,
    Ref,
    ThreadBarrier,
    barrier_uses,
    covering,
    refs_of,
    thread_barriers,
)
from tilewright.contract.rules import Policy
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph, Place, graph_of
from tilewright.protocol.model import Protocol, Step
from tilewright.protocol.validate import MAX_ARRIVALS
from tilewright.protocol.word import NoWord

UNDERSTOOD: dict[type[object], frozenset[str]] = {
    ops.MbarrierInit: frozenset(("barrier", "slots")),
    ops.Arrive: frozenset(("bar", "count", "scope", "release")),
    ops.ArriveExpectTx: frozenset(("bar", "bytes", "scope")),
    ops.ExpectTx: frozenset(("bar", "bytes")),
    ops.Wait: frozenset(("bar", "parity", "scope", "acquire")),
    ops.TmaLoad: frozenset(("dst", "bar", "ctas", "tensor")),
    ops.TmaStore: frozenset(("src", "dst", "tensor")),
    ops.TmaPrefetch: frozenset(),
    ops.BulkCommit: frozenset(),
    ops.BulkWait: frozenset(("pending", "read")),
    ops.Read: frozenset(("region", "private")),
    ops.Write: frozenset(("region", "private")),
    ops.FenceProxyAsync: frozenset(),
    ops.FenceMbarrierInit: frozenset(),
    ops.WgmmaFence: frozenset(),
    ops.Wgmma: frozenset(("accumulator", "operands")),
    ops.WgmmaCommit: frozenset(),
    ops.WgmmaWait: frozenset(("pending",)),
    ops.BarSync: frozenset(("id", "threads", "aligned", "site")),
    ops.BarArrive: frozenset(("id", "threads")),
    ops.CtaSync: frozenset(),
    ops.ClusterArrive: frozenset(("release",)),
    ops.ClusterWait: frozenset(),
    ops.Setmaxnreg: frozenset(("registers",)),
    ops.Advance: frozenset(("counter", "by")),
}
"""The ops of the fragment with the fields that are modelled; any other field must have its default."""

ASYNC_PROXY = frozenset(("tma_load", "tma_store", "wgmma"))


@dataclass(frozen=True)
class Access:
    """What one op of a class does to some bytes."""

    ref: Ref
    place: Place
    engine: str
    writes: bool
    private: bool = False
    landing: tuple[Array, int] | None = None
    """The barrier that tracks a copy, and the number of its phase in turns."""


Answer = Callable[[Rows], bool]


def prove(protocol: Protocol, policy: Policy = Policy.STRICT) -> str:
    """Empty if the protocol keeps every rule for all trip counts; else why this method leaves it open."""
    graph = graph_of(protocol)
    if isinstance(graph, str):
        return graph
    return prove_graph(graph, policy)


def prove_graph(graph: EventGraph, policy: Policy = Policy.STRICT) -> str:
    """``prove`` for a graph already built."""
    try:
        _Proof(graph, policy).run()
    except NoWord as e:
        return str(e)
    return ""


class _Proof:
    def __init__(self, graph: EventGraph, policy: Policy):
        self.graph, self.policy, self.protocol = graph, policy, graph.protocol
        self._mine: dict[tuple[Ref, Ref], Rows] = {}
        for site in graph.all_sites():
            _understood(site.step)
        if any(b.space is Space.TMEM for b in self.protocol.buffers):
            raise NoWord("tensor memory")
        self.k = Knowledge(graph)
        self.bars = barrier_uses(graph, self.k)
        self.syncs, self.barriers = thread_barriers(graph, self.k)
        self.accesses = list(self._accesses())
        self.k.prepare([u for u in graph.units if u])
        self.column = {u: i for i, u in enumerate(self.k.units)}
        self.wait_of = {p.ref: (use, p) for use in self.bars.values() for p in use.waits}
        self.position = {
            (c.index, site): (s, i)
            for c in self.k.classes
            for s, code in enumerate(c.code)
            for i, site in enumerate(code)
        }

    def run(self) -> None:
        self._init_sites()
        self._registers()
        self._progress()
        self.k.solve(self.acquire)
        for use in self.bars.values():
            self._barrier(use)
        for ref in self.syncs:
            self._recycled(ref)
        self._memory()
        self._wgmma_registers()
        self._end()

    # -- accesses -----------------------------------------------------------------------------------------------------
    def _accesses(self) -> Iterator[Access]:
        for c in self.k.classes:
            for s, code in enumerate(c.code):
                for i, site in enumerate(code):
                    for a in self._of(Ref(c, s, i), site.step.op):
                        if a.place.memory[0] != "register" or c.group.primary:
                            yield a

    def _of(self, ref: Ref, op: ops.Op) -> Iterator[Access]:
        def place(region: ops.Region, cta: int | None = None) -> Place:
            return self.graph.place(ref.site, region, cta)

        match op:
            case ops.Read(region, private):
                yield Access(ref, place(region), "generic", False, private)
            case ops.Write(region, private):
                yield Access(ref, place(region), "generic", True, private)
            case ops.TmaLoad():
                for array, use in self.bars.items():
                    for f in use.landings:
                        for p in f.pieces:
                            if p.ref == ref:
                                yield Access(ref, place(op.dst, array[0]), "tma_load", True, False, (array, p.number))
            case ops.TmaStore(src, dst):
                yield Access(ref, place(src), "tma_store", False)
                if dst is not None:
                    raise NoWord("bulk stores to named bytes")
            case ops.Wgmma(accumulator, operands):
                for region in operands:
                    yield Access(ref, place(region), "wgmma", False)
                yield Access(ref, place(accumulator), "wgmma", True)
            case _:
                pass

    # -- learning -----------------------------------------------------------------------------------------------------
    def acquire(self, c: Class, s: int, i: int, rows: Rows) -> Rows:
        """The rows after an op that learns from others."""
        ref = Ref(c, s, i)
        rows = rows.copy()
        match ref.op:
            case ops.Wait():
                self._acquire_phase(ref, ref.op, rows)
            case ops.BarSync() | ops.CtaSync():
                self._acquire_sync(ref, self.syncs[ref], rows)
            case ops.ClusterWait():
                arrive = self._cluster_arrive(ref)
                self._acquire_sync(arrive, self.syncs[arrive], rows)
            case ops.WgmmaWait():
                self._acquire_issues(ref, rows)
            case _:
                raise AssertionError(ref.op)
        return rows

    def _acquire_phase(self, ref: Ref, op: ops.Wait, rows: Rows) -> None:
        use, wait = self.wait_of[ref]
        for family in use.teachers:
            told = self._told(family, wait, use, op)
            if told is not None:
                upto = FENCED if op.acquire and family in use.arrivals else M
                rows[:upto] = np.minimum(rows[:upto], told[:upto])

    def _told(self, family: Family, wait: Piece, use: BarrierUse, op: ops.Wait) -> Rows | None:
        """What the family's arrival in the awaited phase hands on, as it reads at the wait."""
        s = wait.ref.s
        ahead = wait.number - family.lead[s]
        if ahead >= 0:
            return self._handed(family.at(s)[ahead], use, op)
        fresh = self._may_be_fresh(use, s, wait.number)
        unit = self.column.get(use.unit, -1)
        ways: list[Rows] = []
        for piece in family.pieces:
            p = piece.ref.s
            link = self.k.link(p, s, unit, piece.number - wait.number) if unit >= 0 else None
            if unit < 0:
                link = self.k.path(p, s, frozenset())
            if link is None:
                continue
            growth, between = link.growth, link.between
            told = self._handed(piece, use, op)
            if fresh:
                # a wait that passes on a fresh barrier teaches nothing: keep only what speaks of no execution then
                growth = tuple(g if u == unit else FAR for u, g in enumerate(growth))
                between = frozenset(range(self.k.n))
            moved = self.k.moved(told, p, s, growth, between)
            if fresh:
                told = self.k.nothing(*moved.shape[:-2])
                first = self.k.earliest[unit, self.k.stretch_of]
                told[..., unit] = np.maximum(moved[..., unit], -wait.number - first)
                moved = self.k.closed(told, s)
            ways.append(moved)
        return np.maximum.reduce(ways) if ways else None

    def _may_be_fresh(self, use: BarrierUse, s: int, number: int) -> bool:
        if not use.unit:
            return number < 0
        return int(self.k.earliest[self.column[use.unit], s]) + number < 0

    def _handed(self, piece: Piece, use: BarrierUse, wait: ops.Wait) -> Rows:
        op, ref = piece.ref.op, piece.ref
        if isinstance(op, ops.TmaLoad):
            return self.k.released(ref.c, ref.s, ref.i, memory=False)
        assert isinstance(op, ops.Arrive | ops.ArriveExpectTx)
        memory = getattr(op, "release", True)
        if use.array[0] != ref.c.cta:
            memory = memory and ops.Scope.CTA not in (op.scope, wait.scope)
        return self.k.released(ref.c, ref.s, ref.i, memory)

    def _acquire_sync(self, ref: Ref, barrier: ThreadBarrier, rows: Rows) -> None:
        for other, ops_of in barrier.ops.items():
            found, same = barrier.partner(ref, other)
            if same:
                told = self._arrived(found[0])
            else:
                stretches = frozenset(s for s, refs in ops_of.items() if refs)
                ways: list[Rows] = []
                for x in found:
                    link = self.k.path(x.s, ref.s, stretches)
                    if link is not None:
                        ways.append(self.k.moved(self._arrived(x), x.s, ref.s, link.growth, link.between))
                if not ways:
                    continue
                told = np.maximum.reduce(ways)
            rows[:FENCED] = np.minimum(rows[:FENCED], told)

    def _arrived(self, ref: Ref) -> Rows:
        memory = ref.op.release if isinstance(ref.op, ops.ClusterArrive) else True
        return self.k.released(ref.c, ref.s, ref.i, memory)

    def _cluster_arrive(self, ref: Ref) -> Ref:
        """The arrive that a cluster wait belongs to: the op's own last one in the same stretch."""
        for i in range(ref.i - 1, -1, -1):
            found = Ref(ref.c, ref.s, i)
            if isinstance(found.op, ops.ClusterArrive):
                return found
            if isinstance(found.op, ops.ClusterWait):
                break
        raise NoWord("a cluster wait without its arrive")

    def _acquire_issues(self, ref: Ref, rows: Rows) -> None:
        """A group is done only when every warp has issued its part: the others' issues are past."""
        k = self.k
        for (c, s, i), mark in k.done.items():
            if c != ref.c.index or not isinstance(ref.c.code[s][i].step.op, ops.Wgmma):
                continue
            for d in k.classes:
                if d is ref.c or d.role != ref.c.role:
                    continue
                place = self.position.get((d.index, ref.c.code[s][i]))
                if place is None:
                    raise NoWord("wgmma by part of a role")
                issued = k.finished[d.index, s, place[1] + 1]
                rows[S, issued] = np.minimum(rows[S, issued], rows[DONE, mark])
                # and with an issue all that its threads did before
                if s == ref.s:
                    earlier = k.marks_of(d) if rows[DONE, mark, k.here] == 0 else []
                elif rows[DONE, mark, k.whole] == 0:
                    earlier = [e for e in k.marks_of(d) if self._issued_after(int(k.stretch_of[e]), s, ref.s)]
                else:
                    earlier = []
                rows[S, earlier, k.whole] = 0

    def _issued_after(self, at: int, s: int, here: int) -> bool:
        return at not in (s, here) and self.k.parted(at, here, s)

    # -- what is known ------------------------------------------------------------------------------------------------
    def rows(self, ref: Ref) -> Rows:
        """What the class knows just before the op."""
        return self.k.before[ref.c.index, ref.s, ref.i]

    def mine(self, ref: Ref, other: Ref) -> Rows:
        """What program order says of an op of the same class."""
        found = self._mine.get((ref, other))
        if found is None:
            row = [FAR] * self.k.j + [0, 0 if other.s == ref.s and other.i < ref.i else 1]
            found = self._mine[ref, other] = self.k.closed_row(row, ref.s, other.s)
        return found

    def known(self, ref: Ref, segment: int, other: Ref, own: bool = False) -> Rows:
        """The row of an op at another: of its whole class."""
        row = self.rows(ref)[segment, self.k.mark[other.c.index, other.s, other.i]]
        if other.c is ref.c and (own or ref.c.group.size == 1):
            return np.minimum(row, self.mine(ref, other))
        return row

    def _seen(self, ref: Ref, segment: int, use: BarrierUse, wait: Piece) -> list[Rows]:
        """The rows of a wait at an op, one for each class that runs it."""
        return [self.known(ref, segment, w, own=w.c is ref.c) for w in use.alike[wait.ref.site]]

    def upto(self, use_unit: object, bound: int) -> Answer:
        """Whether a row covers all executions up to ``bound`` turns before now."""
        if not use_unit:
            return self._past
        column = self.column[use_unit]  # type: ignore[index]
        return lambda row: bool(row[column] <= bound)

    # -- barriers -----------------------------------------------------------------------------------------------------
    def _init_sites(self) -> None:
        self.inits: dict[Array, list[Ref]] = {}
        for ref in refs_of(self.k, lambda op: isinstance(op, ops.MbarrierInit)):
            op = ref.op
            assert isinstance(op, ops.MbarrierInit)
            slots = self.protocol.barrier(op.barrier).slots
            if (op.slots is not None and op.slots < slots) or self._repeats(ref.s) or ref.c.group.size > 1:
                raise NoWord(f"a partial or repeated init of {op.barrier}")
            self.inits.setdefault((ref.c.cta, op.barrier), []).append(ref)
        for array in self.bars:
            refs = self.inits.get(array, [])
            if len({r.s for r in refs}) != len(refs) or {r.s for r in refs} != set(self.graph.word.starts):
                raise NoWord(f"{array[1]} is not initialised once at the start")

    def _repeats(self, s: int) -> bool:
        seen, pending = set[int](), [s]
        while pending:
            for x, _ in self._flows(pending.pop()):
                if x == s:
                    return True
                if x not in seen:
                    seen.add(x)
                    pending.append(x)
        return False

    def _flows(self, s: int) -> list[tuple[int, int]]:
        return [(f.target, len(f.turns)) for f in self.graph.word.flows if f.source == s]

    def _barrier(self, use: BarrierUse) -> None:
        name = use.array[1]
        if sum(f.bytes for f in use.expects) > MAX_ARRIVALS:
            raise NoWord(f"{name} expects more bytes than a phase counts")
        for ref in use.users:
            self._visible(ref, use)
        for piece in [*use.waits, *(p for f in [*use.signals, *use.expects] for p in f.pieces)]:
            if not self._phase_known(use, piece.ref, piece.number - use.slots):
                raise NoWord(f"{name}: the phase before that of {self._name(piece.ref)} may be incomplete")
        for piece in use.waits:
            self._not_lapped(use, piece)
        for family in use.expects:
            for piece in family.pieces:
                if isinstance(piece.ref.op, ops.ExpectTx):
                    self._expected_in_time(use, piece)

    def _visible(self, ref: Ref, use: BarrierUse) -> None:
        for init in self.inits[use.array]:
            fences = [
                r
                for r in refs_of(self.k, lambda op: isinstance(op, ops.FenceMbarrierInit))
                if r.c is init.c and r.s == init.s and r.i > init.i
            ]
            if init.c is ref.c:
                if self._past(self.mine(ref, init)):
                    continue
            elif any(self._past(self.known(ref, S, f)) for f in fences):
                continue
            raise NoWord(f"the initialisation of {use.array[1]} is not fenced before {self._name(ref)}")

    def _past(self, row: Rows) -> bool:
        """Whether all executions until now are covered."""
        return bool(row[self.k.j + 1] == 0)

    def _phase_known(self, use: BarrierUse, ref: Ref, number: int) -> bool:
        """Whether the phase ``now + number`` is complete before the op, in every schedule."""
        if not use.unit and number < 0:
            return True
        for cover in use.covers:
            if all(
                any(self.upto(use.unit, w.number - number)(row) for row in self._seen(ref, S, use, w))
                for w in cover.pieces
            ):
                return True
        if use.landings:
            return False
        return all(
            self.upto(use.unit, p.number - number)(self.known(ref, S, p.ref)) for f in use.arrivals for p in f.pieces
        )

    def _not_lapped(self, use: BarrierUse, wait: Piece) -> None:
        """Phase n + slots completes only after the wait for phase n returned."""
        if not use.unit:
            if any(p.number != 0 for f in use.signals for p in f.pieces):
                raise NoWord(f"{use.array[1]} goes round without a counter")
            return
        mark = self.k.mark[wait.ref.c.index, wait.ref.s, wait.ref.i]
        for family in use.signals:
            if all(
                self.upto(use.unit, use.slots + wait.number - p.number)(
                    self.k.released(p.ref.c, p.ref.s, p.ref.i, memory=False)[S][mark]
                )
                for p in family.pieces
            ):
                return
        raise NoWord(f"{use.array[1]} may go round before {self._name(wait.ref)} returns")

    def _expected_in_time(self, use: BarrierUse, expect: Piece) -> None:
        mark = self.k.mark[expect.ref.c.index, expect.ref.s, expect.ref.i]
        for family in use.arrivals:
            if all(
                self.upto(use.unit, expect.number - p.number)(
                    self.k.released(p.ref.c, p.ref.s, p.ref.i, memory=False)[S][mark]
                )
                for p in family.pieces
            ):
                return
        raise NoWord(f"bytes of {use.array[1]} may be expected after its last arrival")

    def _recycled(self, ref: Ref) -> None:
        """The use before is complete: someone who took part in it returned."""
        barrier = self.syncs[ref]
        if isinstance(ref.op, ops.ClusterArrive):
            self._paired(ref)
            return
        for other in barrier.ops:
            try:
                found, same = barrier.partner(ref, other, 1)
            except NoWord:
                continue
            refs = found if same else [r for rs in barrier.ops[other].values() for r in rs]
            if not all(isinstance(r.op, ops.BarSync | ops.CtaSync) for r in refs):
                continue
            own = self.k.classes[other] is ref.c
            rows = [self.known(ref, S, r, own) for r in refs]
            if all(self._past(r) if same else r[self.k.j] == 0 for r in rows):
                return
        raise NoWord(f"{barrier.label} may be entered again before {self._name(ref)}")

    def _paired(self, ref: Ref) -> None:
        for i in range(ref.i + 1, len(ref.c.code[ref.s])):
            op = Ref(ref.c, ref.s, i).op
            if isinstance(op, ops.ClusterWait):
                return
            if isinstance(op, ops.ClusterArrive):
                break
        raise NoWord("a cluster arrive without its wait in the same stretch")

    def _name(self, ref: Ref) -> str:
        return f"{type(ref.op).__name__} of {ref.c.group.label}"

    # -- progress -----------------------------------------------------------------------------------------------------
    def _progress(self) -> None:
        """No wait waits, through others, for itself: all it needs is earlier in the word, or in the same stretch and
        then without a circle."""
        needs: dict[Ref, list[Ref]] = {}
        for ref in refs_of(self.k, lambda op: True):
            after = needs.setdefault(ref, [])
            match ref.op:
                case ops.Wait():
                    after += self._needed_arrivals(ref)
                case ops.BarSync() | ops.CtaSync():
                    after += self._needed_partners(ref)
                case ops.ClusterWait():
                    after += self._needed_partners(self._cluster_arrive(ref))
                case ops.WgmmaWait():
                    after += [
                        Ref(d, ref.s, i)
                        for d in self.k.classes
                        if d.role == ref.c.role and d is not ref.c
                        for i in range(len(d.code[ref.s]))
                        if d.code[ref.s][i] == ref.site
                    ]
                case ops.Setmaxnreg():
                    after += self._givers(ref)
                case _:
                    pass
        # an op is reached when the one before it is done
        state: dict[Ref, int] = {}

        def visit(ref: Ref) -> None:
            stack: list[tuple[Ref, Iterator[Ref]]] = [(ref, iter(())), (ref, self._edges(ref, needs))]
            state[ref] = 1
            while stack:
                at, edges = stack[-1]
                following = next(edges, None)
                if following is None:
                    stack.pop()
                    state[at] = 2
                elif state.get(following) == 1:
                    raise NoWord(f"{self._name(at)} waits in a circle")
                elif following not in state:
                    state[following] = 1
                    stack.append((following, self._edges(following, needs)))

        for ref in needs:
            if ref not in state:
                visit(ref)

    def _edges(self, ref: Ref, needs: dict[Ref, list[Ref]]) -> Iterator[Ref]:
        if ref.i:
            yield Ref(ref.c, ref.s, ref.i - 1)
        for other in needs[ref]:
            if other.i:
                yield Ref(other.c, other.s, other.i - 1)

    def _needed_arrivals(self, ref: Ref) -> list[Ref]:
        use, wait = self.wait_of[ref]
        out: list[Ref] = []
        if not use.signals and (use.unit or wait.number >= 0):
            raise NoWord(f"nobody arrives on {use.array[1]}")
        for family in use.signals:
            ahead = wait.number - family.lead[ref.s]
            if ahead < 0:
                continue
            here = family.at(ref.s)
            if ahead >= len(here):
                raise NoWord(f"{self._name(ref)} on {use.array[1]} waits for what comes later")
            out += [p.ref for p in here[: ahead + 1]]
        return out

    def _needed_partners(self, ref: Ref) -> list[Ref]:
        barrier = self.syncs[ref]
        out: list[Ref] = []
        for other in barrier.ops:
            found, same = barrier.partner(ref, other)
            if same:
                out += found
        return out

    # -- registers ----------------------------------------------------------------------------------------------------
    def _registers(self) -> None:
        takers = [r for r in refs_of(self.k, lambda op: isinstance(op, ops.Setmaxnreg)) if r.c.group.primary]
        launch = self.protocol.registers_per_thread
        free: dict[int, int] = {}
        for ref in takers:
            op = ref.op
            assert isinstance(op, ops.Setmaxnreg)
            if not 24 <= op.registers <= 256 or op.registers % 8 or self._repeats(ref.s):
                raise NoWord("setmaxnreg out of range or in a loop")
            threads = self.graph.word.parties[ref.c.party][0].threads
            free[ref.c.cta] = free.get(ref.c.cta, 0) + (launch - op.registers) * threads
        if any(v < 0 for v in free.values()) or len({r.s for r in takers}) > 1:
            raise NoWord("setmaxnreg takes more than was given up")
        if len({r.c.index for r in takers}) != len(takers):
            raise NoWord("setmaxnreg twice in a role")

    def _givers(self, ref: Ref) -> list[Ref]:
        launch, op = self.protocol.registers_per_thread, ref.op
        assert isinstance(op, ops.Setmaxnreg)
        if op.registers <= launch or not ref.c.group.primary:
            return []
        return [
            r
            for r in refs_of(self.k, lambda x: isinstance(x, ops.Setmaxnreg) and x.registers < launch)
            if r.c.cta == ref.c.cta and r.c.group.primary
        ]

    def _wgmma_registers(self) -> None:
        """wgmma.fence between register accesses and the wgmma that use them, on every way."""
        for c in self.k.classes:
            dirty = dict.fromkeys(range(self.k.n), False)
            for s in self.graph.word.starts:
                dirty[s] = True
            for _ in range(self.k.n + 1):
                for s, code in enumerate(c.code):
                    now = dirty[s]
                    for site in code:
                        match site.step.op:
                            case ops.WgmmaFence():
                                now = False
                            case ops.Read(region) | ops.Write(region):
                                now |= self.protocol.buffer(region.buffer).space is Space.REGISTER
                            case ops.Wgmma() if now:
                                raise NoWord("wgmma without wgmma.fence since its registers")
                            case _:
                                pass
                    for x, _ in self._flows(s):
                        dirty[x] |= now

    # -- bytes --------------------------------------------------------------------------------------------------------
    def _memory(self) -> None:
        by_memory: dict[tuple[object, ...], list[Access]] = {}
        for a in self.accesses:
            by_memory.setdefault(a.place.memory, []).append(a)
        for memory, accesses in by_memory.items():
            for n, x in enumerate(accesses):
                for y in accesses[n:]:
                    if (x.writes or y.writes) and _overlap(x.place, y.place):
                        self._ordered(x, y)
                if memory[0] == "shared" and not x.writes and not x.place.buffer.initialised:
                    self._written(x, [w for w in accesses if w.writes])

    def _ordered(self, x: Access, y: Access) -> None:
        if x is y or x.ref == y.ref:
            if not (self._answered(x, y, 1) and (x is y or self._answered(y, x, 1))):
                raise NoWord(f"{x.engine} of {self._name(x.ref)} on {x.place.buffer.name} may overtake itself")
            return
        later = self._answered(x, y, 1), self._answered(y, x, 1)
        if all(later) and not self._coexist(x, y):
            return
        if (later[1] and self._answered(x, y, 0)) or (later[0] and self._answered(y, x, 0)):
            return
        raise NoWord(
            f"{x.engine} of {self._name(x.ref)} and {y.engine} of {self._name(y.ref)} on {x.place.buffer.name}"
        )

    def _coexist(self, x: Access, y: Access) -> bool:
        """Whether both can belong to one use of a ring."""
        if not _same_ring(x.place, y.place):
            return True
        assert x.place.index is not None
        assert y.place.index is not None
        apart = y.place.index.offset - x.place.index.offset
        if not x.place.index.unit:
            return True
        unit = self.column[x.place.index.unit]
        a, b = (y, x) if apart >= 0 else (x, y)
        if x.ref.s == y.ref.s and apart == 0:
            return True
        if apart == 0 and self.k.link(x.ref.s, y.ref.s, unit, 0) is not None:
            return True
        return self.k.link(a.ref.s, b.ref.s, unit, abs(apart)) is not None

    def _answered(self, x: Access, y: Access, laps: int) -> bool:
        """At ``y`` every execution of ``x`` on its bytes is done that comes before: with ``laps`` 0 that of the same
        use (or turn) too, with 1 those of earlier ones."""
        if _same_ring(x.place, y.place):
            assert x.place.index is not None
            assert y.place.index is not None
            bound = x.place.index.offset - y.place.index.offset + laps * x.place.stages
            return self._done(x, y, self.upto(x.place.index.unit, bound))
        if x.ref.s == y.ref.s and laps == 0:
            return self._done(x, y, self._past)
        return self._done(x, y, lambda row: bool(row[self.k.j] == 0))

    def _done(self, x: Access, y: Access, answer: Answer) -> bool:
        if x.engine == "generic":
            return self._sync_done(x, y, answer)
        k, rows = self.k, self.rows(y.ref)
        register = x.place.memory[0] == "register"
        if register and x.engine == y.engine == "wgmma":
            return True
        segment = M if y.engine == "generic" else S
        if x.engine == "tma_load":
            return any(answer(row) for row in self._landed(x, y, segment))
        for d in k.classes:
            if d.role != x.ref.c.role or (x.engine == "tma_store" and d is not x.ref.c):
                continue
            place = self.position.get((d.index, x.ref.site))
            if place is not None:
                mark = k.done[d.index, place[0], place[1]]
                if answer(rows[DONE if d is y.ref.c else segment, mark]):
                    return True
        return False

    def _landed(self, x: Access, y: Access, segment: int) -> Iterator[Rows]:
        """What waits on the barrier of a copy tell of it."""
        assert x.landing is not None
        array, number = x.landing
        use = self.bars[array]
        for cover in use.covers:
            row = [FAR] * self.k.j + [1, 1]
            told = [(w, self._seen(y.ref, segment, use, w)) for w in cover.pieces]
            if use.unit:
                column = self.column[use.unit]
                row[column] = max(min(int(r[column]) for r in rows) - w.number for w, rows in told) + number
            elif all(any(map(self._past, rows)) for _, rows in told):
                row[self.k.j :] = 0, 0
            yield self.k.closed_row(row, y.ref.s, x.ref.s)

    def _sync_done(self, x: Access, y: Access, answer: Answer) -> bool:
        register = x.place.memory[0] == "register"
        same_role = x.ref.c.role == y.ref.c.role
        own = register or (same_role and x.private and y.private)
        reaches = y.engine in ASYNC_PROXY
        if own and not reaches:
            return True
        if x.writes and y.writes and same_role and x.ref.site.step is y.ref.site.step:
            return True
        mine = x.ref.c is y.ref.c and (x.ref.c.group.size == 1 or own)
        rows = self.rows(y.ref)
        if mine and not answer(self.mine(y.ref, x.ref)):
            return False
        if register:
            return mine
        mark = self.k.mark[x.ref.c.index, x.ref.s, x.ref.i]
        if not mine and not answer(rows[M, mark]):
            return False
        if not reaches:
            return True
        by_writer = answer(rows[FENCED if mine else F, mark])
        by_anyone = by_writer or answer(rows[FENCED if mine else X, mark])
        if x.writes and not y.writes and self.policy is Policy.STRICT:
            return by_writer
        return by_anyone

    def _written(self, y: Access, writers: list[Access]) -> None:
        """Some write of the bytes comes before every read of them."""
        left = [(y.place.begin, y.place.end)] if y.place.index is not None else [y.place.span]
        if y.place.index is None:
            for w in writers:
                if w.place.index is None and self._answered(w, y, 0) and self._before(w, y):
                    left = _without(left, *w.place.span)
        if left and not self._written_by_turns(y, writers):
            raise NoWord(f"bytes of {y.place.buffer.name} that {self._name(y.ref)} reads may never have been written")

    def _written_by_turns(self, y: Access, writers: list[Access]) -> bool:
        """Writes at several places that together cover each use of a ring."""
        if y.place.index is None:
            return False
        left = [(y.place.begin, y.place.end)]
        spans = dict.fromkeys((w.place.begin, w.place.end) for w in writers if _same_ring(w.place, y.place))
        for begin, end in spans:
            group = [
                w
                for w in writers
                if _same_ring(w.place, y.place)
                and (w.place.begin, w.place.end) == (begin, end)
                and w.ref.c.group.primary
            ]
            if all(self._answered(w, y, 0) for w in group) and self._everywhere(group):
                left = _without(left, begin, end)
        return not left

    def _everywhere(self, group: list[Access]) -> bool:
        """Whether the accesses take every use of their ring."""
        w = group[0]
        assert w.place.index is not None
        one = [a for a in group if a.ref.c is w.ref.c]
        pieces = [Piece(a.ref, a.place.index.offset) for a in one if a.place.index is not None]
        return covering(self.graph.word, w.place.index.unit, list(dict.fromkeys(pieces))) is not None

    def _before(self, w: Access, y: Access) -> bool:
        """Whether every way to the read passes the write."""
        if w.ref.s == y.ref.s:
            return True  # asked before: the one of the same turn is done
        seen, pending = set[int](), [s for s in self.graph.word.starts if s != w.ref.s]
        while pending:
            s = pending.pop()
            if s == y.ref.s:
                return False
            if s in seen:
                continue
            seen.add(s)
            pending += [x for x, _ in self._flows(s) if x != w.ref.s]
        return True

    # -- the end ------------------------------------------------------------------------------------------------------
    def _end(self) -> None:
        k = self.k
        for c in k.classes:
            for s in self.graph.word.ends:
                rows = k.before[c.index, s, len(c.code[s])]
                for (owner, _, _), mark in k.done.items():
                    if owner == c.index and rows[DONE, mark, k.j + 1] != 0:
                        raise NoWord(f"{c.group.label} may end with groups in flight")
        for use in self.bars.values():
            for landing in use.landings:
                if not any(
                    all(cover.lead[-1 - e] >= landing.lead[-1 - e] for e in self.graph.word.ends)
                    for cover in use.covers
                ):
                    raise NoWord(f"copies tracked by {use.array[1]} may be in flight at the end")
        self._peers()

    def _peers(self) -> None:
        """A CTA that others touch ends only after they did."""
        for ref in refs_of(self.k, lambda op: isinstance(op, ops.Arrive | ops.TmaLoad | ops.ArriveExpectTx)):
            targets = {a[0] for a, use in self.bars.items() if ref in use.users} - {ref.c.cta}
            mark = self.k.mark[ref.c.index, ref.s, ref.i]
            for target in targets:
                for s in self.graph.word.ends:
                    if not any(
                        self._past(self.k.before[c.index, s, len(c.code[s])][S, mark])
                        for c in self.k.classes
                        if c.cta == target
                    ):
                        raise NoWord(f"CTA {target} may end before {self._name(ref)} touches it")


def _understood(step: Step) -> None:
    known = UNDERSTOOD.get(type(step.op))
    if known is None:
        raise NoWord(f"{type(step.op).__name__}")
    for name, field in step.op.__dataclass_fields__.items():
        if name not in known and getattr(step.op, name) != field.default:
            raise NoWord(f"{type(step.op).__name__} with {name}")


def _same_ring(x: Place, y: Place) -> bool:
    return (
        x.index is not None
        and y.index is not None
        and (x.index.unit, x.stages, x.stage, x.base) == (y.index.unit, y.stages, y.stage, y.base)
    )


def _overlap(x: Place, y: Place) -> bool:
    if _same_ring(x, y):
        return x.begin < y.end and y.begin < x.end
    return x.span[0] < y.span[1] and y.span[0] < x.span[1]


def _without(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for a, b in spans:
        out += [(a, min(b, begin))] if a < min(b, begin) else []
        out += [(max(a, end), b)] if max(a, end) < b else []
    return out
