"""Counters of programs and of rings: what bounds them is asked of every launch, neither more nor less."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.dialects.builtin import StringAttr

import tilewright as tw
from support import products as p
from support.parsed import transport_kernel
from tilewright.artifact.schema import MAX_EXTENT, Artifact
from tilewright.base.expr import Const, Expr, Sym, maximum, parse
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.counters import uncounted
from tilewright.validate.launch_recipe import recipe_faults

pytestmark = pytest.mark.sample(1)

PROGRAMS = "((M + 63) // 64)*((N + 63) // 64)"
TAKEN = f"({PROGRAMS} + 131) // 132"
STEPS = "(K + 63) // 64"


def lowered(kernel: p.Kernel = p.nt, dtypes: dict[str, str] | None = None, **candidate: int) -> t.Kernel:
    found = p.lower(kernel, Candidate(1, stages=2, **candidate), dtypes=dtypes)
    assert not isinstance(found, Refused), found.reason
    return found.scheduled.kernel


def fits(text: str, limit: int = MAX_EXTENT) -> Expr:
    return parse(f"{text} <= {limit}")


def open_counts(kernel: t.Kernel, *facts: Expr) -> set[str]:
    return {name for name, _ in uncounted(kernel, facts)}


def test_programs_and_uses_of_a_ring_are_bounded_by_facts() -> None:
    kernel = lowered()
    assert open_counts(kernel) == {"programs", "$i_a_b"}
    assert open_counts(kernel, fits(PROGRAMS)) == {"$i_a_b"}
    assert open_counts(kernel, fits(PROGRAMS), fits(f"({TAKEN})*({STEPS})")) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        fits(f"({TAKEN})*({STEPS})", MAX_EXTENT + 1),
        fits(f"({TAKEN})*(K // 64)"),
        fits(f"(({PROGRAMS} + 131) // 133)*({STEPS})"),
        fits(f"({TAKEN})*({STEPS}) - 1"),
        fits(STEPS),
        parse(f"{MAX_EXTENT} <= ({TAKEN})*({STEPS})"),
    ],
    ids=["a limit one above", "steps rounded down", "a CTA more", "one fewer", "of one program", "the other way"],
)
def test_less_than_that_is_not_enough(wrong: Expr) -> None:
    assert open_counts(lowered(), fits(PROGRAMS), wrong) == {"$i_a_b"}


def test_more_than_that_is() -> None:
    assert open_counts(lowered(), fits(f"{PROGRAMS} + M"), fits(f"({TAKEN})*({STEPS} + 1)")) == set()


@pytest.mark.parametrize("by", [1, 2])
def test_what_is_added_in_a_step_counts(by: int) -> None:
    kernel = lowered()
    for op in kernel.walk():
        if isinstance(op, a.Advance):
            op.attributes["by"] = ExprAttr.of(Const(by))
    found = open_counts(kernel, fits(PROGRAMS), fits(f"({TAKEN})*({STEPS})"))
    assert found == (set() if by == 1 else {"$i_a_b"})


@pytest.mark.parametrize(("more", "found"), [(0, set()), (1, {"$i_a_b"})])
def test_a_step_more_than_the_fact_has(more: int, found: set[str]) -> None:
    kernel = lowered()
    for op in kernel.walk():
        if isinstance(op, t.For):
            op.attributes["end"] = ExprAttr.of(op.end.expr + more)
    assert open_counts(kernel, fits(PROGRAMS), fits(f"({TAKEN})*({STEPS})")) == found


def test_a_counter_of_no_bound_is_open() -> None:
    """A step that a symbol gives, of which nothing is known."""
    kernel = lowered()
    for op in kernel.walk():
        if isinstance(op, a.Advance):
            op.attributes["by"] = ExprAttr.of(parse("n"))
    assert "$i_a_b" in open_counts(kernel, fits(PROGRAMS), fits(f"({TAKEN})*({STEPS})"))


def test_threads_that_take_turns_count_to_the_end_of_the_last_turn() -> None:
    """Of an odd number of programs the set of threads that took the last counts the uses of one more."""
    kernel = lowered(ping_pong=2)
    assert open_counts(kernel, fits(PROGRAMS), fits(f"({TAKEN})*({STEPS})")) == {"$i_a_b"}
    assert open_counts(kernel, fits(PROGRAMS), fits(f"({TAKEN} + 1)*({STEPS})")) == set()


@tw.kernel
def attend(
    q: tw.Tensor["M", 64],
    k: tw.Tensor["T", 64],
    v: tw.Tensor["T", 64],
    o: tw.Tensor["M", 64],
    *,
    length: tw.i32,
    bq: int = 64,
    bk: int = 64,
):
    """Its stream may have no steps: the first one, whole ones, others and the last are loops of their own."""
    m = tw.grid(q, bq)
    query, total, acc = q[m], tw.zeros((m,), tw.f32), tw.zeros((m, 64), tw.f32)
    for n in tw.stream(k.shape[0], bk, until=length):
        p = tw.exp(tw.dot(query, k[n].T))
        total.set(total + p.sum(1))
        acc += tw.dot(p.to(q.dtype), v[n])
    o[m] = acc / total[:, None]


STEPS_OF_KEYS = "max((min(T, length) + 63) // 64, 0)"
QUERIES = "(M + 63) // 64"


def pipelined() -> t.Kernel:
    found = p.lower(attend, Candidate(1, stages=2, software_pipelined=True))
    assert not isinstance(found, Refused), found.reason
    return found.scheduled.kernel


def test_loops_over_parts_of_one_range_count_it_once() -> None:
    asked = fits(QUERIES), fits(f"(({QUERIES} + 131) // 132)*({STEPS_OF_KEYS})")
    assert open_counts(pipelined(), *asked) == set()


@pytest.mark.parametrize(("stop", "once"), [("min($leading, 1, {0})", True), ("min($leading, {0})", False)])
def test_a_part_that_ends_at_a_minimum_goes_on_to_less_than_all_of_its_arguments(stop: str, once: bool) -> None:
    """0 .. min(leading, 1, n), then on to min(1, n): what the first stops at is at most that."""
    kernel = pipelined()
    role = next(op for op in kernel.walk() if isinstance(op, a.Role))
    first = next(op for op in role.walk() if isinstance(op, t.For))
    block = first.parent_block()
    assert block is not None
    begin = t.Let("$stop", parse(stop.format(STEPS_OF_KEYS).replace("$leading", "length")))
    rest = first.clone()
    block.insert_ops_before([begin], first)
    block.insert_op_after(rest, first)
    first.attributes["end"] = ExprAttr.of(Sym("$stop"))
    rest.attributes["begin"] = ExprAttr.of(maximum(Sym("$stop"), 0))
    asked = fits(QUERIES), fits(f"(({QUERIES} + 131) // 132)*({STEPS_OF_KEYS})")
    assert (open_counts(kernel, *asked) == set()) is once


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_parts_that_overlap_count_twice(place: int) -> None:
    """Each of the four loops begins a step earlier in turn."""
    kernel = pipelined()
    role = next(op for op in kernel.walk() if isinstance(op, a.Role))
    loops = [op for op in role.walk() if isinstance(op, t.For)]
    assert len(loops) == 4
    loops[place].attributes["begin"] = ExprAttr.of(loops[place].begin.expr - 1)
    asked = fits(QUERIES), fits(f"(({QUERIES} + 131) // 132)*({STEPS_OF_KEYS})")
    assert open_counts(kernel, *asked)


def test_a_counter_of_another_name_is_another_counter() -> None:
    kernel = lowered()
    for op in kernel.walk():
        if isinstance(op, a.Advance):
            op.attributes["symbol"] = StringAttr("$other")
    assert open_counts(kernel, fits(PROGRAMS)) == set()


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build(plan(p.request(p.nt)))


def test_an_artifact_asks_for_all_its_counters(artifact: Artifact) -> None:
    """Each fact of counters is needed: without it, or with a limit one higher, the recipe is refused."""
    kernels = {image.symbol: transport_kernel(image.transport_ir) for image in artifact.kernels}
    assert recipe_faults(artifact, kernels) == ()
    counted = [fact for fact in artifact.facts if str(fact).endswith(f"<= {MAX_EXTENT}")]
    assert len(counted) == 2
    for fact in counted:
        others = tuple(f for f in artifact.facts if f != fact)
        weaker = parse(str(fact).replace(f"<= {MAX_EXTENT}", f"<= {MAX_EXTENT + 1}"))
        for facts in (others, (*others, weaker)):
            faults = recipe_faults(replace(artifact, facts=facts), kernels)
            assert faults
            assert all(fault.required == f"at most {MAX_EXTENT}" for fault in faults)


def test_an_artifact_whose_threads_take_turns_asks_for_theirs() -> None:
    request = replace(p.request(p.nt), schedule=tw.Schedule(mode="pingpong"))
    made = build(plan(request))
    kernels = {image.symbol: transport_kernel(image.transport_ir) for image in made.kernels}
    (walks,) = ({op.interleaving[1] for op in k.walk() if isinstance(op, t.Programs)} for k in kernels.values())
    assert 2 in walks
    assert recipe_faults(made, kernels) == ()


@tw.kernel
def parts(
    x: tw.Tensor["M", "K"],
    w: tw.Tensor["N", "K"],
    y: tw.Tensor["C", "M", "N"],
    *,
    chunk: tw.i32,
    bm: int = 64,
    bn: int = 64,
):
    """Products over parts of k whose length is an argument."""
    c, m, n = tw.grid(y, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    share = tw.maximum(chunk, 0) * 64
    for k in tw.stream(x.shape[1], 64, start=c * share, until=tw.minimum(x.shape[1], (c + 1) * share)):
        acc += tw.dot(x[m, k], w[n, k].T)
    y[c, m, n] = acc


def test_streams_may_begin_at_products_of_arguments_and_programs() -> None:
    assert "programs" in open_counts(lowered(parts, dtypes={"y": "f32"}))
