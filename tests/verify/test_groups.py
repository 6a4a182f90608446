"""Loops over groups of iterations that another role takes one by one, and counts as indices behind their loop."""

from __future__ import annotations

import pytest

from tilewright.base.expr import Const as C
from tilewright.base.expr import Expr
from tilewright.base.verdict import Proved, Refuted
from tilewright.protocol import Build, PipelineHandle, Protocol, RoleBuilder
from tilewright.protocol import ops as o
from tilewright.verify import check
from tilewright.verify.parametric import prove


def _use(c: RoleBuilder, ring: PipelineHandle, i: Expr, parity: Expr, released: Expr) -> None:
    c.all(o.Wait(ring.full[i % ring.stages], parity))
    c.all(o.Read(ring.stage(i)))
    c.all(o.FenceProxyAsync())
    c.all(o.Arrive(ring.empty[released % ring.stages]))


def turns(consumers: int, slots: int, wrong: str = "") -> Protocol:
    """As many consumers as share a group, each with its own stage of it."""
    b = Build("turns")
    n = b.symbol("n")
    ring = b.pipeline("x", slots, 128, consumers=32)
    with b.role("p", 32) as p:
        b.init(p)
        with p.loop("k", n * consumers - int(wrong == "one less")) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
    for i in range(consumers - int(wrong == "one consumer less")):
        with b.role(f"c{i}", 32) as c:
            b.sync(c)
            with c.loop("j", n) as j:
                lap = j // (slots // consumers)
                lap = lap + 1 if wrong == "lap" and i else lap
                at = j * consumers + i
                _use(c, ring, at, lap % 2, at + int(wrong == "release"))
    return b.protocol()


def pairs(wrong: str = "") -> Protocol:
    """One consumer takes two stages a turn; wrong: it releases the second one before it read it."""
    b = Build("pairs")
    n = b.symbol("n")
    ring = b.pipeline("x", 4, 128, consumers=32)
    with b.role("p", 32) as p:
        b.init(p)
        with p.loop("k", n * 2) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
    with b.role("c", 32) as c:
        b.sync(c)
        with c.loop("j", n) as j:
            for i in (0, 1):
                c.all(o.Wait(ring.full[(j * 2 + i) % 4], j // 2 % 2))
                if wrong and i:
                    c.all(o.Arrive(ring.empty[(j * 2 + i) % 4]))
                c.all(o.Read(ring.stage(j * 2 + i)))
                c.all(o.FenceProxyAsync())
                if not (wrong and i):
                    c.all(o.Arrive(ring.empty[(j * 2 + i) % 4]))
    return b.protocol()


def guarded(late: int) -> Protocol:
    """The first turn of a group's loop apart: its stage is released a turn late, and the last one behind the loop."""
    b = Build("guarded")
    n = b.symbol("n", least=1)
    ring = b.pipeline("x", 4, 128, consumers=32)
    with b.role("p", 32) as p:
        b.init(p)
        with p.loop("k", n * 2) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
    for i in (0, 1):
        with b.role(f"c{i}", 32) as c:
            b.sync(c)
            with c.loop("j", n) as j:
                c.all(o.Wait(ring.full[(j * 2 + i) % 4], j // 2 % 2))
                c.all(o.Read(ring.stage(j * 2 + i)))
                c.all(o.FenceProxyAsync())
                with c.when(j > 0):
                    c.all(o.Arrive(ring.empty[(j * 2 + i + 2) % 4]))
            c.all(o.Arrive(ring.empty[(n * 2 + i + late) % 4]))
    return b.protocol()


@pytest.mark.parametrize(("consumers", "slots"), [(2, 4), (2, 6), (3, 6), (4, 8)])
def test_consumers_that_share_a_group_are_proved(consumers: int, slots: int) -> None:
    assert isinstance(prove(turns(consumers, slots)), Proved)


@pytest.mark.parametrize("wrong", ["lap", "release", "one less", "one consumer less"])
@pytest.mark.parametrize("slots", [2, 4])
def test_their_mistakes_are_refuted(wrong: str, slots: int) -> None:
    protocol = turns(2, slots, wrong)
    assert not isinstance(prove(protocol), Proved)
    assert isinstance(check(protocol), Refuted)


def test_two_stages_a_turn() -> None:
    assert isinstance(prove(pairs()), Proved)
    assert not isinstance(prove(pairs("early")), Proved)
    assert isinstance(check(pairs("early")), Refuted)


def test_first_iterations_apart() -> None:
    """Behind the loops both consumers release a stage, in either order: left to canonical runs, right and wrong."""
    assert not isinstance(prove(guarded(0)), Proved)
    assert isinstance(check(guarded(0)), Refuted)


def tail(parity: int, index: int = -1, guard: bool = True) -> Protocol:
    """Behind the loop the last phases are waited for, at the index that the count says."""
    b = Build("tail")
    n = b.symbol("n")
    ring = b.pipeline("x", 3, 128, consumers=1)
    with b.role("p", 32) as p:
        b.init(p)
        with p.loop("k", n) as k:
            p.one(ring.producer_acquire(k))
            p.one(ring.producer_commit(k))
            p.one(ring.load(k))
        with p.when(n > 0) if guard else p.when(C(1).eq(1)):
            p.one(o.Wait(ring.empty[(n + 3 + index) % 3], ((n + 3 + index) // 3 + parity) % 2))
    with b.role("c", 32) as c:
        b.sync(c)
        with c.loop("k", n) as k:
            c.one(ring.consumer_wait(k))
            c.one(o.Read(ring.stage(k)))
            c.one(o.FenceProxyAsync())
            c.one(ring.consumer_release(k))
    return b.protocol()


def test_a_count_is_an_index_behind_its_loop() -> None:
    assert isinstance(prove(tail(1)), Proved)
    assert isinstance(check(tail(1)), Proved)


@pytest.mark.parametrize(("parity", "index"), [(0, -1), (1, 0)])
def test_another_lap_or_stage_is_refuted(parity: int, index: int) -> None:
    """The lap after the last never completes; the stage after the last one belongs to no turn yet."""
    protocol = tail(parity, index)
    assert not isinstance(prove(protocol), Proved)
    assert isinstance(check(protocol), Refuted)


def test_a_count_before_its_loop_is_no_index_of_the_graph() -> None:
    b = Build("before")
    n = b.symbol("n", most=6)
    x = b.buffer("x", 256)
    with b.role("a", 32) as a:
        a.all(o.Write(x.at(n % 4 * 64, 64)))
        with a.loop("k", n):
            a.all(o.CtaSync())
    assert not isinstance(prove(b.protocol()), Proved)
    assert isinstance(check(b.protocol()), Proved)


@pytest.mark.parametrize(("most", "proved"), [(3, True), (4, False)])
def test_a_count_as_an_offset_is_asked_at_every_value(most: int, proved: bool) -> None:
    b = Build("offset")
    s = b.symbol("s", most=most)
    x = b.buffer("x", 1024)
    with b.role("a", 32) as a:
        a.all(o.Write(x.at(s * 256, 256)))
    assert isinstance(check(b.protocol()), Proved if proved else Refuted)
