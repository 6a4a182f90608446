"""CTAs of a grid with counters in global memory: right protocols are proved, each with one mistake is refuted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocols import grids

from support.slow import rest_slow
from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.diag import TilewrightError
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, Scope, Step, from_text, problems, to_text
from tilewright.protocol import ops as o
from tilewright.protocol.edit import NodePath, apart, replaced, spots
from tilewright.protocol.timed import run_timed
from tilewright.verify import check, verify
from tilewright.verify.canonical_runs.search import interpreter, search
from tilewright.verify.model_checker import exhaust
from tilewright.verify.rules import Policy

pytestmark = pytest.mark.sample(1)

C, RANK = o.Const, sym(o.CTA_RANK)
RELAXED, ACQUIRE, RELEASE, ACQ_REL = o.Sem.RELAXED, o.Sem.ACQUIRE, o.Sem.RELEASE, o.Sem.ACQ_REL


def found(p: Protocol, kind: type[o.Op]) -> list[tuple[NodePath, Step]]:
    """The steps with an op of a kind."""
    return [(spot, step) for spot, step in spots(p) if isinstance(step.op, kind)]


def altered(p: Protocol, kind: type[o.Op], number: int = 0, **fields: Any) -> Protocol:
    """The protocol with other operands of one op."""
    spot, step = found(p, kind)[number]
    op: Any = step.op
    return replaced(p, spot, replace(step, op=replace(op, **fields)))


def dropped(p: Protocol, kind: type[o.Op], number: int = 0) -> Protocol:
    """The protocol without one op."""
    return replaced(p, found(p, kind)[number][0])


def reworded(p: Protocol, old: str, new: str) -> Protocol:
    """The protocol with something else in its text."""
    text = to_text(p)
    assert old in text
    return from_text(text.replace(old, new))


def proved_by_runs(p: Protocol) -> bool:
    result = search(interpreter(apart(p), Policy.STRICT))
    return result.failure is None and not result.reason


@pytest.mark.parametrize("build", grids.ALL, ids=lambda f: f.__name__)
def test_right_protocols_are_proved(build: Callable[[], Protocol]) -> None:
    proof = check(build())
    assert isinstance(proof, Proved)


@pytest.mark.parametrize("build", grids.ALL, ids=lambda f: f.__name__)
def test_the_model_checker_finds_right_protocols_good(build: Callable[[int], Protocol]) -> None:
    outcome = exhaust(build(2), lambda name, at: 1)
    assert outcome.complete
    assert outcome.finding is None


def test_the_protocol_of_the_documents_is_proved() -> None:
    text = (Path(__file__).parents[2] / "docs/contracts.md").read_text()
    shown = 'protocol("last_arriver"' + text.split('protocol("last_arriver"')[1].split("```")[0]
    verification = verify(from_text(shown))
    assert isinstance(verification.proof, Proved)
    assert verification.certificate is not None
    assert "3 CTAs, all orders of strong operations" in verification.certificate.obligations[0].method


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_any_number_of_parts(parts: int) -> None:
    assert isinstance(check(grids.last_arriver(parts)), Proved)
    assert isinstance(check(grids.last_arriver(parts, reset=False)), Proved)


@pytest.mark.parametrize("one_word", [False, True])
@pytest.mark.parametrize("ctas", [3, 4])
def test_barriers_of_a_grid_in_sequence(ctas: int, one_word: bool) -> None:
    found = verify(grids.grid_barriers(ctas, one_word=one_word))
    assert isinstance(found.proof, Proved)
    assert one_word or found.states < 20
    assert isinstance(verify(grids.grid_barriers(12)).proof, Proved)


@pytest.mark.parametrize("spared", range(2))
@pytest.mark.parametrize("one_word", [False, True])
def test_barriers_of_a_grid_wait_for_all_each_time(one_word: bool, spared: int) -> None:
    p = grids.grid_barriers(one_word=one_word)
    _, step = found(p, o.SpinWait)[spared]
    assert isinstance(step.op, o.SpinWait)
    proof = check(altered(p, o.SpinWait, spared, least=step.op.least - 1))
    assert isinstance(proof, Refuted)
    assert proof.witness.code == "MBR016"
    assert isinstance(check(altered(p, o.SpinWait, spared, sem=RELAXED)), Refuted)
    assert isinstance(check(altered(p, o.AtomAdd, spared, sem=RELAXED)), Refuted)
    assert isinstance(check(replace(p, resident=2)), Refuted)


def test_a_cta_that_may_never_begin_is_waited_for_by_none() -> None:
    """Of two, one of which surely runs: what the second does before it is waited for may never be done, though it
    could be at once."""
    b = Build("late", grid=2)
    a, told = b.counter("a", reset=True), b.counter("told", reset=True)
    with b.role("cta", 32) as c:
        with c.when(RANK.eq(0)):
            c.one(o.AtomAdd(a[0], sem=RELEASE))
            c.one(o.SpinWait(told[0], C(1)))
        with c.when(RANK.eq(1)):
            c.one(o.SpinWait(a[0], C(0)))
            c.one(o.AtomAdd(told[0], sem=RELEASE))
    proof = check(b.protocol())
    assert isinstance(proof, Refuted)
    assert proof.witness.code == "MBR040"
    assert isinstance(check(replace(b.protocol(), resident=2)), Proved)


def fences_before_the_barrier() -> Protocol:
    """Each thread fences, then one adds: what the others fenced is not before a fence of the thread that adds."""
    b = Build("early_fences", grid=2)
    x, done = b.buffer("x", 32, Space.GLOBAL), b.counter("done", reset=True)
    cell, ticket = b.ticket("ticket")
    with b.role("cta", 32) as c:
        c.all(o.Write(x.at(sym("cta") * 16, 16)))
        c.all(o.FenceAcqRel())
        c.all(o.CtaSync())
        c.one(o.AtomAdd(done[0], ticket=cell, sem=RELAXED))
        c.one(o.FenceAcqRel())
        c.all(o.CtaSync())
        with c.when(ticket.eq(1)):
            c.all(o.Read(x.whole))
    return b.protocol()


def reset_too_early() -> Protocol:
    """One CTA sets the counter back while others may still wait for it."""
    b = Build("reset_too_early", grid=2, resident=2)
    met = b.counter("met", reset=True)
    with b.role("cta", 32) as c:
        c.one(o.AtomAdd(met[0], sem=RELEASE))
        c.one(o.SpinWait(met[0], C(2)))
        with c.when(sym("cta").eq(0)):
            c.one(o.FlagStore(met[0], 0))
    return b.protocol()


last, turn, meet, near = grids.last_arriver(), grids.in_turn(), grids.grid_barrier(), grids.neighbours()
BROKEN: dict[str, tuple[Protocol, str]] = {
    "missing release": (altered(last, o.AtomAdd, sem=ACQUIRE), "MBR016"),
    "missing acquire": (altered(last, o.AtomAdd, sem=RELEASE), "MBR016"),
    "relaxed addition": (altered(last, o.AtomAdd, sem=RELAXED), "MBR016"),
    "scope cta": (altered(last, o.AtomAdd, scope=Scope.CTA), "MBR041"),
    "one of two scopes cta": (altered(meet, o.SpinWait, scope=Scope.CTA), "MBR041"),
    "count off by one": (reworded(last, "ticket == 2", "ticket == 1"), "MBR016"),
    "counter not reset": (reworded(last, "reset=True", "reset=False"), "MBR042"),
    "no barrier before the addition": (dropped(last, o.BarSync), "MBR016"),
    "no barrier behind the draw": (dropped(last, o.BarSync, 1), "MBR016"),
    "waits for one too few": (altered(meet, o.SpinWait, least=C(2)), "MBR016"),
    "waits for one too many": (altered(meet, o.SpinWait, least=C(4)), "MBR012"),
    "a barrier of a grid that is not resident": (grids.grid_barrier(resident=2), "MBR040"),
    "reset too early": (reset_too_early(), "MBR012"),
    "a later ticket, all resident": (altered(replace(turn, resident=3), o.SpinWait, least=sym("ticket") + 1), "MBR012"),
    "a later ticket": (altered(turn, o.SpinWait, least=sym("ticket") + 1), "MBR040"),
    "no wait for earlier tickets": (dropped(turn, o.SpinWait), "MBR016"),
    "a relaxed wait for earlier tickets": (altered(turn, o.SpinWait, sem=RELAXED), "MBR016"),
    "a relaxed sign": (altered(turn, o.AtomAdd, 1, sem=RELAXED), "MBR016"),
    "ranks are no tickets": (grids.neighbours(resident=1), "MBR040"),
    "all but one resident": (grids.neighbours(resident=2), "MBR040"),
    "a relaxed flag": (altered(near, o.FlagStore, sem=RELAXED), "MBR016"),
    "no proxy fence before the bulk copy": (dropped(grids.by_copy(), o.FenceProxyAsync), "MBR019"),
    "a fence of shared memory": (altered(grids.by_copy(), o.FenceProxyAsync, space=o.FenceSpace.SHARED), "MBR019"),
    "the next ticket too early": (dropped(grids.tiles(), o.CtaSync, 1), "MBR017"),
    "no fence before the addition": (dropped(grids.by_fences(), o.FenceAcqRel), "MBR016"),
    "no fence behind the addition": (dropped(grids.by_fences(), o.FenceAcqRel, 1), "MBR016"),
    "a fence of scope cta": (altered(grids.by_fences(), o.FenceAcqRel, scope=Scope.CTA), "MBR016"),
    "fences before the barrier": (fences_before_the_barrier(), "MBR016"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_refuted(name: str) -> None:
    protocol, code = BROKEN[name]
    proof = check(protocol)
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == code, proof.witness.detail
    assert proof.witness.rows or code == "MBR040"


def changes(p: Protocol) -> Iterator[tuple[str, Protocol]]:
    """Each step dropped or executed twice, each semantics and scope replaced by each other one."""
    for spot, step in spots(p):
        op: Any = step.op
        words = f"{type(op).__name__} at {spot.path}"
        found = {f"without {words}": replaced(p, spot), f"twice {words}": replaced(p, spot, step, step)}
        for name, values in (("sem", o.Sem), ("scope", (Scope.CTA, Scope.GPU))):
            for value in values if hasattr(op, name) else ():
                found[f"{words} {value.value}"] = replaced(p, spot, replace(step, op=replace(op, **{name: value})))
        yield from ((what, apart(changed)) for what, changed in found.items() if not any(problems(changed)))


@pytest.mark.parametrize("build", rest_slow(grids.ALL, (grids.in_turn, grids.grid_barrier)), ids=lambda f: f.__name__)
@pytest.mark.sample(2)
def test_no_change_is_proved_that_the_model_checker_breaks(build: Callable[[int], Protocol]) -> None:
    """And what the model checker finds good is proved, where it is asked about all there is to ask."""
    bad = 0
    for what, p in changes(build(2)):
        outcome = exhaust(p, lambda name, at: 1, max_states=4_000)
        if outcome.finding is not None:
            bad += 1
            assert not proved_by_runs(p), what
        elif outcome.complete and not p.symbols:
            assert proved_by_runs(p), what
    assert bad


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("resident", [1, 2, 3])
@pytest.mark.parametrize("build", [grids.neighbours, grids.grid_barrier])
def test_who_needs_all_ctas_hangs_with_fewer(build: Callable[..., Protocol], resident: int, reduce: bool) -> None:
    p = build(3, resident=resident)
    outcome = exhaust(p, lambda name, at: 1, reduce=reduce, max_states=2_000 if reduce else 40_000)
    assert (outcome.finding is None) == (resident == 3)
    assert outcome.finding is None or outcome.finding.rule.code == "MBR040"
    assert proved_by_runs(p) == (resident == 3)


@pytest.mark.parametrize("reduce", [True, False])
def test_the_reduction_loses_no_race(reduce: bool) -> None:
    races = [
        altered(grids.by_fences(2), o.AtomAdd, scope=Scope.CTA),
        dropped(grids.by_fences(2), o.FenceAcqRel),
        altered(grids.in_turn(2), o.SpinWait, sem=RELAXED),
        dropped(grids.in_turn(2), o.CtaSync, 1),
        dropped(grids.by_copy(2), o.FenceProxyAsync),
    ]
    for p in races:
        outcome = exhaust(p, lambda n, at: 1, reduce=reduce, max_states=40_000)
        assert outcome.finding is not None, to_text(p)


def parts_of_classes(joined: bool) -> Protocol:
    """Threads write their own parts twice; then one of them tells another role, which writes all of it."""
    b = Build("parts")
    x, full = b.buffer("x", 128), b.mbarrier("full")
    with b.role("a", 32) as a:
        b.init(a)
        a.all(o.BarSync(C(1), 32))
        a.all(o.Write(x.whole, private=True))
        a.all(o.Write(x.whole, private=True))
        if joined:
            a.all(o.BarSync(C(1), 32))
        a.one(o.Arrive(full[0]))
    with b.role("b", 1) as r:
        b.sync(r)
        r.one(o.Wait(full[0], C(0)))
        r.one(o.Write(x.whole))
    return b.protocol()


def test_what_other_threads_wrote_of_their_own_is_not_forgotten() -> None:
    """The elected thread's second write is not the end of what the others did to their parts."""
    assert proved_by_runs(parts_of_classes(True))
    assert not proved_by_runs(parts_of_classes(False))
    assert isinstance(check(parts_of_classes(False)), Refuted)


def copies_of_two() -> Protocol:
    """A bulk store of each CTA to the same bytes, one after the other by a counter: each in the asynchronous proxy."""
    b = Build("copies", grid=2)
    x, y, drawn = b.buffer("x", 16, initialised=True), b.buffer("y", 16, Space.GLOBAL), b.counter("drawn", reset=True)
    done, (cell, ticket) = b.counter("done", reset=True), b.ticket("ticket")
    with b.role("cta", 1) as c:
        c.one(o.AtomAdd(drawn[0], ticket=cell, sem=RELAXED))
        c.one(o.SpinWait(done[0], ticket))
        c.one(o.TmaStore(x.whole, y.whole, tensor=False))
        c.one(o.BulkCommit())
        c.one(o.BulkWait(0))
        c.one(o.AtomAdd(done[0], sem=RELEASE))
    return b.protocol()


def test_one_proxy_in_two_ctas_is_left_open() -> None:
    """Its order is kept within a CTA only (PTX ISA 9.1, 8.9.5)."""
    proof = check(copies_of_two())
    assert isinstance(proof, Unknown)
    assert "asynchronous accesses of two CTAs" in proof.reason


def two_words(mine: o.Sem, theirs: o.Sem) -> Protocol:
    """Each of two CTAs draws from one counter and then from another one, in opposite orders; nobody draws both last."""
    b = Build("two_words", grid=2)
    left, right = b.counter("left", reset=True), b.counter("right", reset=True)
    (one, first), (two, second) = b.ticket("first"), b.ticket("second")
    x = b.buffer("x", 16, Space.GLOBAL)
    with b.role("cta", 1) as c:
        for rank, (former, latter) in enumerate(((left, right), (right, left))):
            with c.when(sym("cta").eq(rank)):
                c.one(o.AtomAdd(former[0], ticket=one, sem=mine))
                c.one(o.AtomAdd(latter[0], ticket=two, sem=theirs))
                with c.when(first.eq(1)), c.when(second.eq(0)):
                    c.one(o.Write(x.whole))
    return b.protocol()


@pytest.mark.parametrize("weaker", [(RELAXED, ACQ_REL), (ACQ_REL, RELAXED), (RELEASE, ACQUIRE)])
def test_words_in_opposite_orders_must_synchronise(weaker: tuple[o.Sem, o.Sem]) -> None:
    """Load buffering: nothing but acquire and release keeps both CTAs from finding the other's addition in the first
    word and not in the second."""
    assert isinstance(check(two_words(ACQ_REL, ACQ_REL)), Proved)
    proof = check(two_words(*weaker))
    assert isinstance(proof, Unknown)
    assert "in a circle" in proof.reason


def set_by(ordered: bool) -> Protocol:
    """A flag that one CTA sets and the other one sets back; ``ordered``: once it has seen it set."""
    b = Build("set", grid=2, resident=2)
    flag = b.counter("flag", reset=True)
    with b.role("cta", 1) as c:
        with c.when(sym("cta").eq(0)):
            c.one(o.FlagStore(flag[0], 1))
        with c.when(sym("cta").eq(1)):
            if ordered:
                c.one(o.SpinWait(flag[0], C(1)))
            c.one(o.FlagStore(flag[0], 0, RELAXED))
    return b.protocol()


def test_stores_to_a_word_must_be_ordered() -> None:
    assert isinstance(check(set_by(True)), Proved)
    assert isinstance(check(set_by(False)), Unknown)


def test_counters_behind_open_loops_end_in_an_answer() -> None:
    """Each tile its own word would be another matter; one word for all tiles has no recurrence."""
    b = Build("persistent", grid=2)
    tiles, done = b.symbol("tiles"), b.counter("done", reset=True)
    with b.role("cta", 32) as c, c.loop("t", tiles):
        c.one(o.AtomAdd(done[0], sem=RELEASE))
    assert isinstance(verify(b.protocol()).proof, Unknown)


# -- form --------------------------------------------------------------------------------------------------------------
FORM: dict[str, tuple[Callable[[], Protocol], str]] = {
    "more resident than there are": (lambda: grids.neighbours(2, resident=3), "MBR002"),
    "red acquires nothing": (lambda: altered(meet, o.AtomAdd, sem=ACQ_REL), "MBR002"),
    "a store acquires nothing": (lambda: altered(near, o.FlagStore, sem=ACQ_REL), "MBR002"),
    "a load releases nothing": (lambda: altered(near, o.SpinWait, sem=RELEASE), "MBR002"),
    "another CTA's memory": (
        lambda: altered(grids.by_copy(), o.Read, 0, region=o.Region("inbox", C(0), 16, C(1))), "MBR002"
    ),
    "an undeclared counter": (lambda: altered(near, o.SpinWait, word=o.Word("flag")), "MBR006"),
    "counters in a cluster": (lambda: replace(grids.in_turn(1), cluster=2), "MBR002"),
    "a grid in clusters": (lambda: replace(near, cluster=2), "MBR002"),
    "a ticket in no bytes": (lambda: reworded(turn, '"ticket", "shared", 4', '"ticket", "shared", 2'), "MBR002"),
    "a loop to a ticket": (
        lambda: reworded(grids.tiles(), "for turn in range(0, 3, 1)", "for turn in range(0, ticket, 1)"), "MBR005"
    ),
    "additions by all threads": (lambda: reworded(meet, "elected(AtomAdd", "all(AtomAdd"), "MBR003"),
    "additions by each warp": (lambda: reworded(meet, "elected(AtomAdd", "per_warp(AtomAdd"), "MBR003"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORM)
def test_bad_form_is_named(name: str) -> None:
    build, code = FORM[name]
    try:
        codes = {d.code for d in problems(build())}
    except TilewrightError as e:
        codes = {d.code for d in e.diagnostics}
    assert code in codes


@pytest.mark.parametrize("build", grids.ALL, ids=lambda f: f.__name__)
def test_grids_read_back(build: Callable[[], Protocol]) -> None:
    assert from_text(to_text(build())) == build()


def test_a_word_outside_its_counter_is_refuted() -> None:
    proof = check(altered(near, o.FlagStore, word=o.Word("flags", sym("cta") + 1)))
    assert isinstance(proof, Refuted)
    assert proof.witness.code == "MBR035"


@pytest.mark.parametrize("build", grids.ALL, ids=lambda f: f.__name__)
def test_a_timed_run_comes_to_its_end(build: Callable[[], Protocol]) -> None:
    assert not run_timed(build(), {"kt": 3}).stuck


def test_a_timed_run_waits_for_ever_for_what_never_happens() -> None:
    assert run_timed(altered(meet, o.SpinWait, least=C(4)), {}).stuck
