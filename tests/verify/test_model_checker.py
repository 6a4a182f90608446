"""The model checker against itself: reduction and folding change no answer, and known schedules are found."""

from __future__ import annotations

from random import Random

import pytest
from museum import EXHIBITS
from protocols import cp_async, gemm

from mutate import corpus, mutants
from support.pipeline_roles import fill
from support.slow import rest_slow
from tilewright.base.expr import sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o
from tilewright.verify import Rule
from tilewright.verify.model_checker import exhaust

pytestmark = pytest.mark.sample(1)

C = o.Const


def fixed(protocol: Protocol, kt: int, tiles: int):
    """One value for all trip symbols named for tiles, one for the others."""

    def sizes(name: str, context: int) -> int:
        symbol = next(s for s in protocol.symbols if s.name == name)
        value = max(tiles if name in ("tiles", "groups") else kt, symbol.least)
        return value if symbol.most is None else min(value, symbol.most)

    return sizes


@pytest.mark.parametrize(
    "name", rest_slow(["multistage", "cp.async producer", "cooperative once", "split-K", "blackwell"], 3)
)
def test_reduction_keeps_the_answer(name: str) -> None:
    pool = Random(1).sample(list(mutants(name, corpus()[name])), 4)
    for word, p in pool:
        sizes = fixed(p, 2, 1)
        full = exhaust(p, sizes, max_states=1500, reduce=False)
        reduced = exhaust(p, sizes, max_states=4000)
        if full.finding is not None or full.complete:
            assert (reduced.finding is None) == (full.finding is None), word
            assert reduced.states <= full.states + 8, word


def test_reduction_makes_a_pipeline_linear() -> None:
    """The states of a right pipeline grow with its length, not with the number of its threads' interleavings."""
    p = cp_async.multistage(3)
    states = [exhaust(p, fixed(p, kt, 1)).states for kt in (4, 8, 12)]
    assert states[2] - states[1] <= 1.2 * (states[1] - states[0])


@pytest.mark.parametrize("protocol", [gemm.cooperative(2, 1, persistent=False), cp_async.multistage(3)])
def test_every_trip_count_at_once(protocol: Protocol) -> None:
    found = exhaust(protocol, None, max_states=5000)
    assert found.complete
    assert found.finding is None


def _ring(parity: int) -> Protocol:
    b = Build("ring")
    kt = b.symbol("kt")
    ring = b.pipeline("x", 2, 64, consumers=1)
    fill(b, ring, kt, threads=1)
    with b.role("consumer", 1) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(o.Wait(ring.full[k % 2], (k // 2 + parity * (k // 4)) % 2))
            c.all(ring.read(k))
            c.all(o.FenceProxyAsync())
            c.all(ring.consumer_release(k))
    return b.protocol()


def test_open_search_finds_what_only_large_counts_show() -> None:
    """A parity that is right for the first four iterations."""
    assert exhaust(_ring(0), None).complete
    found = exhaust(_ring(1), None)
    assert found.finding is not None
    assert {name: low for name, _, low in found.finding.trips}["kt"] >= 5
    assert exhaust(_ring(1), fixed(_ring(1), 4, 1)).finding is None


def test_a_thread_waits_only_for_its_own_barrier() -> None:
    """Being counted in one named barrier by bar.arrive does not end a wait at another."""
    b = Build("two")
    with b.role("a", 32) as a:
        a.all(o.BarSync(C(2), 64))
        a.all(o.BarArrive(C(1), 64))
    with b.role("b", 32) as r:
        r.all(o.BarArrive(C(2), 64))
        r.all(o.BarSync(C(1), 64))
    p = b.protocol()
    for reduce in (False, True):
        found = exhaust(p, fixed(p, 0, 0), reduce=reduce)
        assert found.complete
        assert found.finding is None


def test_a_fence_after_the_arrive_comes_too_late() -> None:
    """The reader may run between the arrive and the fence."""
    b = Build("late")
    data, full = b.buffer("x", 64), b.mbarrier("full")
    with b.role("writer", 1) as a:
        b.init(a)
        a.all(o.Write(data.whole))
        a.all(o.Arrive(full[0]))
        a.all(o.FenceProxyAsync())
    with b.role("reader", 1) as r:
        b.sync(r)
        r.one(o.Wait(full[0], C(0)))
        r.one(o.TmaStore(data.whole))
        r.one(o.BulkCommit())
        r.one(o.BulkWait(0))
    found = exhaust(b.protocol(), lambda name, context: 0)
    assert found.finding is not None
    assert found.finding.rule is Rule.FENCE_RAW


def test_two_stores_without_order_are_a_race() -> None:
    """Though each thread waits for its own store at once."""
    b = Build("stores")
    out = b.buffer("out", 64, Space.GLOBAL)
    data = b.buffer("x", 64, initialised=True)
    for name in ("a", "b"):
        with b.role(name, 1) as r:
            r.one(o.TmaStore(data.whole, out.whole))
            r.one(o.BulkCommit())
            r.one(o.BulkWait(0))
    found = exhaust(b.protocol(), lambda name, context: 0)
    assert found.finding is not None
    assert found.finding.rule is Rule.WRITE_WRITE


@pytest.mark.parametrize("name", EXHIBITS)
def test_twins_of_real_bugs_are_clean(name: str) -> None:
    twin = EXHIBITS[name].build(True)
    found = exhaust(twin, fixed(twin, 2, 1), max_states=400).finding
    assert found is None, found.detail


def test_a_relaxed_wait_does_not_acquire() -> None:
    b = Build("relaxed")
    data, full = b.buffer("x", 64), b.mbarrier("full")
    with b.role("writer", 1) as a:
        b.init(a)
        a.all(o.Write(data.whole))
        a.all(o.Arrive(full[0]))
    with b.role("reader", 1) as r:
        b.sync(r)
        r.all(o.Wait(full[0], C(0), acquire=False))
        r.all(o.Read(data.whole))
    found = exhaust(b.protocol(), lambda name, context: 0)
    assert found.finding is not None
    assert found.finding.rule is Rule.READ_EARLY


def test_the_witness_holds_only_what_bears_on_the_problem() -> None:
    """A third role with work of its own does not show in the schedule."""
    b = Build("witness")
    data, other, full = b.buffer("x", 64), b.buffer("y", 64), b.mbarrier("full", 2)
    with b.role("a", 1) as a:
        b.init(a)
        a.one(o.ArriveExpectTx(full[0], 64))
        a.one(o.TmaLoad(data.whole, full[0]))
    with b.role("b", 1) as r:
        b.sync(r)
        r.all(o.Read(data.whole))
    with b.role("c", 1) as c:
        b.sync(c)
        c.one(o.ArriveExpectTx(full[1], 64))
        c.one(o.TmaLoad(other.whole, full[1]))
        c.one(o.Wait(full[1], C(0)))
    found = exhaust(b.protocol(), lambda name, context: 0).finding
    assert found is not None
    last = [e.step.op for e in found.schedule if e.step is not None and e.role == "c"]
    assert [type(op) for op in last] == [o.CtaSync]


def test_counters_compared_across_loops_stay_apart() -> None:
    """A trip count that is used again after its loop is not forgotten."""
    b = Build("again")
    kt = b.symbol("kt")
    done = b.mbarrier("done")
    with b.role("a", 1) as a:
        b.init(a)
        with a.loop("k", kt):
            a.all(o.WarpSync())
        with a.when(kt > 2):
            a.all(o.Arrive(done[0]))
    with b.role("b", 1) as r:
        b.sync(r)
        with r.when(sym("kt") > 3):
            r.all(o.Wait(done[0], C(0)))
    found = exhaust(b.protocol(), None)
    assert found.complete
    assert found.finding is None


def test_an_init_fence_counts_from_where_it_stands() -> None:
    """After the first cluster barrier, before the second: the uses after the second are covered, earlier ones not."""

    def protocol(early: bool) -> Protocol:
        b = Build("fence", cluster=2)
        done = b.mbarrier("done")
        with b.role("a", 32) as a:
            a.one(o.MbarrierInit("done"))
            b.sync(a)
            a.one(o.FenceMbarrierInit())
            b.sync(a)
            a.one(o.Arrive(done[0]))
        with b.role("b", 32) as r:
            b.sync(r)
            if early:
                r.one(o.TestWait(done[0], C(0)))
            b.sync(r)
            r.all(o.Wait(done[0], C(0)))
        return b.protocol()

    right, wrong = (exhaust(protocol(early), lambda name, context: 0) for early in (False, True))
    assert right.complete
    assert right.finding is None
    assert wrong.finding is not None
    assert wrong.finding.rule is Rule.INIT_FENCE


def test_one_thread_of_a_warp_gives_up_the_right_to_allocate() -> None:
    """The lanes of the allocating warp give it up together, after the allocation."""
    b = Build("right")
    b.buffer("acc", 64, Space.TMEM)
    with b.role("mma", 32) as m:
        m.all(o.Tcgen05Alloc("acc"))
        m.all(o.Tcgen05Relinquish())
        m.all(o.WarpSync())
        m.all(o.Tcgen05Dealloc("acc"))
    found = exhaust(b.protocol(), lambda name, context: 0)
    assert found.complete
    assert found.finding is None


def test_a_wait_before_the_initialisation_is_visible_goes_wrong() -> None:
    """Even if the phase that it waits for completes only later."""
    b = Build("early")
    full = b.mbarrier("full")
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.Arrive(full[0]))
    with b.role("b", 32) as r:
        r.one(o.Wait(full[0], C(0)))
        b.sync(r)
    found = exhaust(b.protocol(), lambda name, context: 0)
    assert found.finding is not None
    assert found.finding.rule is Rule.INIT


def test_a_group_without_wgmma_joins_no_group() -> None:
    """The elected thread laps the others, who are held back by nothing."""
    b = Build("lap")
    ring = b.pipeline("x", 2, 64, consumers=1)
    with b.role("producer", 128) as p:
        b.init(p)
        with p.loop("k", C(5)) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", C(5)) as k:
            c.all(ring.consumer_wait(k))
            c.all(o.WgmmaCommit())
            c.all(o.WgmmaWait(0))
            c.one(ring.consumer_release(k))
    found = exhaust(b.protocol(), lambda name, context: 0)
    assert found.finding is not None
    assert found.finding.rule is Rule.DEADLOCK


def test_each_thread_fences_its_own_part_of_a_shared_write() -> None:
    """The elected thread's write and fence say nothing of the other lanes' parts."""
    b = Build("parts")
    data, full = b.buffer("x", 1024), b.mbarrier("full")
    with b.role("writer", 32) as w:
        w.one(o.MbarrierInit("full"))
        w.one(o.FenceMbarrierInit())
        w.all(o.Write(data.whole))
        b.sync(w)
        w.all(o.FenceProxyAsync())
        w.one(o.Arrive(full[0]))
    with b.role("store", 32) as r:
        b.sync(r)
        r.one(o.Wait(full[0], C(0)))
        r.one(o.TmaStore(data.whole))
        r.one(o.BulkCommit())
        r.one(o.BulkWait(0))
    found = exhaust(b.protocol(), lambda name, context: 0)
    assert found.finding is not None
    assert found.finding.rule is Rule.FENCE_RAW
