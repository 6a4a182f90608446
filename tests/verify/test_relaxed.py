"""Waits that acquire nothing: the phase is over, but nothing that it tracked may be relied on."""

from __future__ import annotations

import pytest

from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust

C = o.Const


def _copied(acquire: bool, peek: bool | None = None) -> Protocol:
    """A copy that a role waits for and reads. ``peek``: it tests first, with or without acquire."""
    b = Build("copied")
    data, full = b.buffer("x", 64), b.mbarrier("full")
    with b.role("producer", 1) as p:
        b.init(p)
        p.one(o.ArriveExpectTx(full[0], 64))
        p.one(o.TmaLoad(data.whole, full[0]))
    with b.role("reader", 1) as r:
        b.sync(r)
        if peek is not None:
            r.all(o.TestWait(full[0], C(0), acquire=peek))
        r.all(o.Wait(full[0], C(0), acquire=acquire, peeked=peek is not None))
        r.all(o.Read(data.whole))
    return b.protocol()


def _multiplied(acquire: bool, load: bool) -> Protocol:
    """A product in tensor memory, loaded (or not) and freed by another role."""
    b = Build("multiplied")
    x, acc = b.buffer("x", 1024, initialised=True), b.buffer("acc", 64, Space.TMEM)
    full = b.mbarrier("full")
    with b.role("mma", 32) as m:
        b.init(m)
        m.one(o.Tcgen05Mma(acc.whole, (x.whole,)))
        m.one(o.Tcgen05Commit(full[0]))
    with b.role("epilogue", 128) as e:
        e.all(o.Tcgen05Alloc("acc"))
        b.sync(e)
        e.all(o.Wait(full[0], C(0), acquire=acquire))
        e.all(o.Tcgen05FenceAfter())
        if load:
            e.all(o.Tcgen05Ld(acc.whole))
            e.all(o.Tcgen05WaitLd())
            e.all(o.BarSync(C(1), 128))
        e.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


def _own_copies(acquire: bool) -> Protocol:
    """cp.async whose arrival another role waits for."""
    b = Build("own copies")
    data, full = b.buffer("x", 1024), b.mbarrier("full", count=32)
    with b.role("producer", 32) as p:
        b.init(p)
        p.all(o.CpAsync(data.whole))
        p.all(o.CpAsyncArrive(full[0]))
    with b.role("reader", 32) as r:
        b.sync(r)
        r.all(o.Wait(full[0], C(0), acquire=acquire))
        r.all(o.Read(data.whole))
    return b.protocol()


def _to_a_peer(acquire: bool) -> Protocol:
    """A copy into a peer's memory, which the peer waits for and hands to its matrix product."""
    b = Build("peer", cluster=2)
    source, data = b.buffer("source", 64, initialised=True), b.buffer("x", 64)
    full, acc = b.mbarrier("full"), b.buffer("acc", 64, Space.REGISTER)
    with b.role("all", 128) as r:
        b.init(r)
        r.one(o.ArriveExpectTx(full[0], 64))
        peer = 1 - sym(o.CTA_RANK)
        r.one(o.DsmemCopy(source.whole, data.at(0, 64, peer), full.of(peer)))
        r.all(o.Wait(full[0], C(0), acquire=acquire))
        r.all(o.WgmmaFence())
        r.all(o.Wgmma(acc.whole, (data.whole,)))
        r.all(o.WgmmaCommit())
        r.all(o.WgmmaWait(0))
        b.sync(r)
    return b.protocol()


FORMS = {
    "copy": _copied,
    "product": lambda acquire: _multiplied(acquire, True),
    "product, freed unread": lambda acquire: _multiplied(acquire, False),
    "cp.async": _own_copies,
    "copy to a peer": _to_a_peer,
}


@pytest.mark.parametrize("name", FORMS)
def test_what_a_phase_tracks_is_there_only_for_those_who_acquire(name: str) -> None:
    """PTX ISA 9.1, 9.7.13.15.16: .relaxed gives no order and no visibility."""
    assert isinstance(check(FORMS[name](True)), Proved)
    bad = FORMS[name](False)
    assert exhaust(bad, lambda symbol, context: 0).finding is not None
    assert isinstance(check(bad), Refuted)


@pytest.mark.parametrize("fenced", [True, False])
def test_a_relaxed_cluster_arrive_publishes_the_barriers_that_are_fenced(fenced: bool) -> None:
    """PTX ISA 9.1, 9.7.13.4: fence.mbarrier_init orders the inits for a relaxed barrier.cluster.arrive."""
    b = Build("started", cluster=2)
    ready = b.mbarrier("ready", count=64)
    with b.role("all", 32) as r:
        r.one(o.MbarrierInit("ready"))
        if fenced:
            r.one(o.FenceMbarrierInit())
        r.all(o.ClusterArrive(release=False))
        r.all(o.ClusterWait())
        r.all(o.Arrive(ready.of(0)))
        r.all(o.Arrive(ready.of(1)))
        r.all(o.Wait(ready[0], C(0)))
        r.all(o.ClusterArrive())
        r.all(o.ClusterWait())
    protocol = b.protocol()
    assert (exhaust(protocol, None).finding is None) == fenced
    assert isinstance(check(protocol), Proved if fenced else Refuted)


def test_a_test_that_returned_true_is_the_wait() -> None:
    """The wait behind it is skipped, so what it would have acquired the test must acquire."""
    assert isinstance(check(_copied(True, peek=True)), Proved)
    assert isinstance(check(_copied(True, peek=False)), Refuted)


def test_a_later_wait_of_the_same_phase_acquires() -> None:
    b = Build("twice")
    data, full = b.buffer("x", 64), b.mbarrier("full")
    with b.role("producer", 1) as p:
        b.init(p)
        p.one(o.ArriveExpectTx(full[0], 64))
        p.one(o.TmaLoad(data.whole, full[0]))
    with b.role("reader", 1) as r:
        b.sync(r)
        r.all(o.Wait(full[0], C(0), acquire=False))
        r.all(o.Wait(full[0], C(0)))
        r.all(o.Read(data.whole))
    assert isinstance(check(b.protocol()), Proved)
