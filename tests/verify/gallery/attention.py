"""Attention, forward and backward: what goes round within a tile besides the operands."""

from __future__ import annotations

from gallery.entry import Entry, multiply
from support.pipeline_roles import fill, load
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

C = o.Const


def backward(wrong: bool) -> Protocol:
    """Two warpgroups add their parts of dQ to the same bytes of global memory; wrong: one stores plainly."""
    b = Build("backward")
    kt = b.symbol("kt")
    ring = b.pipeline("kv", 2, 1024, consumers=2)
    acc = b.buffer("acc", 64, Space.REGISTER)
    dq = b.buffer("dq", 1024, Space.GLOBAL)
    staging = [b.buffer(f"staging{w}", 1024) for w in range(2)]
    fill(b, ring, kt, threads=128)
    for w in range(2):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            with c.loop("k", kt) as k:
                c.all(ring.consumer_wait(k))
                multiply(c, acc.whole, ring.stage(k))
                c.one(ring.consumer_release(k))
                c.one(o.BulkWait(0, read=True))
                c.all(o.BarSync(C(1 + w), 128))
                c.all(o.Read(acc.whole))
                c.all(o.Write(staging[w].whole))
                c.all(o.FenceProxyAsync())
                c.all(o.BarSync(C(1 + w), 128))
                c.one(o.TmaStore(staging[w].whole, dq.whole, reduce=w == 0 or not wrong))
                c.one(o.BulkCommit())
            c.one(o.BulkWait(0))
    return b.protocol()


def probabilities_through_memory(wrong: bool) -> Protocol:
    """P goes through shared memory on its way from the first product to the second, which stays in flight for a turn;
    wrong: P of the next turn is written while it may still read."""
    b = Build("probabilities through memory")
    kt = b.symbol("kt")
    ring = b.pipeline("kv", 2, 2048, consumers=1)
    p_mem = b.buffer("p", 1024)
    s, out = b.buffer("s", 64, Space.REGISTER), b.buffer("o", 64, Space.REGISTER)
    fill(b, ring, kt, threads=128)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            multiply(c, s.whole, ring.stage(k, 0, 1024), pending=2 if wrong else 1)
            with c.when(k > 0):
                c.one(ring.consumer_release(k - 1))
            if not wrong:
                c.all(o.WgmmaWait(0))
                c.all(o.Read(s.whole))
            c.all(o.BarSync(C(1), 128))
            c.all(o.Write(p_mem.whole))
            c.all(o.FenceProxyAsync())
            c.all(o.BarSync(C(1), 128))
            multiply(c, out.whole, p_mem.whole, ring.stage(k, 1024), pending=2 if wrong else 1)
        c.all(o.WgmmaWait(0))
    return b.protocol()


def one_ring_for_both(wrong: bool) -> Protocol:
    """K and V take the stages of one ring in turn: uses 2k and 2k + 1; wrong: V's is given back as K's."""
    b = Build("one ring for both")
    kt = b.symbol("kt")
    ring = b.pipeline("kv", 4, 1024, consumers=1)
    s, out = b.buffer("s", 64, Space.REGISTER), b.buffer("o", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("k", kt):
            load(p, ring, g)
            load(p, ring, g + 1)
            p.advance(g, 2)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("k", kt):
            c.all(ring.consumer_wait(g))
            multiply(c, s.whole, ring.stage(g))
            c.one(ring.consumer_release(g))
            c.all(ring.consumer_wait(g + 1))
            multiply(c, out.whole, ring.stage(g + 1))
            c.one(ring.consumer_release(g if wrong else g + 1))
            c.advance(g, 2)
    return b.protocol()


def split_keys(wrong: bool) -> Protocol:
    """Two warpgroups work on halves of the keys and join their results through shared memory; wrong: the second one
    reads before the first one has arrived."""
    b = Build("split keys")
    kt = b.symbol("kt")
    rings = [b.pipeline(f"kv{w}", 2, 1024, consumers=1) for w in range(2)]
    acc = b.buffer("acc", 64, Space.REGISTER)
    partial = b.buffer("partial", 1024)
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            for ring in rings:
                load(p, ring, k)
    for w in range(2):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            with c.loop("k", kt) as k:
                c.all(rings[w].consumer_wait(k))
                multiply(c, acc.whole, rings[w].stage(k))
                c.one(rings[w].consumer_release(k))
            if w == 0:
                c.all(o.Read(acc.whole))
                c.all(o.Write(partial.whole))
                c.all(o.BarArrive(C(3), 256))
            else:
                if wrong:
                    c.all(o.Read(partial.whole))
                c.all(o.BarSync(C(3), 256))
                if not wrong:
                    c.all(o.Read(partial.whole))
    return b.protocol()


def query_for_every_tile(wrong: bool) -> Protocol:
    """Q has a ring of one stage, given back after the last product of a tile; wrong: after the first one."""
    b = Build("query for every tile")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", least=1, per="t")
    q, kv = b.pipeline("q", 1, 1024, consumers=1), b.pipeline("kv", 2, 1024, consumers=1)
    s = b.buffer("s", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        g, n = p.counter("g"), p.counter("n")
        with p.loop("t", tiles):
            load(p, q, n)
            p.advance(n)
            with p.loop("k", kt):
                load(p, kv, g)
                p.advance(g)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g, n = c.counter("g"), c.counter("n")
        with c.loop("t", tiles):
            c.all(q.consumer_wait(n))
            with c.loop("k", kt) as k:
                c.all(kv.consumer_wait(g))
                multiply(c, s.whole, q.stage(n), kv.stage(g))
                if wrong:
                    with c.when(k.eq(0)):
                        c.one(q.consumer_release(n))
                c.one(kv.consumer_release(g))
                c.advance(g)
            if not wrong:
                c.one(q.consumer_release(n))
            c.advance(n)
    return b.protocol()


ATTENTION = (
    Entry(backward, ("MBR018",)),
    Entry(probabilities_through_memory, ("MBR017", "MBR023")),
    Entry(one_ring_for_both, ("MBR012", "MBR014", "MBR015")),
    Entry(split_keys, ("MBR016",)),
    Entry(query_for_every_tile, ("MBR017",)),
)
