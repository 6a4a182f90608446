"""Epilogues: tiles that go through shared memory on their way out, and kernels that only move data."""

from __future__ import annotations

from gallery.entry import Entry
from support.pipeline_roles import load
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

C = o.Const


def two_stores_in_flight(wrong: bool) -> Protocol:
    """Two staging buffers in turn; before one is written again, the store of two turns ago must have read it. Wrong:
    two stores may still be reading."""
    b = Build("two stores in flight")
    tiles = b.symbol("tiles")
    staging = b.buffer("staging", 2048)
    with b.role("epilogue", 128) as e:
        with e.loop("t", tiles) as t:
            e.one(o.BulkWait(2 if wrong else 1, read=True))
            e.all(o.BarSync(C(1), 128))
            e.all(o.Write(staging.at(t % 2 * 1024, 1024)))
            e.all(o.FenceProxyAsync())
            e.all(o.BarSync(C(1), 128))
            e.one(o.TmaStore(staging.at(t % 2 * 1024, 1024)))
            e.one(o.BulkCommit())
        e.one(o.BulkWait(0))
    return b.protocol()


def in_place(wrong: bool) -> Protocol:
    """C is loaded, changed where it lies, and stored from there; wrong: the next load does not wait for the store."""
    b = Build("in place")
    tiles = b.symbol("tiles")
    tile, full = b.buffer("tile", 1024), b.mbarrier("full")
    with b.role("epilogue", 128) as e:
        b.init(e)
        with e.loop("t", tiles) as t:
            if not wrong:
                e.one(o.BulkWait(0, read=True))
            e.one(o.ArriveExpectTx(full[0], 1024))
            e.one(o.TmaLoad(tile.whole, full[0]))
            e.all(o.Wait(full[0], t % 2))
            e.all(o.Read(tile.whole, private=True))
            e.all(o.Write(tile.whole, private=True))
            e.all(o.FenceProxyAsync())
            e.all(o.BarSync(C(1), 128))
            e.one(o.TmaStore(tile.whole))
            e.one(o.BulkCommit())
        e.one(o.BulkWait(0))
    return b.protocol()


def transposed_copy(wrong: bool) -> Protocol:
    """Tiles come by TMA, go through the threads to a second buffer and out by TMA; wrong: the threads write it while
    others have yet to leave the turn before (the join is missing)."""
    b = Build("transposed copy")
    tiles = b.symbol("tiles")
    ring = b.pipeline("x", 2, 1024, consumers=1)
    out = b.buffer("out", 1024)
    with b.role("load", 32) as p:
        b.init(p)
        with p.loop("t", tiles) as t:
            load(p, ring, t)
    with b.role("turn", 128) as c:
        b.sync(c)
        with c.loop("t", tiles) as t:
            c.all(ring.consumer_wait(t))
            c.one(o.BulkWait(0, read=True))
            if not wrong:
                c.all(o.BarSync(C(1), 128))
            c.all(ring.read(t))
            c.all(o.Write(out.whole))
            c.all(o.FenceProxyAsync())
            c.all(o.BarSync(C(2), 128))
            c.one(ring.consumer_release(t))
            c.one(o.TmaStore(out.whole))
            c.one(o.BulkCommit())
        c.one(o.BulkWait(0))
    return b.protocol()


def row_sums(wrong: bool) -> Protocol:
    """Warps sum their parts through shared memory; wrong: one join a turn, so that a fast warp writes its next sum
    before a slow one has read the last."""
    b = Build("row sums")
    rows = b.symbol("rows")
    sums = b.buffer("sums", 128)
    with b.role("all", 128) as r, r.loop("i", rows):
        r.all(o.Write(sums.whole))
        r.all(o.CtaSync())
        r.all(o.Read(sums.whole))
        if not wrong:
            r.all(o.CtaSync())
    return b.protocol()


def row_sums_in_turn(wrong: bool) -> Protocol:
    """The same with two buffers in turn and one join; wrong: the buffers go with the rows of two turns."""
    b = Build("row sums in turn")
    rows = b.symbol("rows")
    sums = b.buffer("sums", 256)
    with b.role("all", 128) as r, r.loop("i", rows) as i:
        where = (i // 2 if wrong else i) % 2 * 128
        r.all(o.Write(sums.at(where, 128)))
        r.all(o.CtaSync())
        r.all(o.Read(sums.at(where, 128)))
    return b.protocol()


def stored_by_another_warp(wrong: bool) -> Protocol:
    """A warp of its own issues the stores and says when the staging bytes were read; wrong: when it has issued them."""
    b = Build("stored by another warp")
    tiles = b.symbol("tiles")
    ring = b.pipeline("staging", 2, 1024, consumers=1, producers=128)
    with b.role("store", 32) as s:
        b.init(s)
        with s.loop("t", tiles) as t:
            s.one(ring.consumer_wait(t))
            s.one(o.TmaStore(ring.stage(t)))
            s.one(o.BulkCommit())
            if not wrong:
                s.one(o.BulkWait(0, read=True))
            s.one(ring.consumer_release(t))
        s.one(o.BulkWait(0))
    with b.role("idle", 96) as i:
        b.sync(i)
    with b.role("epilogue", 128) as e:
        b.sync(e)
        with e.loop("t", tiles) as t:
            e.all(ring.producer_acquire(t))
            e.all(o.Write(ring.stage(t)))
            e.all(o.FenceProxyAsync())
            e.all(o.Arrive(ring.full[ring.slot(t)]))
    return b.protocol()


def barriers_for_data(wrong: bool) -> Protocol:
    """A barrier's words are used for data once it is no longer needed; wrong: one thread ends its life while others may
    still wait on it."""
    b = Build("barriers for data")
    full, x = b.mbarrier("full"), b.buffer("x", 1024)
    with b.role("all", 128) as r:
        b.init(r)
        r.one(o.ArriveExpectTx(full[0], 1024))
        r.one(o.TmaLoad(x.whole, full[0]))
        r.all(o.Wait(full[0], C(0)))
        r.all(o.Read(x.whole))
        if not wrong:
            r.all(o.CtaSync())
        r.one(o.MbarrierInval("full"))
    return b.protocol()


def registers_given_on(wrong: bool) -> Protocol:
    """The producer gives up registers, two consumers take them; wrong: more than it gave."""
    b = Build("registers given on", registers_per_thread=168)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=2)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        p.all(o.Setmaxnreg(40))
        with p.loop("k", kt) as k:
            load(p, ring, k)
    for w in range(2):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            c.all(o.Setmaxnreg(240 if wrong else 232))
            with c.loop("k", kt) as k:
                c.all(ring.consumer_wait(k))
                c.all(o.WgmmaFence())
                c.all(o.Wgmma(acc.whole, (ring.stage(k),)))
                c.all(o.WgmmaCommit())
                c.all(o.WgmmaWait(0))
                c.one(ring.consumer_release(k))
    return b.protocol()


EPILOGUES = (
    Entry(two_stores_in_flight, ("MBR017", "MBR023")),
    Entry(in_place, ("MBR017", "MBR023")),
    Entry(transposed_copy, ("MBR017", "MBR023")),
    Entry(row_sums, ("MBR017",)),
    Entry(row_sums_in_turn, ("MBR017",)),
    Entry(stored_by_another_warp, ("MBR017", "MBR023")),
    Entry(barriers_for_data, ("MBR021",)),
    Entry(registers_given_on, ("MBR012", "MBR028")),
)
