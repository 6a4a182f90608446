"""Suspicious and right: protocols that must stay clean."""

from __future__ import annotations

from collections.abc import Callable

from support.pipeline_roles import drain, fill, fill_once
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, RoleBuilder
from tilewright.protocol import ops as o

C = o.Const


def ok_02() -> Protocol:
    """The peek of CuTe DSL: a try_wait for the next stage above the MMA, whose answer the next turn looks at."""
    b = Build("ok_02")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    fill(b, ring, kt)
    with b.role("idle", 96) as i:
        b.sync(i)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.when(kt > 0):
            c.all(ring.consumer_try_wait(0))
        with c.loop("k", kt) as k:
            c.all(ring.consumer_wait(k, peeked=True))
            with c.when(k + 1 < kt):
                c.all(ring.consumer_try_wait(k + 1))
            c.all(o.WgmmaFence())
            c.all(o.Wgmma(acc.whole, (ring.stage(k),)))
            c.all(o.WgmmaCommit())
            c.all(o.WgmmaWait(0))
            c.one(ring.consumer_release(k))
    return b.protocol()


def ok_03() -> Protocol:
    """The fence that covers the reads stands earlier in the thread than the release, behind the last read."""
    b = Build("ok_03")
    kt = b.symbol("kt")
    ring = b.pipeline("lse", 2, 1024, consumers=128)
    d = b.buffer("ds", 1024)
    fill(b, ring, kt)
    with drain(b, ring, kt) as (c, k):
        c.all(ring.read(k))
        c.all(o.Write(d.whole, private=True))
        c.all(o.FenceProxyAsync())
        c.all(o.BarSync(C(1), 128))
        c.one(o.TmaStore(d.whole))
        c.one(o.BulkCommit())
        c.one(o.BulkWait(0))
        c.all(o.BarSync(C(1), 128))
        c.all(ring.consumer_release(k))
    return b.protocol()


def ok_07() -> Protocol:
    """wgmma reads, wait_group, join, arrive, TMA overwrite: asynchronous to asynchronous, no fence."""
    b = Build("ok_07")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    fill(b, ring, kt)
    with b.role("idle", 96) as i:
        b.sync(i)
    with drain(b, ring, kt) as (c, k):
        c.all(o.WgmmaFence())
        c.all(o.Wgmma(acc.whole, (ring.stage(k),)))
        c.all(o.WgmmaCommit())
        c.all(o.WgmmaWait(0))
        c.all(o.BarSync(C(1), 128))
        c.one(ring.consumer_release(k))
    return b.protocol()


def ok_08() -> Protocol:
    """nvcc's main loop: four copies of the body with constant stages and one flip of the phase register a turn, then a
    remainder loop that goes on with the same register."""
    b = Build("ok_08")
    turns, rest = b.symbol("turns"), b.symbol("rest", most=3)
    ring = b.pipeline("ab", 4, 64, consumers=32)

    def fill_stage(role: RoleBuilder, slot: o.Expr, phase: o.Expr) -> None:
        role.one(o.Wait(ring.empty[slot], (phase + 1) % 2))
        role.one(o.ArriveExpectTx(ring.full[slot], 64))
        role.one(o.TmaLoad(ring.data.at(slot * 64, 64), ring.full[slot]))

    def read_stage(role: RoleBuilder, slot: o.Expr, phase: o.Expr) -> None:
        role.all(o.Wait(ring.full[slot], phase % 2))
        role.all(o.Read(ring.data.at(slot * 64, 64)))
        role.all(o.FenceProxyAsync())
        role.all(o.Arrive(ring.empty[slot]))

    for name, stage in (("producer", fill_stage), ("consumer", read_stage)):
        with b.role(name, 32) as r:
            (b.init if stage is fill_stage else b.sync)(r)
            phase = r.counter("phase")
            with r.loop("k", turns):
                for s in range(4):
                    stage(r, C(s), phase)
                r.advance(phase)
            with r.loop("s", rest) as s:
                stage(r, s, phase)
    return b.protocol()


def ok_09() -> Protocol:
    """No proxy fence after the alloc's address write or the init of barriers of one CTA: a CTA barrier follows."""
    b = Build("ok_09")
    full, done = b.mbarrier("full"), b.mbarrier("done")
    data, address, acc = b.buffer("data", 1024), b.buffer("address", 4), b.buffer("acc", 64, Space.TMEM)
    with b.role("mma", 32) as m:
        for bar in ("full", "done"):
            m.one(o.MbarrierInit(bar))
        m.all(o.Tcgen05Alloc("acc", address.whole))
        b.sync(m)
        m.all(o.Read(address.whole))
        fill_once(m, data.whole, full[0])
        m.one(o.Wait(full[0], C(0)))
        m.one(o.Tcgen05Mma(acc.whole, (data.whole,)))
        m.one(o.Tcgen05Commit(done[0]))
        b.sync(m)
        m.all(o.Tcgen05Dealloc("acc"))
    with b.role("epilogue", 128) as e:
        b.sync(e)
        e.all(o.Read(address.whole))
        e.all(o.Wait(done[0], C(0)))
        e.all(o.Tcgen05FenceAfter())
        e.all(o.Tcgen05Ld(acc.whole))
        e.all(o.Tcgen05WaitLd())
        b.sync(e)
    return b.protocol()


DECOYS: dict[str, Callable[[], Protocol]] = {
    "OK-02": ok_02,
    "OK-03": ok_03,
    "OK-07": ok_07,
    "OK-08": ok_08,
    "OK-09": ok_09,
}
