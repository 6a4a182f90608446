"""Products of groups of rows: one launch over offsets on the device, whose promise holds back what relies on it."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright import simulate
from tilewright.artifact.schema import CHECKED, Artifact
from tilewright.base.expr import TRUE, Const, Sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.compiler.products import prove
from tilewright.compiler.promises import gated_roles
from tilewright.compiler.proofs.descriptors import judge_kernel
from tilewright.compiler.proofs.gate import require_gate
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.compiler.proofs.shared_memory import prove_initialised
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.proofs.uniform import prove_uniform
from tilewright.compiler.reliance import BROKEN, TAKEN
from tilewright.compiler.requests import assumptions_of
from tilewright.hw.target import SM90A
from tilewright.schedule.facts import TensorFacts
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidates import Candidate, schedule
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.ops import GATE, OPEN_COUNTER
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


def lowered(candidate: Candidate, align: int = 16, **keywords: object) -> p.Lowered:
    """The kernel behind its gate under one candidate."""
    asked = p.request(grouped, "bf16", align, {"offsets": "i32"}, **keywords)
    made = gated_roles(p.traced(asked), 1, queued=True)
    known = ((name, TensorFacts(0, 16)) for name in (BROKEN, TAKEN))
    facts = asked.facts.__class__((*asked.facts.tensors, *known))
    answer = schedule(made, facts, SM90A, candidate, assumptions_of(made, facts))
    assert not isinstance(answer, Refused), answer.reason
    return p.Lowered(made, asked, answer)


def flags(broken: int = 0) -> dict[str, np.ndarray]:
    """What the steps before leave to a gated kernel."""
    return {BROKEN: np.array([broken], np.int32), TAKEN: np.zeros(1, np.int32)}


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
    certificate = prove(found.tile, kernel, judge_kernel(kernel))
    assert not isinstance(certificate, str), certificate
    (once,) = (o for o in certificate if o.name == "once")
    assert once.method.endswith("by offsets(offsets)")
    for seed, offsets in enumerate((GROUPS["several"], GROUPS["the last has all"])):
        arrays = drawn(offsets, seed)
        simulate.run(kernel, {**arrays, **flags()}, seed=seed, grid_size=3 + seed)
        np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)


def test_no_role_does_anything_behind_a_gate_that_is_closed() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    for flag in (1, -1, 2**31 - 1):
        arrays = drawn(GROUPS["several"])
        simulate.run(kernel, {**arrays, **flags(flag)}, grid_size=3)
        assert np.isnan(arrays["c"].astype(np.float32)).all()
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
    assert "by step 1 of 2, before any store" in checked.detail


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
    [opens_at_one, reads_the_offsets, guarded_load, binds_what_it_loaded, runs_in_any_case, consumers_ungated],
    ids=lambda f: f.__name__,
)
def test_gates_that_open_otherwise_are_refused(change: Callable[[t.Kernel], None]) -> None:
    found = lowered(Candidate(1, stages=3))
    kernel = found.scheduled.kernel
    require_gate(found.tile, kernel)
    change(kernel)
    assert "CRT010" in refused(found.tile, kernel)


def test_a_gate_that_each_thread_reads_for_itself_is_not_uniform() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    assert isinstance(prove_uniform(kernel), Proved)
    binds_what_it_loaded(kernel)
    assert isinstance(prove_uniform(kernel), Unknown)


def test_the_gate_is_read_behind_the_barrier() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
    barrier = next(op for op in kernel.body.block.ops if isinstance(op, t.Barrier))
    barrier.detach()
    assert not isinstance(prove_protocols(kernel), Proved)


def test_the_gate_is_written_by_one_thread() -> None:
    kernel = lowered(Candidate(1, stages=3)).scheduled.kernel
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
    answer = prove(found.tile, kernel, judge_kernel(kernel))
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
