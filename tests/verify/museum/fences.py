"""Proxy fences that are missing, or stand on the wrong side of a barrier."""

from __future__ import annotations

from museum.exhibit import Exhibit, rewritten
from support.pipeline_roles import drain, fill, fill_once
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o


def _read_ring(name: str, consumer_fence: bool = False, producer_fence: bool = False) -> Protocol:
    """TMA fills a ring, a warpgroup reads it with ld.shared."""
    b = Build(name)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=128)
    fill(b, ring, kt, (o.FenceProxyAsync(),) if producer_fence else ())
    with drain(b, ring, kt) as (c, k):
        c.all(ring.read(k))
        if consumer_fence:
            c.all(o.FenceProxyAsync())
        c.all(o.BarSync(o.Const(1), 128))
        c.all(ring.consumer_release(k))
    return b.protocol()


def fa_02(fixed: bool) -> Protocol:
    """A stage read with ld.shared goes back to the TMA producer without a proxy fence."""
    return _read_ring("fa_02", consumer_fence=fixed)


def xx_04(fixed: bool) -> Protocol:
    """The same, mended on the producer's side: between the wait and the load."""
    return _read_ring("xx_04", producer_fence=fixed)


def te_01(fixed: bool) -> Protocol:
    """The same with CTA barriers in place of an empty barrier."""
    b = Build("te_01")
    kt = b.symbol("kt")
    data, full = b.buffer("data", 1024), b.mbarrier("full")
    with b.role("all", 128) as r:
        b.init(r)
        with r.loop("k", kt) as k:
            fill_once(r, data.whole, full[0])
            r.all(o.Wait(full[0], k % 2))
            r.all(o.Read(data.whole))
            if fixed:
                r.all(o.FenceProxyAsync())
            r.all(o.CtaSync())
    return b.protocol()


def store_loop(name: str, *, join: bool = True, all_wait: bool = False, fence_first: bool = True) -> Protocol:
    """An epilogue that stages tiles in shared memory and stores them by TMA."""
    b = Build(name)
    kt = b.symbol("kt")
    d = b.buffer("d", 1024)
    with b.role("math", 128) as r:
        with r.loop("k", kt):
            (r.all if all_wait else r.one)(o.BulkWait(0, read=True))
            if join:
                r.all(o.BarSync(o.Const(1), 128))
            r.all(o.Write(d.whole))
            if fence_first:
                r.all(o.FenceProxyAsync())
            r.all(o.BarSync(o.Const(2), 128))
            if not fence_first:
                r.all(o.FenceProxyAsync())
            r.one(o.TmaStore(d.whole))
            r.one(o.BulkCommit())
        r.one(o.BulkWait(0))
    return b.protocol()


def xx_05(fixed: bool) -> Protocol:
    """The proxy fence stands behind the barrier instead of before it."""
    return store_loop("xx_05", fence_first=fixed)


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
        r.all(o.Wait(done[0], o.Const(0)))
        r.all(o.CtaSync())
        r.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


FENCES = (
    Exhibit("FA-02", fa_02, "MBR020", ("+FenceProxyAsync",), lenient=True),
    Exhibit("XX-04", xx_04, "MBR020", ("+FenceProxyAsync",), lenient=True),
    Exhibit("TE-01", te_01, "MBR020", ("+FenceProxyAsync",), lenient=True),
    Exhibit("XX-05", xx_05, "MBR019", rewritten("FenceProxyAsync"), lenient=True),
    Exhibit("XX-06", xx_06, "MBR019", ("+FenceProxyAsync",)),
    Exhibit("TR-02", tr_02, "MBR019", ("+FenceProxyAsync",)),
)
