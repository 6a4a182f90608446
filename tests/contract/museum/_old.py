"""Real bugs re-created: each function gives the buggy protocol, or its twin with the cited fix."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.expr import minimum, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, Scope
from tilewright.protocol import ops as o

C = o.Const
Exhibit = Callable[[bool], Protocol]


def _generic_ring(name: str, fence: str) -> Protocol:
    """TMA fills a ring, a warpgroup reads it with ld.shared; ``fence``: consumer, producer or none."""
    b = Build(name)
    kt = b.symbol("kt")
    ring = b.ring("ab", 2, 1024, consumers=128)
    with b.role("producer", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.wait_empty(k))
            if fence == "producer":
                p.one(o.FenceProxyAsync())
            p.one(ring.expect(k))
            p.one(ring.load(k))
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.wait_full(k))
            c.all(ring.read(k))
            if fence == "consumer":
                c.all(o.FenceProxyAsync())
            c.all(ring.release(k))
    return b.protocol()


def fa_02(fixed: bool) -> Protocol:
    """A stage read with ld.shared goes back to the TMA producer without a proxy fence."""
    return _generic_ring("fa_02", "consumer" if fixed else "none")


def xx_04(fixed: bool) -> Protocol:
    """The same, mended on the producer's side: between the wait and the load."""
    return _generic_ring("xx_04", "producer" if fixed else "none")


def te_01(fixed: bool) -> Protocol:
    """The same with CTA barriers in place of an empty barrier."""
    b = Build("te_01")
    kt = b.symbol("kt")
    data, full = b.buffer("data", 1024), b.mbarrier("full")
    with b.role("all", 128) as r:
        b.init(r)
        with r.loop("k", kt) as k:
            r.one(o.ArriveExpectTx(full[0], 1024))
            r.one(o.TmaLoad(data.whole, full[0]))
            r.all(o.Wait(full[0], k % 2))
            r.all(o.Read(data.whole))
            if fixed:
                r.all(o.FenceProxyAsync())
            r.all(o.CtaSync())
    return b.protocol()


def _store_loop(name: str, *, wait_all: bool, join: bool, fence_first: bool = True, fence: bool = True) -> Protocol:
    b = Build(name)
    kt = b.symbol("kt")
    d = b.buffer("d", 1024)
    with b.role("math", 128) as r, r.loop("k", kt):
        (r.all if wait_all else r.one)(o.BulkWait(0, read=True))
        if join:
            r.all(o.BarSync(C(1), 128))
        r.all(o.Write(d.whole))
        if fence and fence_first:
            r.all(o.FenceProxyAsync())
        r.all(o.BarSync(C(1), 128))
        if fence and not fence_first:
            r.all(o.FenceProxyAsync())
        r.one(o.TmaStore(d.whole))
        r.one(o.BulkCommit())
    builder = b
    role = builder._roles[0]  # pyright: ignore[reportPrivateUsage]
    role.one(o.BulkWait(0))
    return b.protocol()


def dg_01(fixed: bool) -> Protocol:
    """Only the issuing thread waits for its store; the others rewrite the staging bytes at once."""
    return _store_loop("dg_01", wait_all=False, join=fixed)


def te_02(fixed: bool) -> Protocol:
    """Every thread waits, but the groups belong to the leader."""
    return _store_loop("te_02", wait_all=True, join=fixed)


def xx_05(fixed: bool) -> Protocol:
    """The proxy fence stands behind the barrier instead of before it."""
    return _store_loop("xx_05", wait_all=False, join=True, fence_first=fixed)


def xx_06(fixed: bool) -> Protocol:
    """The only fence is inside a loop that may run zero times."""
    b = Build("xx_06")
    kt = b.symbol("kt")
    d = b.buffer("d", 1024)
    with b.role("all", 128) as r:
        r.all(o.Write(d.whole))
        with r.loop("k", kt):
            r.all(o.FenceProxyAsync())
        if fixed:
            r.all(o.FenceProxyAsync())
        r.all(o.CtaSync())
        r.one(o.TmaStore(d.whole))
        r.one(o.BulkCommit())
        r.one(o.BulkWait(0))
    return b.protocol()


def tr_01(fixed: bool) -> Protocol:
    """All warps wait, one arrives, nothing joins them: the leader laps the ring."""
    b = Build("tr_01")
    kt = b.symbol("kt")
    ring = b.ring("ab", 2, 1024, consumers=1)
    with b.role("producer", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.wait_empty(k))
            p.one(ring.expect(k))
            p.one(ring.load(k))
    for name in ("lead", "follow"):
        with b.role(name, 32) as c:
            b.sync(c)
            with c.loop("k", kt) as k:
                c.all(ring.wait_full(k))
                if fixed:
                    c.all(o.BarSync(C(1), 64))
                if name == "lead":
                    c.one(ring.release(k))
    return b.protocol()


def _parity(name: str, carried: bool, slots: int, ring_parity: bool = False) -> Protocol:
    b = Build(name)
    tiles, kt = b.symbol("tiles"), b.symbol("kt")
    ring = b.ring("ab", slots, 1024, consumers=128)
    with b.role("producer", 32) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt) as k:
            i = g if carried else k
            p.one(ring.wait_empty(i))
            p.one(ring.expect(i))
            p.one(ring.load(i))
            p.advance(g)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("t", tiles), c.loop("k", kt) as k:
            i = g if carried else k
            c.all(ring.wait_full(i))
            c.all(ring.read(i))
            c.all(o.FenceProxyAsync())
            c.all(ring.release(i))
            c.advance(g)
    return b.protocol()


def tl_02(fixed: bool) -> Protocol:
    """The phase is worked out from k anew in every tile."""
    return _parity("tl_02", fixed, 2)


def tl_01(fixed: bool) -> Protocol:
    """A barrier of one slot is waited for with the parity of a ring of three."""
    b = Build("tl_01")
    kt = b.symbol("kt")
    ring = b.ring("ab", 3, 1024, consumers=1)
    done = b.mbarrier("done")
    acc = b.buffer("acc", 32, Space.TMEM)
    with b.role("all", 32) as r:
        b_all = r
        b_all.one(o.MbarrierInit("ab_full"))
        b_all.one(o.MbarrierInit("done"))
        b_all.one(o.FenceMbarrierInit())
        b_all.all(o.Tcgen05Alloc("acc"))
        b.sync(b_all)
        with r.loop("k", kt) as k:
            r.one(ring.expect(k))
            r.one(ring.load(k))
            r.one(ring.wait_full(k))
            r.one(o.Tcgen05Mma(acc.whole, (ring.stage(k),)))
            r.one(o.Tcgen05Commit(done[0]))
            r.one(o.Wait(done[0], k % 2 if fixed else k // 3 % 2))
        r.all(o.WarpSync())
        r.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


def _one_load(name: str, expect: o.Op | None, arrive: bool, size: int = 2048) -> Protocol:
    b = Build(name)
    data, full = b.buffer("data", size), b.mbarrier("full")
    with b.role("producer", 32) as p:
        b.init(p)
        if expect is not None:
            p.one(expect)
        if arrive:
            p.one(o.Arrive(full[0]))
        p.one(o.TmaLoad(data.whole, full[0]))
    with b.role("consumer", 32) as c:
        b.sync(c)
        c.all(o.Wait(full[0], C(0)))
        c.all(o.Read(data.whole))
    return b.protocol()


def tl_03(fixed: bool) -> Protocol:
    """expect_tx without its arrive."""
    return _one_load("tl_03", o.ExpectTx(o.Slot("full"), 2048), fixed)


def xx_02(fixed: bool) -> Protocol:
    """1024 bytes are expected where the descriptor's box delivers 2048."""
    return _one_load("xx_02", o.ArriveExpectTx(o.Slot("full"), 1024), False, 1024 if fixed else 2048)


def fi_02(fixed: bool) -> Protocol:
    """bar.arrive runs a tile ahead of its partner's bar.sync."""
    b = Build("fi_02")
    tiles = b.symbol("tiles")
    box = b.buffer("box", 1024)
    with b.role("math", 64) as m, m.loop("t", tiles) as t:
        m.all(o.BarSync(2 + t % 2, 96) if fixed else o.BarSync(C(3), 64))
        m.all(o.BarArrive(C(1), 96))
    with b.role("io", 32) as i, i.loop("t", tiles) as t:
        if fixed:
            i.all(o.BarArrive(2 + t % 2, 96))
        i.all(o.BarSync(C(1), 96))
    assert box
    return b.protocol()


def _tmem(name: str, *, wait_st: bool = True, wait_ld: bool = True, fences: bool = True, join: bool = True) -> Protocol:
    """Softmax writes P to tensor memory, the MMA warp reads it and accumulates, a third role reads the result."""
    b = Build(name)
    kt = b.symbol("kt")
    p_full, o_full, o_empty = b.mbarrier("p_full", count=128), b.mbarrier("o_full"), b.mbarrier("o_empty", count=128)
    p_mem, o_mem = b.buffer("p", 64, Space.TMEM), b.buffer("o", 64, Space.TMEM)
    v = b.buffer("v", 1024, initialised=True)
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("p"))
        m.all(o.Tcgen05Alloc("o"))
        b.init(m)
        with m.loop("k", kt) as k:
            m.one(o.Wait(o_empty[0], (k + 1) % 2))
            m.one(o.Wait(p_full[0], k % 2))
            m.one(o.Tcgen05FenceAfter())
            m.one(o.Tcgen05Mma(o_mem.whole, (p_mem.whole, v.whole)))
            m.one(o.Tcgen05Commit(o_full[0]))
        if join:
            m.all(o.BarSync(C(2), 160))
        m.all(o.Tcgen05Dealloc("p"))
        m.all(o.Tcgen05Dealloc("o"))
    with b.role("softmax", 128) as s:
        b.sync(s)
        with s.loop("k", kt) as k:
            s.all(o.Tcgen05St(p_mem.whole))
            if wait_st:
                s.all(o.Tcgen05WaitSt())
            s.all(o.Tcgen05FenceBefore())
            s.all(o.Arrive(p_full[0]))
            s.all(o.Wait(o_full[0], k % 2))
            if fences:
                s.all(o.Tcgen05FenceAfter())
            s.all(o.Tcgen05Ld(o_mem.whole))
            if wait_ld:
                s.all(o.Tcgen05WaitLd())
            if fences:
                s.all(o.Tcgen05FenceBefore())
            s.all(o.Arrive(o_empty[0]))
        s.all(o.Tcgen05WaitLd())
        s.all(o.Tcgen05WaitSt())
        if join:
            s.all(o.BarSync(C(2), 160))
    return b.protocol()


def fa_03(fixed: bool) -> Protocol:
    """P is published without tcgen05.wait::st."""
    return _tmem("fa_03", wait_st=fixed)


def xx_19(fixed: bool) -> Protocol:
    """A tensor-memory slot is released without tcgen05.wait::ld."""
    return _tmem("xx_19", wait_ld=fixed)


def dg_04(fixed: bool) -> Protocol:
    """No tcgen05 fences around the hand-over."""
    return _tmem("dg_04", fences=fixed)


def fa_01(fixed: bool) -> Protocol:
    """The MMA warp frees tensor memory while others may still load."""
    return _tmem("fa_01", join=fixed)


def tr_02(fixed: bool) -> Protocol:
    """An MMA operand written with st.shared, without a proxy fence."""
    b = Build("tr_02")
    a, acc, done = b.buffer("a", 1024), b.buffer("acc", 32, Space.TMEM), b.mbarrier("done")
    with b.role("all", 128) as r:
        b.init(r)
        r.all(o.Tcgen05Alloc("acc"))
        r.all(o.Write(a.whole))
        if fixed:
            r.all(o.FenceProxyAsync())
        r.all(o.CtaSync())
        r.one(o.Tcgen05Mma(acc.whole, (a.whole,)))
        r.one(o.Tcgen05Commit(done[0]))
        r.all(o.Wait(done[0], C(0)))
        r.all(o.CtaSync())
        r.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


def fa_09(fixed: bool) -> Protocol:
    """One elected thread releases a stage that 127 others are still reading."""
    b = Build("fa_09")
    kt = b.symbol("kt")
    ring = b.ring("v", 2, 1024, consumers=1)
    with b.role("producer", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.wait_empty(k))
            p.one(ring.expect(k))
            p.one(ring.load(k))
    with b.role("transpose", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.wait_full(k))
            c.all(ring.read(k))
            c.all(o.FenceProxyAsync())
            if fixed:
                c.all(o.BarSync(C(1), 128))
            c.one(ring.release(k))
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
    """wgmma.wait_group stands behind the barrier that releases the stage."""
    b = Build("xx_08")
    kt = b.symbol("kt")
    data, full, acc = b.buffer("data", 1024), b.mbarrier("full"), b.buffer("acc", 64, Space.REGISTER)
    with b.role("all", 128) as r:
        b.init(r)
        with r.loop("k", kt) as k:
            r.one(o.ArriveExpectTx(full[0], 1024))
            r.one(o.TmaLoad(data.whole, full[0]))
            r.all(o.Wait(full[0], k % 2))
            r.all(o.WgmmaFence())
            r.all(o.Wgmma(acc.whole, (data.whole,)))
            r.all(o.WgmmaCommit())
            if fixed:
                r.all(o.WgmmaWait(0))
            r.all(o.BarSync(C(1), 128))
        r.all(o.WgmmaWait(0))
    return b.protocol()


def _roles_disagree(name: str, fixed: bool) -> Protocol:
    b = Build(name)
    kt, other = b.symbol("kt"), b.symbol("kt_packed")
    ring = b.ring("ab", 2, 1024, consumers=128)
    with b.role("producer", 32) as p:
        b.init(p)
        with p.loop("k", kt if fixed else other) as k:
            p.one(ring.wait_empty(k))
            p.one(ring.expect(k))
            p.one(ring.load(k))
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.wait_full(k))
            c.all(ring.read(k))
            c.all(o.FenceProxyAsync())
            c.all(ring.release(k))
    return b.protocol()


def fa_05(fixed: bool) -> Protocol:
    """Two roles work out the trip count differently."""
    return _roles_disagree("fa_05", fixed)


def fi_01(fixed: bool) -> Protocol:
    """An empty tile: the producer skips it, the consumer waits once all the same."""
    b = Build("fi_01")
    kt = b.symbol("kt")
    data, full = b.buffer("data", 1024), b.mbarrier("full")
    with b.role("producer", 32) as p:
        b.init(p)
        with p.when(kt > 0):
            p.one(o.ArriveExpectTx(full[0], 1024))
            p.one(o.TmaLoad(data.whole, full[0]))
    with b.role("consumer", 32) as c:
        b.sync(c)
        with c.when(kt > 0 if fixed else kt >= 0):
            c.all(o.Wait(full[0], C(0)))
            c.all(o.Read(data.whole))
    return b.protocol()


def fa_04(fixed: bool) -> Protocol:
    """Two empty tiles in a row: arrivals on a barrier that nobody waits for in such a tile."""
    b = Build("fa_04")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", per="t")
    p_full, p_empty = b.mbarrier("p_full", count=128), b.mbarrier("p_empty", count=32)
    with b.role("softmax", 128) as s:
        b.init(s)
        n = s.counter("n")
        with s.loop("t", tiles):
            if not fixed:
                with s.when(kt.eq(0)):
                    s.all(o.Arrive(p_full[0]))
            with s.loop("k", kt):
                s.all(o.Wait(p_empty[0], (n + 1) % 2))
                s.all(o.Arrive(p_full[0]))
                s.advance(n)
    with b.role("mma", 32) as m:
        b.sync(m)
        n = m.counter("n")
        with m.loop("t", tiles), m.loop("k", kt):
            m.all(o.Wait(p_full[0], n % 2))
            m.all(o.Arrive(p_empty[0]))
            m.advance(n)
    return b.protocol()


def tk_08(fixed: bool) -> Protocol:
    """The barrier array is initialised one slot short."""
    b = Build("tk_08")
    done = b.mbarrier("done", slots=3)
    with b.role("a", 32) as a:
        a.one(o.MbarrierInit("done", None if fixed else 2))
        b.sync(a)
        a.one(o.Arrive(done[2]))
    with b.role("b", 32) as r:
        b.sync(r)
        r.all(o.Wait(done[2], C(0)))
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


def jx_01(fixed: bool) -> Protocol:
    """The kernel ends with its store in flight."""
    b = Build("jx_01")
    d = b.buffer("d", 1024, initialised=True)
    with b.role("all", 32) as r:
        r.one(o.TmaStore(d.whole))
        r.one(o.BulkCommit())
        if fixed:
            r.one(o.BulkWait(0))
    return b.protocol()


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


def xx_14(fixed: bool) -> Protocol:
    """An aligned bar.sync completed by two roles from different sites."""
    b = Build("xx_14")
    for name in ("a", "b"):
        with b.role(name, 160) as r:
            r.all(o.BarSync(C(2), 320, aligned=not fixed))
    return b.protocol()


def xx_17(fixed: bool) -> Protocol:
    """A mailbox of one slot is rewritten without waiting for its readers."""
    b = Build("xx_17")
    tiles = b.symbol("tiles")
    box = b.buffer("box", 16)
    ready, free = b.mbarrier("ready"), b.mbarrier("free", count=64)
    with b.role("scheduler", 32) as s:
        b.init(s)
        with s.loop("t", tiles) as t:
            if fixed:
                s.one(o.Wait(free[0], (t + 1) % 2))
            s.one(o.Write(box.whole))
            s.one(o.Arrive(ready[0]))
    with b.role("readers", 64) as r:
        b.sync(r)
        with r.loop("t", tiles) as t:
            r.all(o.Wait(ready[0], t % 2))
            r.all(o.Read(box.whole))
            r.all(o.Arrive(free[0]))
    return b.protocol()


def tk_05(fixed: bool) -> Protocol:
    """An empty range is tested with ==, so a page is not given back when the range is negative."""
    b = Build("tk_05")
    length = b.symbol("length", least=-2)
    page = b.mbarrier("page")
    with b.role("consumer", 32) as c:
        b.init(c)
        with c.loop("k", minimum(length, 1)):
            c.one(o.Arrive(page[0]))
        with c.when(length <= 0 if fixed else length.eq(0)):
            c.one(o.Arrive(page[0]))
    with b.role("loader", 32) as p:
        b.sync(p)
        p.all(o.Wait(page[0], C(0)))
    return b.protocol()


EXHIBITS: dict[str, tuple[Exhibit, tuple[str, ...]]] = {
    "FA-01": (fa_01, ("MBR029",)),
    "FA-02": (fa_02, ("MBR020",)),
    "FA-03": (fa_03, ("MBR016", "MBR023", "MBR018")),
    "FA-04": (fa_04, ("MBR010", "MBR012", "MBR013", "MBR014", "MBR015")),
    "FA-05": (fa_05, ("MBR012", "MBR024")),
    "FA-09": (fa_09, ("MBR017",)),
    "DG-01": (dg_01, ("MBR017", "MBR023")),
    "DG-04": (dg_04, ("MBR030",)),
    "DG-08": (dg_08, ("MBR023",)),
    "TL-01": (tl_01, ("MBR014", "MBR017", "MBR023", "MBR012")),
    "TL-02": (tl_02, ("MBR012", "MBR014", "MBR013")),
    "TL-03": (tl_03, ("MBR012",)),
    "TR-01": (tr_01, ("MBR013",)),
    "TR-02": (tr_02, ("MBR019",)),
    "TR-07": (tr_07, ("MBR012",)),
    "TK-05": (tk_05, ("MBR012",)),
    "TK-08": (tk_08, ("MBR021",)),
    "FI-01": (fi_01, ("MBR012",)),
    "FI-02": (fi_02, ("MBR026",)),
    "TE-01": (te_01, ("MBR020",)),
    "TE-02": (te_02, ("MBR017", "MBR023")),
    "JX-01": (jx_01, ("MBR024",)),
    "XX-02": (xx_02, ("MBR011", "MBR012")),
    "XX-03": (xx_03, ("MBR016",)),
    "XX-04": (xx_04, ("MBR020",)),
    "XX-05": (xx_05, ("MBR019",)),
    "XX-06": (xx_06, ("MBR019",)),
    "XX-08": (xx_08, ("MBR018", "MBR017", "MBR023")),
    "XX-11": (xx_11, ("MBR022", "MBR021")),
    "XX-14": (xx_14, ("MBR027",)),
    "XX-17": (xx_17, ("MBR015", "MBR017", "MBR013", "MBR016")),
    "XX-19": (xx_19, ("MBR017", "MBR018", "MBR023")),
}
"""Per entry of ``tests/data/real_bugs.json``: the protocol, and the codes that name its bug rightly."""
