"""Bytes and registers used again before everybody is done with them."""

from __future__ import annotations

from museum.exhibit import Exhibit, rewritten
from museum.fences import store_loop
from support.pipeline_roles import drain, fill, fill_once
from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, Scope
from tilewright.protocol import ops as o

C = o.Const


def dg_01(fixed: bool) -> Protocol:
    """Only the issuing thread waits for its store; the others rewrite the staging bytes at once."""
    return store_loop("dg_01", join=fixed)


def te_02(fixed: bool) -> Protocol:
    """Every thread waits, but the groups belong to the leader."""
    return store_loop("te_02", join=fixed, all_wait=True)


def fa_09(fixed: bool) -> Protocol:
    """One elected thread releases a stage that 127 others are still reading."""
    b = Build("fa_09")
    kt = b.symbol("kt")
    ring = b.pipeline("v", 2, 1024, consumers=1)
    fill(b, ring, kt)
    with drain(b, ring, kt, "transpose") as (c, k):
        c.all(ring.read(k))
        c.all(o.FenceProxyAsync())
        if fixed:
            c.all(o.BarSync(C(1), 128))
        c.one(ring.consumer_release(k))
    return b.protocol()


def xx_03(fixed: bool) -> Protocol:
    """32 lanes store, one arrives after its own fence only."""
    b = Build("xx_03")
    data, full = b.buffer("data", 1024), b.mbarrier("full")
    with b.role("writer", 32) as w:
        b.init(w)
        w.all(o.Write(data.whole))
        w.all(o.FenceProxyAsync())
        if fixed:
            w.all(o.WarpSync())
        w.one(o.Arrive(full[0]))
    with b.role("store", 32) as s:
        b.sync(s)
        s.one(o.Wait(full[0], C(0)))
        s.one(o.TmaStore(data.whole))
        s.one(o.BulkCommit())
        s.one(o.BulkWait(0))
    return b.protocol()


def xx_17(fixed: bool) -> Protocol:
    """A mailbox of one slot is rewritten without word from its five readers."""
    b = Build("xx_17")
    tiles = b.symbol("tiles")
    box = b.buffer("tile_info", 16)
    ready, free = b.mbarrier("ready"), b.mbarrier("tile_info_free", count=5)
    with b.role("scheduler", 32) as s:
        b.init(s)
        with s.loop("t", tiles) as t:
            if fixed:
                s.one(o.Wait(free[0], (t + 1) % 2))
            s.one(o.Write(box.whole))
            s.one(o.Arrive(ready[0]))
    for i in range(5):
        with b.role(f"reader{i}", 32) as r:
            b.sync(r)
            with r.loop("t", tiles) as t:
                r.one(o.Wait(ready[0], t % 2))
                r.one(o.Read(box.whole))
                if fixed:
                    r.one(o.Arrive(free[0]))
    return b.protocol()


def dg_08(fixed: bool) -> Protocol:
    """A fragments in registers are rewritten while wgmma still reads them."""
    b = Build("dg_08")
    kt = b.symbol("kt")
    a, acc = b.buffer("a", 32, Space.REGISTER), b.buffer("acc", 64, Space.REGISTER)
    w = b.buffer("w", 1024, initialised=True)
    with b.role("math", 128) as r:
        with r.loop("k", kt):
            r.all(o.Write(a.whole))
            r.all(o.WgmmaFence())
            r.all(o.Wgmma(acc.whole, (a.whole, w.whole)))
            r.all(o.WgmmaCommit())
            if fixed:
                r.all(o.WgmmaWait(0))
        r.all(o.WgmmaWait(0))
    return b.protocol()


def xx_08(fixed: bool) -> Protocol:
    """wgmma.wait_group stands behind the barrier that frees the stage for the next load."""
    b = Build("xx_08")
    kt = b.symbol("kt")
    data, full, acc = b.buffer("data", 1024), b.mbarrier("full"), b.buffer("acc", 64, Space.REGISTER)
    for w in range(2):
        with b.role(f"warpgroup{w}", 128) as r:
            (b.sync if w else b.init)(r)
            with r.loop("k", kt) as k:
                if w == 0:
                    fill_once(r, data.whole, full[0])
                r.all(o.Wait(full[0], k % 2))
                r.all(o.WgmmaFence())
                r.all(o.Wgmma(acc.whole, (data.whole,)))
                r.all(o.WgmmaCommit())
                if fixed:
                    r.all(o.WgmmaWait(0))
                r.all(o.CtaSync())
                if not fixed:
                    r.all(o.WgmmaWait(0))
    return b.protocol()


def tr_06(fixed: bool) -> Protocol:
    """A cluster barrier in software: its phase word lies in shared memory, is read by all warps and toggled by a
    leader, who may run ahead of a warp that has yet to read it."""
    b = Build("tr_06", cluster=2)
    rounds = b.symbol("rounds")
    word, bar = b.buffer("phase_word", 4, initialised=True), b.mbarrier("cluster_bar", count=2)
    with b.role("all", 64) as r:
        b.init(r)
        with r.loop("i", rounds) as i:
            r.all(o.CtaSync())
            r.one(o.Arrive(bar[0]))
            r.one(o.Arrive(bar.of(1 - sym("cta")), scope=Scope.CLUSTER))
            r.all(o.Read(word.whole))
            r.all(o.Wait(bar[0], i % 2, Scope.CLUSTER))
            if fixed:
                r.all(o.CtaSync())
            r.one(o.Write(word.whole))
        b.sync(r)
    return b.protocol()


def jx_01(fixed: bool) -> Protocol:
    """The kernel ends with its store to a peer in flight."""
    b = Build("jx_01")
    d = b.buffer("d", 1024, initialised=True)
    with b.role("all", 32) as r:
        r.one(o.TmaStore(d.whole))
        r.one(o.BulkCommit())
        if fixed:
            r.one(o.BulkWait(0))
    return b.protocol()


def _pair_operands(name: str, *, written: bool = False, told: bool = True, scope: Scope = Scope.CLUSTER) -> Protocol:
    """The leader of a CTA pair multiplies scale factors that lie in both CTAs' shared memory.

    They come by TMA, or are ``written`` by each CTA; the leader is ``told`` of the peer's, by an arrive of ``scope``.
    """
    b = Build(name, cluster=2)
    full, ready, done = b.mbarrier("full"), b.mbarrier("peer_full"), b.mbarrier("done")
    sfb, acc = b.buffer("sfb", 1024), b.buffer("acc", 64, Space.TMEM)
    leads, follows = sym("cta").eq(0), sym("cta").eq(1)
    with b.role("load", 32) as p:
        b.init(p)
        if written:
            p.one(o.Write(sfb.whole))
            p.one(o.FenceProxyAsync())
            with p.when(leads):
                p.one(o.Arrive(full[0]))
        else:
            fill_once(p, sfb.whole, full[0])
        with p.when(follows):
            if not written:
                p.one(o.Wait(full[0], C(0)))
            if told:
                p.one(o.Arrive(ready.of(0), scope=scope))
        b.sync(p)
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("acc", cta_group=2))
        b.sync(m)
        with m.when(leads):
            m.one(o.Wait(full[0], C(0)))
            if told:
                m.one(o.Wait(ready[0], C(0), Scope.CLUSTER))
            m.one(o.Tcgen05Mma(acc.whole, (sfb.whole,), cta_group=2))
            m.one(o.Tcgen05Commit(done[0], (C(0), C(1))))
        m.one(o.Wait(done[0], C(0)))
        b.sync(m)
        m.all(o.Tcgen05Dealloc("acc", cta_group=2))
    return b.protocol()


def cu_03_wait(fixed: bool) -> Protocol:
    """The leader waits for its own scale factors only; the peer's are tracked by the peer's barrier."""
    return _pair_operands("cu_03_wait", told=fixed)


def cu_03_scope(fixed: bool) -> Protocol:
    """The peer tells the leader by an arrive of .cta scope, which hands no generic writes to another CTA."""
    return _pair_operands("cu_03_scope", written=True, scope=Scope.CLUSTER if fixed else Scope.CTA)


REUSE = (
    Exhibit("DG-01", dg_01, "MBR023", ("+BarSync",)),
    Exhibit("TE-02", te_02, "MBR023", ("+BarSync",)),
    Exhibit("FA-09", fa_09, "MBR017", ("+BarSync",)),
    Exhibit("XX-03", xx_03, "MBR016", ("+WarpSync",)),
    Exhibit("XX-17", xx_17, "MBR017", ("+Wait", *("+Arrive",) * 5)),
    Exhibit("DG-08", dg_08, "MBR023", ("+WgmmaWait",)),
    Exhibit("XX-08", xx_08, "MBR017", rewritten("WgmmaWait", "WgmmaWait")),
    Exhibit("TR-06", tr_06, "MBR017", ("+CtaSync",)),
    Exhibit("JX-01", jx_01, "MBR024", ("+BulkWait",)),
    Exhibit("CU-03", cu_03_wait, "MBR016", ("+Arrive", "+Wait")),
    Exhibit("CU-03", cu_03_scope, "MBR016", rewritten("Arrive")),
)
