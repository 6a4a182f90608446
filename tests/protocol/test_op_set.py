"""Every op of the notation: reads back, has a meaning for the checker and for the model checker; bad input is
answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.pipeline_roles import fill
from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.diag import Severity, TilewrightError
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, By, Protocol, Scope, from_text, lints, to_text
from tilewright.protocol import ops as o
from tilewright.protocol.effects import Count
from tilewright.verify import check, verify
from tilewright.verify.canonical_runs.transfers import TRANSFERS

C = o.Const
SLOT, REGION = o.Slot("bar", sym("k") % 2), o.Region("x", sym("k") % 2 * 64, 64)
TMEM = o.Region("acc", C(0), 32)
OUT = o.Region("out", C(0), 64)
WORD = o.Word("n", sym("k") % 2)

EXAMPLES: dict[type[object], o.Op] = {
    o.MbarrierInit: o.MbarrierInit("bar", 1),
    o.MbarrierInval: o.MbarrierInval("bar"),
    o.Arrive: o.Arrive(o.Slot("bar", C(1), C(0)), 3, Scope.CLUSTER, release=False),
    o.ArriveExpectTx: o.ArriveExpectTx(SLOT, 64, Scope.CLUSTER),
    o.ExpectTx: o.ExpectTx(SLOT, 64),
    o.Wait: o.Wait(SLOT, sym("k") // 2 % 2, Scope.GPU, acquire=False, peeked=True),
    o.TestWait: o.TestWait(SLOT, C(1), Scope.CLUSTER),
    o.TmaLoad: o.TmaLoad(REGION, SLOT, (C(0), C(1)), o.Region("map", C(0), 128), tensor=False, source=OUT),
    o.TmaStore: o.TmaStore(REGION, o.Region("out", C(0), 64), reduce=True, tensor=False),
    o.DsmemCopy: o.DsmemCopy(REGION, o.Region("x", C(0), 64, C(1)), o.Slot("bar", C(0), C(1))),
    o.TmaPrefetch: o.TmaPrefetch(),
    o.BulkCommit: o.BulkCommit(),
    o.BulkWait: o.BulkWait(2, read=True),
    o.CpAsync: o.CpAsync(REGION),
    o.CpAsyncCommit: o.CpAsyncCommit(),
    o.CpAsyncWait: o.CpAsyncWait(1),
    o.CpAsyncArrive: o.CpAsyncArrive(SLOT, noinc=False),
    o.Read: o.Read(REGION, private=True),
    o.Write: o.Write(REGION),
    o.FenceProxyAsync: o.FenceProxyAsync(o.FenceSpace.GLOBAL),
    o.FenceProxyAlias: o.FenceProxyAlias(),
    o.FenceMbarrierInit: o.FenceMbarrierInit(),
    o.TensormapReplace: o.TensormapReplace(o.Region("map", C(0), 128)),
    o.TensormapRelease: o.TensormapRelease(o.Region("map", C(0), 128)),
    o.TensormapAcquire: o.TensormapAcquire(o.Region("map", C(0), 128)),
    o.AtomAdd: o.AtomAdd(WORD, 2, o.Region("x", C(0), 4), o.Sem.RELAXED, Scope.CTA),
    o.FlagStore: o.FlagStore(WORD, 0, o.Sem.RELAXED),
    o.SpinWait: o.SpinWait(WORD, C(0), o.Sem.RELAXED, Scope.CTA),
    o.FenceAcqRel: o.FenceAcqRel(Scope.CTA),
    o.WgmmaFence: o.WgmmaFence(),
    o.Wgmma: o.Wgmma(o.Region("regs", C(0), 64), (REGION,)),
    o.WgmmaCommit: o.WgmmaCommit(),
    o.WgmmaWait: o.WgmmaWait(1),
    o.BarSync: o.BarSync(1 + sym("k") % 2, 128, aligned=True, site="here"),
    o.BarArrive: o.BarArrive(C(2), 256),
    o.CtaSync: o.CtaSync(),
    o.WarpSync: o.WarpSync(),
    o.ClusterArrive: o.ClusterArrive(release=False),
    o.ClusterWait: o.ClusterWait(),
    o.Setmaxnreg: o.Setmaxnreg(240),
    o.Tcgen05Alloc: o.Tcgen05Alloc("acc", o.Region("x", C(0), 4), cta_group=2),
    o.Tcgen05Dealloc: o.Tcgen05Dealloc("acc", cta_group=2),
    o.Tcgen05Relinquish: o.Tcgen05Relinquish(),
    o.Tcgen05Mma: o.Tcgen05Mma(TMEM, (REGION,), cta_group=2),
    o.Tcgen05Cp: o.Tcgen05Cp(TMEM, REGION),
    o.Tcgen05Commit: o.Tcgen05Commit(SLOT, (C(0), C(1))),
    o.Tcgen05Ld: o.Tcgen05Ld(TMEM),
    o.Tcgen05St: o.Tcgen05St(TMEM),
    o.Tcgen05WaitLd: o.Tcgen05WaitLd(),
    o.Tcgen05WaitSt: o.Tcgen05WaitSt(),
    o.Tcgen05FenceBefore: o.Tcgen05FenceBefore(),
    o.Tcgen05FenceAfter: o.Tcgen05FenceAfter(),
}
_ONE = (o.Tcgen05Mma, o.Tcgen05Cp, o.Tcgen05Commit, o.AtomAdd, o.FlagStore)
_OF_GRIDS = (o.AtomAdd, o.FlagStore, o.SpinWait)


def holding(op: o.Op) -> Protocol:
    """A protocol of good form with this op in a loop."""
    of_grids = isinstance(op, _OF_GRIDS)
    b = Build("one", cluster=1 if of_grids else 2, grid=2 if of_grids else 1)
    kt = b.symbol("kt", most=1)
    b.mbarrier("bar", 2)
    b.buffer("x", 128, initialised=not of_grids)
    if of_grids:
        b.counter("n", 2)
    b.buffer("map", 128, Space.GLOBAL)
    b.buffer("out", 64, Space.GLOBAL)
    b.buffer("regs", 64, Space.REGISTER)
    b.buffer("acc", 32, Space.TMEM)
    with b.role("a", 128) as a:
        b.init(a)
        with a.loop("k", kt):
            (a.one if isinstance(op, _ONE) else a.all)(op)
    return b.protocol()


def test_every_op_has_an_example_and_a_meaning() -> None:
    kinds = set(o.ALL)
    assert set(EXAMPLES) == kinds - {o.Advance}
    assert {type(e) for op in EXAMPLES.values() for e in op.effects} | {Count} == set(TRANSFERS)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda k: k.__name__)
def test_every_op_reads_back(kind: type[object]) -> None:
    protocol = holding(EXAMPLES[kind])
    assert from_text(to_text(protocol)) == protocol


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda k: k.__name__)
def test_every_op_is_judged(kind: type[object]) -> None:
    """An op out of its place is refuted or open, never a crash."""
    verification = verify(holding(EXAMPLES[kind]))
    assert isinstance(verification.proof, Proved | Refuted | Unknown)
    if not isinstance(verification.proof, Proved):
        assert verification.diagnostics


# -- meanings that came last -------------------------------------------------------------------------------------------
def one_role(write: Callable[[Build], None], cluster: int = 1) -> Protocol:
    b = Build("small", cluster=cluster)
    write(b)
    return b.protocol()


def peeking(slots: int, ahead: int) -> Protocol:
    """A consumer that tests ``ahead`` uses before it waits."""
    b = Build("peek")
    kt = b.symbol("kt")
    ring = b.pipeline("a", slots, 64, consumers=1)
    fill(b, ring, kt)
    with b.role("consumer", 1) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.one(ring.consumer_wait(k, peeked=True))
            c.one(ring.consumer_try_wait(k + ahead))
            c.one(ring.read(k))
            c.one(o.FenceProxyAsync())
            c.one(ring.consumer_release(k))
    return b.protocol()


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_test_ahead_is_one_wait_with_its_wait(ahead: int) -> None:
    assert isinstance(check(peeking(2, ahead)), Proved)


def test_a_test_two_laps_ahead_sees_the_phase_before() -> None:
    """Use k + 4 of a ring of two has the slot and parity of use k: its test is true at once, and a wait is skipped."""
    proof = check(peeking(2, 4))
    assert isinstance(proof, Refuted)
    assert proof.witness.code == "MBR014"


def fenced(space: o.FenceSpace, buffer: Space) -> Protocol:
    b = Build("fence")
    x, y = b.buffer("x", 64, buffer), b.buffer("y", 64, initialised=True)
    full = b.mbarrier("full")
    with b.role("a", 1) as a:
        b.init(a)
        a.one(o.Write(x.whole))
        a.one(o.FenceProxyAsync(space))
        if buffer is Space.SHARED:
            a.one(o.TmaStore(x.whole))
        else:
            a.one(o.TmaStore(y.whole, x.whole))
        a.one(o.BulkCommit())
        a.one(o.BulkWait(0))
        a.one(o.Arrive(full[0]))
    return b.protocol()


@pytest.mark.parametrize("buffer", [Space.SHARED, Space.GLOBAL])
@pytest.mark.parametrize("space", o.FenceSpace)
def test_a_fence_orders_its_own_state_space(space: o.FenceSpace, buffer: Space) -> None:
    covers = space is o.FenceSpace.ALL or (space is o.FenceSpace.GLOBAL) == (buffer is Space.GLOBAL)
    assert isinstance(check(fenced(space, buffer)), Proved if covers else Refuted)


@pytest.mark.parametrize("reduce", [True, False])
def test_reductions_need_no_order_among_themselves(reduce: bool) -> None:
    b = Build("reduce")
    out, x = b.buffer("out", 64, Space.GLOBAL), b.buffer("x", 64, initialised=True)
    for name in ("a", "b"):
        with b.role(name, 1) as a:
            a.one(o.TmaStore(x.whole, out.whole, reduce=reduce))
            a.one(o.BulkCommit())
            a.one(o.BulkWait(0))
    proof = check(b.protocol())
    assert isinstance(proof, Proved if reduce else Refuted)


@pytest.mark.parametrize("first", [o.Tcgen05Relinquish(), o.Tcgen05Alloc("acc")])
def test_the_right_to_allocate_is_given_up_once(first: o.Op) -> None:
    b = Build("permit")
    b.buffer("acc", 32, Space.TMEM)
    with b.role("a", 32) as a:
        a.all(first)
        a.all(o.Tcgen05Alloc("acc") if isinstance(first, o.Tcgen05Relinquish) else o.Tcgen05Relinquish())
        a.all(o.Tcgen05Dealloc("acc"))
    proof = check(b.protocol())
    assert isinstance(proof, Refuted if isinstance(first, o.Tcgen05Relinquish) else Proved)


# -- elections and idle barriers ---------------------------------------------------------------------------------------
def elected(by: By, role: int) -> Protocol:
    b = Build("elect")
    full = b.mbarrier("full")
    for i in range(2):
        with b.role(f"r{i}", 32) as r:
            (b.sync if i else b.init)(r)
            if i == role:
                (r.thread_zero if by is By.THREAD_ZERO else r.one)(o.Arrive(full[0]))
            r.all(o.Wait(full[0], C(0)))
    return b.protocol()


def test_thread_zero_is_a_thread_of_the_first_role_alone() -> None:
    assert isinstance(check(elected(By.THREAD_ZERO, 0)), Proved)
    with pytest.raises(TilewrightError, match="MBR003"):
        elected(By.THREAD_ZERO, 1)
    assert isinstance(check(elected(By.ELECTED, 1)), Proved)


def test_naive_election_is_a_lint() -> None:
    found = list(lints(elected(By.THREAD_ZERO, 0)))
    assert [(d.code, d.severity) for d in found] == [("MBR008", Severity.WARNING)]
    assert not list(lints(elected(By.ELECTED, 0)))


def test_copies_by_every_thread_are_a_lint() -> None:
    b = Build("all")
    x = b.buffer("x", 64, initialised=True)
    with b.role("a", 64) as a:
        a.all(o.TmaStore(x.whole))
        a.all(o.BulkCommit())
        a.all(o.BulkWait(0))
    assert [d.code for d in lints(b.protocol())] == ["MBR008"]


def test_idle_barriers_are_a_lint() -> None:
    b = Build("idle")
    full = b.mbarrier("full")
    b.mbarrier("spare")
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.Arrive(full[0]))
    found = {d.found for d in lints(b.protocol())}
    assert found == {"nobody waits for mbarrier full", "nobody arrives at or waits for mbarrier spare"}


# -- bad input ---------------------------------------------------------------------------------------------------------
def test_an_undeclared_ring_is_named() -> None:
    b = Build("undeclared")
    with b.role("a", 32) as a:
        a.one(o.Wait(o.Slot("ab_full"), C(0)))
        a.one(o.Read(o.Region("ab", C(0), 64)))
    with pytest.raises(TilewrightError) as caught:
        b.protocol()
    assert [d.code for d in caught.value.diagnostics] == ["MBR006", "MBR006"]
    assert all(d.where is not None and d.where.file == __file__ for d in caught.value.diagnostics)


@pytest.mark.parametrize("op", [o.WgmmaCommit(), o.Tcgen05WaitLd(), o.BarSync(C(1), 128), o.ClusterArrive()])
def test_mixed_grains_are_named(op: o.Op) -> None:
    b = Build("grain", cluster=2)
    with b.role("a", 128) as a:
        a.one(op)
    with pytest.raises(TilewrightError, match="MBR003"):
        b.protocol()


def test_wgmma_wants_one_warpgroup() -> None:
    b = Build("wide")
    with b.role("a", 256) as a:
        a.all(o.WgmmaFence())
    with pytest.raises(TilewrightError, match="each warpgroup has its own wgmma groups"):
        b.protocol()


def test_a_barrier_without_arrivals_is_a_deadlock() -> None:
    b = Build("nobody")
    full = b.mbarrier("full")
    with b.role("a", 32) as a:
        b.init(a)
        a.all(o.Wait(full[0], C(0)))
    proof = check(b.protocol())
    assert isinstance(proof, Refuted)
    assert proof.witness.code == "MBR012"


@pytest.mark.parametrize("same", [True, False])
def test_data_dependent_trip_counts_must_be_one_symbol(same: bool) -> None:
    b = Build("counts")
    tiles = b.symbol("tiles")
    mine = b.symbol("mine", per="t")
    theirs = mine if same else b.symbol("theirs", per="t")
    ready, taken = b.mbarrier("ready"), b.mbarrier("taken")
    for name, count, arrives, waits, lap in (("a", mine, ready, taken, 1), ("b", theirs, taken, ready, 0)):
        with b.role(name, 1) as r:
            (b.init if name == "a" else b.sync)(r)
            n = r.counter("n")
            with r.loop("t", tiles), r.loop("k", count):
                r.one(o.Wait(waits[0], (n + lap) % 2))
                r.one(o.Arrive(arrives[0]))
                r.advance(n)
    proof = check(b.protocol())
    assert isinstance(proof, Proved if same else Refuted | Unknown)
