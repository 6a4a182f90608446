"""Programs of ragged grids are drawn from a queue: each once, by one thread of a CTA, for all of its roles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Operation

import tilewright as tw
from hopper.test_grouped import DTYPES, GROUPS, counts, drawn, exact, grouped, lowered
from support.parsed import tile_kernel, transport_kernel
from support.ptx_driver import run_artifact
from tilewright import simulate
from tilewright.artifact.schema import MAX_EXTENT, Artifact, Fill, WorkspacePointer
from tilewright.base.dtypes import DTYPES as BY_NAME
from tilewright.base.expr import Const, Sym, parse
from tilewright.base.verdict import Proved, Unknown
from tilewright.codegen import cuda
from tilewright.compiler.counter_bounds import counters_fit
from tilewright.compiler.index_promise_tests import run_promise_tests
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.compiler.proofs.promise_gate import require_gate
from tilewright.compiler.proofs.queue import QUEUE, prove_queue
from tilewright.compiler.proofs.steps import certify_steps
from tilewright.compiler.proofs.uniform import prove_uniform
from tilewright.compiler.reliance import TAKEN
from tilewright.compiler.specialisation import Request, default_facts
from tilewright.compiler.steps_reproved import steps_reproved
from tilewright.hw.target import SM90A
from tilewright.lang.signature import Signature
from tilewright.ops import kernels
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.ops import NEXT
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.counters import uncounted
from tilewright.validate.launch_recipe import recipe_faults

pytestmark = pytest.mark.sample(1)


@tw.kernel
def added_products(
    offsets: Annotated[tw.Offsets, "G + 1"],
    a: Annotated[tw.Tensor, "M", "K"],
    b: Annotated[tw.Tensor, "G", "N", "K"],
    c: Annotated[tw.Tensor, "M", "N"],
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64), rest="keep")
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] += acc


@pytest.mark.parametrize("ends", [[10, 20, 30], [45, 60, 210], [0, 64, 70]])
def test_a_call_on_arrays_does_each_program_once(ends: list[int]) -> None:
    """Fewer programs than the GPU has CTAs, so that no launch sets the counter, and more than CTAs are simulated."""
    arrays = drawn([0, *ends])
    added = np.ones_like(arrays["c"])
    added_products(arrays["offsets"], arrays["a"], arrays["b"], added)
    np.testing.assert_allclose(added.astype(np.float64), exact(arrays) + 1, atol=0.15)


@pytest.mark.parametrize("grid", [1, 2, 7])
def test_each_program_is_drawn_once(grid: int) -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    arrays, given = drawn(GROUPS["several"]), counts()
    programs = (-(-len(arrays["a"]) // 64) + len(GROUPS["several"]) - 1) * -(-arrays["c"].shape[1] // 64)
    simulate.run(kernel, {**arrays, **given}, grid_size=grid)
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)
    assert given[TAKEN][0] == programs  # each CTA draws until it is given a number that is no program's


def test_a_launch_with_a_cta_for_each_program_draws_none() -> None:
    """Its counter may be anything, so that no step has to set it."""
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    arrays, given = drawn(GROUPS["several"]), counts()
    given[TAKEN][0] = 12345
    simulate.run(kernel, {**arrays, **given}, grid_size=(4 + 5) * 2)
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)
    assert given[TAKEN][0] == 12345


@pytest.mark.slow
def test_the_order_in_which_ctas_draw_does_not_matter() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    found = []
    for seed in range(4):
        arrays = drawn(GROUPS["several"])
        simulate.run(kernel, {**arrays, **counts()}, seed=seed, grid_size=5)
        found.append(arrays["c"].view(np.uint16))
    assert all((other == found[0]).all() for other in found)


def test_a_counter_that_is_not_reset_leaves_programs_out() -> None:
    """What the proof about the steps before is for."""
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    arrays, given = drawn(GROUPS["several"]), counts()
    given[TAKEN][0] = 3
    simulate.run(kernel, {**arrays, **given}, grid_size=2)
    assert np.isnan(arrays["c"].astype(np.float64)).any()


def test_others_are_dealt() -> None:
    for candidate, align in ((Candidate(1, stages=2), 8), (Candidate(1, copies=False), 16)):
        kernel = lowered(candidate, align).scheduled.kernel
        assert not any(isinstance(op, t.Draw) for op in kernel.walk())
        assert all(op.drawn is None for op in kernel.walk() if isinstance(op, t.Programs))


# -- what is refused ---------------------------------------------------------------------------------------------------
def of(kernel: t.Kernel, kind: type[Any], role: str, where: Callable[[Any], bool] = lambda _: True) -> Any:
    """The first op of a kind in a role."""
    (inside,) = (op for op in kernel.walk() if isinstance(op, a.Role) and op.label.data == role)
    return next(op for op in inside.walk() if isinstance(op, kind) and where(op))


def draws_twice(kernel: t.Kernel) -> None:
    draw = of(kernel, t.Draw, "producer")
    draw.parent.insert_op_after(draw.clone(), draw)


def tells_another_number(kernel: t.Kernel) -> None:
    draw = of(kernel, t.Draw, "producer")
    write = of(kernel, t.SharedWrite, "producer", lambda op: op.buffer == draw.buffer)
    other = t.Registers("other", tile.tensor_type(draw.tensor).element, 1)
    draw.parent.insert_op_before(other, draw)
    write.operands[1] = other.buffer


def consumers_are_dealt(kernel: t.Kernel) -> None:
    del of(kernel, t.Programs, "consumer").attributes["drawn"]


def all_are_dealt(kernel: t.Kernel) -> None:
    for role in ("producer", "consumer"):
        del of(kernel, t.Programs, role).attributes["drawn"]


def draws_beyond_another_number(kernel: t.Kernel) -> None:
    draw = of(kernel, t.Draw, "producer")
    draw.attributes["programs"] = ExprAttr.of(draw.programs.expr - 1)


def counts_in_the_flags(kernel: t.Kernel) -> None:
    place = [n.data for n in kernel.arg_names].index(TAKEN)
    of(kernel, t.Draw, "producer").operands[0] = kernel.body.block.args[place - 1]


def all_threads_draw(kernel: t.Kernel) -> None:
    elected = of(kernel, a.Elected, "producer")
    for op in list(elected.body.block.ops):
        op.detach()
        elected.parent.insert_op_before(op, elected)
    elected.detach()


def draws_once_a_launch(kernel: t.Kernel) -> None:
    draw = of(kernel, t.Draw, "producer")
    (walk,) = (op for op in around(draw) if isinstance(op, t.Programs))
    draw.detach()
    walk.parent.insert_op_before(draw, walk)


def around(op: Operation) -> list[Operation]:
    parent = op.parent_op()
    return [] if parent is None else [parent, *around(parent)]


@pytest.mark.parametrize(
    "change",
    [
        draws_twice,
        tells_another_number,
        consumers_are_dealt,
        all_are_dealt,
        counts_in_the_flags,
        all_threads_draw,
        draws_once_a_launch,
    ],
    ids=lambda f: f.__name__,
)
def test_other_queues_are_not_proved(change: Callable[[t.Kernel], None]) -> None:
    found = lowered(Candidate(1, stages=3))
    kernel = found.scheduled.kernel
    assert isinstance(prove_queue(found.tile, kernel), Proved)
    change(kernel)
    assert isinstance(prove_queue(found.tile, kernel), Unknown)


def reads_before_it_is_told(kernel: t.Kernel) -> None:
    bind = of(kernel, t.Bind, "consumer", lambda op: op.symbol.data == NEXT)
    wait = [op for op in bind.parent.ops if isinstance(op, a.MbarrierWait) and op.is_before_in_block(bind)][-1]
    wait.detach()


def does_not_give_the_slot_back(kernel: t.Kernel) -> None:
    bind = of(kernel, t.Bind, "consumer", lambda op: op.symbol.data == NEXT)
    next(op for op in bind.parent.ops if isinstance(op, a.MbarrierArrive) and bind.is_before_in_block(op)).detach()


def overwrites_the_slot(kernel: t.Kernel) -> None:
    draw = of(kernel, t.Draw, "producer")
    next(op for op in draw.parent.ops if isinstance(op, a.MbarrierWait) and draw.is_before_in_block(op)).detach()


@pytest.mark.parametrize(
    "change", [reads_before_it_is_told, does_not_give_the_slot_back, overwrites_the_slot], ids=lambda f: f.__name__
)
def test_every_wait_and_arrival_of_the_slot_is_needed(change: Callable[[t.Kernel], None]) -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    assert isinstance(prove_uniform(kernel), Proved)
    assert isinstance(prove_protocols(kernel), Proved)
    change(kernel)
    assert not (isinstance(prove_uniform(kernel), Proved) and isinstance(prove_protocols(kernel), Proved))


def test_a_draw_outside_of_the_gate_is_refused() -> None:
    found = lowered(Candidate(1, stages=3))
    kernel = found.scheduled.kernel
    draw = of(kernel, t.Draw, "producer")
    (gate,) = (op for op in around(draw) if isinstance(op, t.For))
    draw.detach()
    assert gate.parent is not None
    gate.parent.insert_op_before(draw, gate)
    with pytest.raises(tw.TilewrightError, match="CRT010"):
        require_gate(found.tile, kernel)


# -- the steps before --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return grouped.compile(dtypes=DTYPES)


def test_the_counter_is_filled_with_zeros_before(artifact: Artifact) -> None:
    (made,) = artifact.variants
    assert any(o.name == QUEUE for o in made.certificate)
    assert any(o.name == QUEUE for o in artifact.kernel("kernel_grouped").certificate)
    function: Any = grouped
    given = {name: BY_NAME[dtype] for name, dtype in DTYPES.items()}
    request = Request(function, Signature.of(given), default_facts(function), SM90A, tw.Schedule())
    (variant,) = plan(request).variants
    assert variant.before == ()
    kernels = {"kernel_grouped": variant}
    assert certify_steps(made.steps, kernels, made.predicate, variant.promises)
    (fill,) = (s for s in made.steps if isinstance(s, Fill))
    assert fill.count.evaluate({"T": 64, "G": 1, "N": 64 * 66}) == 0  # 132 programs
    assert fill.count.evaluate({"T": 64, "G": 1, "N": 64 * 66 + 1}) == 1
    again = (*made.steps, made.steps[-1])
    with pytest.raises(tw.TilewrightError, match=r"order: .* both count in workspace"):
        certify_steps(again, kernels, made.predicate, variant.promises)
    others = (replace(fill, pattern=1), replace(fill, count=Const(0)), replace(fill, destination=WorkspacePointer(0)))
    for other in (None, *others):
        steps = tuple(other if s is fill else s for s in made.steps)
        with pytest.raises(tw.TilewrightError, match=r"queue: .* no step fills with 0|order: .* before anything"):
            certify_steps(tuple(s for s in steps if s is not None), kernels, made.predicate, variant.promises)


def test_launches_one_after_another_draw_anew(artifact: Artifact) -> None:
    for name in ("several", "the last has all", "all empty"):
        simulated, executed = drawn(GROUPS[name]), drawn(GROUPS[name])
        grouped(**simulated)
        driver = run_artifact(artifact, executed)
        assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
        np.testing.assert_array_equal(executed["c"].view(np.uint16), simulated["c"].view(np.uint16))
    assert "atom.global.add" in artifact.kernel("kernel_grouped").ptx


def test_a_bundle_whose_counter_is_not_reset_is_refused(artifact: Artifact) -> None:
    kernels = {k.symbol: transport_kernel(k.transport_ir) for k in artifact.kernels}
    programs = {k.symbol: tile_kernel(k.tile_ir) for k in artifact.kernels}
    assert run_promise_tests(artifact, kernels, programs).differences == ()
    (variant,) = artifact.variants
    assert steps_reproved(variant, kernels, programs, {})[1] == ()
    without = replace(variant, steps=tuple(s for s in variant.steps if not isinstance(s, Fill)))
    assert "before anything fills it" in " ".join(steps_reproved(without, kernels, programs, {})[1])
    faults = recipe_faults(replace(artifact, variants=(without,)), kernels)
    assert any("set to 0 where" in str(fault) for fault in faults)


# -- what a CTA counts -------------------------------------------------------------------------------------------------
def names_a_use(kernel: t.Kernel) -> None:
    wait = of(kernel, a.MbarrierWait, "consumer", lambda op: "i_a" in str(op.parity.expr))
    wait.attributes["parity"] = ExprAttr.of(wait.parity.expr + Sym("$i_a_b") // 1024)


def has_another_period(kernel: t.Kernel) -> None:
    of(kernel, a.Counter, "consumer").attributes["period"] = IntAttr(4)


@pytest.mark.parametrize("change", [names_a_use, has_another_period], ids=lambda f: f.__name__)
def test_of_the_uses_of_a_pipeline_a_remainder_matters(change: Callable[[t.Kernel], None]) -> None:
    found = lowered(Candidate(1, stages=3))
    kernel = found.scheduled.kernel
    programs = parse(f"({' * '.join(f'({g.expr})' for g in found.tile.grid)}) <= {MAX_EXTENT}")
    assert not any(op.start.data for op in kernel.walk() if isinstance(op, a.Counter))
    assert set(uncounted(kernel, [programs])) == set()
    change(kernel)
    assert isinstance(prove_queue(found.tile, kernel), Unknown)
    assert {name for name, _ in uncounted(kernel, [programs])} == {"$i_a_b"}


@pytest.mark.slow
@pytest.mark.parametrize("period", [6, 5])
def test_uses_beyond_31_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, period: int) -> None:
    """Of a CTA that has made nearly as many already as an ``int`` counts: between programs it takes their remainder."""
    emit = cuda.emit_kernel

    def late(kernel: t.Kernel, **options: bool) -> cuda.Emitted:
        made = kernel.clone()
        for op in made.walk():
            if isinstance(op, a.Counter) and op.period is not None:
                op.attributes["start"] = IntAttr(((1 << 31) // op.period.data - 1) * op.period.data)
        found = emit(made, **options)
        return replace(found, source=found.source.replace("i_a_b %= 6;", f"i_a_b %= {period};"))

    monkeypatch.setattr("tilewright.compiler.build.emit_kernel", late)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    artifact = grouped.compile(dtypes=DTYPES, schedule=tw.Schedule(stages=3))
    assert artifact.kernel("kernel_grouped").source.count(f"i_a_b %= {period};") == 2  # roles
    arrays = drawn(GROUPS["one"], k=5 * 64, n=34 * 64)
    driver = run_artifact(artifact, arrays)
    wrong = [fault for _, report in driver.reports for fault in report.faults]
    right = not wrong and np.allclose(arrays["c"].astype(np.float64), exact(arrays), rtol=0.01, atol=0.15)
    assert right == (period == 6)


@pytest.mark.slow
def test_a_launch_of_many_rows_and_heads_is_served() -> None:
    """740,000 rows of 64 heads have 1.9 * 10^9 steps, if each lasts to the last key."""
    rows = dict.fromkeys("qkvo", "bf16") | {"q_offsets": "i32", "k_offsets": "i32"}
    absent = dict.fromkeys(("sinks", "lse", "q_used", "k_used"))
    planned = kernels.varlen_attention(128).plan(dtypes=rows, **absent, causal=True)
    asked = [count for variant in planned.variants for count in counters_fit(variant)]
    extents = {"M": 1_480_000, "N": 1_480_000, "H": 64, "B": 1}
    assert asked
    assert all(count.evaluate(extents) for count in asked)
