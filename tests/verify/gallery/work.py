"""Where the work comes from: tile numbers handed out at run time, descriptors rewritten for each expert."""

from __future__ import annotations

from protocols import grouped

from gallery.entry import Entry, multiply
from support.pipeline_roles import load
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o
from tilewright.protocol.edit import spots, without

C = o.Const


def tile_counter(wrong: bool) -> Protocol:
    """A scheduler warp fetches tile numbers and hands them to everyone through shared memory; wrong: it does not wait
    until the last one was read."""
    b = Build("tile counter")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", per="t")
    work = b.pipeline("work", 2, 16, consumers=2, producers=1)
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("schedule", 32) as s:
        b.init(s)
        with s.loop("t", tiles) as t:
            if not wrong:
                s.one(work.producer_acquire(t))
            s.one(o.Write(work.stage(t)))
            s.one(o.Arrive(work.full[work.slot(t)]))
    with b.role("producer", 96) as p:
        b.sync(p)
        g = p.counter("g")
        with p.loop("t", tiles) as t:
            p.one(work.consumer_wait(t))
            p.one(o.Read(work.stage(t)))
            p.one(work.consumer_release(t))
            with p.loop("k", kt):
                load(p, ring, g)
                p.advance(g)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("t", tiles) as t:
            c.all(work.consumer_wait(t))
            c.all(o.Read(work.stage(t)))
            c.all(o.BarSync(C(1), 128))
            c.one(work.consumer_release(t))
            with c.loop("k", kt):
                c.all(ring.consumer_wait(g))
                multiply(c, acc.whole, ring.stage(g))
                c.one(ring.consumer_release(g))
                c.advance(g)
    return b.protocol()


def cancelled_launches(wrong: bool) -> Protocol:
    """The answer to a cluster-launch cancel arrives in shared memory like a bulk copy; its readers fence before the
    next one overwrites it. Wrong: they don't."""
    b = Build("cancelled launches")
    tiles = b.symbol("tiles")
    answer = b.pipeline("answer", 1, 16, consumers=128)
    with b.role("schedule", 32) as s:
        b.init(s)
        with s.loop("t", tiles) as t:
            s.one(answer.producer_acquire(t))
            s.one(answer.producer_commit(t))
            s.one(o.TmaLoad(answer.stage(t), answer.full[0], tensor=False))
    with b.role("idle", 96) as i:
        b.sync(i)
    with b.role("worker", 128) as w:
        b.sync(w)
        with w.loop("t", tiles) as t:
            w.all(answer.consumer_wait(t))
            w.all(answer.read(t))
            if not wrong:
                w.all(o.FenceProxyAsync())
            w.all(answer.consumer_release(t))
    return b.protocol()


def expert_descriptors(wrong: bool) -> Protocol:
    """The producer rewrites the descriptor for every expert once all loads with the last one are done; wrong: without
    the acquire before the first load."""
    right = grouped.tensormap_update(stages=2)
    acquires = frozenset(spot for spot, step in spots(right) if isinstance(step.op, o.TensormapAcquire))
    return without(right, acquires) if wrong else right


def empty_experts(wrong: bool) -> Protocol:
    """Experts without tokens are passed over by everyone; wrong: the epilogue's barrier is waited for all the same."""
    b = Build("empty experts")
    experts, kt = b.symbol("groups"), b.symbol("kt", per="t")
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    done = b.mbarrier("done")
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        g, n = p.counter("g"), p.counter("n")
        with p.loop("t", experts):
            with p.loop("k", kt):
                load(p, ring, g)
                p.advance(g)
            with p.when(kt >= 0 if wrong else kt > 0):
                p.one(o.Wait(done[0], n % 2))
                p.advance(n)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("t", experts):
            with c.loop("k", kt):
                c.all(ring.consumer_wait(g))
                multiply(c, acc.whole, ring.stage(g))
                c.one(ring.consumer_release(g))
                c.advance(g)
            with c.when(kt > 0):
                c.one(o.Arrive(done[0]))
    return b.protocol()


def handed_over_by_names(wrong: bool) -> Protocol:
    """Two warpgroups hand a buffer to and fro by two named barriers; wrong: by one for both ways."""
    b = Build("handed over by names")
    turns = b.symbol("turns")
    x = b.buffer("x", 1024)
    there, back = C(1), C(1 if wrong else 2)
    with b.role("writer", 128) as w, w.loop("i", turns):
        w.all(o.Write(x.whole))
        w.all(o.BarArrive(there, 256))
        w.all(o.BarSync(back, 256))
    with b.role("reader", 128) as r, r.loop("i", turns):
        r.all(o.BarSync(there, 256))
        r.all(o.Read(x.whole))
        r.all(o.BarArrive(back, 256))
    return b.protocol()


WORK = (
    Entry(tile_counter, ("MBR015", "MBR017")),
    Entry(cancelled_launches, ("MBR020",)),
    Entry(expert_descriptors, ("MBR033",)),
    Entry(empty_experts, ("MBR012",)),
    Entry(handed_over_by_names, ("MBR026",)),
)
