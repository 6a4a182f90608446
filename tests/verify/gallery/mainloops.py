"""Main loops of Hopper GEMMs: who fills the rings, who reads them, and when a stage is given back."""

from __future__ import annotations

from gallery.entry import Entry, multiply
from support.pipeline_roles import drain, fill, load
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

C = o.Const


def mixed_input(wrong: bool) -> Protocol:
    """A warpgroup converts what TMA loaded and hands it on through a second ring; wrong: no proxy fence behind."""
    b = Build("mixed input")
    kt = b.symbol("kt")
    raw = b.pipeline("raw", 2, 1024, consumers=1)
    ready = b.pipeline("ready", 2, 2048, consumers=1, producers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("load", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            load(p, raw, k)
    with b.role("idle", 96) as i:
        b.sync(i)
    with drain(b, raw, kt, "convert") as (t, k):
        t.all(ready.producer_acquire(k))
        t.all(raw.read(k))
        t.all(o.Write(ready.stage(k)))
        if not wrong:
            t.all(o.FenceProxyAsync())
        t.all(o.BarSync(C(1), 128))
        t.one(raw.consumer_release(k))
        t.one(o.Arrive(ready.full[ready.slot(k)]))
    with drain(b, ready, kt, "multiply") as (c, k):
        multiply(c, acc.whole, ready.stage(k))
        c.one(ready.consumer_release(k))
    return b.protocol()


def two_producers(wrong: bool) -> Protocol:
    """One warp loads A, another one B, into one stage with one barrier; wrong: B's does not wait for the stage."""
    b = Build("two producers")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 2048, consumers=1, producers=2)
    acc = b.buffer("acc", 64, Space.REGISTER)
    for half, name in enumerate(("a", "b")):
        with b.role(name, 32) as p:
            if half == 0:
                b.init(p)
            else:
                b.sync(p)
            with p.loop("k", kt) as k:
                if half == 0 or not wrong:
                    p.one(ring.producer_acquire(k))
                p.one(ring.producer_commit(k, 1024))
                p.one(ring.load(k, 1024 * half, 1024))
    with b.role("idle", 64) as i:
        b.sync(i)
    with drain(b, ring, kt) as (c, k):
        multiply(c, acc.whole, ring.stage(k))
        c.one(ring.consumer_release(k))
    return b.protocol()


def gathered_rows(wrong: bool) -> Protocol:
    """Four rows by cp.async.bulk, expected together; wrong: three are expected."""
    b = Build("gathered rows")
    kt = b.symbol("kt")
    ring = b.pipeline("rows", 2, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k, 768 if wrong else 1024))
            for row in range(4):
                p.one(o.TmaLoad(ring.stage(k, 256 * row, 256), ring.full[ring.slot(k)], tensor=False))
    with drain(b, ring, kt) as (c, k):
        multiply(c, acc.whole, ring.stage(k))
        c.one(ring.consumer_release(k))
    return b.protocol()


def scales_by_threads(wrong: bool) -> Protocol:
    """A stage filled by TMA and, its scales, by cp.async of all threads, tracked by one barrier; wrong: the consumer
    multiplies without a proxy fence for the latter."""
    b = Build("scales by threads")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 2048, consumers=1, producers=129)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.all(ring.producer_acquire(k))
            p.one(ring.producer_commit(k, 1536))
            p.one(ring.load(k, 0, 1536))
            p.all(o.CpAsync(ring.stage(k, 1536)))
            p.all(o.CpAsyncArrive(ring.full[ring.slot(k)]))
    with drain(b, ring, kt) as (c, k):
        if not wrong:
            c.all(o.FenceProxyAsync())
        multiply(c, acc.whole, ring.stage(k))
        c.one(ring.consumer_release(k))
    return b.protocol()


def released_two_late(wrong: bool) -> Protocol:
    """Two groups stay in flight, stages are given back two turns late and at the end of the tile; wrong: the end of a
    tile gives back one of the two."""
    b = Build("released two late")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", least=2, per="t")
    ring = b.pipeline("ab", 4, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt):
            load(p, ring, g)
            p.advance(g)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("t", tiles):
            with c.loop("k", kt) as k:
                c.all(ring.consumer_wait(g))
                multiply(c, acc.whole, ring.stage(g), pending=2)
                with c.when(k >= 2):
                    c.one(ring.consumer_release(g - 2))
                c.advance(g)
            c.all(o.WgmmaWait(0))
            if not wrong:
                c.one(ring.consumer_release(g - 2))
            c.one(ring.consumer_release(g - 1))
    return b.protocol()


def two_level_accumulation(wrong: bool) -> Protocol:
    """Every product is added to a second accumulator by the threads; wrong: while it is still in flight."""
    b = Build("two-level accumulation")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    partial, total = b.buffer("partial", 64, Space.REGISTER), b.buffer("total", 64, Space.REGISTER)
    fill(b, ring, kt, threads=128)
    with drain(b, ring, kt) as (c, k):
        multiply(c, partial.whole, ring.stage(k), pending=int(wrong))
        c.all(o.Read(partial.whole))
        c.all(o.Write(total.whole))
        if wrong:
            c.all(o.WgmmaWait(0))
        c.one(ring.consumer_release(k))
    return b.protocol()


def filled_before(wrong: bool) -> Protocol:
    """The first stages are loaded before the loop, which then keeps the ring full: turn k loads for turn k + 2; wrong:
    it does so before its own stage was read."""
    b = Build("filled before")
    kt = b.symbol("kt")
    data, full = b.buffer("ab", 2048), b.mbarrier("full", 2)
    with b.role("all", 128) as r:
        b.init(r)
        for i in range(2):
            with r.when(kt > i):
                r.one(o.ArriveExpectTx(full[i], 1024))
                r.one(o.TmaLoad(data.at(i * 1024, 1024), full[i]))
        with r.loop("k", kt) as k:
            r.all(o.Wait(full[k % 2], k // 2 % 2))
            if not wrong:
                r.all(o.Read(data.at(k % 2 * 1024, 1024)))
                r.all(o.FenceProxyAsync())
                r.all(o.CtaSync())
            with r.when(k + 2 < kt):
                r.one(o.ArriveExpectTx(full[k % 2], 1024))
                r.one(o.TmaLoad(data.at(k % 2 * 1024, 1024), full[k % 2]))
            if wrong:
                r.all(o.Read(data.at(k % 2 * 1024, 1024)))
                r.all(o.FenceProxyAsync())
                r.all(o.CtaSync())
    return b.protocol()


def operand_from_registers(wrong: bool) -> Protocol:
    """A is read to registers and multiplied from there; wrong: the next A is read while the product still uses them."""
    b = Build("operand from registers")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 3, 2048, consumers=1)
    acc, a = b.buffer("acc", 64, Space.REGISTER), b.buffer("a", 64, Space.REGISTER)
    fill(b, ring, kt, threads=128)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            c.all(o.Read(ring.stage(k, 0, 1024)))
            c.all(o.FenceProxyAsync())
            c.all(o.Write(a.whole))
            multiply(c, acc.whole, a.whole, ring.stage(k, 1024), pending=int(wrong))
            c.all(o.BarSync(C(1), 128))
            if wrong:
                with c.when(k > 0):
                    c.one(ring.consumer_release(k - 1))
            else:
                c.one(ring.consumer_release(k))
        c.all(o.WgmmaWait(0))
    return b.protocol()


MAIN_LOOPS = (
    Entry(mixed_input, ("MBR019",)),
    Entry(two_producers, ("MBR015",)),
    Entry(gathered_rows, ("MBR011",)),
    Entry(scales_by_threads, ("MBR019",)),
    Entry(released_two_late, ("MBR012",)),
    Entry(two_level_accumulation, ("MBR023",)),
    Entry(filled_before, ("MBR016", "MBR017")),
    Entry(operand_from_registers, ("MBR023",)),
)
