"""Barriers of an explored instance: mbarriers, rendezvous of threads, the cluster barrier."""

from __future__ import annotations

from tilewright.protocol import ops
from tilewright.verify.model_checker import grid
from tilewright.verify.model_checker.instance import ProtocolInstance, number
from tilewright.verify.model_checker.memory import acquire, release
from tilewright.verify.model_checker.world import Bytes, EnteredBarrier, Problem, Queue, World
from tilewright.verify.rules import Rule

_TX_LIMIT = 2**20 - 1


def usable(g: ProtocolInstance, w: World, t: int, b: int) -> bool:
    """Whether ``use`` raises no problem."""
    bar = w.bars[b]
    if not bar.alive or (g.protocol.cluster > 1 and not bar.fenced and bar.owner != t):
        return False
    return not any(x.init and x.bytes.space[1] == b for u, held in enumerate(w.open) if held and u != t for x in held)


def use(g: ProtocolInstance, w: World, t: int, b: int) -> None:
    """Checks a thread's use of a barrier: it is alive, and not being initialised elsewhere."""
    bar = w.bars[b]
    if not bar.alive:
        raise Problem(Rule.INIT, (t,), f"{g.threads[t].label} uses a barrier that is not initialised")
    for u, touches in enumerate(w.open):
        if u != t and any(x.init and x.bytes.space[1] == b for x in touches):
            raise Problem(Rule.INIT, (u, t), "a barrier is used while its initialisation may be under way")
    if g.protocol.cluster > 1 and not bar.fenced and bar.owner != t:
        raise Problem(Rule.INIT_FENCE, (t,), "a barrier is used across the cluster without fence.mbarrier_init")


def init_place(b: int) -> Bytes:
    """Stands for the words of a barrier."""
    return Bytes(("barrier", b), 0, 1)


def signal(w: World, t: int, b: int, tx: int = 0, arrivals: int = 0) -> None:
    """Arrivals and transaction bytes reach a barrier."""
    bar = w.bars[b]
    if not bar.alive:
        raise Problem(Rule.INIT, (t,), "an arrival on a barrier that is not alive")
    if arrivals > bar.pending:
        raise Problem(Rule.COUNT, (t,), f"{arrivals} arrivals where {bar.pending} are pending")
    pending, total = bar.pending - arrivals, bar.tx + tx
    if abs(total) > _TX_LIMIT:
        raise Problem(Rule.BYTES, (t,), f"{total} bytes pending")
    if pending == 0 and total == 0:
        unreleased_peers = frozenset(
            cta for cta, wide in bar.peer_arrivals if not wide and (cta, True) not in bar.peer_arrivals
        )
        none = frozenset[tuple[int, bool]]()
        w.bars[b] = bar._replace(
            pending=bar.initial, tx=0, parity=1 - bar.parity, peer_arrivals=none, unreleased_peers=unreleased_peers
        )
        grid.complete_phase(w, b)
    else:
        w.bars[b] = bar._replace(pending=pending, tx=total)


def rendezvous_of(g: ProtocolInstance, t: int, op: object) -> tuple[Queue, int, str]:
    """The rendezvous that a sync refers to, with its thread count and site."""
    thread = g.threads[t]
    match op:
        case ops.WarpSync():
            mates = (g.threads[u] for u in g.mates[t])
            size = sum(u.weight for u in mates if u.first_warp == thread.first_warp)
            return ("warp", thread.role, thread.cta, thread.first_warp), size, ""
        case ops.BarSync():
            return ("named", thread.cta, number(op.id)), op.threads, (op.site or thread.role) if op.aligned else ""
        case ops.BarArrive():
            return ("named", thread.cta, number(op.id)), op.threads, ""
        case _:
            return ("named", thread.cta, 0), g.cta_threads[thread.cta], ""


def rendezvous(g: ProtocolInstance, w: World, t: int, op: object) -> bool:
    """A sync: a first step enters, a second one leaves (true) once all are there."""
    if t not in w.inside:
        enter(g, w, t, op)
        w.inside |= {t}
        return False
    w.released -= {t}
    w.inside -= {t}
    return True


def enter(g: ProtocolInstance, w: World, t: int, op: object) -> None:
    """Adds the thread to the current use of a rendezvous."""
    key, size, site = rendezvous_of(g, t, op)
    empty = frozenset[int]()
    arrived, known, members, waiting, sites = w.named.get(key) or EnteredBarrier(0, size, empty, empty, frozenset())
    if arrived and size != known:
        raise Problem(Rule.BAR_RECYCLE, (t,), "one named barrier used with two thread counts")
    if t in members:
        raise Problem(Rule.BAR_RECYCLE, (t,), "a second arrival on a named barrier before its use completed")
    if site and sites - {site}:
        raise Problem(Rule.BAR_SITE, (t,), "an aligned barrier completed from two sites")
    arrived += g.threads[t].weight
    if arrived > size:
        raise Problem(Rule.BAR_RECYCLE, (t,), "more threads than the named barrier counts")
    release(g, w, t)
    grid.arrive(w, t, key)
    if not isinstance(op, ops.BarArrive):
        waiting |= {t}
    if arrived < size:
        w.named[key] = EnteredBarrier(arrived, size, members | {t}, waiting, sites | ({site} if site else frozenset()))
        return
    w.named.pop(key, None)
    w.released |= waiting
    grid.synchronize(w, waiting, key)
    for u in waiting:
        acquire(g, w, u)


def cluster_check(g: ProtocolInstance, w: World) -> None:
    """The cluster barrier completes when every thread that has not ended has arrived."""
    if 1 in w.cluster and all(w.cluster[t] == 1 or g.ended(w, t) for t in g.everyone):
        w.cluster = tuple(2 if c == 1 else c for c in w.cluster)
        for t in g.everyone:
            acquire(g, w, t)
