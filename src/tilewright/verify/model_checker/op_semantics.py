"""The effect of one op on a world: on its thread's state, on memory and on barriers."""

from __future__ import annotations

from tilewright.protocol import ops
from tilewright.verify.model_checker import barriers, grid, op_constraints, peers, tensor_maps
from tilewright.verify.model_checker.instance import ProtocolInstance, number, ranks
from tilewright.verify.model_checker.memory import acquire, close, fly, release, touch
from tilewright.verify.model_checker.world import (
    FREED,
    AsyncAccess,
    Bytes,
    Completion,
    MbarrierState,
    OpenAccess,
    Problem,
    Queue,
    World,
)
from tilewright.verify.rules import Rule

OBSERVABLE = (
    ops.Arrive,
    ops.ArriveExpectTx,
    ops.ExpectTx,
    ops.Wait,
    ops.TestWait,
    ops.TmaLoad,
    ops.DsmemCopy,
    ops.TmaStore,
    ops.BulkWait,
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
    ops.FenceProxyAsync,
    ops.FenceMbarrierInit,
    ops.TensormapRelease,
    ops.TensormapAcquire,
    ops.CpAsyncWait,
    ops.Tcgen05WaitLd,
    ops.Tcgen05WaitSt,
    ops.Tcgen05FenceBefore,
    ops.Tcgen05FenceAfter,
    ops.AtomAdd,
    ops.FlagStore,
    ops.SpinWait,
    ops.FenceAcqRel,
)
"""Ops before which a thread stops: they signal, block, or complete or cover accesses that others could observe. All
other ops run at once after them: they begin accesses, which stay open, or change the thread's own state."""


def perform(g: ProtocolInstance, w: World, t: int, op: object, site: int) -> bool:
    """Executes an op; false if the thread has entered a rendezvous and stays there."""
    op_constraints.check(g, t, op)
    match op:
        case ops.BarSync() | ops.CtaSync() | ops.WarpSync():
            return barriers.rendezvous(g, w, t, op)
        case ops.Read() | ops.Write():
            _generic(g, w, t, op.region, isinstance(op, ops.Write), op.private, site)
        case ops.FenceProxyAsync():
            w.unfenced = frozenset(x for x in w.unfenced if x[1] != t or not _covers(op, x[0]))
            held = {(x.bytes, u) for u, touches in enumerate(w.open) if u != t for x in touches}
            w.bare = frozenset(x for x in w.bare if (x[0], x[1]) in held or not _covers(op, x[0]))
        case ops.MbarrierInit() | ops.FenceMbarrierInit() | ops.MbarrierInval():
            _life(g, w, t, op)
        case ops.AtomAdd() | ops.FlagStore() | ops.SpinWait() | ops.FenceAcqRel():
            _strong(g, w, t, op, site)
        case ops.Arrive() | ops.ArriveExpectTx() | ops.ExpectTx() | ops.Wait() | ops.TestWait() | ops.BarArrive():
            _mbarrier(g, w, t, op)
        case ops.ClusterArrive() | ops.ClusterWait():
            _cluster(g, w, t, op)
        case ops.TmaLoad() | ops.DsmemCopy() | ops.TmaStore() | ops.BulkCommit() | ops.BulkWait():
            _bulk(g, w, t, op)
        case ops.CpAsync() | ops.CpAsyncCommit() | ops.CpAsyncWait() | ops.CpAsyncArrive():
            _cp_async(g, w, t, op)
        case ops.TensormapReplace() | ops.TensormapRelease() | ops.TensormapAcquire():
            _tensormap(g, w, t, op)
        case ops.Wgmma() | ops.WgmmaFence() | ops.WgmmaCommit() | ops.WgmmaWait():
            _wgmma(g, w, t, op)
        case ops.Tcgen05Alloc() | ops.Tcgen05Dealloc():
            _tmem(g, w, t, op, site)
        case ops.Setmaxnreg():
            _registers(g, w, t, op)
        case _:
            _tcgen(g, w, t, op)
    return True


def commit(w: World, t: int, engine: str) -> int:
    """Closes the thread's open group of an engine; its number."""
    count = w.groups[t].get(engine, 0)
    w.groups[t][engine] = count + 1
    return count


def waited(w: World, t: int, engine: str, pending: int) -> int:
    """The newest group that a wait for all but ``pending`` retires."""
    return w.groups[t].get(engine, 0) - 1 - pending


def passed(w: World, b: int, op: ops.Wait | ops.TestWait) -> bool:
    """Whether the phase of the op's parity is over."""
    return w.bars[b].parity != number(op.parity) % 2


def _strong(
    g: ProtocolInstance, w: World, t: int, op: ops.AtomAdd | ops.FlagStore | ops.SpinWait | ops.FenceAcqRel, site: int
) -> None:
    if isinstance(op, ops.FenceAcqRel):
        grid.fence(g, w, t, op)
        release(g, w, t)
        return
    before = grid.operate(g, w, t, op)
    if op.sem.releases:
        release(g, w, t)
    if op.sem.acquires:
        acquire(g, w, t)
    if isinstance(op, ops.AtomAdd) and op.ticket is not None:
        _generic(g, w, t, op.ticket, True, False, site)
        grid.draw(g, w, t, op.ticket.buffer, before)


def _covers(op: ops.FenceProxyAsync, place: Bytes) -> bool:
    """Whether the fence orders accesses to this memory."""
    return op.space is ops.FenceSpace.ALL or (op.space is ops.FenceSpace.GLOBAL) == (place.space[0] == "global")


def _generic(g: ProtocolInstance, w: World, t: int, region: ops.Region, writes: bool, private: bool, site: int) -> None:
    """A generic access: in flight until its thread releases it, unfenced until some thread fences it."""
    place = touch(g, w, t, region, "generic", writes, private, site=site)
    if place.space[0] != "register":
        w.open[t] |= {OpenAccess(place, writes, private, site)}
        w.bare |= {(place, t, writes, site)}
        if writes:
            w.unfenced |= {(place, t, site)}


def _life(
    g: ProtocolInstance, w: World, t: int, op: ops.MbarrierInit | ops.FenceMbarrierInit | ops.MbarrierInval
) -> None:
    cta = g.threads[t].cta
    match op:
        case ops.MbarrierInit():
            barrier = g.barriers[op.barrier]
            for i in range(min(barrier.slots, barrier.slots if op.slots is None else op.slots)):
                b = g.bar_index[cta, op.barrier, i]
                if w.bars[b].alive:
                    raise Problem(Rule.INIT, (t,), "a barrier is initialised twice")
                w.bars[b] = MbarrierState(barrier.count, 0, 0, barrier.count, True, False, t)
                w.open[t] |= {OpenAccess(barriers.init_place(b), True, False, init=True)}
        case ops.FenceMbarrierInit():
            for b, bar in enumerate(w.bars):
                if bar.owner == t:
                    w.bars[b] = bar._replace(fenced=True)
        case ops.MbarrierInval():
            for i in range(g.barriers[op.barrier].slots):
                b = g.bar_index[cta, op.barrier, i]
                barriers.use(g, w, t, b)
                w.bars[b] = w.bars[b]._replace(alive=False)


def _mbarrier(
    g: ProtocolInstance,
    w: World,
    t: int,
    op: ops.Arrive | ops.ArriveExpectTx | ops.ExpectTx | ops.Wait | ops.TestWait | ops.BarArrive,
) -> None:
    thread = g.threads[t]
    if isinstance(op, ops.BarArrive):
        barriers.enter(g, w, t, op)
        return
    b = g.bar(t, op.bar)
    barriers.use(g, w, t, b)
    cta = thread.cta if op.bar.cta is None else number(op.bar.cta)
    match op:
        case ops.Arrive():
            peers.remote(g, w, t, cta)
            release(g, w, t, op.release and (cta == thread.cta or op.scope is not ops.Scope.CTA))
            if op.release:
                grid.arrive(w, t, b)
            if cta != thread.cta and op.bar.barrier in g.cta_scope_arrivals:
                arrival = (thread.cta, op.release and op.scope is not ops.Scope.CTA)
                w.bars[b] = w.bars[b]._replace(peer_arrivals=w.bars[b].peer_arrivals | {arrival})
            barriers.signal(w, t, b, arrivals=op.count * thread.weight)
        case ops.ArriveExpectTx():
            peers.remote(g, w, t, cta)
            release(g, w, t)
            grid.arrive(w, t, b)
            barriers.signal(w, t, b, tx=op.bytes * thread.weight, arrivals=thread.weight)
        case ops.ExpectTx():
            peers.remote(g, w, t, cta)
            barriers.signal(w, t, b, tx=op.bytes * thread.weight)
        case ops.Wait():
            skipped = op.peeked and (t, b) in w.peeked
            w.peeked -= {(t, b)}
            if op.acquire and not skipped:
                acquire(g, w, t, op.scope is not ops.Scope.CTA, w.bars[b].unreleased_peers)
                grid.acquire(w, t, b)
        case ops.TestWait():
            w.peeked -= {(t, b)}
            if passed(w, b, op):
                w.peeked |= {(t, b)}
                if op.acquire:
                    acquire(g, w, t, op.scope is not ops.Scope.CTA, w.bars[b].unreleased_peers)
                    grid.acquire(w, t, b)


def _cluster(g: ProtocolInstance, w: World, t: int, op: ops.ClusterArrive | ops.ClusterWait) -> None:
    arriving = isinstance(op, ops.ClusterArrive)
    if arriving == bool(w.cluster[t]):
        words = "a second cluster arrive without a wait" if arriving else "a cluster wait without an arrive"
        raise Problem(Rule.CLUSTER_BARRIER, (t,), words)
    w.cluster = (*w.cluster[:t], int(arriving), *w.cluster[t + 1 :])
    if isinstance(op, ops.ClusterArrive):
        release(g, w, t, op.release)
        barriers.cluster_check(g, w)


# -- copies --------------------------------------------------------------------------------------------------------
def _bulk(
    g: ProtocolInstance,
    w: World,
    t: int,
    op: ops.TmaLoad | ops.DsmemCopy | ops.TmaStore | ops.BulkCommit | ops.BulkWait,
) -> None:
    thread = g.threads[t]
    match op:
        case ops.TmaLoad():
            for rank in ranks(op.ctas) or [thread.cta]:
                b = g.bar(t, op.bar, rank)
                barriers.use(g, w, t, b)
                peers.remote(g, w, t, rank)
                queue = _copy(g, w, t, op.dst, b, rank, "tma_load")
                _source(g, w, t, op, queue)
                _map(g, w, t, op.tensormap, queue, 0)
        case ops.DsmemCopy():
            b = g.bar(t, op.bar)
            barriers.use(g, w, t, b)
            cta = thread.cta if op.dst.cta is None else number(op.dst.cta)
            peers.remote(g, w, t, cta)
            source = touch(g, w, t, op.src, "dsmem", False)
            queue = _copy(g, w, t, op.dst, b, cta, "dsmem")
            w.in_flight |= {AsyncAccess("dsmem", t, thread.team, source, False, queue, 0)}
        case ops.TmaStore():
            fly(g, w, t, "tma_store", touch(g, w, t, op.src, "tma_store", False), False, ("tma_store", t))
            if op.dst is not None and not g.place(t, op.dst, clipped=op.tensor).empty:
                name = "tma_reduce" if op.reduce else "tma_write"
                place = touch(g, w, t, op.dst, name, True)
                count = w.groups[t]["tma_store"]
                w.in_flight |= {AsyncAccess(name, t, thread.team, place, True, ("tma_write", t), count)}
            _map(g, w, t, op.tensormap, ("tma_store", t), w.groups[t]["tma_store"])
        case ops.BulkCommit():
            commit(w, t, "tma_store")
        case ops.BulkWait():
            upto = waited(w, t, "tma_store", op.pending)
            source, target = (("tma_store", t), upto), (("tma_write", t), upto)
            close(g, w, (source,) if op.read else (source, target), t)


def _copy(g: ProtocolInstance, w: World, t: int, dst: ops.Region, b: int, rank: int, engine: str) -> Queue:
    """A copy that completes on a barrier: in flight until its bytes have completed there."""
    place = touch(g, w, t, dst, engine, True, rank=rank)
    queue: Queue = (engine, b, place)
    w.in_flight |= {AsyncAccess(engine, t, g.teams[t], place, True, queue, 0)}
    w.completions = (*w.completions, *[Completion(b, dst.size, 0, t, ((queue, 0),))] * g.threads[t].weight)
    return queue


def _source(g: ProtocolInstance, w: World, t: int, op: ops.TmaLoad, queue: Queue) -> None:
    """A copy reads global memory until it has completed."""
    if op.source is not None and not g.place(t, op.source, clipped=op.tensor).empty:
        place = touch(g, w, t, op.source, "tma_load", False)
        w.in_flight |= {AsyncAccess("tma_load", t, g.teams[t], place, False, queue, 0)}


def _map(
    g: ProtocolInstance, w: World, t: int, region: ops.Region | None, queue: Queue, number: int
) -> None:  # fmt: skip
    """A copy reads its descriptor: until the copy is done, of a store until it has read its source."""
    if region is None:
        return
    place = touch(g, w, t, region, "tensormap", False)
    w.in_flight |= {AsyncAccess("tensormap", t, g.teams[t], place, False, queue, number)}
    tensor_maps.use(w, t, place)


def _cp_async(
    g: ProtocolInstance, w: World, t: int, op: ops.CpAsync | ops.CpAsyncCommit | ops.CpAsyncWait | ops.CpAsyncArrive
) -> None:
    queue: Queue = ("cp_async", t)
    match op:
        case ops.CpAsync():
            fly(g, w, t, "cp_async", touch(g, w, t, op.dst, "cp_async", True, True), True, queue)
        case ops.CpAsyncCommit():
            commit(w, t, "cp_async")
        case ops.CpAsyncWait():
            upto = waited(w, t, "cp_async", op.pending)
            done = {f.bytes for f in w.in_flight if f.queue == queue and f.number <= upto}
            close(g, w, ((queue, upto),), t)
            w.open[t] |= {OpenAccess(place, True, True) for place in done}
            w.unfenced |= {(place, t, 0) for place in done}
        case ops.CpAsyncArrive():
            b, weight = g.bar(t, op.bar), g.threads[t].weight
            barriers.use(g, w, t, b)
            upto = commit(w, t, "cp_async")
            release(g, w, t, False)
            if not op.noinc:
                w.bars[b] = w.bars[b]._replace(pending=w.bars[b].pending + weight)
            w.completions = (*w.completions, Completion(b, 0, weight, t, ((queue, upto),)))


def _tensormap(
    g: ProtocolInstance, w: World, t: int, op: ops.TensormapReplace | ops.TensormapRelease | ops.TensormapAcquire
) -> None:
    match op:
        case ops.TensormapReplace():
            place = touch(g, w, t, op.map, "generic", True)
            w.open[t] |= {OpenAccess(place, True, False)}
        case ops.TensormapRelease():
            tensor_maps.release(w, t, g.place(t, op.map))
        case ops.TensormapAcquire():
            tensor_maps.acquire(w, t, g.place(t, op.map))


# -- tensor cores --------------------------------------------------------------------------------------------------
def _wgmma(
    g: ProtocolInstance, w: World, t: int, op: ops.Wgmma | ops.WgmmaFence | ops.WgmmaCommit | ops.WgmmaWait
) -> None:
    queue: Queue = ("wgmma", *g.teams[t])
    match op:
        case ops.WgmmaFence():
            w.dirty -= {t}
        case ops.Wgmma():
            if t in w.dirty:
                raise Problem(Rule.WGMMA_REGISTERS, (t,), "wgmma without wgmma.fence after register accesses")
            for region, writes in [*((r, False) for r in op.operands), (op.accumulator, True)]:
                fly(g, w, t, "wgmma", touch(g, w, t, region, "wgmma", writes), writes, queue)
        case ops.WgmmaCommit():
            commit(w, t, "wgmma")
        case ops.WgmmaWait():
            close(g, w, ((queue, waited(w, t, "wgmma", op.pending)),), t)


def _tcgen(g: ProtocolInstance, w: World, t: int, op: object) -> None:
    match op:
        case ops.Tcgen05Mma() | ops.Tcgen05Cp():
            engine = "mma" if isinstance(op, ops.Tcgen05Mma) else "tcp"
            sources = op.operands if isinstance(op, ops.Tcgen05Mma) else (op.src,)
            target = op.accumulator if isinstance(op, ops.Tcgen05Mma) else op.dst
            for rank in pair(g, t, getattr(op, "cta_group", 1)):
                for region in sources:
                    fly(g, w, t, engine, touch(g, w, t, region, engine, False, rank=rank), False, ("mma", t))
                fly(g, w, t, engine, touch(g, w, t, target, engine, True, rank=rank), True, ("mma", t))
        case ops.Tcgen05Commit():
            upto = commit(w, t, "mma")
            release(g, w, t, False)
            _before_fence(g, w, t)
            for rank in [None] if not op.ctas else ranks(op.ctas):
                b = g.bar(t, op.bar, rank)
                barriers.use(g, w, t, b)
                w.completions = (*w.completions, Completion(b, 0, g.threads[t].weight, t, ((("mma", t), upto),)))
        case ops.Tcgen05Ld():
            fly(g, w, t, "ld", touch(g, w, t, op.region, "ld", False), False, ("ld", t))
        case ops.Tcgen05St():
            fly(g, w, t, "st", touch(g, w, t, op.region, "st", True), True, ("st", t))
        case ops.Tcgen05WaitLd() | ops.Tcgen05WaitSt():
            engine = "ld" if isinstance(op, ops.Tcgen05WaitLd) else "st"
            close(g, w, (((engine, t), commit(w, t, engine)),), t)
        case ops.Tcgen05FenceBefore():
            _before_fence(g, w, t)
        case ops.Tcgen05FenceAfter():
            w.stale = frozenset(x for x in w.stale if x[1] != t or x[3].endswith("!"))
        case ops.Tcgen05Relinquish() if g.mates[t][0] == t:
            w.relinquished |= {g.threads[t].cta}
        case _:
            pass


def _before_fence(g: ProtocolInstance, w: World, t: int) -> None:
    for _, place, engine in [x for x in w.unsent if x[0] == t]:
        w.stale = frozenset(x for x in w.stale if x[:1] + x[2:] != (place, t, engine + "!"))
        w.stale |= {(place, u, t, engine) for u in g.everyone if u != t}
    w.unsent = frozenset(x for x in w.unsent if x[0] != t)


def pair(g: ProtocolInstance, t: int, cta_group: int) -> tuple[int | None, ...]:
    """Ranks that a tcgen05 op concerns; None is the thread's own."""
    first = g.threads[t].cta // 2 * 2
    return (None,) if cta_group == 1 else (first, first + 1)


def _tmem(g: ProtocolInstance, w: World, t: int, op: ops.Tcgen05Alloc | ops.Tcgen05Dealloc, site: int) -> None:
    if g.mates[t][0] != t:
        return
    name = (op.buffer, g.threads[t].cta)
    if isinstance(op, ops.Tcgen05Alloc):
        if w.tmem.get(name, "freed") != "freed":
            raise Problem(Rule.TMEM, (t,), f"{op.buffer} is allocated twice")
        if name[1] in w.relinquished:
            raise Problem(Rule.TMEM, (t,), f"{op.buffer} is allocated without the right to")
        size = g.buffers[op.buffer].size
        if size > w.widest.get(name[1], size):
            raise Problem(Rule.TMEM, (t,), f"{op.buffer} asks for more columns than an allocation before")
        w.widest = {**w.widest, name[1]: size}
        w.tmem[name] = "live"
        if op.address is not None:
            _generic(g, w, t, op.address, True, False, site)
        w.open[t] |= {OpenAccess(Bytes(("tmem address", *name), 0, 1), True, False)}
        return
    if w.tmem.get(name, "freed") == "freed":
        raise Problem(Rule.TMEM, (t,), f"{op.buffer} is freed, but not allocated")
    region = ops.Region(op.buffer, ops.ZERO, g.buffers[op.buffer].size)
    for rank in pair(g, t, op.cta_group):
        try:
            touch(g, w, t, region, "dealloc", True, rank=rank)
        except Problem as p:
            raise Problem(Rule.TMEM, p.threads, p.detail) from None
        if rank is not None and w.tmem[op.buffer, rank] == "live":
            w.tmem[op.buffer, rank] = "half"
    w.tmem[name] = "freed"
    w.open[t] |= {OpenAccess(Bytes(("tmem", name[1]), 0, 1), True, False, FREED)}


def columns(g: ProtocolInstance, w: World, t: int) -> int:
    """Columns of tensor memory that the thread's CTA holds."""
    cta = g.threads[t].cta
    return sum(g.buffers[name].size for (name, c), state in w.tmem.items() if c == cta and state == "live")


def freed(g: ProtocolInstance, w: World, t: int, op: ops.Setmaxnreg) -> int:
    """Registers that a setmaxnreg gives to the CTA's pool (negative: takes from it)."""
    return (w.registers[t] - op.registers) * g.threads[t].threads_of_role


def _registers(g: ProtocolInstance, w: World, t: int, op: ops.Setmaxnreg) -> None:
    if not 24 <= op.registers <= 256 or op.registers % 8:
        raise Problem(Rule.REGISTERS, (t,), f"setmaxnreg {op.registers}")
    if g.mates[t][0] == t:
        w.pool[g.threads[t].cta] += freed(g, w, t, op)
        w.registers[t] = op.registers


MAY_OUTLIVE = ("tma_write", "tma_reduce")
"""Accesses that may be in flight when the kernel ends: writes to global memory whose sources were read."""


def check_end(w: World) -> None:
    """After all threads have ended: raises ``Problem`` if anything is in flight."""
    if any(x.tx for x in w.completions) or any(f.engine not in MAY_OUTLIVE for f in w.in_flight):
        engines = sorted({f.engine for f in w.in_flight if f.engine not in MAY_OUTLIVE}) or ["an arrival"]
        raise Problem(Rule.EXIT, (), f"the kernel ends with {', '.join(engines)} under way")
    for (name, cta), state in w.tmem.items():
        if state != "freed":
            raise Problem(Rule.TMEM, (), f"{name} of CTA {cta} is never freed")
