"""Clusters: copies for several CTAs, sums across them, and who may leave when."""

from __future__ import annotations

from gallery.entry import Entry, multiply
from support.pipeline_roles import drain, load
from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, Scope
from tilewright.protocol import ops as o

C = o.Const
CTA = sym(o.CTA_RANK)


def stream_k(wrong: bool) -> Protocol:
    """The second CTA of a cluster leaves its part of a tile in global memory and tells the first by a semaphore in the
    first's shared memory; wrong: the arrival is of .cta scope."""
    b = Build("stream-K", cluster=2)
    tiles = b.symbol("tiles")
    told, taken = b.mbarrier("told", count=128), b.mbarrier("taken")
    workspace = b.buffer("workspace", 1024, Space.GLOBAL)
    with b.role("all", 128) as r:
        b.init(r)
        with r.loop("t", tiles) as t:
            with r.when(CTA.eq(1)):
                r.all(o.Wait(taken[0], (t + 1) % 2, Scope.CLUSTER))
                r.all(o.Write(workspace.whole))
                r.all(o.Arrive(told.of(0), scope=Scope.CTA if wrong else Scope.CLUSTER))
            with r.when(CTA.eq(0)):
                r.all(o.Wait(told[0], t % 2, Scope.CLUSTER))
                r.all(o.Read(workspace.whole))
                r.all(o.BarSync(C(1), 128))
                r.one(o.Arrive(taken.of(1), scope=Scope.CLUSTER))
        b.sync(r)
    return b.protocol()


def leader_loads(wrong: bool) -> Protocol:
    """The first CTA loads for both once the consumers of both have read; the second expects its bytes of a stage when
    it has seen the last ones there. Wrong: the first waits for its own consumer alone."""
    b = Build("leader loads", cluster=2)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=1 if wrong else 2)
    acc = b.buffer("acc", 64, Space.REGISTER)
    first, second = CTA.eq(0), CTA.eq(1)
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            with p.when(first):
                p.one(ring.producer_acquire(k, Scope.CLUSTER))
            with p.when(second):
                p.one(o.Wait(ring.full[ring.slot(k)], (k // 2 + 1) % 2))
            p.one(ring.producer_commit(k))
            with p.when(first):
                p.one(ring.load(k, ctas=(0, 1)))
        b.sync(p)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            multiply(c, acc.whole, ring.stage(k))
            with c.when(first if wrong else k >= 0):
                c.one(ring.consumer_release(k, cta=0, scope=Scope.CLUSTER))
        b.sync(c)
    return b.protocol()


def passed_round(wrong: bool) -> Protocol:
    """Each CTA passes its block on to the next one, turn by turn; wrong: without asking whether the last was read."""
    b = Build("passed round", cluster=2)
    turns = b.symbol("turns")
    inbox, outbox = b.buffer("inbox", 1024), b.buffer("outbox", 1024, initialised=True)
    full, empty = b.mbarrier("full"), b.mbarrier("empty")
    peer = 1 - CTA
    with b.role("all", 128) as r:
        b.init(r)
        with r.loop("i", turns) as i:
            r.one(o.ArriveExpectTx(full[0], 1024))
            if not wrong:
                r.one(o.Wait(empty[0], (i + 1) % 2, Scope.CLUSTER))
            r.one(o.DsmemCopy(outbox.whole, inbox.at(0, 1024, peer), full.of(peer)))
            r.all(o.Wait(full[0], i % 2, Scope.CLUSTER))
            r.all(o.Read(inbox.whole))
            r.all(o.FenceProxyAsync())
            r.all(o.CtaSync())
            r.one(o.Arrive(empty.of(peer), scope=Scope.CLUSTER))
        b.sync(r)
    return b.protocol()


def left_alone(wrong: bool) -> Protocol:
    """Consumers give stages back to both CTAs of a multicast; wrong: CTAs end without waiting for each other."""
    b = Build("left alone", cluster=2)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=2)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.producer_acquire(k, Scope.CLUSTER))
            p.one(ring.producer_commit(k))
            p.one(o.TmaLoad(ring.data.at(ring.slot(k) * 1024 + CTA * 512, 512), ring.full[ring.slot(k)], (C(0), C(1))))
        if not wrong:
            b.sync(p)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            multiply(c, acc.whole, ring.stage(k))
            c.one(ring.consumer_release(k, cta=0, scope=Scope.CLUSTER))
            c.one(ring.consumer_release(k, cta=1, scope=Scope.CLUSTER))
        if not wrong:
            b.sync(c)
    return b.protocol()


def sums_of_a_cluster(wrong: bool) -> Protocol:
    """Each CTA writes its sum to its peer's memory and both read theirs; wrong: the cluster barrier's arrive is
    relaxed."""
    b = Build("sums of a cluster", cluster=2)
    rows = b.symbol("rows")
    sums = b.buffer("sums", 256)
    with b.role("all", 128) as r:
        b.sync(r)
        with r.loop("i", rows) as i:
            r.all(o.Write(sums.at(i % 2 * 128, 128, 1 - CTA)))
            r.all(o.ClusterArrive(release=not wrong))
            r.all(o.ClusterWait())
            r.all(o.Read(sums.at(i % 2 * 128, 128)))
        b.sync(r)
    return b.protocol()


def own_ring_in_a_cluster(wrong: bool) -> Protocol:
    """Nothing but the start is shared; wrong: without the init fence before the cluster barrier."""
    b = Build("own ring in a cluster", cluster=2)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        if wrong:
            p.one(o.MbarrierInit("ab_full"))
            p.one(o.MbarrierInit("ab_empty"))
            b.sync(p)
        else:
            b.init(p)
        with p.loop("k", kt) as k:
            load(p, ring, k)
    with drain(b, ring, kt) as (c, k):
        multiply(c, acc.whole, ring.stage(k))
        c.one(ring.consumer_release(k))
    return b.protocol()


CLUSTERS = (
    Entry(stream_k, ("MBR016",)),
    Entry(leader_loads, ("MBR017", "MBR018")),
    Entry(passed_round, ("MBR017", "MBR018")),
    Entry(left_alone, ("MBR025",)),
    Entry(sums_of_a_cluster, ("MBR016",)),
    Entry(own_ring_in_a_cluster, ("MBR022",)),
)
