"""Initialisation, named barriers and cluster barriers."""

from __future__ import annotations

from museum.exhibit import Exhibit, rewritten
from support.pipeline_roles import drain
from tilewright.base.expr import sym
from tilewright.protocol import Build, Protocol, Scope
from tilewright.protocol import ops as o

C = o.Const


def tk_08(fixed: bool) -> Protocol:
    """The barrier array is initialised one slot short."""
    b = Build("tk_08")
    done = b.mbarrier("done", slots=3)
    with b.role("a", 32) as a:
        a.one(o.MbarrierInit("done", None if fixed else 2))
        a.one(o.FenceMbarrierInit())
        b.sync(a)
        a.one(o.Arrive(done[2]))
    with b.role("b", 32) as r:
        b.sync(r)
        r.all(o.Wait(done[2], C(0)))
    return b.protocol()


def _ring_without_init_fence(name: str, cluster: int, fixed: bool) -> Protocol:
    b = Build(name, cluster=cluster)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    with b.role("producer", 32) as p:
        for barrier in (ring.full, ring.empty):
            p.one(o.MbarrierInit(barrier.barrier.name))
        if fixed:
            p.one(o.FenceMbarrierInit())
        b.sync(p)
        with p.loop("k", kt) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
    with drain(b, ring, kt, threads=32) as (c, k):
        c.all(ring.read(k))
        c.all(o.FenceProxyAsync())
        c.all(o.WarpSync())
        c.one(ring.consumer_release(k))
    return b.protocol()


def fa_08(fixed: bool) -> Protocol:
    """Barriers are initialised without fence.mbarrier_init; in one CTA the barrier that follows is enough."""
    return _ring_without_init_fence("fa_08", 1, fixed)


def fa_08_cluster(fixed: bool) -> Protocol:
    """The same in a cluster, where it is not."""
    return _ring_without_init_fence("fa_08_cluster", 2, fixed)


def xx_11(fixed: bool) -> Protocol:
    """fence.mbarrier_init by another thread than the one that initialised."""
    b = Build("xx_11", cluster=2)
    done = b.mbarrier("done", count=2)
    with b.role("a", 32) as a:
        a.one(o.MbarrierInit("done"))
        if fixed:
            a.one(o.FenceMbarrierInit())
        b.sync(a)
        a.one(o.Arrive(done.of(0), scope=Scope.CLUSTER))
        b.sync(a)
    with b.role("b", 32) as r:
        if not fixed:
            r.one(o.FenceMbarrierInit())
        b.sync(r)
        with r.when(sym("cta").eq(0)):
            r.all(o.Wait(done[0], C(0), Scope.CLUSTER))
        b.sync(r)
    return b.protocol()


def fi_02(fixed: bool) -> Protocol:
    """bar.arrive of the next tile comes before its partner's bar.sync of this one: tiles are loaded one ahead, so the
    math warps may be one tile ahead too. The twin takes turns between two barrier ids."""
    b = Build("fi_02")
    tiles = b.symbol("tiles")
    slots = b.pipeline("tile", 2, 16, consumers=64)
    with b.role("io", 32) as i:
        b.init(i)
        with i.when(tiles > 0):
            i.one(slots.producer_commit(0))
            i.one(slots.load(0))
        with i.loop("t", tiles) as t:
            with i.when(t + 1 < tiles):
                i.one(slots.producer_acquire(t + 1))
                i.one(slots.producer_commit(t + 1))
                i.one(slots.load(t + 1))
            i.all(o.BarSync(1 + t % 2 * 4 if fixed else C(1), 96))
    with b.role("math", 64) as m:
        b.sync(m)
        with m.loop("t", tiles) as t:
            m.all(slots.consumer_wait(t))
            m.all(slots.read(t))
            m.all(o.FenceProxyAsync())
            m.all(slots.consumer_release(t))
            m.all(o.BarArrive(1 + t % 2 * 4 if fixed else C(1), 96))
    return b.protocol()


def xx_14(fixed: bool) -> Protocol:
    """An aligned bar.sync completed by two roles from different sites."""
    b = Build("xx_14")
    for name in ("a", "b"):
        with b.role(name, 160) as r:
            r.all(o.BarSync(C(2), 320, aligned=not fixed))
    return b.protocol()


def tr_07(fixed: bool) -> Protocol:
    """A cluster barrier in one partition only, while another waits for what comes after it."""
    b = Build("tr_07", cluster=2)
    done = b.mbarrier("done")
    with b.role("a", 32) as a:
        b.init(a)
        b.sync(a)
        a.one(o.Arrive(done[0]))
    with b.role("b", 32) as r:
        b.sync(r)
        if fixed:
            b.sync(r)
        r.all(o.Wait(done[0], C(0)))
    return b.protocol()


BARRIERS = (
    Exhibit("TK-08", tk_08, "MBR021", rewritten("MbarrierInit")),
    Exhibit("FA-08", fa_08, "MBR022", ("+FenceMbarrierInit",), lenient=True, advisory=True),
    Exhibit("FA-08", fa_08_cluster, "MBR022", ("+FenceMbarrierInit",)),
    Exhibit("XX-11", xx_11, "MBR022", rewritten("FenceMbarrierInit")),
    Exhibit("FI-02", fi_02, "MBR026", rewritten("BarSync", "BarArrive")),
    Exhibit("XX-14", xx_14, "MBR027", rewritten("BarSync", "BarSync")),
    Exhibit("TR-07", tr_07, "MBR012", ("+ClusterArrive", "+ClusterWait")),
)
