"""Tensor memory: waits, thread-sync fences, and lifetimes that end too early."""

from __future__ import annotations

from museum.exhibit import Exhibit, rewritten
from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, Scope
from tilewright.protocol import ops as o

C = o.Const
DONE = 2
"""Named barrier on which the MMA warp waits for the users of tensor memory."""


def _attention(
    name: str, *, wait_st: bool = True, wait_ld: bool = True, fences: bool = True, join: bool = True
) -> Protocol:
    """Softmax writes P to tensor memory, the MMA warp multiplies it, the correction role reads the result."""
    b = Build(name)
    kt = b.symbol("kt")
    p_full, p_empty = b.mbarrier("p_full", count=128), b.mbarrier("p_empty")
    o_full, o_empty = b.mbarrier("o_full"), b.mbarrier("o_empty", count=128)
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
            m.one(o.Tcgen05Commit(p_empty[0]))
            m.one(o.Tcgen05Commit(o_full[0]))
        if join:
            m.all(o.BarSync(C(DONE), 288))
        m.all(o.Tcgen05Dealloc("p"))
        m.all(o.Tcgen05Dealloc("o"))
    with b.role("softmax", 128) as s:
        b.sync(s)
        with s.loop("k", kt) as k:
            s.all(o.Wait(p_empty[0], (k + 1) % 2))
            s.all(o.Tcgen05FenceAfter())
            s.all(o.Tcgen05St(p_mem.whole))
            if wait_st:
                s.all(o.Tcgen05WaitSt())
            s.all(o.Tcgen05FenceBefore())
            s.all(o.Arrive(p_full[0]))
        s.all(o.Tcgen05WaitSt())
        if join:
            s.all(o.BarArrive(C(DONE), 288))
    with b.role("correction", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(o.Wait(o_full[0], k % 2))
            if fences:
                c.all(o.Tcgen05FenceAfter())
            c.all(o.Tcgen05Ld(o_mem.whole))
            if wait_ld:
                c.all(o.Tcgen05WaitLd())
            if fences:
                c.all(o.Tcgen05FenceBefore())
            c.all(o.Arrive(o_empty[0]))
        c.all(o.Tcgen05WaitLd())
        if join:
            c.all(o.BarArrive(C(DONE), 288))
    return b.protocol()


def fa_03(fixed: bool) -> Protocol:
    """P is published without tcgen05.wait::st."""
    return _attention("fa_03", wait_st=fixed)


def xx_19(fixed: bool) -> Protocol:
    """A tensor-memory slot is released without tcgen05.wait::ld."""
    return _attention("xx_19", wait_ld=fixed)


def dg_04(fixed: bool) -> Protocol:
    """No tcgen05 fences around the hand-over."""
    return _attention("dg_04", fences=fixed)


def fa_01(fixed: bool) -> Protocol:
    """The MMA warp frees tensor memory while others may still load."""
    return _attention("fa_01", join=fixed)


def _pair_gemm(name: str, *, fences: bool = True, ending: str = "cluster") -> Protocol:
    """A GEMM of CTA pairs: the leader's MMA fills both accumulators, each CTA stores its own.

    ``ending``: how the CTAs agree that tensor memory is free: 'cluster' barrier, 'peer' semaphore, or 'own' only.
    """
    b = Build(name, cluster=2)
    tiles = b.symbol("tiles")
    full, empty, finished = b.mbarrier("full"), b.mbarrier("outputs_finished", count=256), b.mbarrier("tmem_finished")
    x, acc = b.buffer("x", 1024, initialised=True), b.buffer("acc", 64, Space.TMEM)
    with b.role("mma", 32) as m:
        b.init(m)
        with m.when(sym("cta").eq(0)), m.loop("t", tiles) as t:
            m.one(o.Wait(empty[0], (t + 1) % 2, Scope.CLUSTER))
            if fences:
                m.one(o.Tcgen05FenceAfter())
            m.one(o.Tcgen05Mma(acc.whole, (x.whole,), cta_group=2))
            m.one(o.Tcgen05Commit(full[0], (C(0), C(1))))
        if ending == "cluster":
            b.sync(m)
        b.sync(m)
    with b.role("epilogue", 128) as e:
        e.all(o.Tcgen05Alloc("acc", cta_group=2))
        b.sync(e)
        with e.loop("t", tiles) as t:
            e.all(o.Wait(full[0], t % 2))
            e.all(o.Tcgen05FenceAfter())
            e.all(o.Tcgen05Ld(acc.whole))
            e.all(o.Tcgen05WaitLd())
            if fences:
                e.all(o.Tcgen05FenceBefore())
            e.all(o.Arrive(empty.of(0), scope=Scope.CLUSTER))
        e.all(o.BarSync(C(1), 128))
        if ending == "cluster":
            b.sync(e)
        if ending == "peer":
            e.one(o.Arrive(finished.of(1 - sym("cta")), scope=Scope.CLUSTER))
            e.all(o.Wait(finished[0], C(0), Scope.CLUSTER))
        e.all(o.Tcgen05Dealloc("acc", cta_group=2))
        b.sync(e)
    return b.protocol()


def dg_02(fixed: bool) -> Protocol:
    """The last epilogue warp frees the pair's tensor memory after its own CTA's work only."""
    return _pair_gemm("dg_02", ending="cluster" if fixed else "own")


def tk_01(fixed: bool) -> Protocol:
    """The same, mended by a semaphore: arrive at the peer, wait for one's own, then free."""
    return _pair_gemm("tk_01", ending="peer" if fixed else "own")


def tk_02(fixed: bool) -> Protocol:
    """No tcgen05 fences around the arrive at the leader."""
    return _pair_gemm("tk_02", fences=fixed)


def cu_02(fixed: bool) -> Protocol:
    """Without key tiles nothing orders the epilogue's read of the tensor-memory address with the alloc that wrote it.
    The twin allocates, and frees, only if there is a tile. The commit alone releases no generic write (the PTX ISA
    names none), so an arrive stands beside it."""
    b = Build("cu_02")
    kt = b.symbol("kt")
    full = b.mbarrier("full", count=2)
    address, acc = b.buffer("address", 4), b.buffer("acc", 64, Space.TMEM)
    x = b.buffer("x", 1024, initialised=True)
    any_tile = kt > 0
    least = any_tile if fixed else kt >= 0
    with b.role("mma", 32) as m:
        b.init(m)
        with m.when(least):
            m.all(o.Tcgen05Alloc("acc", address.whole))
        m.all(o.WarpSync())
        with m.loop("k", kt):
            m.one(o.Tcgen05Mma(acc.whole, (x.whole,)))
        with m.when(any_tile):
            m.one(o.Tcgen05Commit(full[0]))
            m.one(o.Arrive(full[0]))
    with b.role("epilogue", 32) as e:
        b.sync(e)
        with e.when(any_tile):
            e.all(o.Wait(full[0], C(0)))
            e.all(o.Tcgen05FenceAfter())
            e.all(o.Tcgen05Ld(acc.whole))
            e.all(o.Tcgen05WaitLd())
        with e.when(least):
            e.all(o.Read(address.whole))
            e.all(o.WarpSync())
            e.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


_FENCES = ("+Tcgen05FenceAfter", "+Tcgen05FenceBefore")

TENSOR_MEMORY = (
    Exhibit("FA-03", fa_03, "MBR016", ("+Tcgen05WaitSt",)),
    Exhibit("XX-19", xx_19, "MBR017", ("+Tcgen05WaitLd",)),
    Exhibit("DG-04", dg_04, "MBR030", _FENCES),
    Exhibit("FA-01", fa_01, "MBR029", ("+BarSync", "+BarArrive", "+BarArrive")),
    Exhibit("DG-02", dg_02, "MBR029", ("+ClusterArrive", "+ClusterWait") * 2),
    Exhibit("TK-01", tk_01, "MBR029", ("+Arrive", "+Wait")),
    Exhibit("TK-02", tk_02, "MBR030", _FENCES),
    Exhibit("CU-02", cu_02, "MBR016", rewritten("If", "If")),
)
