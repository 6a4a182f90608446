"""Rings filled by cp.async: the multistage loop of Ampere, and producer warps that arrive on mbarriers."""

from __future__ import annotations

from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o


def multistage(stages: int = 3) -> Protocol:
    """Every thread copies its part ``stages - 1`` iterations ahead; one CTA barrier an iteration."""
    b = Build("cp_async_multistage")
    kt = b.symbol("kt")
    data = b.buffer("ab", stages * 16384)
    ahead = stages - 1
    with b.role("all", 256) as r:
        for i in range(ahead):
            with r.when(kt > i):
                r.all(o.CpAsync(data.at(i * 16384, 16384)))
            r.all(o.CpAsyncCommit())
        with r.loop("k", kt) as k:
            r.all(o.CpAsyncWait(ahead - 1))
            r.all(o.CtaSync())
            with r.when(k + ahead < kt):
                r.all(o.CpAsync(data.at((k + ahead) % stages * 16384, 16384)))
            r.all(o.CpAsyncCommit())
            r.all(o.Read(data.at(k % stages * 16384, 16384)))
        r.all(o.CpAsyncWait(0))
    return b.protocol()


def producer_warps(stages: int = 4) -> Protocol:
    """A warpgroup gathers rows by cp.async and arrives when they land; the consumers fence before wgmma reads them."""
    b = Build("cp_async_producer")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", stages, 16384, consumers=1, producers=128)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.all(ring.producer_acquire(k))
            p.all(o.CpAsync(ring.stage(k)))
            p.all(o.CpAsyncArrive(ring.full[ring.slot(k)]))
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt):
            k = sym("k")
            c.all(ring.consumer_wait(k))
            c.all(o.FenceProxyAsync())
            c.all(o.WgmmaFence())
            c.all(o.Wgmma(acc.whole, (ring.stage(k),)))
            c.all(o.WgmmaCommit())
            c.all(o.WgmmaWait(0))
            c.one(ring.consumer_release(k))
    return b.protocol()
