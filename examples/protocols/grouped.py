"""Grouped GEMM: the producer rewrites the tensor map for every group before it loads with it."""

from __future__ import annotations

from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o


def tensormap_update(stages: int = 3) -> Protocol:
    """Before the rewrite the producer waits until every load that uses the old map has been consumed."""
    b = Build("grouped_gemm")
    groups, kt = b.symbol("groups"), b.symbol("kt", per="t")
    ring = b.pipeline("ab", stages, 32768, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    tensormap = b.buffer("tensormap", 128, Space.GLOBAL)
    with b.role("producer", 32) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("t", groups):
            for s in range(stages):
                p.one(ring.producer_acquire(g + s))
            p.one(o.TensormapReplace(tensormap.whole))
            p.all(o.WarpSync())
            p.one(o.TensormapRelease(tensormap.whole))
            p.one(o.TensormapAcquire(tensormap.whole))
            with p.loop("k", kt):
                p.one(ring.producer_acquire(g))
                p.one(ring.producer_commit(g))
                p.one(o.TmaLoad(ring.stage(g), ring.full[ring.slot(g)], tensormap=tensormap.whole))
                p.advance(g)
    with b.role("idle", 96) as i:
        b.sync(i)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("t", groups), c.loop("k", kt):
            c.all(ring.consumer_wait(g))
            c.all(o.WgmmaFence())
            c.all(o.Wgmma(acc.whole, (ring.stage(g),)))
            c.all(o.WgmmaCommit())
            c.all(o.WgmmaWait(0))
            c.one(ring.consumer_release(g))
            c.advance(g)
    return b.protocol()
