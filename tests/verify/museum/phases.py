"""Phases, parities, transaction bytes and arrival counts gone wrong."""

from __future__ import annotations

from museum.exhibit import Exhibit, rewritten
from support.pipeline_roles import drain, fill
from tilewright.base.expr import minimum
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

C = o.Const


def tr_01(fixed: bool) -> Protocol:
    """All warps wait, one arrives, nothing joins them: the leader laps the ring."""
    b = Build("tr_01")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    fill(b, ring, kt)
    for name in ("lead", "follow"):
        with drain(b, ring, kt, name, 32) as (c, k):
            if fixed:
                c.all(o.BarSync(C(1), 64))
            if name == "lead":
                c.one(ring.consumer_release(k))
    return b.protocol()


def tl_01(fixed: bool) -> Protocol:
    """A barrier of one slot is waited for with the parity of a ring of three."""
    b = Build("tl_01")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    done = b.mbarrier("done")
    acc = b.buffer("acc", 32, Space.TMEM)
    with b.role("all", 32) as r:
        b.init(r)
        r.all(o.Tcgen05Alloc("acc"))
        b.sync(r)
        with r.loop("k", kt) as k:
            r.one(ring.producer_commit(k))
            r.one(ring.load(k))
            r.one(ring.consumer_wait(k))
            r.one(o.Tcgen05Mma(acc.whole, (ring.stage(k),)))
            r.one(o.Tcgen05Commit(done[0]))
            r.one(o.Wait(done[0], k % 2 if fixed else k // 3 % 2))
        r.all(o.WarpSync())
        r.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


def tl_02(fixed: bool) -> Protocol:
    """The phase is worked out from k anew in every tile instead of from a counter carried along."""
    b = Build("tl_02")
    tiles, kt = b.symbol("tiles"), b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=128)
    with b.role("producer", 32) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt) as k:
            i = g if fixed else k
            p.one(ring.producer_acquire(i))
            p.one(ring.producer_commit(i))
            p.one(ring.load(i))
            p.advance(g)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("t", tiles), c.loop("k", kt) as k:
            i = g if fixed else k
            c.all(ring.consumer_wait(i))
            c.all(ring.read(i))
            c.all(o.FenceProxyAsync())
            c.all(ring.consumer_release(i))
            c.advance(g)
    return b.protocol()


def _one_load(name: str, box: int, expect: tuple[o.Op, ...]) -> Protocol:
    b = Build(name)
    data, full = b.buffer("data", 2048), b.mbarrier("full")
    with b.role("producer", 32) as p:
        b.init(p)
        for op in expect:
            p.one(op)
        p.one(o.TmaLoad(data.at(0, box), full[0]))
    with b.role("consumer", 32) as c:
        b.sync(c)
        c.all(o.Wait(full[0], C(0)))
        c.all(o.Read(data.at(0, 1024)))
    return b.protocol()


def tl_03(fixed: bool) -> Protocol:
    """expect_tx without its arrive."""
    full = o.Slot("full")
    return _one_load("tl_03", 2048, (o.ExpectTx(full, 2048), o.Arrive(full)) if fixed else (o.ExpectTx(full, 2048),))


def xx_02(fixed: bool) -> Protocol:
    """8 x 64 elements of 2 bytes are expected where the descriptor's box delivers 16 x 64."""
    return _one_load("xx_02", 8 * 64 * 2 if fixed else 16 * 64 * 2, (o.ArriveExpectTx(o.Slot("full"), 8 * 64 * 2),))


def xx_10(fixed: bool) -> Protocol:
    """Two warps with four loads each share six mbarriers: load 4 j + k of warp j is tracked by slot (4 j + k) % 6."""
    b = Build("xx_10")
    turns = b.symbol("turns")
    slots = 8 if fixed else 6
    data, full = b.buffer("data", 8 * 1024), b.mbarrier("full", slots)
    for j in range(2):
        with b.role(f"warp{j}", 32) as w:
            if j == 0:
                b.init(w)
            else:
                b.sync(w)
            with w.loop("i", turns) as i:
                for k in range(4):
                    bar, part = full[(8 * i + 4 * j + k) % slots], data.at((4 * j + k) * 1024, 1024)
                    w.one(o.ArriveExpectTx(bar, 1024))
                    w.one(o.TmaLoad(part, bar))
                for k in range(4):
                    w.one(o.Wait(full[(8 * i + 4 * j + k) % slots], i % 2))
    return b.protocol()


def fa_05(fixed: bool) -> Protocol:
    """Two roles work out the trip count differently."""
    b = Build("fa_05")
    kt, packed = b.symbol("kt"), b.symbol("kt_packed")
    ring = b.pipeline("ab", 2, 1024, consumers=128)
    fill(b, ring, kt if fixed else packed)
    with drain(b, ring, kt) as (c, k):
        c.all(ring.read(k))
        c.all(o.FenceProxyAsync())
        c.all(ring.consumer_release(k))
    return b.protocol()


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
    """Block-sparse attention: in an empty tile softmax arrives on p_full though no MMA will consume P, and goes on to
    the correction role without waiting for its turn. The twin makes the one handshake and no other arrival."""
    b = Build("fa_04")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", per="t")
    p_full, p_empty = b.mbarrier("p_full", count=128), b.mbarrier("p_empty", count=32)
    corr_full, corr_empty = b.mbarrier("corr_full", count=128), b.mbarrier("corr_empty", count=128)
    with b.role("softmax", 128) as s:
        b.init(s)
        n = s.counter("n")
        with s.loop("t", tiles) as t:
            if not fixed:
                with s.when(kt.eq(0)):
                    s.all(o.Arrive(p_full[0]))
            with s.loop("k", kt):
                s.all(o.Wait(p_empty[0], (n + 1) % 2))
                s.all(o.Arrive(p_full[0]))
                s.advance(n)
            if fixed:
                s.all(o.Wait(corr_empty[0], (t + 1) % 2))
            else:
                with s.when(kt > 0):
                    s.all(o.Wait(corr_empty[0], (t + 1) % 2))
            s.all(o.Arrive(corr_full[0]))
    with b.role("mma", 32) as m:
        b.sync(m)
        n = m.counter("n")
        with m.loop("t", tiles), m.loop("k", kt):
            m.all(o.Wait(p_full[0], n % 2))
            m.all(o.Arrive(p_empty[0]))
            m.advance(n)
    with b.role("correction", 128) as c:
        b.sync(c)
        with c.loop("t", tiles) as t:
            c.all(o.Wait(corr_full[0], t % 2))
            c.all(o.Arrive(corr_empty[0]))
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


PHASES = (
    Exhibit("TR-01", tr_01, "MBR013", ("+BarSync", "+BarSync")),
    Exhibit("TL-01", tl_01, "MBR014", rewritten("Wait")),
    Exhibit("TL-02", tl_02, "MBR014", rewritten("Wait", "ArriveExpectTx", "TmaLoad", "Wait", "Read", "Arrive")),
    Exhibit("TL-03", tl_03, "MBR012", ("+Arrive",)),
    Exhibit("XX-02", xx_02, "MBR012", rewritten("TmaLoad")),
    Exhibit("XX-10", xx_10, "MBR015", rewritten(*("ArriveExpectTx", "TmaLoad", "Wait") * 8)),
    Exhibit("FA-05", fa_05, "MBR012", rewritten("Loop")),
    Exhibit("FI-01", fi_01, "MBR012", rewritten("If")),
    Exhibit("FA-04", fa_04, "MBR015", ("-If", "-Arrive", "-Else", "-If", "-Wait", "-Else", "+Wait")),
    Exhibit("TK-05", tk_05, "MBR012", rewritten("If")),
)
