"""Accesses of an explored instance: conflicts with accesses in flight, and missing fences."""

from __future__ import annotations

from tilewright.protocol import ops
from tilewright.verify.model_checker import grid, tensor_maps
from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.peers import remote
from tilewright.verify.model_checker.world import (
    FREED,
    LANDED,
    AsyncAccess,
    Bytes,
    GlobalAccess,
    OpenAccess,
    Problem,
    Queue,
    World,
)
from tilewright.verify.rules import Policy, Rule

ASYNC = frozenset(("tma_load", "tma_store", "tma_write", "tma_reduce", "wgmma", "mma", "tcp", "dsmem"))
"""Engines of the asynchronous proxy."""

UNDER_WAY = ASYNC | {"tensormap"}
"""Engines whose accesses are not past when their thread goes on; ``tensormap``: a copy reads its descriptor."""


def touch(
    g: ProtocolInstance, w: World, t: int, region: ops.Region, engine: str, writes: bool,
    private: bool = False, rank: int | None = None, site: int = 0,
) -> Bytes:  # fmt: skip
    """Checks an access against everything in flight and against what it reads."""
    place = g.place(t, region, rank)
    kind = place.space[0]
    if kind == "register":
        _registers(g, w, t, place, engine, writes)
        return place
    owner = place.space[1] if kind in ("shared", "tmem") else None
    if isinstance(owner, int) and engine != "dealloc":
        remote(g, w, t, owner)
    if kind == "tmem":
        _tensor(g, w, t, region, place, engine)
    _clear_of_flights(g, w, t, place, engine, writes, private)
    _clear_of_threads(g, w, t, place, engine, writes, private, site)
    if not writes and kind in ("shared", "tmem") and not g.buffers[region.buffer].initialised:
        _there(g, w, t, place, region.buffer)
    if kind == "global":
        grid.check_conflicts(g, w, t, GlobalAccess(place, writes, t, site, engine), engine not in UNDER_WAY)
    if engine in ASYNC and kind in ("shared", "global"):
        _fences(g, w, t, place, writes)
    if writes:
        w.written |= {place}
        # of a write that the threads of a role share, each writes its own part: the others' stay
        w.bare = frozenset(x for x in w.bare if not x[0].inside(place) or _ours(g, t, x[1], x[3], site))
        w.unfenced = frozenset(x for x in w.unfenced if not x[0].inside(place) or _ours(g, t, x[1], x[2], site))
        if g.describes(place):
            tensor_maps.write(g, w, t, place)
    return place


def _ours(g: ProtocolInstance, t: int, u: int, theirs: int, site: int) -> bool:
    return u != t and u in g.mates[t] and theirs == site != 0


def _clear_of_flights(
    g: ProtocolInstance, w: World, t: int, place: Bytes, engine: str, writes: bool, private: bool
) -> None:
    for f in w.in_flight:
        if (f.writes or writes) and f.bytes.meets(place) and not _in_order(g, t, engine, private, f):
            own = f.role == g.teams[t]
            rule = Rule.GROUP if own and f.queue[0] not in ("tma_load", "dsmem") else _clash(f.writes, writes)
            raise Problem(rule, (f.owner, t), f"{engine} of {g.threads[t].label} meets {f.engine} under way")


def _clear_of_threads(
    g: ProtocolInstance, w: World, t: int, place: Bytes, engine: str, writes: bool, private: bool, site: int
) -> None:
    for u, touches in enumerate(w.open):
        if u == t:
            continue
        for x in touches:
            if (x.writes or writes) and x.bytes.meets(place) and not _apart(g, t, u, x, engine, writes, private, site):
                words = f"{engine} of {g.threads[t].label} meets {g.threads[u].label}"
                raise Problem(_clash(x.writes, writes), (u, t), words)
    for u, seen, wrote, owner in w.unseen:
        if u == t and (wrote or writes) and seen.meets(place) and owner not in g.mates[t]:
            what = "what it tracks" if owner == LANDED else g.threads[owner].label
            threads = (t,) if owner == LANDED else (owner, t)
            words = f"{engine} of {g.threads[t].label} after a wait that does not acquire {what}"
            raise Problem(_clash(wrote, writes), threads, words)


def _apart(
    g: ProtocolInstance, t: int, u: int, x: OpenAccess, engine: str, writes: bool, private: bool, site: int
) -> bool:
    """Whether an access does not conflict with the open one ``x`` of thread ``u`` after all. Two threads of a role may
    access disjoint parts: private accesses, or one write step of both. Of two deallocations, the allocated columns tell
    whether one is too many."""
    if engine == "dealloc" and x.site == FREED:
        return True
    return u in g.mates[t] and ((x.private and private) or (x.writes and writes and x.site == site != 0))


def _in_order(g: ProtocolInstance, t: int, engine: str, private: bool, f: AsyncAccess) -> bool:
    if f.engine in ("mma", "tcp") and engine in ("mma", "tcp"):
        return f.owner == t
    if f.engine in ("ld", "st") and engine in ("ld", "st"):
        return f.owner != t and f.owner in g.mates[t]
    if f.engine == "cp_async":
        mine = f.owner in g.mates[t]
        return mine and (engine == "cp_async" or (private and f.owner != t))
    if f.engine == engine == "tma_reduce":
        return True
    return f.engine == "wgmma" and engine == "wgmma" and f.owner in g.mates[t]


def _there(g: ProtocolInstance, w: World, t: int, place: Bytes, name: str) -> None:
    """Every byte read was written by something."""
    if place in w.written:
        return
    need = [(place.begin, place.end)]
    for x in w.written:
        if x.meets(place):
            need = [
                piece for b, e in need for piece in ((b, min(e, x.begin)), (max(b, x.end), e)) if piece[0] < piece[1]
            ]
    if need:
        raise Problem(Rule.READ_EARLY, (t,), f"{g.threads[t].label} reads bytes of {name} never written")


def _fences(g: ProtocolInstance, w: World, t: int, place: Bytes, writes: bool) -> None:
    strict = g.policy is Policy.STRICT
    if writes:
        bare = [u for x, u, is_write, _ in w.bare if x.meets(place) and (is_write or strict)]
        if bare:
            raise Problem(Rule.FENCE_WAR, (bare[0], t), "an asynchronous write over unfenced generic accesses")
        return
    if strict:
        dirty = [u for x, u, _ in w.unfenced if x.meets(place)]
        # the copies of cp.async are written by nobody's program: any thread's fence will do
        dirty += [u for x, u, is_write, site in w.bare if is_write and not site and x.meets(place)]
    else:
        dirty = [u for x, u, is_write, _ in w.bare if is_write and x.meets(place)]
    if dirty:
        raise Problem(Rule.FENCE_RAW, (dirty[0], t), "an asynchronous read of unfenced generic writes")


def _registers(g: ProtocolInstance, w: World, t: int, place: Bytes, engine: str, writes: bool) -> None:
    if engine == "wgmma":
        return
    for f in w.in_flight:
        if f.engine == "wgmma" and f.owner == t and f.bytes.meets(place) and (f.writes or writes):
            raise Problem(Rule.GROUP, (f.owner, t), f"registers of {g.threads[t].label} in use by wgmma")
    w.dirty |= {t}


def _tensor(g: ProtocolInstance, w: World, t: int, region: ops.Region, place: Bytes, engine: str) -> None:
    cta = place.space[1]
    assert isinstance(cta, int)
    state = w.tmem.get((region.buffer, cta))
    if state != "live" and not (state and engine == "dealloc"):
        raise Problem(Rule.TMEM, (t,), f"{g.threads[t].label} uses {region.buffer}, which is not allocated")
    if engine == "dealloc":
        return
    address = Bytes(("tmem address", region.buffer, cta), 0, 1)
    for u, touches in enumerate(w.open):
        if u not in g.mates[t] and any(x.writes and x.bytes.meets(address) for x in touches):
            raise Problem(Rule.TMEM, (u, t), f"{region.buffer} is used while its allocation may be under way")
    for x, u, owner, past in w.stale:
        if u != t or not x.meets(place) or (owner in g.mates[t] and past.rstrip("!") in ("ld", "st")):
            continue
        if owner == t and past == "mma" and engine in ("mma", "tcp"):
            continue
        raise Problem(Rule.TCGEN_FENCE, (owner, t), "tensor memory handed over without the tcgen05 fences")


def close(g: ProtocolInstance, w: World, closes: tuple[tuple[Queue, int], ...], by: int = LANDED) -> None:
    """Queues have completed up to a number, as a barrier or thread ``by`` knows: their accesses are no longer in
    flight."""
    for queue, upto in closes:
        gone = frozenset(f for f in w.in_flight if f.queue == queue and f.number <= upto)
        w.in_flight -= gone
        if by != LANDED:
            grid.ended(w, by, gone)
        for f in gone:
            if g.relaxed:
                # they have yet to acquire that it is done
                w.unseen |= {(u, f.bytes, f.writes, by) for u in g.relaxed if by == LANDED or u not in g.mates[by]}
            if f.bytes.space[0] == "tmem":
                _settled(g, w, f)
            if f.engine == "cp_async":
                w.unfenced |= {(f.bytes, f.owner, 0)} if g.policy is Policy.LENIENT else frozenset()
                w.bare |= {(f.bytes, f.owner, True, 0)}


def _settled(g: ProtocolInstance, w: World, f: AsyncAccess) -> None:
    """A tensor-memory access is done; others need the fences."""
    w.stale = frozenset(x for x in w.stale if not (x[0].inside(f.bytes) and x[2] == f.owner))
    if f.engine in ("ld", "st"):
        w.unsent |= {(f.owner, f.bytes, f.engine)}
    else:
        w.stale |= {(f.bytes, u, f.owner, "mma") for u in g.everyone}


def release(g: ProtocolInstance, w: World, t: int, memory: bool = True) -> None:
    """The thread's accesses so far are complete for every thread that acquires this."""
    if not memory:
        w.open[t] -= frozenset(x for x in w.open[t] if x.init and _init_fenced(w, x))
        return
    if g.heedless:
        _publish(g, w, t)
    w.open[t] = frozenset()
    for _, place, engine in [x for x in w.unsent if x[0] == t]:
        # never behind a before-fence: everyone else still sees it as under way
        w.stale |= {(place, u, t, engine + "!") for u in g.everyone if u != t}


def _publish(g: ProtocolInstance, w: World, t: int) -> None:
    """For threads with relaxed waits: publishes what this thread did and has seen."""
    seen = {
        (u, x, wrote, t if u not in g.mates[t] and (t, x, wrote, who) not in w.unseen else who)
        for u, x, wrote, who in w.unseen
    }
    cta = g.threads[t].cta
    others = [u for u in g.heedless if u not in g.mates[t] and (u in g.relaxed or g.threads[u].cta != cta)]
    seen |= {(u, x.bytes, x.writes, t) for u in others for x in w.open[t] if not x.init and x.site != FREED}
    w.unseen = frozenset(seen)


def acquire(
    g: ProtocolInstance, w: World, t: int, wide: bool = True, unreleased_peers: frozenset[int] = frozenset()
) -> None:
    """The thread acquires: what others released is over for it too, within its CTA unless ``wide``, but for what CTAs
    ``unreleased_peers`` did."""
    if w.unseen:
        own = g.threads[t].cta

        def stays(by: int) -> bool:
            cta = own if by == LANDED else g.threads[by].cta
            return cta != own and (not wide or cta in unreleased_peers)

        w.unseen = frozenset(x for x in w.unseen if x[0] != t or stays(x[3]))


def _init_fenced(w: World, x: OpenAccess) -> bool:
    index = x.bytes.space[1]
    return isinstance(index, int) and w.bars[index].fenced


def fly(g: ProtocolInstance, w: World, t: int, engine: str, place: Bytes, writes: bool, queue: Queue) -> None:
    """An asynchronous access begins, in the open group of its queue."""
    groups = w.groups[t]
    count = groups.setdefault(str(queue[0]), 0)
    w.in_flight |= {AsyncAccess(engine, t, g.teams[t], place, writes, queue, count)}


def _clash(old_writes: bool, writes: bool) -> Rule:
    if old_writes and writes:
        return Rule.WRITE_WRITE
    return Rule.READ_EARLY if old_writes else Rule.OVERWRITE
