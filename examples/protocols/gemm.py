"""GEMM main loops as they run on Hopper: cooperative, ping-pong, and with multicast in a cluster of two."""

from __future__ import annotations

from tilewright.base.expr import Expr, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, PipelineHandle, Protocol, RoleBuilder, Scope
from tilewright.protocol import ops as o
from tilewright.protocol.build import BufferHandle

STAGE = 32768


def _stage_bytes(stages: int) -> int:
    """Those of ``STAGE``, or less where so many stages would take more than 128 KiB of shared memory."""
    return min(STAGE, 131072 // stages // 1024 * 1024)


def _main_loop(c: RoleBuilder, ring: PipelineHandle, acc: BufferHandle, g: Expr, kt: Expr) -> None:
    """One wgmma group stays in flight: stage g - 1 is released once the group of stage g was issued."""
    with c.loop("k", kt) as k:
        c.all(ring.consumer_wait(g))
        c.all(o.WgmmaFence())
        c.all(o.Wgmma(acc.whole, (ring.stage(g),)))
        c.all(o.WgmmaCommit())
        with c.when(k > 0):
            c.all(o.WgmmaWait(1))
            c.one(ring.consumer_release(g - 1))
        c.advance(g)
    with c.when(kt > 0):
        c.all(o.WgmmaWait(0))
        c.one(ring.consumer_release(g - 1))


def _store_tile(c: RoleBuilder, acc: BufferHandle, d: BufferHandle, bar: int) -> None:
    """The TMA-store epilogue: the staging bytes are free once their last store has read them."""
    c.one(o.BulkWait(0, read=True))
    c.all(o.BarSync(o.Const(bar), 128))
    c.all(o.Read(acc.whole))
    c.all(o.Write(d.whole))
    c.all(o.FenceProxyAsync())
    c.all(o.BarSync(o.Const(bar), 128))
    c.one(o.TmaStore(d.whole))
    c.one(o.BulkCommit())


def cooperative(stages: int = 4, consumers: int = 2, persistent: bool = True) -> Protocol:
    """A producer warpgroup and ``consumers`` warpgroups that share every tile."""
    stage = _stage_bytes(stages)
    b = Build("gemm_cooperative")
    tiles = b.symbol("tiles", most=None if persistent else 1)
    kt = b.symbol("kt", per="t")
    ring = b.pipeline("ab", stages, stage, consumers)
    acc = b.buffer("acc", 256, Space.REGISTER)
    staging = [b.buffer(f"d{w}", 16384) for w in range(consumers)]
    low, high = {1: (40, 232), 2: (40, 232), 3: (32, 160)}[consumers]
    b.registers_per_thread = {1: 136, 2: 168, 3: 128}[consumers]
    with b.role("producer", 128) as p:
        b.init(p)
        p.all(o.Setmaxnreg(low))
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt):
            p.one(ring.producer_acquire(g))
            p.one(ring.producer_commit(g))
            p.one(ring.load(g, 0, stage // 2))
            p.one(ring.load(g, stage // 2, stage // 2))
            p.advance(g)
    for w in range(consumers):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            c.all(o.Setmaxnreg(high))
            g = c.counter("g")
            with c.loop("t", tiles):
                _main_loop(c, ring, acc, g, kt)
                _store_tile(c, acc, staging[w], 1 + w)
            c.one(o.BulkWait(0))
    return b.protocol()


def pingpong(stages: int = 4) -> Protocol:
    """Two consumer warpgroups take tiles in turn; order barriers keep their main loops apart, so that one's epilogue
    runs under the other's main loop. Each skips the other's ring slots."""
    stage = _stage_bytes(stages)
    b = Build("gemm_pingpong")
    tiles, kt = b.symbol("tiles"), b.symbol("kt", per="t")
    ring = b.pipeline("ab", stages, stage, 1)
    acc = b.buffer("acc", 256, Space.REGISTER)
    staging = [b.buffer(f"d{w}", 16384) for w in range(2)]
    with b.role("producer", 128) as p:
        b.init(p)
        p.all(o.Setmaxnreg(40))
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt):
            p.one(ring.producer_acquire(g))
            p.one(ring.producer_commit(g))
            p.one(ring.load(g))
            p.advance(g)
    for w in range(2):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            c.all(o.Setmaxnreg(232))
            g = c.counter("g")
            if w == 1:
                c.all(o.BarArrive(o.Const(3), 256))  # the first turn is consumer 0's
            with c.loop("t", tiles):
                mine = (sym("t") % 2).eq(w)
                with c.when(mine):
                    c.all(o.BarSync(o.Const(3 + w), 256))
                    _main_loop(c, ring, acc, g, kt)
                    c.all(o.BarArrive(o.Const(4 - w), 256))
                    _store_tile(c, acc, staging[w], 1 + w)
                with c.when((sym("t") % 2).ne(w)):
                    c.advance(g, kt)
            c.one(o.BulkWait(0))
    return b.protocol()


def multicast(stages: int = 4) -> Protocol:
    """A cluster of two: each CTA loads its own A and half of the shared B, which goes to both. A stage is free when the
    consumers of both CTAs have read it."""
    stage = _stage_bytes(stages)
    b = Build("gemm_multicast", cluster=2)
    tiles, kt = b.symbol("tiles"), b.symbol("kt", per="t")
    ring = b.pipeline("ab", stages, stage, consumers=2)
    acc = b.buffer("acc", 256, Space.REGISTER)
    half, quarter = stage // 2, stage // 4
    with b.role("producer", 128) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt):
            p.one(ring.producer_acquire(g, Scope.CLUSTER))
            p.one(ring.producer_commit(g))
            p.one(ring.load(g, 0, half))
            p.one(ring.load(g, half + sym("cta") * quarter, quarter, ctas=(0, 1)))
            p.advance(g)
        b.sync(p)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        with c.loop("t", tiles), c.loop("k", kt):
            c.all(ring.consumer_wait(g))
            c.all(o.WgmmaFence())
            c.all(o.Wgmma(acc.whole, (ring.stage(g),)))
            c.all(o.WgmmaCommit())
            c.all(o.WgmmaWait(0))
            c.one(ring.consumer_release(g, cta=0, scope=Scope.CLUSTER))
            c.one(ring.consumer_release(g, cta=1, scope=Scope.CLUSTER))
            c.advance(g)
        b.sync(c)
    return b.protocol()
