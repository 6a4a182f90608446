"""Loops whose counts roles write otherwise: from one symbol to another, as sums of counts, by groups of iterations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from gallery.entry import multiply
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.pipeline_roles import load
from tilewright.base.expr import Const, Expr
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, RoleBuilder
from tilewright.protocol import ops as o
from tilewright.protocol.model import Loop, Node, Step
from tilewright.verify import canonical_search, check
from tilewright.verify.canonical_runs.interpreter import Interpreter
from tilewright.verify.canonical_runs.search import interpreter
from tilewright.verify.loops import counted_from_zero, divided, otherwise_written, unrolled
from tilewright.verify.model_checker import exhaust
from tilewright.verify.rules import Policy

pytestmark = pytest.mark.sample(1)


def _use(c: RoleBuilder, use: Expr, stages: int = 3, late: bool = False) -> None:
    """Multiplies a stage and gives it back; ``late``: before the product has read it."""
    slot, stage = use % stages, o.Region("ab", use % stages * 1024, 1024)
    c.all(o.Wait(o.Slot("ab_full", slot), use // stages % 2))
    multiply(c, o.Region("acc", o.ZERO, 64), stage, pending=int(late))
    c.one(o.Arrive(o.Slot("ab_empty", slot)))


def between_two_symbols(wrong: bool) -> Protocol:
    """A part of a sum, from ``lo`` to ``hi``; wrong: the consumer begins at 0."""
    b = Build("between two symbols")
    lo, hi = b.symbol("lo"), b.symbol("hi")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as q:
        b.init(q)
        g = q.counter("g")
        with q.loop("k", hi, begin=lo):
            load(q, ring, g)
            q.advance(g)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", hi, begin=0 if wrong else lo) as k:
            _use(c, k if wrong else k - lo)
    return b.protocol()


def _masked_first(wrong: bool, carried: bool) -> Protocol:
    b = Build("masked first")
    masked, plain = b.symbol("masked"), b.symbol("plain")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as q:
        b.init(q)
        g = q.counter("g")
        with q.loop("k", masked + plain) as k:
            load(q, ring, g if carried else k)
            q.advance(g)
    with b.role("consumer", 128) as c:
        b.sync(c)
        g = c.counter("g")
        for end in (masked, plain):
            with c.loop("j", end):
                _use(c, g, late=wrong and end is plain)
                if end is masked:
                    c.all(o.WgmmaWait(0))
                    c.all(o.Read(acc.whole))
                c.advance(g)
        c.all(o.WgmmaWait(0))
    return b.protocol()


def masked_first(wrong: bool) -> Protocol:
    """Some turns are masked, the others are not, and one producer serves both; wrong: stages are given back early."""
    return _masked_first(wrong, carried=True)


def masked_first_by_counter(wrong: bool) -> Protocol:
    """The same with stages by the producer's loop counter."""
    return _masked_first(wrong, carried=False)


def two_stages_a_turn(wrong: bool) -> Protocol:
    """A product of two stages in each turn, which the producer fills one by one; wrong: one wait for both."""
    b = Build("two stages a turn")
    n = b.symbol("n")
    ring = b.pipeline("ab", 4, 1024, consumers=1)
    acc = b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as q:
        b.init(q)
        with q.loop("k", n * 2) as k:
            load(q, ring, k)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", n) as k:
            for i in (0,) if wrong else (0, 1):
                c.all(ring.consumer_wait(k * 2 + i))
            multiply(c, acc.whole, ring.stage(k * 2), ring.stage(k * 2 + 1))
            for i in range(2):
                c.one(ring.consumer_release(k * 2 + i))
    return b.protocol()


def _flat_and_nested(wrong: bool, producer: str, consumer: str) -> Protocol:
    """Blocks of ``n`` stages, ``m`` of them: in one loop or in two, numbered by counters of loops or by a carried one;
    wrong: the consumer has the other parity in the end."""
    b = Build(f"{producer} and {consumer}")
    m, n = b.symbol("m"), b.symbol("n")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    b.buffer("acc", 64, Space.REGISTER)

    def turns(r: RoleBuilder, kind: str, use: Callable[[Expr], None]) -> None:
        g = r.counter("g")
        if "flat" in kind:
            with r.loop("i", n * m) as i:
                use(i if "own" in kind else g)
                r.advance(g)
            return
        with r.loop("j", n if "other" in kind else m) as j:
            with r.loop("k", m if "other" in kind else n) as k:
                use(j * n + k if "own" in kind else g)
                r.advance(g)
            if "end" in kind:
                r.all(o.BarSync(Const(1), 128))

    with b.role("producer", 128) as q:
        b.init(q)
        turns(q, producer, lambda use: load(q, ring, use))
    with b.role("consumer", 128) as c:
        b.sync(c)
        turns(c, consumer, lambda use: _use(c, use + 3 * wrong))
    return b.protocol()


def tail(wrong: bool) -> Protocol:
    """The producer waits at the end until all its stages have been given back; wrong: and for one more."""
    b = Build("tail")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as q:
        b.init(q)
        with q.loop("k", kt) as k:
            load(q, ring, k)
        with q.loop("k", kt + 3 + int(wrong), begin=kt) as k:
            q.one(ring.producer_acquire(k))
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            _use(c, k)
    return b.protocol()


def flat_and_nested(wrong: bool) -> Protocol:
    return _flat_and_nested(wrong, "flat", "nested")


def flat_and_nested_by_loops(wrong: bool) -> Protocol:
    return _flat_and_nested(wrong, "flat, own", "nested, own")


def nested_by_loops(wrong: bool) -> Protocol:
    return _flat_and_nested(wrong, "nested, own", "nested, own")


def flat_and_blocks_with_an_end(wrong: bool) -> Protocol:
    return _flat_and_nested(wrong, "flat, own", "nested, end")


def nested_in_two_ways(wrong: bool) -> Protocol:
    return _flat_and_nested(wrong, "nested", "nested, other")


def test_blocks_of_constants_are_proved() -> None:
    b = Build("eight stages a block")
    m = b.symbol("m")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as q:
        b.init(q)
        with q.loop("i", m * 8) as i:
            load(q, ring, i)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("j", m) as j, c.loop("k", 8) as k:
            _use(c, j * 8 + k)
    assert isinstance(check(b.protocol()), Proved)


def test_blocks_that_no_form_is_proved_of_are_left_open_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search at fixed counts has a budget of steps (without it they took 22 s, now 1.5)."""
    b = Build("from one")
    m, n = b.symbol("m"), b.symbol("n")
    ring = b.pipeline("ab", 3, 1024, consumers=1)
    b.buffer("acc", 64, Space.REGISTER)
    with b.role("producer", 128) as q:
        b.init(q)
        with q.loop("j", m) as j, q.loop("k", n + j, begin=j) as k:
            load(q, ring, j * n + k - j)
    with b.role("consumer", 128) as c:
        b.sync(c)
        with c.loop("j", m) as j, c.loop("k", n + j, begin=j) as k:
            _use(c, j * n + k - j)
    run: list[Interpreter] = []

    def recorded(protocol: Protocol, policy: Policy) -> Interpreter:
        run.append(interpreter(protocol, policy))
        return run[-1]

    monkeypatch.setattr(canonical_search, "interpreter", recorded)
    assert isinstance(check(b.protocol()), Unknown)
    assert sum(each.spent for each in run) < 1_000_000  # 17 million without the budget


FORMS = (
    between_two_symbols, masked_first, masked_first_by_counter, two_stages_a_turn, flat_and_nested,
    flat_and_nested_by_loops, nested_by_loops, flat_and_blocks_with_an_end, nested_in_two_ways, tail,
)  # fmt: skip


@pytest.mark.parametrize("build", FORMS, ids=lambda f: f.__name__)
def test_right_forms_are_proved(build: Callable[[bool], Protocol]) -> None:
    p = build(False)
    assert any(otherwise_written(p))
    assert isinstance(check(p), Proved)


@pytest.mark.parametrize("build", FORMS, ids=lambda f: f.__name__)
def test_wrong_forms_are_refuted(build: Callable[[bool], Protocol]) -> None:
    assert isinstance(check(build(True)), Refuted)


@pytest.mark.parametrize("build", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("wrong", [False, True])
def test_other_forms_are_as_good(build: Callable[[bool], Protocol], wrong: bool) -> None:
    """By the model checker, at few iterations."""
    p = build(wrong)
    for count in (0, 1, 3):
        found = _harm(p, count)
        assert all(_harm(other, count) >= found for other in otherwise_written(p))


def _harm(p: Protocol, count: int) -> bool:
    """Whether the model checker finds harm where loops have so many iterations."""
    return exhaust(p, lambda name, _: count * (name != "lo")).finding is not None


def test_bounds_that_are_asked_for_elsewhere_stay() -> None:
    """How often the loop runs is not all that counts."""
    b = Build("asked elsewhere")
    lo, hi = b.symbol("lo"), b.symbol("hi")
    x = b.buffer("x", 64)
    with b.role("all", 32) as r:
        with r.loop("k", hi, begin=lo):
            r.all(o.Write(x.whole, private=True))
        with r.when(lo > 0):
            r.all(o.Read(x.whole, private=True))
    assert counted_from_zero(b.protocol()) == b.protocol()


def test_counts_that_may_be_negative_are_no_parts() -> None:
    b = Build("negative")
    one, two = b.symbol("one", least=-2), b.symbol("two")
    x = b.buffer("x", 64)
    with b.role("a", 32) as r, r.loop("k", one + two):
        r.all(o.Read(x.whole))
    with b.role("b", 32) as r:
        for end in (one, two):
            with r.loop("k", end):
                r.all(o.Read(x.whole))
    assert divided(b.protocol()) == b.protocol()


def test_loops_that_symbols_vary_with_stay() -> None:
    b = Build("varies")
    n = b.symbol("n")
    m = b.symbol("m", per="k")
    x = b.buffer("x", 64)
    with b.role("a", 32) as r, r.loop("k", n * 2), r.loop("j", m):
        r.all(o.Read(x.whole))
    with b.role("b", 32) as r, r.loop("i", n):
        r.all(o.Read(x.whole))
    assert unrolled(b.protocol()) == b.protocol()


# -- random loops: the same steps, one by one --------------------------------------------------------------------------
EXTENTS = ("n", "m", "lo", "hi")


@st.composite
def loops(draw: st.DrawFn) -> Protocol:
    """A few roles with loops between symbols, to sums of them, to multiples of them; bodies that count in all ways."""
    b = Build("random loops")
    n, m, lo, hi = (b.symbol(name) for name in EXTENTS)
    x = b.buffer("x", 1 << 20)
    ends = st.sampled_from([n, m, n + m, n * 2, m * 3, n + 1, hi - lo, n * m, m * n * 2, n * m - n])

    def body(r: RoleBuilder, counters: list[Expr], depth: int) -> None:
        for _ in range(draw(st.integers(1, 2))):
            if depth and draw(st.booleans()):
                begin, end = draw(st.sampled_from([(lo, hi), (n, n + 2), (0, draw(ends)), (0, draw(ends)), (1, n)]))
                with r.loop(f"k{depth}", end, begin=begin) as k:
                    body(r, [*counters, k], depth - 1)
            elif len(counters) > 2 and draw(st.booleans()):
                r.all(o.Read(x.at(counters[-2] * draw(ends) + counters[-1] + draw(st.integers(0, 1)), 1)))
            elif counters and draw(st.booleans()):
                place = draw(st.sampled_from(counters)) * draw(st.integers(1, 3)) + draw(st.integers(0, 2))
                r.all(o.Read(x.at(place, 1)))
            else:
                r.advance(counters[0], draw(st.integers(1, 2)))
                r.all(o.Read(x.at(counters[0], 1)))

    for name in "abc":
        with b.role(name, 32) as r:
            body(r, [r.counter("g")], 2)
    return b.protocol()


def test_parts_and_programs_have_the_same_steps() -> None:
    """Sums of some of a row's counts, of three of them, and turns that do not begin at 0."""
    b = Build("parts")
    n, m, lo, hi = (b.symbol(name) for name in EXTENTS)
    x = b.buffer("x", 1 << 20)
    for name, ends in {"row": (hi, n, m, lo), "two": (n + m,), "three": (n + m + lo,), "turns": (n * 2,)}.items():
        with b.role(name, 32) as r:
            g = r.counter("g")
            for end in ends:
                with r.loop("k", end, begin=int(name == "turns")) as k:
                    r.all(o.Read(x.at(k * 3 + g, 1)))
                    r.advance(g)
            with r.loop("j", n) as j:
                for end in ends:
                    with r.loop("i", end) as i:
                        r.all(o.Read(x.at(i * 3 + j, 1)))
    _same_steps(b.protocol())


def _steps(protocol: Protocol, values: dict[str, int]) -> dict[str, list[Expr]]:
    """Where each role reads, in order."""
    found: dict[str, list[Expr]] = {}
    for role in protocol.roles:
        state, out = {**values, **dict(role.counters)}, list[Expr]()

        def run(
            nodes: tuple[Node, ...], known: dict[str, int], state: dict[str, int] = state, out: list[Expr] = out
        ) -> None:
            for node in nodes:
                match node:
                    case Step(o.Advance(counter, by)):
                        state[counter] += by.evaluate({**state, **known})
                    case Step(o.Read() as op):
                        out.append(op.region.begin.substitute({n: Const(v) for n, v in {**state, **known}.items()}))
                    case Loop():
                        begin, end = (e.evaluate({**state, **known}) for e in (node.begin, node.end))
                        for i in range(begin, end, node.step):
                            run(node.body, {**known, node.counter: i}, state, out)
                    case _:
                        raise AssertionError(node)

        run(role.body, {})
        found[role.name] = out
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(loops())
def test_random_loops_have_the_same_steps(protocol: Protocol) -> None:
    _same_steps(protocol)


def _same_steps(protocol: Protocol) -> None:
    for other in otherwise_written(protocol):
        for n, m, lo, hi in product((0, 1, 3), (0, 2), (0, 2, 4), (2, 3)):
            known = {"n": n, "m": m, "lo": lo, "hi": hi}
            assert _steps(other, {**known, "hi_lo_count": max(hi - lo, 0)}) == _steps(protocol, known)
