"""Split-K in a cluster: the second CTA sends its partial tile to the first one's shared memory."""

from __future__ import annotations

from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

TILE = 16384


def dsmem_reduce(stages: int = 2) -> Protocol:
    """Both CTAs run a main loop; CTA 1 copies its sum to CTA 0, which adds and stores."""
    b = Build("split_k_dsmem", cluster=2)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", stages, 32768, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    partial, inbox = b.buffer("partial", TILE), b.buffer("inbox", TILE)
    arrived = b.mbarrier("arrived")
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
        b.sync(p)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k))
            c.all(o.WgmmaFence())
            c.all(o.Wgmma(acc.whole, (ring.stage(k),)))
            c.all(o.WgmmaCommit())
            c.all(o.WgmmaWait(0))
            c.one(ring.consumer_release(k))
        c.all(o.Read(acc.whole))
        first, second = sym("cta").eq(0), sym("cta").eq(1)
        with c.when(first):
            c.one(o.ArriveExpectTx(arrived[0], TILE))
        with c.when(second):
            c.all(o.Write(partial.whole))
            c.all(o.FenceProxyAsync())
            c.all(o.BarSync(o.Const(1), 128))
            c.one(o.DsmemCopy(partial.whole, inbox.at(0, TILE, cta=0), arrived.of(0)))
        with c.when(first):
            c.all(o.Wait(arrived[0], o.Const(0)))
            c.all(o.Read(inbox.whole))
        b.sync(c)
    return b.protocol()
