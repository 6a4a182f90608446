"""CTAs of a grid that tell each other what is done, by counters in global memory.

All work on one tile: each of ``parts`` CTAs has a part of its sum. ``last_arriver``, ``in_turn``, ``by_copy`` and
``tiles`` go on with any number of resident CTAs; ``neighbours``, ``grid_barrier`` and ``grid_barriers`` need all of
them at once.
"""

from __future__ import annotations

from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o

PART = 1024
RANK = sym(o.CTA_RANK)
RELAXED, ACQUIRE, RELEASE, ACQ_REL = o.Sem.RELAXED, o.Sem.ACQUIRE, o.Sem.RELEASE, o.Sem.ACQ_REL


def last_arriver(parts: int = 3, *, reset: bool = True) -> Protocol:
    """Split-K by workspace: who arrives last adds all parts, in their order. Without ``reset`` by the launch it leaves
    the counter at zero for the next one."""
    b = Build("last_arriver", grid=parts)
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 2, 16384, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    sums, done = b.buffer("sums", parts * PART, Space.GLOBAL), b.counter("done", reset=reset)
    cell, ticket = b.ticket("ticket")
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
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
        c.all(o.Write(sums.at(RANK * PART, PART)))
        c.all(o.BarSync(o.Const(1), 128))
        c.one(o.AtomAdd(done[0], ticket=cell))
        c.all(o.BarSync(o.Const(1), 128))
        with c.when(ticket.eq(parts - 1)):
            for part in range(parts):
                c.all(o.Read(sums.at(part * PART, PART)))
            if not reset:
                c.one(o.FlagStore(done[0], 0, RELAXED))
    return b.protocol()


def by_fences(parts: int = 3) -> Protocol:
    """The last arriver again, as with __threadfence: relaxed additions between fences of the thread that adds."""
    b = Build("by_fences", grid=parts)
    sums, done = b.buffer("sums", parts * PART, Space.GLOBAL), b.counter("done", reset=True)
    cell, ticket = b.ticket("ticket")
    with b.role("cta", 128) as c:
        c.all(o.Write(sums.at(RANK * PART, PART)))
        c.all(o.CtaSync())
        c.one(o.FenceAcqRel())
        c.one(o.AtomAdd(done[0], ticket=cell, sem=RELAXED))
        c.one(o.FenceAcqRel())
        c.all(o.CtaSync())
        with c.when(ticket.eq(parts - 1)):
            c.all(o.Read(sums.whole))
    return b.protocol()


def in_turn(parts: int = 3) -> Protocol:
    """Each draws a ticket, waits for those who drew before, and adds its part to the one sum there is."""
    b = Build("in_turn", grid=parts)
    total = b.buffer("total", PART, Space.GLOBAL)
    drawn, done = b.counter("drawn", reset=True), b.counter("done", reset=True)
    cell, ticket = b.ticket("ticket")
    with b.role("cta", 128) as c:
        c.one(o.AtomAdd(drawn[0], ticket=cell, sem=RELAXED))
        c.one(o.SpinWait(done[0], ticket))
        c.all(o.CtaSync())
        c.all(o.Read(total.whole, private=True))
        c.all(o.Write(total.whole, private=True))
        c.all(o.CtaSync())
        c.one(o.AtomAdd(done[0], sem=RELEASE))
    return b.protocol()


def neighbours(parts: int = 3, *, resident: int | None = None) -> Protocol:
    """Stream-K's fix-up by rank: each CTA waits for the flag of the one before, adds to its sum, and sets its own."""
    b = Build("neighbours", grid=parts, resident=parts if resident is None else resident)
    sums, flags = b.buffer("sums", parts * PART, Space.GLOBAL), b.counter("flags", parts, reset=True)
    with b.role("cta", 128) as c:
        with c.when(RANK > 0):
            c.one(o.SpinWait(flags[RANK - 1], o.Const(1)))
            c.all(o.CtaSync())
            c.all(o.Read(sums.at((RANK - 1) * PART, PART)))
        c.all(o.Write(sums.at(RANK * PART, PART)))
        c.all(o.CtaSync())
        c.one(o.FlagStore(flags[RANK], 1))
    return b.protocol()


def grid_barrier(ctas: int = 3, *, resident: int | None = None) -> Protocol:
    """All CTAs of a cooperative launch meet: each reads what its neighbour wrote before."""
    b = Build("grid_barrier", grid=ctas, resident=ctas if resident is None else resident)
    x, met = b.buffer("x", ctas * PART, Space.GLOBAL), b.counter("met", reset=True)
    with b.role("cta", 128) as c:
        c.all(o.Write(x.at(RANK * PART, PART)))
        c.all(o.CtaSync())
        c.one(o.AtomAdd(met[0], sem=RELEASE))
        c.one(o.SpinWait(met[0], o.Const(ctas)))
        c.all(o.CtaSync())
        c.all(o.Read(x.at((RANK + 1) % ctas * PART, PART)))
    return b.protocol()


def grid_barriers(ctas: int = 3, *, resident: int | None = None, one_word: bool = False) -> Protocol:
    """All meet twice, in two words or in one that goes on: each reads what all wrote before."""
    b = Build("grid_barriers", grid=ctas, resident=ctas if resident is None else resident)
    x, y = (b.buffer(name, ctas * PART, Space.GLOBAL) for name in ("x", "y"))
    words = [b.counter("met", reset=True)] * 2 if one_word else [b.counter(f"met{i}", reset=True) for i in range(2)]
    with b.role("cta", 128) as c:
        for i, (buffer, word) in enumerate(zip((x, y), words, strict=True)):
            c.all(o.Write(buffer.at(RANK * PART, PART)))
            c.all(o.CtaSync())
            c.one(o.AtomAdd(word[0], sem=RELEASE))
            c.one(o.SpinWait(word[0], o.Const(ctas * (i + 1) if one_word else ctas)))
            c.all(o.CtaSync())
            c.all(o.Read(buffer.whole))
    return b.protocol()


def by_copy(parts: int = 2) -> Protocol:
    """The last arriver fetches the parts with bulk copies: threads wrote them, so that a proxy fence stands before."""
    b = Build("by_copy", grid=parts)
    sums, done = b.buffer("sums", parts * PART, Space.GLOBAL), b.counter("done", reset=True)
    inbox, landed = b.buffer("inbox", parts * PART), b.mbarrier("landed")
    cell, ticket = b.ticket("ticket")
    with b.role("cta", 128) as c:
        b.init(c)
        c.all(o.Write(sums.at(RANK * PART, PART)))
        c.all(o.FenceProxyAsync())
        c.all(o.CtaSync())
        c.one(o.AtomAdd(done[0], ticket=cell))
        c.all(o.CtaSync())
        with c.when(ticket.eq(parts - 1)):
            c.one(o.ArriveExpectTx(landed[0], parts * PART))
            c.one(o.TmaLoad(inbox.whole, landed[0], tensor=False, source=sums.whole))
            c.all(o.Wait(landed[0], o.Const(0)))
            c.all(o.Read(inbox.whole))
    return b.protocol()


def tiles(count: int = 2, ctas: int = 2) -> Protocol:
    """A scheduler on the device: each CTA draws the number of its next tile, until there is none left."""
    b = Build("tiles", grid=ctas)
    out, following = b.buffer("out", count * PART, Space.GLOBAL), b.counter("following", reset=True)
    cell, ticket = b.ticket("ticket")
    with b.role("cta", 128) as c, c.loop("turn", count + 1):
        c.one(o.AtomAdd(following[0], ticket=cell, sem=RELAXED))
        c.all(o.CtaSync())
        with c.when(ticket < count):
            c.all(o.Write(out.at(ticket * PART, PART)))
        c.all(o.CtaSync())
    return b.protocol()


ALL = (last_arriver, by_fences, in_turn, neighbours, grid_barrier, grid_barriers, by_copy, tiles)
"""Those that are right as they stand."""
