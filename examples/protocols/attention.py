"""Attention forward: Q once a tile, rings for K and V, a rotated loop, and order barriers between the warpgroups."""

from __future__ import annotations

from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o


def forward(stages: int = 2, consumers: int = 2, ordered: bool = True) -> Protocol:
    """Iteration j issues S[j] = Q K[j] and O += P[j-1] V[j-1] together; softmax of S[j] runs under the second.

    ``ordered`` adds the barriers that let the warpgroups take turns at the tensor cores (a speed device here).
    """
    b = Build("attention_forward")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", least=1, per="t")
    q = b.pipeline("q", 1, 32768, consumers)
    k_ring = b.pipeline("k", stages, min(32768, 65536 // stages), consumers)
    v_ring = b.pipeline("v", stages, min(32768, 65536 // stages), consumers)
    s, p_regs, out = (b.buffer(n, 64, Space.REGISTER) for n in ("s", "p", "o"))
    staging = [b.buffer(f"out{w}", 16384) for w in range(consumers)]
    with b.role("producer", 128) as p:
        b.init(p)
        g, t = p.counter("g"), p.counter("n")
        with p.loop("t", tiles):
            p.one(q.producer_acquire(t))
            p.one(q.producer_commit(t))
            p.one(q.load(t))
            p.advance(t)
            with p.loop("j", kt):
                for ring in (k_ring, v_ring):
                    p.one(ring.producer_acquire(g))
                    p.one(ring.producer_commit(g))
                    p.one(ring.load(g))
                p.advance(g)
    for w in range(consumers):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            g, n = c.counter("g"), c.counter("n")
            turn, other = o.Const(8 + w), o.Const(8 + (w + 1) % consumers)
            if ordered and w == consumers - 1:
                c.all(o.BarArrive(other, 256))
            with c.loop("t", tiles):
                c.all(q.consumer_wait(n))
                c.all(k_ring.consumer_wait(g))
                c.all(o.WgmmaFence())
                c.all(o.Wgmma(s.whole, (q.stage(n), k_ring.stage(g))))
                c.all(o.WgmmaCommit())
                c.all(o.WgmmaWait(0))
                c.one(k_ring.consumer_release(g))
                c.all(o.Read(s.whole))
                c.all(o.Write(p_regs.whole))
                with c.loop("j", kt, begin=1):
                    c.all(k_ring.consumer_wait(g + 1))
                    if ordered:
                        c.all(o.BarSync(turn, 256))
                    c.all(o.WgmmaFence())
                    c.all(o.Wgmma(s.whole, (q.stage(n), k_ring.stage(g + 1))))
                    c.all(o.WgmmaCommit())
                    c.all(v_ring.consumer_wait(g))
                    c.all(o.Wgmma(out.whole, (p_regs.whole, v_ring.stage(g))))
                    c.all(o.WgmmaCommit())
                    if ordered:
                        c.all(o.BarArrive(other, 256))
                    c.all(o.WgmmaWait(1))
                    c.one(k_ring.consumer_release(g + 1))
                    c.all(o.Read(s.whole))
                    c.all(o.WgmmaWait(0))
                    c.one(v_ring.consumer_release(g))
                    c.all(o.Write(p_regs.whole))
                    c.all(o.Write(out.whole))
                    c.advance(g)
                c.one(q.consumer_release(n))
                c.all(v_ring.consumer_wait(g))
                c.all(o.WgmmaFence())
                c.all(o.Wgmma(out.whole, (p_regs.whole, v_ring.stage(g))))
                c.all(o.WgmmaCommit())
                c.all(o.WgmmaWait(0))
                c.one(v_ring.consumer_release(g))
                c.advance(g)
                c.advance(n)
                c.one(o.BulkWait(0, read=True))
                c.all(o.BarSync(o.Const(1 + w), 128))
                c.all(o.Read(out.whole))
                c.all(o.Write(staging[w].whole))
                c.all(o.FenceProxyAsync())
                c.all(o.BarSync(o.Const(1 + w), 128))
                c.one(o.TmaStore(staging[w].whole))
                c.one(o.BulkCommit())
            c.one(o.BulkWait(0))
    return b.protocol()
