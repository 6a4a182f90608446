"""A Blackwell GEMM: TMA warp, MMA warp, epilogue warps, and accumulators in tensor memory, two deep."""

from __future__ import annotations

from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

COLUMNS = 128


def gemm(stages: int = 4) -> Protocol:
    """The epilogue of a tile runs under the MMA of the next: tmem_full and tmem_empty hand the accumulators over."""
    b = Build("blackwell_gemm")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", least=1, per="t")
    ring = b.pipeline("ab", stages, min(32768, 131072 // stages), consumers=1)
    full, empty = b.mbarrier("tmem_full", 2), b.mbarrier("tmem_empty", 2, count=128)
    acc = b.buffer("acc", 2 * COLUMNS, Space.TMEM)
    with b.role("load", 32) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt):
            p.one(ring.producer_acquire(g))
            p.one(ring.producer_commit(g))
            p.one(ring.load(g))
            p.advance(g)
        p.all(o.CtaSync())
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("acc"))
        m.all(o.Tcgen05Relinquish())
        b.sync(m)
        g = m.counter("g")
        with m.loop("t", tiles) as t:
            m.one(o.Wait(empty[t % 2], (t // 2 + 1) % 2))
            m.one(o.Tcgen05FenceAfter())
            with m.loop("k", kt):
                m.one(ring.consumer_wait(g))
                m.one(o.Tcgen05FenceAfter())
                m.one(o.Tcgen05Mma(acc.at(t % 2 * COLUMNS, COLUMNS), (ring.stage(g),)))
                m.one(o.Tcgen05Commit(ring.empty[ring.slot(g)]))
                m.advance(g)
            m.one(o.Tcgen05Commit(full[t % 2]))
        m.all(o.CtaSync())
        m.all(o.Tcgen05Dealloc("acc"))
    with b.role("idle", 64) as i:
        b.sync(i)
        i.all(o.CtaSync())
    with b.role("epilogue", 128) as e:
        b.sync(e)
        with e.loop("t", tiles) as t:
            e.all(o.Wait(full[t % 2], t // 2 % 2))
            e.all(o.Tcgen05FenceAfter())
            e.all(o.Tcgen05Ld(acc.at(t % 2 * COLUMNS, COLUMNS)))
            e.all(o.Tcgen05WaitLd())
            e.all(o.Tcgen05FenceBefore())
            e.all(o.Arrive(empty[t % 2]))
        e.all(o.CtaSync())
    return b.protocol()
