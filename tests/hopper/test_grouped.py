"""Products of groups of rows: one launch over offsets on the device, whose promise holds back what relies on it."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.ir import Operation, Region

import tilewright as tw
from support import products as p
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright import simulate
from tilewright.artifact.schema import CHECKED, Artifact
from tilewright.base.dtypes import i32
from tilewright.base.expr import TRUE, Const, Sym, all_of
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.compiler.index_promises import gated_roles
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.compiler.proofs.promise_gate import require_gate
from tilewright.compiler.proofs.shared_memory import prove_initialised
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.proofs.uniform import prove_uniform
from tilewright.compiler.reliance import BROKEN, FAILED, TAKEN, promises_of
from tilewright.compiler.requests import assumptions_of
from tilewright.hw.target import SM90A
from tilewright.lang.enums import AtomicFn, BinaryFn, CompareFn
from tilewright.schedule.facts import TensorFacts
from tilewright.schedule.hopper import promise_gate as gate_of_roles
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.candidates import schedule
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.indirect import index_symbol
from tilewright.tile.ops import GATE, OPEN_COUNTER, exprs, string
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import protocols_of

pytestmark = pytest.mark.sample(1)

BF16 = ml_dtypes.bfloat16
DTYPES = {"offsets": "i32", "a": "bf16", "b": "bf16", "c": "bf16"}
ROWS, K, N = 210, 136, 72
GROUPS = {
    "several": [0, 0, 5, 70, 70, 200],
    "one": [0, 210],
    "one row each": [0, 1, 2, 3, 4, 5],
    "all empty": [0, 0, 0, 0],
    "the last has all": [0, 0, 0, 0, 210],
    "dozens": [0, *np.sort(np.random.default_rng(6).integers(0, 205, 40)), 205],
    "many": [0, *np.sort(np.random.default_rng(5).integers(0, 205, 300)), 205],
}


@tw.kernel
def grouped(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["T", "K"],
    b: tw.Tensor["G", "N", "K"],
    c: tw.Tensor["T", "N"],
    *,
    bm: int = 64,
    bn: int = 64,
    bk: int = 64,
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


def drawn(offsets: list[int], seed: int = 0, kind: type = np.int32, k: int = K, n: int = N) -> dict[str, np.ndarray]:
    rng, groups = np.random.default_rng(seed), len(offsets) - 1
    return {
        "offsets": np.array(offsets, kind),
        "a": rng.normal(size=(ROWS, k)).astype(BF16),
        "b": rng.normal(size=(groups, n, k)).astype(BF16),
        "c": np.full((ROWS, n), np.nan, BF16),
    }


def exact(arrays: dict[str, np.ndarray]) -> np.ndarray:
    found = np.zeros(arrays["c"].shape)
    for g, (low, high) in enumerate(pairwise(arrays["offsets"])):
        found[low:high] = arrays["a"][low:high].astype(np.float64) @ arrays["b"][g].astype(np.float64).T
    return found


def lowered(candidate: Candidate, align: int = 16, *, flag: bool = False, **keywords: object) -> p.Lowered:
    """The kernel under one candidate, behind a gate that its CTAs judge, or that a ``flag`` of a step before opens."""
    asked = p.request(grouped, "bf16", align, {"offsets": "i32"}, **keywords)
    whole = p.traced(asked)
    made = gated_roles(whole, promises_of(whole), judges=not flag)
    known = ((name, TensorFacts(0, 16)) for name in (BROKEN, FAILED, TAKEN))
    facts = asked.facts.__class__((*asked.facts.tensors, *known))
    answer = schedule(made, facts, SM90A, candidate, assumptions_of(made, facts))
    assert not isinstance(answer, Refused), answer.reason
    return p.Lowered(made, asked, answer)


def counts() -> dict[str, np.ndarray]:
    """What a launch leaves to a gated kernel."""
    return {FAILED: np.array([3], np.int32), TAKEN: np.zeros(1, np.int32)}


CANDIDATES: dict[str, tuple[Candidate, int, dict[str, int]]] = {
    "one warpgroup": (Candidate(1, stages=3), 16, {}),
    "two": (Candidate(2, stages=2), 16, {"bm": 128}),
    "stored from registers": (Candidate(1, stages=2, matrix_stores=False), 16, {}),
    "copied by threads": (Candidate(1, stages=2), 8, {}),
    "without a producer": (Candidate(1, copies=False), 16, {}),
    "ordinary": (Candidate(1, copies=False, matrix_stores=False, ordinary=True), 16, {}),
}


@pytest.mark.parametrize("name", rest_slow(CANDIDATES, ("two", "copied by threads", "ordinary")))
def test_schedules_are_proved_and_multiply_groups(name: str) -> None:
    candidate, align, keywords = CANDIDATES[name]
    found = lowered(candidate, align, **keywords)
    kernel = found.scheduled.kernel
    certificate = prove(found.tile, kernel, check_descriptors(kernel))
    assert not isinstance(certificate, str), certificate
    (once,) = (o for o in certificate if o.name == "once")
    assert once.method.endswith("by offsets(offsets)")
    for seed, offsets in enumerate((GROUPS["several"], GROUPS["the last has all"])):
        arrays = drawn(offsets, seed)
        simulate.run(kernel, {**arrays, **(given := counts())}, seed=seed, grid_size=3 + seed)
        assert given[FAILED][0] == 3
        np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)


def test_no_role_does_anything_behind_a_gate_that_is_closed() -> None:
    for flag in (1, -1, 2**31 - 1):
        kernel, arrays = lowered(Candidate(1, stages=3), flag=True).scheduled.kernel, drawn(GROUPS["several"])
        given = {BROKEN: np.array([flag], np.int32), TAKEN: np.zeros(1, np.int32)}
        simulate.run(kernel, {**arrays, **given}, grid_size=3)
        assert np.isnan(arrays["c"].astype(np.float32)).all()
    for offsets in ([*GROUPS["several"][:-1], 211], [1, 5, 30], [0, 7, 6, 6]):
        kernel, arrays, given = lowered(Candidate(1, stages=3)).scheduled.kernel, drawn(offsets), counts()
        simulate.run(kernel, {**arrays, **given}, grid_size=3)
        assert np.isnan(arrays["c"].astype(np.float32)).all()
        assert given == {FAILED: 6, TAKEN: 0}  # by each of three CTAs
    ways = [sum(1 for role in protocol.roles for _ in role.body) for protocol in protocols_of(kernel)]
    assert len(ways) == 2
    assert min(ways) < max(ways)


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return grouped.compile(dtypes=DTYPES)


@pytest.mark.parametrize("name", rest_slow(GROUPS, [name for name in GROUPS if name != "many"]))
def test_groups(name: str, artifact: Artifact) -> None:
    k, n = (8, 8) if name in ("dozens", "many") else (K, N)  # one tile each: many ask for the search
    simulated, executed = drawn(GROUPS[name], k=k, n=n), drawn(GROUPS[name], k=k, n=n)
    grouped(**simulated)
    tw.check()
    np.testing.assert_allclose(simulated["c"].astype(np.float64), exact(simulated), atol=0.15)
    driver = run_artifact(artifact, executed)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_array_equal(executed["c"].view(np.uint16), simulated["c"].view(np.uint16))


@pytest.mark.parametrize(
    "offsets",
    [
        [0, 5, 5, 4, 30, 210],  # one less than the one before it
        [1, 5, 5, 5, 30, 210],  # begins behind the first row
        [0, 5, 5, 5, 30, 211],  # ends one behind the last
        [0, -1, 5, 5, 30, 210],
        [0, 5, 5, 2**31 - 1, 30, -(2**31)],
    ],
)
def test_nothing_is_stored_unless_offsets_ascend(offsets: list[int], artifact: Artifact) -> None:
    simulated, executed = drawn(offsets), drawn(offsets)
    with pytest.raises(tw.TilewrightError, match=r"offsets\(offsets\) of grouped"):
        grouped(**simulated)
    driver = run_artifact(artifact, executed)
    with pytest.raises(tw.TilewrightError, match="RUN023"):
        tw.check()
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    for arrays in (simulated, executed):
        assert np.isnan(arrays["c"].astype(np.float32)).all()


def test_the_certificate_names_the_promise(artifact: Artifact) -> None:
    (checked,) = (o for o in artifact.certificate if o.method == CHECKED)
    assert checked.name == "offsets(offsets)"
    assert "by each CTA, before any store" in checked.detail


def test_offsets_of_64_bits() -> None:
    arrays = drawn(GROUPS["several"], kind=np.int64)
    grouped(**arrays)
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)
    before = arrays["c"].astype(np.float64)
    arrays["offsets"][2] = 2**32 + 5
    with pytest.raises(tw.TilewrightError, match="RUN023"):
        grouped(**arrays)
    assert (arrays["c"][:200].astype(np.float64) == before[:200]).all()


# -- few rows a group --------------------------------------------------------------------------------------------------
@tw.kernel
def sized(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["T", "K"],
    b: tw.Tensor["G", "N", "K"],
    c: tw.Tensor["T", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@pytest.fixture(scope="module")
def sized_artifact() -> Artifact:
    return sized.compile(dtypes=DTYPES)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "swapped"), [(32 * 7, True), (32 * 7 + 1, False)])
def test_few_rows_a_group_swap_operands(rows: int, swapped: bool, sized_artifact: Artifact) -> None:
    few, *others = sized_artifact.variants
    assert bool(few.predicate.evaluate({"T": rows, "G": 7, "N": 256, "K": 64})) is swapped
    assert "swapped" in {o.name for o in few.certificate}
    assert all("swapped" not in {o.name for o in other.certificate} for other in others)


@pytest.mark.parametrize("offsets", [[0, 0, 5, 40, 40, 75, 80, 113, 205], [0, *[210] * 9]], ids=("several", "one"))
def test_groups_of_few_rows(offsets: list[int], sized_artifact: Artifact) -> None:
    simulated, executed = drawn(offsets), drawn(offsets)
    sized(**simulated)
    tw.check()
    np.testing.assert_allclose(simulated["c"].astype(np.float64), exact(simulated), atol=0.15)
    driver = run_artifact(sized_artifact, executed)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_array_equal(executed["c"].view(np.uint16), simulated["c"].view(np.uint16))


def test_broken_offsets_of_few_rows_store_nothing(sized_artifact: Artifact) -> None:
    arrays = drawn([0, 5, 4, 40, 40, 75, 80, 113, 205])
    run_artifact(sized_artifact, arrays)
    with pytest.raises(tw.TilewrightError, match="RUN023"):
        tw.check()
    assert np.isnan(arrays["c"].astype(np.float32)).all()


# -- what the proofs of the gate rest on -------------------------------------------------------------------------------
def refused(kernel: tile.Kernel, text: t.Kernel) -> str:
    with pytest.raises(tw.TilewrightError) as caught:
        require_gate(kernel, text)
    return str(caught.value)


def only(kernel: t.Kernel, kind: type[t.TransportOp], where: Callable[[t.TransportOp], bool]) -> t.TransportOp:
    (found,) = (op for op in kernel.walk() if isinstance(op, kind) and where(op))
    return found


def flags_map(kernel: t.Kernel) -> t.TransportOp:
    return next(op for op in kernel.body.block.ops if isinstance(op, t.Map))


def opens_at_one(kernel: t.Kernel) -> None:
    zero = next(op for op in flags_map(kernel).walk() if isinstance(op, tile.Constant))
    zero.attributes["value"] = tile.Constant(1, zero.result.type.element).value  # type: ignore[union-attr]


def opens_at_two_as_well(kernel: t.Kernel) -> None:
    """A flag that no number tried of it shows: what is compared with others than 0 is not tried."""
    made = flags_map(kernel).body.block  # type: ignore[attr-defined]
    closes = next(op for op in made.ops if isinstance(op, tile.Constant))
    ends, (two, one) = made.last_op, (tile.Constant(k, i32) for k in (2, 1))
    held = tile.Compare(CompareFn.EQ, made.args[0], two.result)
    chosen = tile.Select(held.result, one.result, ends.values[0])
    made.insert_ops_after([two, one], closes)
    made.insert_ops_before([held, chosen], ends)
    ends.operands[0] = chosen.result


def reads_the_offsets(kernel: t.Kernel) -> None:
    load = next(op for op in kernel.body.block.ops if isinstance(op, t.Load))
    load.operands[0] = kernel.body.block.args[0]


def guarded_load(kernel: t.Kernel) -> None:
    load = next(op for op in kernel.body.block.ops if isinstance(op, t.Load))
    load.attributes["guard"] = ExprAttr.of(Sym(t.THREAD) > 0)


def binds_what_it_loaded(kernel: t.Kernel) -> None:
    bind = only(kernel, t.Bind, lambda op: isinstance(op, t.Bind) and op.symbol.data == GATE)
    bind.operands[0] = flags_map(kernel).outputs[0]  # type: ignore[attr-defined]


def runs_in_any_case(kernel: t.Kernel) -> None:
    for op in kernel.walk():
        if isinstance(op, t.For) and op.counter.data == OPEN_COUNTER:
            op.attributes["end"] = ExprAttr.of(Const(1))


def consumers_ungated(kernel: t.Kernel) -> None:
    role = next(op for op in kernel.walk() if isinstance(op, a.Role) and op.label.data == "consumer")
    loop = next(op for op in role.body.block.ops if isinstance(op, t.For))
    (walk,) = loop.body.block.ops
    walk.detach()
    role.body.block.insert_op_before(walk, loop)
    loop.detach()


@pytest.mark.parametrize(
    "change",
    [
        opens_at_one,
        opens_at_two_as_well,
        reads_the_offsets,
        guarded_load,
        binds_what_it_loaded,
        runs_in_any_case,
        consumers_ungated,
    ],
    ids=lambda f: f.__name__,
)
def test_gates_that_open_otherwise_are_refused(change: Callable[[t.Kernel], None]) -> None:
    found = lowered(Candidate(1, stages=3), flag=True)
    kernel = found.scheduled.kernel
    require_gate(found.tile, kernel)
    change(kernel)
    assert "CRT010" in refused(found.tile, kernel)


# -- what the proofs of a gate rest on that each CTA judges ------------------------------------------------------------
def opening(kernel: t.Kernel, kind: type[t.TransportOp]) -> Any:
    """The first op of a kind before the roles part."""
    return next(op for op in kernel.body.block.ops if isinstance(op, kind))


def looks(kernel: t.Kernel, kind: type[Operation], number: int = 0) -> Any:
    """An op of the loop over the offsets."""
    return [op for op in opening(kernel, t.For).walk() if isinstance(op, kind)][number]


def no_barrier(kernel: t.Kernel) -> None:
    kernel.body.block.erase_op(opening(kernel, t.BarrierCount))


def a_barrier_that_counts_nothing(kernel: t.Kernel) -> None:
    count = opening(kernel, t.BarrierCount)
    kernel.body.block.insert_op_before(t.Barrier(), count)
    kernel.body.block.erase_op(count)


def opens_before_the_barrier(kernel: t.Kernel) -> None:
    count = opening(kernel, t.BarrierCount)
    bind = only(kernel, t.Bind, lambda op: isinstance(op, t.Bind) and op.symbol.data == GATE)
    count.detach()
    kernel.body.block.insert_op_after(count, bind)


def counts_other_registers(kernel: t.Kernel) -> None:
    count, other = opening(kernel, t.BarrierCount), t.Registers("other", i32, 1)
    kernel.body.block.insert_op_before(other, count)
    kernel.body.block.insert_op_before(t.Map([], [], [other.buffer], 1, constant(0)), count)
    count.operands[0] = other.buffer


def constant(number: int) -> Region:
    made = tile.Constant(number, i32)
    return t.block([made, t.Yield([made.result])])


def begins_with_one(kernel: t.Kernel) -> None:
    next(op for op in opening(kernel, t.Map).walk() if isinstance(op, tile.Constant)).attributes["value"] = (
        tile.Constant(1, i32).value
    )


def looks_at_whole_steps(kernel: t.Kernel) -> None:
    loop = opening(kernel, t.For)
    loop.attributes["end"] = ExprAttr.of(loop.end.expr - 1)


def looks_at_every_other(kernel: t.Kernel) -> None:
    load = looks(kernel, t.Load)
    load.attributes["coords"] = exprs([load.coords.data[0].expr + Sym(t.THREAD)])


def leaves_the_last_out(kernel: t.Kernel) -> None:
    load = looks(kernel, t.Load)
    load.attributes["guard"] = ExprAttr.of(load.coords.data[0].expr < Sym("G"))


def compares_with_itself(kernel: t.Kernel) -> None:
    load = looks(kernel, t.Load, 1)
    load.attributes["coords"] = looks(kernel, t.Load).coords


def looks_at_other_integers(kernel: t.Kernel) -> None:
    looks(kernel, t.Load).operands[0] = kernel.body.block.args[-1]


def falls_only_by_more(kernel: t.Kernel) -> None:
    looks(kernel, tile.Compare).attributes["fn"] = tile.Compare(CompareFn.EQ, *looks(kernel, tile.Compare).operands).fn


def has_another_limit(kernel: t.Kernel) -> None:
    looks(kernel, tile.ScalarExpr).attributes["expr"] = ExprAttr.of(Sym("T") + 1)


def begins_anywhere(kernel: t.Kernel) -> None:
    looks(kernel, t.Predicate, 1).attributes["expr"] = ExprAttr.of(Const(0))


def judges_in_one_warp(kernel: t.Kernel) -> None:
    inside = looks(kernel, t.Predicate)
    inside.attributes["expr"] = ExprAttr.of(all_of([inside.expr.expr, Sym(t.THREAD) < 32]))


def combines_other_bits(kernel: t.Kernel) -> None:
    """Of 1 and 2, neither of which is 0, no bit is the same."""
    end = looks(kernel, t.Yield)
    numbers = [tile.Constant(k, i32) for k in (0, 1, 2)]
    broken = end.values[0].owner.cond
    one, two = (tile.Select(broken, number.result, numbers[0].result) for number in numbers[1:])
    both = tile.Binary(BinaryFn.AND, one.result, two.result)
    end.parent.insert_ops_before([*numbers, one, two, both], end)
    end.operands[0] = both.result


def keeps_the_least(kernel: t.Kernel) -> None:
    looks(kernel, t.Fold).attributes["fn"] = string("min")


def forgets_what_it_found(kernel: t.Kernel) -> None:
    loop = opening(kernel, t.For)
    start = opening(kernel, t.Map).clone()
    loop.parent.insert_op_after(start, loop)


def reports_nothing(kernel: t.Kernel) -> None:
    kernel.body.block.erase_op(opening(kernel, t.AtomicReduce))


def reports_by_every_thread(kernel: t.Kernel) -> None:
    report = opening(kernel, t.AtomicReduce)
    report.attributes["guard"] = ExprAttr.of(all_of([Const(0) <= Sym(index_symbol(0)), Sym(index_symbol(0)) < 1]))


def reports_what_is_kept(kernel: t.Kernel) -> None:
    (place,) = opening(kernel, t.AtomicReduce).indices
    made = next(use.operation for use in place.uses if isinstance(use.operation, t.Map))
    chosen = next(op for op in made.walk() if isinstance(op, tile.Select))
    chosen.operands[1], chosen.operands[2] = chosen.operands[2], chosen.operands[1]


def producer_ungated(kernel: t.Kernel) -> None:
    role = next(op for op in kernel.walk() if isinstance(op, a.Role) and op.label.data == "producer")
    loop = next(op for op in role.walk() if isinstance(op, t.For) and op.counter.data == OPEN_COUNTER)
    (walk,) = loop.body.block.ops
    walk.detach()
    loop.parent.insert_op_before(walk, loop)
    loop.detach()


JUDGED = (
    no_barrier,
    a_barrier_that_counts_nothing,
    opens_before_the_barrier,
    counts_other_registers,
    begins_with_one,
    looks_at_whole_steps,
    looks_at_every_other,
    leaves_the_last_out,
    compares_with_itself,
    looks_at_other_integers,
    falls_only_by_more,
    has_another_limit,
    begins_anywhere,
    judges_in_one_warp,
    combines_other_bits,
    keeps_the_least,
    forgets_what_it_found,
    reports_nothing,
    reports_by_every_thread,
    reports_what_is_kept,
    runs_in_any_case,
    consumers_ungated,
    producer_ungated,
)


def hands_on_another(kernel: t.Kernel) -> None:
    """Registers that are 1 whatever the barriers counted."""
    write = opening(kernel, t.SharedWrite)
    one = next(op for op in kernel.body.block.ops if isinstance(op, t.Registers) and op.hint.data == "one")
    made = t.Map([], [], [one.buffer], 1, constant(1))
    one.detach()
    kernel.body.block.insert_ops_before([one, made], write)
    write.operands[1] = one.buffer


def hands_on_twice(kernel: t.Kernel) -> None:
    write = opening(kernel, t.SharedWrite)
    kernel.body.block.insert_op_after(write.clone(), write)


def hands_on_what_it_counted(kernel: t.Kernel) -> None:
    opening(kernel, t.SharedWrite).operands[1] = opening(kernel, t.BarrierCount).buffer


HANDED = (hands_on_another, hands_on_twice, hands_on_what_it_counted)


@pytest.mark.parametrize(
    ("change", "handed"),
    [*((change, False) for change in JUDGED), *((change, True) for change in (*JUDGED, *HANDED))],
    ids=lambda f: "in shared memory" if f is True else "" if f is False else f.__name__,
)
def test_gates_that_ctas_judge_otherwise_are_refused(
    change: Callable[[t.Kernel], None], handed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_of_roles, "chained", lambda _: handed)
    found = lowered(Candidate(1, stages=3))
    kernel = found.scheduled.kernel
    (added,) = require_gate(found.tile, kernel)
    assert (added.name, added.detail) == ("added", FAILED)
    change(kernel)
    assert "CRT010" in refused(found.tile, kernel)


@pytest.mark.parametrize(("gate", "adds"), [(FAILED, False), (BROKEN, False), (BROKEN, True)])
def test_nothing_else_is_written_to_the_tensor_of_a_gate(gate: str, adds: bool) -> None:
    found = lowered(Candidate(1, stages=3), flag=gate == BROKEN)
    kernel = found.scheduled.kernel
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    (tensor,) = (x for n, x in zip(kernel.arg_names, kernel.body.block.args, strict=True) if n.data == gate)
    inside = next(op for op in kernel.walk() if isinstance(op, t.For) and op.counter.data == OPEN_COUNTER)
    one, guard = t.Registers("one", i32, 1), Sym(t.THREAD).eq(0)
    made = t.Map([], [], [one.buffer], 1, constant(1))
    if adds:
        write = t.AtomicReduce(AtomicFn.ADD, tensor, one.buffer, [Const(0)], guard)
    else:
        write = t.Store(tensor, one.buffer, [Const(0)], guard)
    inside.body.block.insert_ops_before([one, made, write], inside.body.block.first_op)
    assert not isinstance(prove_stores(found.tile, kernel), Proved)


def test_a_gate_that_no_barrier_makes_alike_is_not_uniform() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    assert isinstance(prove_uniform(kernel), Proved)
    a_barrier_that_counts_nothing(kernel)
    assert isinstance(prove_uniform(kernel), Unknown)


def test_a_gate_that_no_thread_computes_is_not_uniform() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    bind = only(kernel, t.Bind, lambda op: isinstance(op, t.Bind) and op.symbol.data == GATE)
    made = next(use.operation for use in bind.buffer.uses if isinstance(use.operation, t.Map))
    made.attributes["live"] = ExprAttr.of(Sym("T") > 64)
    assert isinstance(prove_uniform(kernel), Unknown)


def test_a_gate_without_a_barrier_lets_barriers_be_used_before_they_are_there() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    assert isinstance(prove_protocols(kernel), Proved)
    no_barrier(kernel)
    assert not isinstance(prove_protocols(kernel), Proved)


def test_a_gate_that_each_thread_reads_for_itself_is_not_uniform() -> None:
    kernel = lowered(Candidate(1, stages=3), flag=True).scheduled.kernel
    assert isinstance(prove_uniform(kernel), Proved)
    binds_what_it_loaded(kernel)
    assert isinstance(prove_uniform(kernel), Unknown)


@pytest.mark.parametrize("flag", [True, False])
def test_the_gate_is_read_behind_the_barrier(flag: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_of_roles, "chained", lambda _: True)
    kernel = lowered(Candidate(1, stages=3), flag=flag).scheduled.kernel
    assert isinstance(prove_protocols(kernel), Proved)
    barrier = next(op for op in kernel.body.block.ops if isinstance(op, t.Barrier))
    barrier.detach()
    assert not isinstance(prove_protocols(kernel), Proved)


def test_the_gate_is_written_by_one_thread() -> None:
    kernel = lowered(Candidate(1, stages=3), flag=True).scheduled.kernel
    write = next(op for op in kernel.body.block.ops if isinstance(op, t.SharedWrite))
    write.attributes["guard"] = ExprAttr.of(TRUE)
    assert isinstance(prove_protocols(kernel), Unknown)


def test_a_loop_that_another_value_ends_fills_nothing() -> None:
    """What one role writes in a loop counts for what another reads in one just where both end alike."""
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    assert isinstance(prove_initialised(kernel), Proved)
    loop = next(op for op in kernel.walk() if isinstance(op, t.For) and op.counter.data == OPEN_COUNTER)
    loop.attributes["end"] = ExprAttr.of(Sym("K") // 64)
    assert isinstance(prove_initialised(kernel), Refuted)


def test_a_kernel_that_relies_on_offsets_has_a_gate() -> None:
    found = p.lower(grouped, Candidate(1, stages=3), "bf16", 16, {"offsets": "i32"})
    assert not isinstance(found, Refused)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    assert "CRT010" in refused(found.tile, found.scheduled.kernel)


def test_groups_found_by_another_search_stay_in_their_rows() -> None:
    """The search decides who does a tile; that none is stored twice rests on what it is clipped to."""
    found = lowered(Candidate(1, stages=3))
    kernel = found.scheduled.kernel
    bounds = [op for op in kernel.walk() if isinstance(op, t.Bind) and op.most is not None]
    assert bounds
    for op in bounds:
        op.attributes["most"] = ExprAttr.of(Sym("G") * 2)
    answer = prove(found.tile, kernel, check_descriptors(kernel))
    assert isinstance(answer, str)
    assert "CRT009" in answer


def test_rest_is_kept_where_asked() -> None:
    @tw.kernel
    def kept(offsets: tw.Offsets["G + 1"], a: tw.Tensor["T", "K"], b: tw.Tensor["G", "N", "K"], c: tw.Tensor["T", "N"]):
        g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64), rest="keep")
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], 64):
            acc += tw.dot(a[m, k], b[g, n, k].T)
        c[m, n] = acc

    arrays = drawn(GROUPS["several"])
    kept(**arrays)
    np.testing.assert_allclose(arrays["c"][:200].astype(np.float64), exact(arrays)[:200], atol=0.15)
    assert np.isnan(arrays["c"][200:].astype(np.float32)).all()
