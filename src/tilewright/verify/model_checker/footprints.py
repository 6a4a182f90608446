"""The footprint of each op of an instance, and of what lands."""

from __future__ import annotations

from typing import Any

from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import steps
from tilewright.verify.model_checker.barriers import init_place, rendezvous_of
from tilewright.verify.model_checker.footprint_types import CLUSTER, Objects, OpFootprint, Signals
from tilewright.verify.model_checker.instance import ProtocolInstance, number, ranks
from tilewright.verify.model_checker.op_semantics import pair
from tilewright.verify.model_checker.thread_program import ExecuteStep
from tilewright.verify.model_checker.world import AsyncAccess, Bytes, Completion, Problem, World
from tilewright.verify.rules import Policy


class Footprints:
    """The footprints of an instance's ops."""

    def __init__(self, g: ProtocolInstance):
        self.g, self.objects = g, Objects()
        self._cache: dict[tuple[int, int, bool], OpFootprint] = {}
        self._kept: list[object] = []
        code = [s.op for role in g.protocol.roles for s in steps(role.body)]
        copied = {op.dst.buffer for op in code if isinstance(op, ops.TmaLoad | ops.DsmemCopy)}
        read = {r.buffer for op in code for r in _async_reads(op)}
        self.fenced = copied if g.policy is Policy.STRICT else copied | read
        """Buffers for which it matters which thread fenced."""
        self.careful = [self._careful(t) for t in g.everyone]
        """Threads that fence all that others might fence for them, before they release it."""
        self.tensor = any(b.space is Space.TMEM for b in g.protocol.buffers)

    def _careful(self, t: int) -> bool:
        """No access to such a buffer is released, or met by a branch, before the thread's own fence."""
        pending, distant = set[str](), {b.name for b in self.g.buffers.values() if b.space is Space.GLOBAL}
        for ins in self.g.programs[t].code:
            op = ins.step.op if isinstance(ins, ExecuteStep) else None
            match op:
                case ops.Read() | ops.Write():
                    pending |= {op.region.buffer} & self.fenced
                case ops.CpAsync():
                    return False
                case ops.FenceProxyAsync(space):
                    pending -= {
                        b
                        for b in pending
                        if space is ops.FenceSpace.ALL or (space is ops.FenceSpace.GLOBAL) == (b in distant)
                    }
                case ops.Wait() | ops.WgmmaFence() | ops.TmaLoad() | ops.ExpectTx():
                    pass  # neither releases nor branches
                case _:
                    if pending:
                        return False
        return not pending

    def of(self, t: int, op: Any, mine: bool) -> OpFootprint:
        """The footprint of an op of thread ``t``; ``mine``: without what its copies do when they land."""
        key = (t, id(op), mine)
        found = self._cache.get(key)
        if found is None:
            self._kept.append(op)
            try:
                found = self._made(t, op, mine)
            except Problem:
                found = OpFootprint()  # an index is out of range: the op goes wrong whatever others do
            self._cache[key] = found
        return found

    def begun(self, cta: int) -> int:
        """The event that a thread of a CTA has moved."""
        return self.objects.of(("begun", cta))

    def end(self, t: int) -> OpFootprint:
        """The end of a thread."""
        f = OpFootprint(changed=self.objects.of(("alive", self.g.threads[t].cta)))
        f.signals[CLUSTER] = Signals(1)
        return f

    def completion(self, w: World, x: Completion) -> OpFootprint:
        """Something that lands."""
        f = OpFootprint(seen=self._alive(self.g.cta_of_bar[x.bar]))
        f.signals[x.bar] = Signals(x.arrivals, 0, x.tx)
        for queue, upto in x.closes:
            for ending in w.in_flight:
                if ending.queue == queue and ending.number <= upto:
                    self.ends(f, ending)
        return f

    def ends(self, f: OpFootprint, ending: AsyncAccess) -> None:
        """An asynchronous access ends."""
        bit = self.objects.of(ending.bytes)
        f.seen |= bit | self._alive(ending.bytes.space[1] if ending.bytes.space[0] in ("shared", "tmem") else None)
        if ending.writes:
            f.changed |= bit
        if self.g.relaxed:
            self._alone(f, "unseen")
        if ending.bytes.space[0] == "tmem":
            f.changed |= self.objects.of("tcgen")
        if ending.engine == "cp_async":
            f.changed |= self.objects.of("accesses")

    def _alive(self, cta: object) -> int:
        """The condition that a CTA of a cluster has not ended."""
        return self.objects.of(("alive", cta)) if cta is not None and self.g.protocol.cluster > 1 else 0

    def dynamic(self, f: OpFootprint, w: World, t: int) -> OpFootprint:
        """With what the state at hand adds: accesses that a release ends, asynchronous ones that a wait ends, what a
        fence covers."""
        if f.releases:
            for x in w.open[t]:
                bit = self.objects.of(x.bytes)
                f.seen |= bit | self._alive(x.bytes.space[1] if x.bytes.space[0] == "shared" else None)
                if x.writes:
                    f.changed |= bit
        if f.closes:
            for ending in w.in_flight:
                if ending.queue in f.closes:
                    self.ends(f, ending)
        if f.fences:
            for place, u, _ in w.unfenced:
                if u == t:
                    f.changed |= self.objects.of(place)
            for place, u, _, _ in w.bare:
                if u == t or all(x.bytes != place for x in w.open[u]):
                    f.changed |= self.objects.of(place)
        return f

    def _made(self, t: int, op: Any, mine: bool) -> OpFootprint:
        f = OpFootprint()
        match op:
            case ops.Read() | ops.Write():
                self._bytes(f, t, op.region, isinstance(op, ops.Write))
                if op.region.buffer in self.fenced and not self.careful[t]:
                    f.changed |= self.objects.of("accesses")
            case ops.FenceProxyAsync():
                f.fences = True
                f.seen |= self.objects.of("accesses")
            case ops.Setmaxnreg():
                self._registers(f, t, op)
            case ops.Tcgen05Alloc() | ops.Tcgen05Dealloc():
                self._lifetime(f, t, op)
            case ops.TensormapReplace() | ops.TensormapRelease() | ops.TensormapAcquire():
                self._bytes(f, t, op.map, True)
            case ops.MbarrierInit() | ops.FenceMbarrierInit() | ops.MbarrierInval():
                for b in range(len(self.g.counts)):
                    self._alone(f, init_place(b))
            case _:
                self._barrier(f, t, op)
                self._copies(f, t, op, mine)
                self._tensor(f, t, op, mine)
        if (f.releases and self.g.heedless) or (f.closes and self.g.relaxed):
            self._alone(f, "unseen")
        return f

    def _alone(self, f: OpFootprint, item: object) -> None:
        bit = self.objects.of(item)
        f.seen |= bit
        f.changed |= bit

    def _bytes(self, f: OpFootprint, t: int, region: ops.Region, writes: bool, rank: int | None = None) -> None:
        place = self.g.place(t, region, rank)
        match place.space[0]:
            case "register":
                f.changed |= self.objects.of(("registers", *self.g.teams[t]))
                return
            case "tmem":
                self._remote(f, t, self.g.threads[t].cta if rank is None else rank)
                f.seen |= self.objects.of(("life", region.buffer, place.space[1]))
                f.seen |= self.objects.of(Bytes(("tmem address", region.buffer, place.space[1]), 0, 1))
            case "shared":
                owner = place.space[1]
                assert isinstance(owner, int)
                self._remote(f, t, owner)
            case _:
                pass
        bit = self.objects.of(place)
        f.seen |= bit
        if writes:
            f.changed |= bit

    def _uses(self, f: OpFootprint, t: int, slot: ops.Slot, rank: int | None = None) -> int:
        b = self.g.bar(t, slot, rank)
        f.seen |= self.objects.of(init_place(b))
        cta = self.g.threads[t].cta if slot.cta is None else number(slot.cta)
        self._remote(f, t, cta if rank is None else rank)
        return b

    def _remote(self, f: OpFootprint, t: int, cta: int) -> None:
        if cta != self.g.threads[t].cta:
            f.seen |= self.objects.of(("alive", cta)) | self.begun(cta)

    def _barrier(self, f: OpFootprint, t: int, op: Any) -> None:
        weight = self.g.threads[t].weight
        match op:
            case ops.Arrive():
                f.signals[self._uses(f, t, op.bar)] = Signals(op.count * weight)
                f.releases = True
            case ops.ArriveExpectTx():
                f.signals[self._uses(f, t, op.bar)] = Signals(weight, op.bytes * weight)
                f.releases = True
            case ops.ExpectTx():
                f.signals[self._uses(f, t, op.bar)] = Signals(0, op.bytes * weight, loose=True)
            case ops.TestWait():
                # its answer depends on whether the phase is over: nobody may complete it meanwhile
                b = self._uses(f, t, op.bar)
                f.waits.add(b)
                f.signals[b] = Signals(loose=True)
                if self.g.heedless:
                    self._alone(f, "unseen")
            case ops.Wait():
                f.waits.add(self._uses(f, t, op.bar))
                if self.g.heedless:
                    self._alone(f, "unseen")
            case ops.BarSync() | ops.CtaSync() | ops.WarpSync() | ops.BarArrive():
                f.signals[rendezvous_of(self.g, t, op)[0]] = Signals(weight)
                f.releases = True
            case ops.ClusterArrive():
                f.signals[CLUSTER] = Signals(1)
                f.releases = True
            case _:
                pass
        if f.releases and self.tensor:
            f.changed |= self.objects.of("tcgen")

    def _copies(self, f: OpFootprint, t: int, op: Any, mine: bool) -> None:
        weight = self.g.threads[t].weight
        match op:
            case ops.TmaLoad():
                for rank in ranks(op.ctas) or [self.g.threads[t].cta]:
                    b = self._uses(f, t, op.bar, rank)
                    self._bytes(f, t, op.dst, True, rank)
                    if op.source is not None and not self.g.place(t, op.source, clipped=op.tensor).empty:
                        self._bytes(f, t, op.source, False)
                    if not mine:
                        f.signals[b] = Signals(completed=op.dst.size * weight)
                        self._landed(f)
            case ops.DsmemCopy():
                b = self._uses(f, t, op.bar)
                self._bytes(f, t, op.src, False)
                self._bytes(f, t, op.dst, True)
                self._remote(f, t, self.g.threads[t].cta if op.dst.cta is None else number(op.dst.cta))
                if not mine:
                    f.signals[b] = Signals(completed=op.dst.size * weight)
                    self._landed(f)
            case ops.TmaStore():
                self._bytes(f, t, op.src, False)
                if op.dst is not None and not self.g.place(t, op.dst, clipped=op.tensor).empty:
                    self._bytes(f, t, op.dst, True)
            case ops.BulkWait():
                f.closes |= {("tma_store", t), ("tma_write", t)}
            case ops.CpAsync():
                self._bytes(f, t, op.dst, True)
            case ops.CpAsyncWait():
                f.closes.add(("cp_async", t))
                f.changed |= self.objects.of("accesses")
            case ops.CpAsyncArrive():
                b = self._uses(f, t, op.bar)
                f.releases = True
                if not op.noinc:
                    f.signals[b] = Signals(loose=True)
                if not mine:
                    f.signals[b] = Signals(weight, loose=not op.noinc)
                    f.closes.add(("cp_async", t))
                    f.changed |= self.objects.of("accesses")
            case _:
                pass
        tensormap = getattr(op, "tensormap", None)
        if isinstance(tensormap, ops.Region):
            self._bytes(f, t, tensormap, False)

    def _landed(self, f: OpFootprint) -> None:
        if self.g.relaxed:
            self._alone(f, "unseen")

    def _tensor(self, f: OpFootprint, t: int, op: Any, mine: bool) -> None:
        match op:
            case ops.Wgmma():
                for region in op.operands:
                    self._bytes(f, t, region, False)
            case ops.WgmmaWait():
                f.closes.add(("wgmma", *self.g.teams[t]))
                f.seen |= self.objects.of(("registers", *self.g.teams[t]))
            case ops.Tcgen05Mma() | ops.Tcgen05Cp():
                sources = op.operands if isinstance(op, ops.Tcgen05Mma) else (op.src,)
                for rank in pair(self.g, t, getattr(op, "cta_group", 1)):
                    for region in sources:
                        self._bytes(f, t, region, False, rank)
                    self._bytes(f, t, op.accumulator if isinstance(op, ops.Tcgen05Mma) else op.dst, True, rank)
            case ops.Tcgen05Relinquish():
                self._alone(f, ("right", self.g.threads[t].cta))
            case ops.Tcgen05Commit():
                f.releases = True
                for rank in [None] if not op.ctas else ranks(op.ctas):
                    b = self._uses(f, t, op.bar, rank)
                    if not mine:
                        f.signals[b] = Signals(self.g.threads[t].weight)
                        f.closes.add(("mma", t))
                        f.changed |= self.objects.of("tcgen")
            case ops.Tcgen05Ld() | ops.Tcgen05St():
                self._bytes(f, t, op.region, isinstance(op, ops.Tcgen05St))
            case ops.Tcgen05WaitLd() | ops.Tcgen05WaitSt():
                f.closes.add(("ld" if isinstance(op, ops.Tcgen05WaitLd) else "st", t))
            case ops.Tcgen05FenceBefore():
                f.changed |= self.objects.of("tcgen")
            case ops.Tcgen05FenceAfter():
                f.seen |= self.objects.of("tcgen")
            case _:
                pass

    def _registers(self, f: OpFootprint, t: int, op: ops.Setmaxnreg) -> None:
        """Who takes from the pool competes with others who do; who gives to it lets them."""
        cta = self.g.threads[t].cta
        if self.g.mates[t][0] != t:
            return
        counts = [s.op.registers for s in steps(self.g.threads[t].body) if isinstance(s.op, ops.Setmaxnreg)]
        if op.registers <= min(*counts, self.g.protocol.registers_per_thread):
            f.seen |= self.objects.of(("given", cta))
        else:
            self._alone(f, ("pool", cta))

    def _lifetime(self, f: OpFootprint, t: int, op: ops.Tcgen05Alloc | ops.Tcgen05Dealloc) -> None:
        if self.g.mates[t][0] != t:
            return
        cta = self.g.threads[t].cta
        for rank in pair(self.g, t, op.cta_group):
            self._alone(f, ("life", op.buffer, cta if rank is None else rank))
            self._alone(f, Bytes(("tmem address", op.buffer, cta if rank is None else rank), 0, 1))
            if isinstance(op, ops.Tcgen05Dealloc):
                self._bytes(f, t, ops.Region(op.buffer, ops.ZERO, self.g.buffers[op.buffer].size), True, rank)
        self._alone(f, ("right", cta))
        if isinstance(op, ops.Tcgen05Alloc) and op.address is not None:
            self._bytes(f, t, op.address, True)


def _async_reads(op: object) -> tuple[ops.Region, ...]:
    match op:
        case ops.Wgmma() | ops.Tcgen05Mma():
            return op.operands
        case ops.TmaStore() | ops.DsmemCopy() | ops.Tcgen05Cp():
            return (op.src,)
        case _:
            return ()
