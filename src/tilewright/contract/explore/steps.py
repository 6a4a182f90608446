"""What one op does to a world. Ops that others can observe are scheduling points; the rest run on at once."""

from __future__ import annotations

from tilewright.contract.explore.program import Call, Thread
from tilewright.contract.explore.world import Bar, Bytes, Flight, Landing, Problem, Touch, World
from tilewright.contract.rules import Policy, Rule
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import Protocol

OBSERVABLE = (
    ops.Arrive,
    ops.ArriveExpectTx,
    ops.ExpectTx,
    ops.Wait,
    ops.TestWait,
    ops.TmaLoad,
    ops.DsmemCopy,
    ops.TmaStore,
    ops.CpAsyncArrive,
    ops.BarSync,
    ops.BarArrive,
    ops.CtaSync,
    ops.WarpSync,
    ops.ClusterArrive,
    ops.ClusterWait,
    ops.Tcgen05Commit,
    ops.Tcgen05Alloc,
    ops.Tcgen05Dealloc,
    ops.Wgmma,
    ops.WgmmaWait,
    ops.Setmaxnreg,
    ops.MbarrierInval,
)
"""Ops before which a thread stops: another order with other threads' ops may matter. The others commute with everything
other threads do (partial-order reduction by local steps): their effect on others shows at the next observable op."""

_ASYNC = frozenset(("tma_load", "tma_store", "tma_write", "tma_reduce", "wgmma", "mma", "tcp", "dsmem"))
_MAY_OUTLIVE = ("tma_write", "tma_reduce")
"""What may be under way when the kernel ends: writes to global memory whose sources were read."""
_TX_LIMIT = 2**20 - 1


def _int(e: object) -> int:
    value = getattr(e, "value", None)
    assert isinstance(value, int)
    return value


class Instance:
    """The fixed part of an exploration: threads, their straight-line programs, declarations."""

    def __init__(self, protocol: Protocol, policy: Policy, threads: tuple[Thread, ...], code: list[tuple[Call, ...]]):
        self.protocol, self.policy, self.threads, self.code = protocol, policy, threads, code
        self.bar_index: dict[tuple[int, str, int], int] = {}
        self.counts: list[int] = []
        for cta in range(protocol.cluster):
            for b in protocol.barriers:
                for i in range(b.slots):
                    self.bar_index[cta, b.name, i] = len(self.counts)
                    self.counts.append(b.count)
        self.buffers = {b.name: b for b in protocol.buffers}
        self.barriers = {b.name: b for b in protocol.barriers}
        self.mates = [[j for j, u in enumerate(threads) if (u.role, u.cta) == (t.role, t.cta)] for t in threads]
        self.cta_threads = {c: sum(t.weight for t in threads if t.cta == c) for c in range(protocol.cluster)}

    def start(self) -> World:
        """The world before the first step, with all threads at their first observable op."""
        n = len(self.threads)
        w = World(
            [0] * n,
            [frozenset()] * n,
            [{} for _ in range(n)],
            [Bar(c, 0, 0, c, False, False) for c in self.counts],
            cluster=(0,) * n,
            dirty=frozenset(range(n)),
            pool=dict.fromkeys(range(self.protocol.cluster), 0),
            registers=[self.protocol.registers_per_thread] * n,
        )
        for t in range(n):
            self.run_local(w, t)
        return w

    # -- moves ------------------------------------------------------------------------------------------------------
    def moves(self, w: World) -> list[tuple[str, int]]:
        """Everything that can happen next: a thread's observable op, or a landing."""
        found = [("thread", t) for t in range(len(self.threads)) if w.pc[t] < len(self.code[t]) and self.enabled(w, t)]
        seen: set[Landing] = set()
        for i, landing in enumerate(w.landings):
            if landing not in seen:
                seen.add(landing)
                found.append(("land", i))
        return found

    def ended(self, w: World) -> bool:
        """Whether every thread is at its end."""
        return all(w.pc[t] >= len(self.code[t]) for t in range(len(self.threads)))

    def enabled(self, w: World, t: int) -> bool:
        """Whether the thread's next op would not block."""
        op = self.code[t][w.pc[t]].op
        match op:
            case ops.Wait():
                b = self.bar(w, t, op.bar)
                bar, seen = w.bars[b], op.peeked and (t, b) in w.peeked
                return seen or not bar.alive or bar.parity != _int(op.parity) % 2
            case ops.BarSync() | ops.CtaSync() | ops.WarpSync():
                return t not in w.inside or t in w.released
            case ops.ClusterWait():
                return w.cluster[t] != 1
            case ops.WgmmaWait():
                upto = w.groups[t].get("wgmma", (0, -1))[0] - 1 - op.pending
                return all(w.groups[u].get("wgmma", (0, -1))[0] > upto for u in self.mates[t])
            case ops.Setmaxnreg() if self.mates[t][0] == t:
                return w.pool[self.threads[t].cta] + self._freed(w, t, op) >= 0
            case _:
                return True

    def _freed(self, w: World, t: int, op: ops.Setmaxnreg) -> int:
        return (w.registers[t] - op.registers) * self.threads[t].threads_of_role

    def move(self, w: World, move: tuple[str, int]) -> None:
        """Carries out a move, then what follows at once; raises ``Problem``."""
        kind, i = move
        if kind == "land":
            landing = w.landings[i]
            w.landings = w.landings[:i] + w.landings[i + 1 :]
            self._close(w, landing.closes)
            self._to_bar(w, landing.owner, landing.bar, tx=-landing.tx, arrivals=landing.arrivals)
            return
        call = self.code[i][w.pc[i]]
        if self._observable(w, i, call.op):
            w.pc[i] += 1
            self.run_local(w, i)

    def run_local(self, w: World, t: int) -> None:
        """Runs the thread up to its next observable op."""
        code = self.code[t]
        while w.pc[t] < len(code) and not isinstance(code[w.pc[t]].op, OBSERVABLE):
            self._local(w, t, code[w.pc[t]].op)
            w.pc[t] += 1
        if w.pc[t] >= len(code):
            w.open[t] = frozenset(x for x in w.open[t] if x.bytes.space[0] != "register")
            self._cluster_check(w)

    # -- barriers ---------------------------------------------------------------------------------------------------
    def bar(self, w: World, t: int, slot: ops.Slot, rank: int | None = None) -> int:
        """Index of a barrier."""
        cta = self.threads[t].cta if slot.cta is None else _int(slot.cta)
        cta = cta if rank is None else rank
        key = (cta, slot.barrier, _int(slot.index))
        if key not in self.bar_index:
            raise Problem(Rule.SLOT_RANGE, (t,), f"{slot.barrier}[{key[2]}] of CTA {cta} does not exist")
        return self.bar_index[key]

    def _use(self, w: World, t: int, b: int) -> None:
        """The thread refers to a barrier: it is alive, and its initialisation not under way elsewhere."""
        bar = w.bars[b]
        if not bar.alive:
            raise Problem(Rule.INIT, (t,), f"{self.threads[t].label} uses a barrier that is not initialised")
        place = Bytes(("barrier", b), 0, 1)
        for u, touches in enumerate(w.open):
            if u != t and any(x.writes and x.bytes.meets(place) for x in touches):
                raise Problem(Rule.INIT, (u, t), "a barrier is used while its initialisation may be under way")
        if self.protocol.cluster > 1 and not bar.fenced:
            raise Problem(Rule.INIT_FENCE, (t,), "a barrier is used across the cluster without fence.mbarrier_init")

    def _to_bar(self, w: World, t: int, b: int, tx: int = 0, arrivals: int = 0) -> None:
        bar = w.bars[b]
        if not bar.alive:
            raise Problem(Rule.INIT, (t,), "an arrival on a barrier that is not alive")
        if arrivals > bar.pending:
            raise Problem(Rule.COUNT, (t,), f"{arrivals} arrivals where {bar.pending} are pending")
        pending, total = bar.pending - arrivals, bar.tx + tx
        if abs(total) > _TX_LIMIT:
            raise Problem(Rule.BYTES, (t,), f"{total} bytes pending")
        if pending == 0 and total == 0:
            w.bars[b] = bar._replace(pending=bar.initial, tx=0, parity=1 - bar.parity)
        else:
            w.bars[b] = bar._replace(pending=pending, tx=total)

    def _remote(self, w: World, t: int, cta: int) -> None:
        """A peer is touched: one of its threads must still be there."""
        if cta != self.threads[t].cta and all(
            w.pc[u] >= len(self.code[u]) for u, thread in enumerate(self.threads) if thread.cta == cta
        ):
            raise Problem(Rule.CLUSTER_EXIT, (t,), f"CTA {cta} has ended when {self.threads[t].label} touches it")

    def _release(self, w: World, t: int, memory: bool = True) -> None:
        """The thread's accesses so far are over for whoever acquires this."""
        if not memory:
            fenced = frozenset(x for x in w.open[t] if x.init and self._init_fenced(w, x))
            w.open[t] -= fenced
            return
        w.open[t] = frozenset()
        sent = [x for x in w.unsent if x[0] == t]
        for _, place, engine in sent:
            # never behind a before-fence: everyone else still sees it as under way
            w.stale |= {(place, u, t, engine + "!") for u in range(len(self.threads)) if u != t}

    def _init_fenced(self, w: World, x: Touch) -> bool:
        index = x.bytes.space[1]
        return isinstance(index, int) and w.bars[index].fenced

    # -- accesses ---------------------------------------------------------------------------------------------------
    def place(self, t: int, region: ops.Region, rank: int | None = None) -> Bytes:
        """Where a region lies."""
        buffer, thread = self.buffers[region.buffer], self.threads[t]
        cta = thread.cta if region.cta is None else _int(region.cta)
        cta = cta if rank is None else rank
        begin = _int(region.begin)
        if begin < 0 or begin + region.size > buffer.size or not 0 <= cta < self.protocol.cluster:
            raise Problem(Rule.SLOT_RANGE, (t,), f"a region outside {buffer.name}")
        begin += buffer.offset
        match buffer.space:
            case Space.REGISTER:
                space: tuple[object, ...] = ("register", thread.role, thread.cta)
            case Space.GLOBAL:
                space = ("global",)
            case Space.TMEM:
                space = ("tmem", cta)
            case _:
                space = ("shared", cta)
        return Bytes(space, begin, begin + region.size)

    def _touch(self, w: World, t: int, region: ops.Region, engine: str, writes: bool, private: bool = False,
               rank: int | None = None, site: int = 0) -> Bytes:  # fmt: skip
        """Checks an access against everything under way and against what it reads."""
        place = self.place(t, region, rank)
        kind = place.space[0]
        if kind == "register":
            self._registers(w, t, place, engine, writes)
            return place
        if kind == "tmem":
            self._tensor(w, t, region, place, engine)
        for f in w.flights:
            if f.bytes.meets(place) and (f.writes or writes) and not self._in_order(t, engine, private, f):
                own = f.role == (self.threads[t].role, self.threads[t].cta)
                rule = Rule.GROUP if own and f.engine not in ("tma_load", "dsmem") else _clash(f.writes, writes)
                raise Problem(rule, (f.owner, t), f"{engine} of {self.threads[t].label} meets {f.engine} under way")
        mates = self.mates[t]
        for u, touches in enumerate(w.open):
            if u == t:
                continue
            for x in touches:
                if (
                    x.bytes.meets(place)
                    and (x.writes or writes)
                    and not (u in mates and self._shared(x, writes, private, site))
                ):
                    raise Problem(
                        _clash(x.writes, writes),
                        (u, t),
                        f"{engine} of {self.threads[t].label} meets {self.threads[u].label}",
                    )
        if not writes and kind in ("shared", "tmem") and not self.buffers[region.buffer].initialised:
            self._there(w, t, place, region.buffer)
        if engine in _ASYNC and kind in ("shared", "global"):
            self._fences(w, t, place, writes)
        if writes:
            w.written |= {place}
            w.bare = frozenset(x for x in w.bare if not _inside(x[0], place))
            w.unfenced = frozenset(x for x in w.unfenced if not _inside(x[0], place))
        return place

    @staticmethod
    def _shared(x: Touch, writes: bool, private: bool, site: int) -> bool:
        """Whether two threads of a role keep to their own parts: private accesses, or one write step of both."""
        return (x.private and private) or (x.writes and writes and x.site == site != 0)

    def _in_order(self, t: int, engine: str, private: bool, f: Flight) -> bool:
        if f.engine == engine == "tma_reduce":
            return True
        if f.engine in ("mma", "tcp") and engine in ("mma", "tcp"):
            return f.owner == t
        if f.engine in ("ld", "st") and engine in ("ld", "st"):
            return f.owner != t and f.owner in self.mates[t]
        if f.engine == "cp_async":
            mine = f.owner in self.mates[t]
            return mine and (engine == "cp_async" or (private and f.owner != t))
        return f.engine == "wgmma" and engine == "wgmma" and f.owner in self.mates[t]

    def _there(self, w: World, t: int, place: Bytes, name: str) -> None:
        """Every byte read was written by something."""
        need = [(place.begin, place.end)]
        for x in w.written:
            if x.meets(place):
                need = [
                    piece
                    for b, e in need
                    for piece in ((b, min(e, x.begin)), (max(b, x.end), e))
                    if piece[0] < piece[1]
                ]
        if need:
            raise Problem(Rule.READ_EARLY, (t,), f"{self.threads[t].label} reads bytes of {name} never written")

    def _fences(self, w: World, t: int, place: Bytes, writes: bool) -> None:
        if not writes:
            strict = self.policy is Policy.STRICT
            dirty = (
                [u for x, u in w.unfenced if x.meets(place)]
                if strict
                else [u for x, u, is_write in w.bare if is_write and x.meets(place)]
            )
            if dirty:
                raise Problem(Rule.FENCE_RAW, (dirty[0], t), "an asynchronous read of unfenced generic writes")
            return
        bare = [u for x, u, is_write in w.bare if x.meets(place) and (is_write or self.policy is Policy.STRICT)]
        if bare:
            raise Problem(Rule.FENCE_WAR, (bare[0], t), "an asynchronous write over unfenced generic accesses")

    def _registers(self, w: World, t: int, place: Bytes, engine: str, writes: bool) -> None:
        if engine == "wgmma":
            return
        for f in w.flights:
            if f.engine == "wgmma" and f.owner == t and f.bytes.meets(place) and (f.writes or writes):
                raise Problem(Rule.GROUP, (f.owner, t), f"registers of {self.threads[t].label} in use by wgmma")
        w.dirty |= {t}

    def _tensor(self, w: World, t: int, region: ops.Region, place: Bytes, engine: str) -> None:
        cta = place.space[1]
        assert isinstance(cta, int)
        state = w.tmem.get((region.buffer, cta))
        if state != "live" and not (state and engine == "dealloc"):
            raise Problem(Rule.TMEM, (t,), f"{self.threads[t].label} uses {region.buffer}, which is not allocated")
        if engine == "dealloc":
            return
        address = Bytes(("tmem address", region.buffer, cta), 0, 1)
        for u, touches in enumerate(w.open):
            if u not in self.mates[t] and any(x.writes and x.bytes.meets(address) for x in touches):
                raise Problem(Rule.TMEM, (u, t), f"{region.buffer} is used while its allocation may be under way")
        for x, u, owner, past in w.stale:
            if u != t or not x.meets(place) or (owner in self.mates[t] and past.rstrip("!") in ("ld", "st")):
                continue
            if owner == t and past == "mma" and engine in ("mma", "tcp"):
                continue
            raise Problem(Rule.TCGEN_FENCE, (owner, t), "tensor memory handed over without the tcgen05 fences")

    def _close(self, w: World, closes: tuple[tuple[tuple[object, ...], int], ...]) -> None:
        """Queues are done up to a number: their accesses are no longer under way."""
        for queue, upto in closes:
            gone = frozenset(f for f in w.flights if f.queue == queue and f.number <= upto)
            w.flights -= gone
            for f in gone:
                if f.bytes.space[0] == "tmem":
                    self._settled(w, f)
                if f.engine == "cp_async":
                    w.unfenced |= {(f.bytes, f.owner)} if self.policy is Policy.LENIENT else frozenset()
                    w.bare |= {(f.bytes, f.owner, True)}

    def _settled(self, w: World, f: Flight) -> None:
        """A tensor-memory access is done; others need the fences."""
        w.stale = frozenset(x for x in w.stale if not (_inside(x[0], f.bytes) and x[2] == f.owner))
        if f.engine in ("ld", "st"):
            w.unsent |= {(f.owner, f.bytes, f.engine)}
        else:
            w.stale |= {(f.bytes, u, f.owner, "mma") for u in range(len(self.threads))}

    # -- local ops --------------------------------------------------------------------------------------------------
    def _local(self, w: World, t: int, op: ops.Op) -> None:
        thread, groups = self.threads[t], w.groups[t]
        match op:
            case ops.MbarrierInit():
                barrier = self.barriers[op.barrier]
                for i in range(min(barrier.slots, barrier.slots if op.slots is None else op.slots)):
                    b = self.bar_index[thread.cta, op.barrier, i]
                    if w.bars[b].alive:
                        raise Problem(Rule.INIT, (t,), "a barrier is initialised twice")
                    w.bars[b] = Bar(barrier.count, 0, 0, barrier.count, True, False)
                    w.open[t] |= {Touch(Bytes(("barrier", b), 0, 1), True, False, init=True)}
            case ops.FenceMbarrierInit():
                for x in w.open[t]:
                    index = x.bytes.space[1] if x.init else None
                    if isinstance(index, int):
                        w.bars[index] = w.bars[index]._replace(fenced=True)
            case ops.Read() | ops.Write():
                self._generic(w, t, op.region, isinstance(op, ops.Write), op.private)
            case ops.Tcgen05Relinquish():
                w.relinquished |= {thread.cta}
            case ops.TensormapReplace():
                place = self._touch(w, t, op.map, "generic", True)
                w.open[t] |= {Touch(place, True, False)}
                w.maps = frozenset(x for x in w.maps if x[0] != place) | {
                    (place, u, "raw") for u in range(len(self.threads))
                }
            case ops.TensormapRelease():
                place = self.place(t, op.map)
                w.maps = frozenset((x, u, "released" if x == place else s) for x, u, s in w.maps)
            case ops.TensormapAcquire():
                place = self.place(t, op.map)
                w.maps = frozenset(x for x in w.maps if x != (place, t, "released"))
            case ops.FenceProxyAsync():
                w.unfenced = frozenset(x for x in w.unfenced if x[1] != t or not self._covers(op, x[0]))
                held = {(x.bytes, u) for u, touches in enumerate(w.open) if u != t for x in touches}
                w.bare = frozenset(x for x in w.bare if (x[0], x[1]) in held or not self._covers(op, x[0]))
            case ops.BulkCommit():
                self._commit(groups, "tma_store")
            case ops.BulkWait():
                upto = groups.get("tma_store", (0, -1))[0] - 1 - op.pending
                self._close(
                    w, ((("tma_store", t), upto),) if op.read else ((("tma_store", t), upto), (("tma_write", t), upto))
                )
            case ops.CpAsync():
                place = self._touch(w, t, op.dst, "cp_async", True, True)
                self._fly(w, t, "cp_async", place, True, ("cp_async", t), groups)
            case ops.CpAsyncCommit():
                self._commit(groups, "cp_async")
            case ops.CpAsyncWait():
                upto = groups.get("cp_async", (0, -1))[0] - 1 - op.pending
                done = {f.bytes for f in w.flights if f.queue == ("cp_async", t) and f.number <= upto}
                self._close(w, ((("cp_async", t), upto),))
                w.open[t] |= {Touch(place, True, True) for place in done}
                w.unfenced |= {(place, t) for place in done}
            case ops.WgmmaFence():
                w.dirty -= {t}
            case ops.WgmmaCommit():
                self._commit(groups, "wgmma")
            case ops.Tcgen05Mma() | ops.Tcgen05Cp():
                engine = "mma" if isinstance(op, ops.Tcgen05Mma) else "tcp"
                sources = op.operands if isinstance(op, ops.Tcgen05Mma) else (op.src,)
                target = op.accumulator if isinstance(op, ops.Tcgen05Mma) else op.dst
                for rank in self._pair(t, getattr(op, "cta_group", 1)):
                    for region in sources:
                        place = self._touch(w, t, region, engine, False, rank=rank)
                        self._fly(w, t, engine, place, False, ("mma", t), groups)
                    place = self._touch(w, t, target, engine, True, rank=rank)
                    self._fly(w, t, engine, place, True, ("mma", t), groups)
            case ops.Tcgen05Ld():
                self._fly(w, t, "ld", self._touch(w, t, op.region, "ld", False), False, ("ld", t), groups)
            case ops.Tcgen05St():
                self._fly(w, t, "st", self._touch(w, t, op.region, "st", True), True, ("st", t), groups)
            case ops.Tcgen05WaitLd() | ops.Tcgen05WaitSt():
                engine = "ld" if isinstance(op, ops.Tcgen05WaitLd) else "st"
                self._commit(groups, engine)
                self._close(w, (((engine, t), groups[engine][0] - 1),))
            case ops.Tcgen05FenceBefore():
                for _, place, engine in [x for x in w.unsent if x[0] == t]:
                    w.stale = frozenset(x for x in w.stale if x[:1] + x[2:] != (place, t, engine + "!"))
                    w.stale |= {(place, u, t, engine) for u in range(len(self.threads)) if u != t}
                w.unsent = frozenset(x for x in w.unsent if x[0] != t)
            case ops.Tcgen05FenceAfter():
                w.stale = frozenset(x for x in w.stale if x[1] != t or x[3].endswith("!"))
            case _:
                pass

    def _generic(self, w: World, t: int, region: ops.Region, writes: bool, private: bool) -> None:
        """A generic access: under way until its thread releases it, unfenced until some thread fences it."""
        site = id(self.code[t][w.pc[t]].step)
        place = self._touch(w, t, region, "generic", writes, private, site=site)
        if place.space[0] == "register":
            return
        w.open[t] |= {Touch(place, writes, private, site)}
        w.bare |= {(place, t, writes)}
        if writes:
            w.unfenced |= {(place, t)}

    def _pair(self, t: int, cta_group: int) -> tuple[int | None, ...]:
        """Ranks that a tcgen05 op concerns; None is the thread's own."""
        first = self.threads[t].cta // 2 * 2
        return (None,) if cta_group == 1 else (first, first + 1)

    @staticmethod
    def _covers(op: ops.FenceProxyAsync, place: Bytes) -> bool:
        """Whether the fence orders accesses to this memory."""
        return op.space is ops.FenceSpace.ALL or (op.space is ops.FenceSpace.GLOBAL) == (place.space[0] == "global")

    @staticmethod
    def _commit(groups: dict[str, tuple[int, int]], engine: str) -> None:
        groups[engine] = (groups.get(engine, (0, -1))[0] + 1, -1)

    def _fly(
        self, w: World, t: int, engine: str, place: Bytes, writes: bool, queue: tuple[object, ...],
        groups: dict[str, tuple[int, int]],
    ) -> None:  # fmt: skip
        number = groups.setdefault(str(queue[0]), (0, -1))[0]
        thread = self.threads[t]
        w.flights |= {Flight(engine, t, (thread.role, thread.cta), place, writes, queue, number)}

    # -- observable ops ---------------------------------------------------------------------------------------------
    def _observable(self, w: World, t: int, op: ops.Op) -> bool:
        """True if the thread moves on; False if it has entered a rendezvous and stays there."""
        thread, groups = self.threads[t], w.groups[t]
        match op:
            case ops.Arrive():
                b = self.bar(w, t, op.bar)
                self._use(w, t, b)
                cta = thread.cta if op.bar.cta is None else _int(op.bar.cta)
                self._remote(w, t, cta)
                self._release(w, t, op.release and (cta == thread.cta or op.scope is not ops.Scope.CTA))
                self._to_bar(w, t, b, arrivals=op.count * thread.weight)
            case ops.ArriveExpectTx():
                b = self.bar(w, t, op.bar)
                self._use(w, t, b)
                self._remote(w, t, thread.cta if op.bar.cta is None else _int(op.bar.cta))
                self._release(w, t)
                self._to_bar(w, t, b, tx=op.bytes * thread.weight, arrivals=thread.weight)
            case ops.ExpectTx():
                b = self.bar(w, t, op.bar)
                self._use(w, t, b)
                self._to_bar(w, t, b, tx=op.bytes * thread.weight)
            case ops.Wait():
                b = self.bar(w, t, op.bar)
                self._use(w, t, b)
                w.peeked -= {(t, b)}
            case ops.TestWait():
                b = self.bar(w, t, op.bar)
                self._use(w, t, b)
                w.peeked -= {(t, b)}
                if w.bars[b].parity != _int(op.parity) % 2:
                    w.peeked |= {(t, b)}
            case ops.MbarrierInval():
                for i in range(self.barriers[op.barrier].slots):
                    b = self.bar_index[thread.cta, op.barrier, i]
                    self._use(w, t, b)
                    w.bars[b] = w.bars[b]._replace(alive=False)
            case ops.TmaLoad():
                for rank in sorted({_int(e) for e in op.ctas} or {thread.cta}):
                    b = self.bar(w, t, op.bar, rank)
                    self._use(w, t, b)
                    self._remote(w, t, rank)
                    self._load(w, t, op.dst, b, rank, "tma_load", op.dst.size)
                self._map(w, t, op.tensormap)
            case ops.DsmemCopy():
                b = self.bar(w, t, op.bar)
                self._use(w, t, b)
                cta = thread.cta if op.dst.cta is None else _int(op.dst.cta)
                self._remote(w, t, cta)
                source = self._touch(w, t, op.src, "dsmem", False)
                number = self._load(w, t, op.dst, b, cta, "dsmem", op.dst.size)
                w.flights |= {Flight("dsmem", t, (thread.role, thread.cta), source, False, ("load", t, number), 0)}
            case ops.TmaStore():
                self._fly(
                    w, t, "tma_store", self._touch(w, t, op.src, "tma_store", False), False, ("tma_store", t), groups
                )
                if op.dst is not None:
                    name = "tma_reduce" if op.reduce else "tma_write"
                    place = self._touch(w, t, op.dst, name, True)
                    queue, number = ("tma_write", t), groups["tma_store"][0]
                    w.flights |= {Flight(name, t, (thread.role, thread.cta), place, True, queue, number)}
                self._map(w, t, op.tensormap)
            case ops.CpAsyncArrive():
                b = self.bar(w, t, op.bar)
                self._use(w, t, b)
                number = groups.get("cp_async", (0, -1))[0]
                self._commit(groups, "cp_async")
                self._release(w, t)
                if not op.noinc:
                    w.bars[b] = w.bars[b]._replace(pending=w.bars[b].pending + thread.weight)
                w.landings = (*w.landings, Landing(b, 0, thread.weight, t, ((("cp_async", t), number),)))
            case ops.Tcgen05Commit():
                number = groups.get("mma", (0, -1))[0]
                self._commit(groups, "mma")
                self._release(w, t)
                for rank in [None] if not op.ctas else sorted({_int(e) for e in op.ctas}):
                    b = self.bar(w, t, op.bar, rank)
                    self._use(w, t, b)
                    w.landings = (*w.landings, Landing(b, 0, 1, t, ((("mma", t), number),)))
            case ops.BarSync() | ops.CtaSync() | ops.WarpSync():
                return self._meet(w, t, op)
            case ops.BarArrive():
                self._enter(w, t, ("named", thread.cta, _int(op.id)), op.threads, "")
            case ops.ClusterArrive():
                if w.cluster[t]:
                    raise Problem(Rule.CLUSTER_BARRIER, (t,), "a second cluster arrive without a wait")
                self._release(w, t, op.release)
                w.cluster = (*w.cluster[:t], 1, *w.cluster[t + 1 :])
                self._cluster_check(w)
            case ops.ClusterWait():
                if not w.cluster[t]:
                    raise Problem(Rule.CLUSTER_BARRIER, (t,), "a cluster wait without an arrive")
                w.cluster = (*w.cluster[:t], 0, *w.cluster[t + 1 :])
            case ops.Wgmma():
                if t in w.dirty:
                    raise Problem(Rule.WGMMA_REGISTERS, (t,), "wgmma without wgmma.fence after register accesses")
                queue = ("wgmma", thread.role, thread.cta)
                for region, writes in [*((r, False) for r in op.operands), (op.accumulator, True)]:
                    self._fly(w, t, "wgmma", self._touch(w, t, region, "wgmma", writes), writes, queue, groups)
            case ops.WgmmaWait():
                upto = groups.get("wgmma", (0, -1))[0] - 1 - op.pending
                self._close(w, ((("wgmma", thread.role, thread.cta), upto),))
            case ops.Setmaxnreg():
                if not 24 <= op.registers <= 256 or op.registers % 8:
                    raise Problem(Rule.REGISTERS, (t,), f"setmaxnreg {op.registers}")
                if self.mates[t][0] == t:
                    w.pool[thread.cta] += self._freed(w, t, op)
                    w.registers[t] = op.registers
            case ops.Tcgen05Alloc():
                if self.mates[t][0] == t:
                    if w.tmem.get((op.buffer, thread.cta), "freed") != "freed":
                        raise Problem(Rule.TMEM, (t,), f"{op.buffer} is allocated twice")
                    if thread.cta in w.relinquished:
                        raise Problem(Rule.TMEM, (t,), f"{op.buffer} is allocated without the right to")
                    w.tmem[op.buffer, thread.cta] = "live"
                    if op.address is not None:
                        self._generic(w, t, op.address, True, False)
                    w.open[t] |= {Touch(Bytes(("tmem address", op.buffer, thread.cta), 0, 1), True, False)}
            case ops.Tcgen05Dealloc():
                if self.mates[t][0] == t:
                    if w.tmem.get((op.buffer, thread.cta), "freed") == "freed":
                        raise Problem(Rule.TMEM, (t,), f"{op.buffer} is freed, but not allocated")
                    region = ops.Region(op.buffer, ops.ZERO, self.buffers[op.buffer].size)
                    for rank in self._pair(t, op.cta_group):
                        try:
                            self._touch(w, t, region, "dealloc", True, rank=rank)
                        except Problem as p:
                            raise Problem(Rule.TMEM, p.threads, p.detail) from None
                        if rank is not None and w.tmem[op.buffer, rank] == "live":
                            w.tmem[op.buffer, rank] = "half"
                    w.tmem[op.buffer, thread.cta] = "freed"
                    w.open[t] |= {Touch(Bytes(("tmem", thread.cta), 0, 1), True, False)}
            case _:
                raise AssertionError(op)
        return True

    def _load(self, w: World, t: int, dst: ops.Region, b: int, rank: int, engine: str, size: int) -> int:
        """A copy that completes on a barrier: under way until its bytes have landed there."""
        place = self._touch(w, t, dst, engine, True, rank=rank)
        groups, thread = w.groups[t], self.threads[t]
        number = groups.get("load", (0, -1))[0]
        groups["load"] = (number + 1, -1)
        queue: tuple[object, ...] = ("load", t, number)
        w.flights |= {Flight(engine, t, (thread.role, thread.cta), place, True, queue, 0)}
        w.landings = (*w.landings, *[Landing(b, size, 0, t, ((queue, 0),))] * thread.weight)
        return number

    def _map(self, w: World, t: int, region: ops.Region | None) -> None:
        if region is None:
            return
        place = self.place(t, region)
        if any(x == place and u == t for x, u, _ in w.maps):
            raise Problem(Rule.TENSORMAP, (t,), "a rewritten descriptor is used before it is released and acquired")

    def _meet(self, w: World, t: int, op: ops.BarSync | ops.CtaSync | ops.WarpSync) -> bool:
        if t in w.released:
            w.released -= {t}
            w.inside -= {t}
            return True
        thread = self.threads[t]
        match op:
            case ops.WarpSync():
                key: tuple[object, ...] = ("warp", thread.role, thread.cta, thread.first_warp)
                size = sum(
                    self.threads[u].weight for u in self.mates[t] if self.threads[u].first_warp == thread.first_warp
                )
                self._enter(w, t, key, size, "")
            case ops.CtaSync():
                self._enter(w, t, ("named", thread.cta, 0), self.cta_threads[thread.cta], "")
            case ops.BarSync():
                site = (op.site or thread.role) if op.aligned else ""
                self._enter(w, t, ("named", thread.cta, _int(op.id)), op.threads, site)
        w.inside |= {t}
        if t in w.released:
            return self._meet(w, t, op)
        return False

    def _enter(self, w: World, t: int, key: tuple[object, ...], threads: int, site: str) -> None:
        arrived, size, members, sites = w.named.get(key, (0, threads, frozenset[int](), frozenset[str]()))
        if arrived and size != threads:
            raise Problem(Rule.BAR_RECYCLE, (t,), "one named barrier used with two thread counts")
        if t in members:
            raise Problem(Rule.BAR_RECYCLE, (t,), "a second arrival on a named barrier before its use completed")
        if site and sites - {site}:
            raise Problem(Rule.BAR_SITE, (t,), "an aligned barrier completed from two sites")
        arrived += self.threads[t].weight
        if arrived > threads:
            raise Problem(Rule.BAR_RECYCLE, (t,), "more threads than the named barrier counts")
        members |= {t}
        self._release(w, t)
        if arrived == threads:
            w.named.pop(key, None)
            w.released |= members & (w.inside | {t})
            if not isinstance(self.code[t][w.pc[t]].op, ops.BarArrive):
                w.released |= {t}
            else:
                w.released -= {t}
        else:
            w.named[key] = (arrived, threads, members, sites | ({site} if site else frozenset()))

    def _cluster_check(self, w: World) -> None:
        here = [w.pc[t] >= len(self.code[t]) or w.cluster[t] == 1 for t in range(len(self.threads))]
        if any(c == 1 for c in w.cluster) and all(here):
            w.cluster = tuple(2 if c == 1 else c for c in w.cluster)

    # -- the end ----------------------------------------------------------------------------------------------------
    def check_end(self, w: World) -> None:
        """All threads ended: raises ``Problem`` if anything is under way."""
        if any(x.tx for x in w.landings) or any(f.engine not in _MAY_OUTLIVE for f in w.flights):
            engines = sorted({f.engine for f in w.flights if f.engine not in _MAY_OUTLIVE}) or ["an arrival"]
            raise Problem(Rule.EXIT, (), f"the kernel ends with {', '.join(engines)} under way")
        for (name, cta), state in w.tmem.items():
            if state != "freed":
                raise Problem(Rule.TMEM, (), f"{name} of CTA {cta} is never freed")


def _inside(x: Bytes, y: Bytes) -> bool:
    return x.space == y.space and y.begin <= x.begin and x.end <= y.end


def _clash(old_writes: bool, writes: bool) -> Rule:
    if old_writes and writes:
        return Rule.WRITE_WRITE
    return Rule.READ_EARLY if old_writes else Rule.OVERWRITE
