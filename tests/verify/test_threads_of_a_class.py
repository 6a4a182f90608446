"""What a thread knows of itself it does not know of the others that run the same code."""

from __future__ import annotations

import pytest

from tilewright.base.verdict import Proved, Refuted
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, By, Protocol
from tilewright.protocol import ops as o
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust

C = o.Const


def _freed(joined: bool) -> Protocol:
    """All warps load from tensor memory, one frees it."""
    b = Build("freed")
    acc = b.buffer("acc", 64, Space.TMEM)
    with b.role("all", 128) as r:
        r.all(o.Tcgen05Alloc("acc"))
        r.all(o.CtaSync())
        r.all(o.Tcgen05St(acc.whole))
        r.all(o.Tcgen05WaitSt())
        r.all(o.Tcgen05Ld(acc.whole))
        r.all(o.Tcgen05WaitLd())
        if joined:
            r.all(o.CtaSync())
        r.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


def _allocated(joined: bool) -> Protocol:
    """One warp allocates, all store."""
    b = Build("allocated")
    acc = b.buffer("acc", 64, Space.TMEM)
    with b.role("all", 128) as r:
        r.all(o.Tcgen05Alloc("acc"))
        if joined:
            r.all(o.CtaSync())
        r.all(o.Tcgen05St(acc.whole))
        r.all(o.Tcgen05WaitSt())
        r.all(o.CtaSync())
        r.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


def _stored(joined: bool, by: By) -> Protocol:
    """Several threads store the same bytes; each waits for its own store, then all write."""
    b = Build("stored")
    x = b.buffer("x", 64, initialised=True)
    with b.role("all", 128) as r:
        put = r.all if by is By.ALL else r.per_warp
        put(o.TmaStore(x.whole))
        put(o.BulkCommit())
        put(o.BulkWait(0))
        if joined:
            r.all(o.CtaSync())
        put(o.Write(x.whole))
    return b.protocol()


FORMS = {
    "tensor memory freed": _freed,
    "tensor memory allocated": _allocated,
    "stored by all": lambda joined: _stored(joined, By.ALL),
    "stored by each warp": lambda joined: _stored(joined, By.PER_WARP),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_others_of_the_class_do_must_be_waited_for(name: str) -> None:
    assert isinstance(check(FORMS[name](True)), Proved)
    bad = FORMS[name](False)
    assert exhaust(bad, lambda symbol, context: 0).finding is not None
    assert isinstance(check(bad), Refuted)


def _committed(count: int) -> Protocol:
    """One thread multiplies, and the elected lane of each of four warps commits: four arrivals."""
    b = Build("committed")
    acc, x = b.buffer("acc", 128, Space.TMEM), b.buffer("x", 1024, initialised=True)
    done = b.mbarrier("done", count=count)
    with b.role("all", 128) as r:
        b.init(r)
        r.all(o.Tcgen05Alloc("acc"))
        r.one(o.Tcgen05Mma(acc.whole, (x.whole,)))
        r.per_warp(o.Tcgen05Commit(done[0]))
        r.all(o.Wait(done[0], C(0)))
        r.all(o.CtaSync())
        r.all(o.Tcgen05Dealloc("acc"))
    return b.protocol()


@pytest.mark.parametrize("count", range(1, 6))
def test_each_committing_thread_arrives_once(count: int) -> None:
    """tcgen05.commit is one arrival for each thread that executes it (PTX ISA 9.1, 9.7.16)."""
    protocol = _committed(count)
    assert isinstance(check(protocol), Proved if count == 4 else Refuted)
    assert (exhaust(protocol, lambda name, context: 1, max_states=4_000).finding is None) == (count == 4)
