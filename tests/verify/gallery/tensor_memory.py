"""Blackwell: accumulators and operands in tensor memory, handed between warps."""

from __future__ import annotations

from gallery.entry import Entry
from support.pipeline_roles import load
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

C = o.Const


def two_multipliers(wrong: bool) -> Protocol:
    """Two MMA warps, an accumulator each, which one epilogue empties in turn; wrong: it hands back the other's."""
    b = Build("two multipliers")
    tiles = b.symbol("tiles")
    x = b.buffer("x", 1024, initialised=True)
    acc = [b.buffer(f"acc{i}", 64, Space.TMEM) for i in range(2)]
    full = [b.mbarrier(f"full{i}") for i in range(2)]
    empty = [b.mbarrier(f"empty{i}", count=128) for i in range(2)]
    for i in range(2):
        with b.role(f"mma{i}", 32) as m:
            m.all(o.Tcgen05Alloc(f"acc{i}"))
            if i == 0:
                b.init(m)
            else:
                b.sync(m)
            with m.loop("t", tiles) as t:
                m.one(o.Wait(empty[i][0], (t + 1) % 2))
                m.one(o.Tcgen05FenceAfter())
                m.one(o.Tcgen05Mma(acc[i].whole, (x.whole,)))
                m.one(o.Tcgen05Commit(full[i][0]))
            m.all(o.CtaSync())
            m.all(o.Tcgen05Dealloc(f"acc{i}"))
    with b.role("idle", 64) as i:
        b.sync(i)
        i.all(o.CtaSync())
    with b.role("epilogue", 128) as e:
        b.sync(e)
        with e.loop("t", tiles) as t:
            for n in range(2):
                e.all(o.Wait(full[n][0], t % 2))
                e.all(o.Tcgen05FenceAfter())
                e.all(o.Tcgen05Ld(acc[n].whole))
                e.all(o.Tcgen05WaitLd())
                e.all(o.Tcgen05FenceBefore())
                e.all(o.Arrive(empty[1 - n if wrong else n][0]))
        e.all(o.CtaSync())
    return b.protocol()


def scales_in_tensor_memory(wrong: bool) -> Protocol:
    """Scales are copied to tensor memory by the thread that multiplies with them, in order; wrong: by another warp,
    which only commits to a barrier that nobody waits for in time."""
    b = Build("scales in tensor memory")
    kt = b.symbol("kt", least=1)
    ring = b.pipeline("ab", 2, 1024, consumers=1)
    acc, scales = b.buffer("acc", 64, Space.TMEM), b.buffer("scales", 32, Space.TMEM)
    done = b.mbarrier("done")
    with b.role("load", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            load(p, ring, k)
        p.all(o.CtaSync())
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("acc"))
        m.all(o.Tcgen05Alloc("scales"))
        b.sync(m)
        with m.loop("k", kt) as k:
            m.one(ring.consumer_wait(k))
            m.one(o.Tcgen05FenceAfter())
            if not wrong:
                m.one(o.Tcgen05Cp(scales.whole, ring.stage(k, 0, 64)))
            m.one(o.Tcgen05Mma(acc.whole, (ring.stage(k), scales.whole)))
            m.one(o.Tcgen05Commit(ring.empty[ring.slot(k)]))
        m.one(o.Tcgen05Commit(done[0]))
        m.one(o.Wait(done[0], C(0)))
        m.all(o.WarpSync())
        m.all(o.CtaSync())
        m.all(o.Tcgen05Dealloc("acc"))
        m.all(o.Tcgen05Dealloc("scales"))
    with b.role("other", 64) as i:
        b.sync(i)
        if wrong:
            with i.loop("k", kt) as k:
                i.one(ring.consumer_wait(k))
                i.one(o.Tcgen05Cp(scales.whole, ring.stage(k, 0, 64)))
        i.all(o.CtaSync())
    return b.protocol()


def addressed(wrong: bool) -> Protocol:
    """The address of the allocation goes through shared memory; wrong: the epilogue reads it before the CTA met."""
    b = Build("addressed")
    address, acc = b.buffer("address", 4), b.buffer("acc", 64, Space.TMEM)
    x, full = b.buffer("x", 64, initialised=True), b.mbarrier("full")
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("acc", address.whole))
        b.init(m)
        m.all(o.Read(address.whole))
        m.one(o.Tcgen05Mma(acc.whole, (x.whole,)))
        m.one(o.Tcgen05Commit(full[0]))
        m.all(o.CtaSync())
        m.all(o.Tcgen05Dealloc("acc"))
    with b.role("epilogue", 128) as e:
        if wrong:
            e.all(o.Read(address.whole))
        b.sync(e)
        if not wrong:
            e.all(o.Read(address.whole))
        e.all(o.Wait(full[0], C(0)))
        e.all(o.Tcgen05FenceAfter())
        e.all(o.Tcgen05Ld(acc.whole))
        e.all(o.Tcgen05WaitLd())
        e.all(o.CtaSync())
    return b.protocol()


def probabilities_over_scores(wrong: bool) -> Protocol:
    """Softmax reads S from tensor memory and writes P over it, which the second product reads; wrong: P is announced
    without wait::st."""
    b = Build("probabilities over scores")
    kt = b.symbol("kt")
    s_full, p_full, done = b.mbarrier("s_full"), b.mbarrier("p_full", count=128), b.mbarrier("done")
    sp, out = b.buffer("sp", 64, Space.TMEM), b.buffer("o", 64, Space.TMEM)
    x = b.buffer("x", 1024, initialised=True)
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("sp"))
        m.all(o.Tcgen05Alloc("o"))
        b.init(m)
        with m.loop("k", kt) as k:
            m.one(o.Tcgen05Mma(sp.whole, (x.whole,)))
            m.one(o.Tcgen05Commit(s_full[0]))
            m.one(o.Wait(p_full[0], k % 2))
            m.one(o.Tcgen05FenceAfter())
            m.one(o.Tcgen05Mma(out.whole, (sp.whole, x.whole)))
        m.one(o.Tcgen05Commit(done[0]))
        m.one(o.Wait(done[0], C(0)))
        m.all(o.WarpSync())
        m.all(o.CtaSync())
        m.all(o.Tcgen05Dealloc("sp"))
        m.all(o.Tcgen05Dealloc("o"))
    with b.role("softmax", 128) as s:
        b.sync(s)
        with s.loop("k", kt) as k:
            s.all(o.Wait(s_full[0], k % 2))
            s.all(o.Tcgen05FenceAfter())
            s.all(o.Tcgen05Ld(sp.whole))
            s.all(o.Tcgen05WaitLd())
            s.all(o.Tcgen05St(sp.whole))
            if not wrong:
                s.all(o.Tcgen05WaitSt())
            s.all(o.Tcgen05FenceBefore())
            s.all(o.Arrive(p_full[0]))
        s.all(o.Tcgen05WaitSt())
        s.all(o.CtaSync())
    return b.protocol()


def freed_by_the_epilogue(wrong: bool) -> Protocol:
    """The epilogue allocates and frees, the MMA warp only multiplies; wrong: it frees before its own warps have met."""
    b = Build("freed by the epilogue")
    tiles = b.symbol("tiles")
    x, acc = b.buffer("x", 64, initialised=True), b.buffer("acc", 64, Space.TMEM)
    full, empty = b.mbarrier("full"), b.mbarrier("empty", count=128)
    with b.role("mma", 32) as m:
        b.init(m)
        with m.loop("t", tiles) as t:
            m.one(o.Wait(empty[0], (t + 1) % 2))
            m.one(o.Tcgen05FenceAfter())
            m.one(o.Tcgen05Mma(acc.whole, (x.whole,)))
            m.one(o.Tcgen05Commit(full[0]))
    with b.role("idle", 96) as i:
        b.sync(i)
    with b.role("epilogue", 128) as e:
        e.all(o.Tcgen05Alloc("acc"))
        b.sync(e)
        with e.loop("t", tiles) as t:
            e.all(o.Wait(full[0], t % 2))
            e.all(o.Tcgen05FenceAfter())
            e.all(o.Tcgen05Ld(acc.whole))
            e.all(o.Tcgen05WaitLd())
            e.all(o.Tcgen05FenceBefore())
            e.all(o.Arrive(empty[0]))
        if not wrong:
            e.all(o.BarSync(C(1), 128))
        e.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


TENSOR_MEMORY = (
    Entry(two_multipliers, ("MBR013", "MBR014", "MBR015", "MBR017")),
    Entry(scales_in_tensor_memory, ("MBR016", "MBR017", "MBR018", "MBR024", "MBR030")),
    Entry(addressed, ("MBR016",)),
    Entry(probabilities_over_scores, ("MBR016", "MBR023")),
    Entry(freed_by_the_epilogue, ("MBR029",)),
)
