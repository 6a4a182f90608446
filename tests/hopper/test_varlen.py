"""Attention over packed sequences: masks at the diagonal alone, wherever it is loaded to lie, and hostile offsets."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr

import tilewright as tw
from support import products as p
from support.example_cases import load
from support.parsed import tile_kernel, transport_kernel
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright.artifact.schema import CHECKED, Artifact, Fill, Launch
from tilewright.base.expr import Sym
from tilewright.compiler.products import prove
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.reliance import BY_EACH_CTA, promises_of
from tilewright.ops.kernels import varlen_key_gradients
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.mask_free_steps import leading_steps
from tilewright.schedule.hopper.program_order import lengthening, shortening
from tilewright.tile import dialect as tile
from tilewright.tile.compared import HALF, shifts
from tilewright.tile.queries import filled
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import ExprAttr

pytestmark = pytest.mark.sample(1)

BF16 = ml_dtypes.bfloat16
WIDTH = 64
INDICES = {"q_offsets": "i32", "k_offsets": "i32"}
attention = load("varlen_attention").forward(WIDTH)


def stream_of(kernel: tile.Kernel) -> tile.StreamLoop:
    return next(op for op in kernel.walk() if isinstance(op, tile.StreamLoop) and tile_products(op))


def tile_products(op: tile.StreamLoop) -> bool:
    return any(isinstance(inner, tile.Dot) for inner in op.body.block.ops)


def request(kernel: tw.Kernel, indices: dict[str, str] = INDICES, **keywords: object) -> tile.Kernel:
    return traced(p.request(kernel, "bf16", 16, {**indices, "lse": "f32"}, **keywords))


# -- steps that need no mask -------------------------------------------------------------------------------------------
def shifted(kind: str = "i32", *, far: bool = False) -> tile.Kernel:
    @tw.kernel
    def kernel(
        away: tw.Tensor["B"], a: tw.Tensor["M", 64], b: tw.Tensor["N", 64], c: tw.Tensor["N", 64],
        o: tw.Tensor["B", "M", 64],
    ):  # fmt: skip
        g, m = tw.grid((o.shape[0], o.shape[1]), (None, 64))
        rows, ahead = a[m, :], away[g]
        acc = tw.zeros((m, 64), tw.f32)
        for n in tw.stream(b.shape[0], 32):
            x = tw.dot(rows, b[n, :].T)
            here, there = (m.index + ahead)[:, None], n.index[None, :]
            x = tw.where(here <= there if far else here >= there, x, 0.0)
            acc += tw.dot(x.to(a.dtype), c[n, :])
        o[g, m, :] = acc

    return traced(p.request(kernel, "bf16", 16, {"away": kind}))


@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.parametrize("ahead", [-200, -1, 0, 1, 31, 32, 33, 500, HALF - 1, -HALF + 1])
def test_as_many_steps_as_hold_everywhere_behind_a_loaded_shift(ahead: int, kind: str) -> None:
    stream = stream_of(shifted(kind))
    found = leading_steps(stream)
    assert found is not None
    ((symbol,),) = (each.symbols for each in shifts(stream).values())
    for program in range(3):
        at = {"$p1": program, symbol: ahead + HALF, "N": 700}
        whole = [(64 * program + ahead) >= 32 * i + 31 for i in range(22)]
        assert min(int(found[0].evaluate(at)), 22) == sum(whole)


@pytest.mark.parametrize(("ahead", "symbol"), [(HALF, 2 * HALF), (2**31 - 1, 2 * HALF), (-HALF, 0), (-(2**31), 0)])
def test_no_step_is_free_where_the_symbol_was_clipped(ahead: int, symbol: int) -> None:
    """What is computed then may have wrapped, and is asked element by element."""
    assert min(max(ahead + HALF, 0), 2 * HALF) == symbol
    stream = stream_of(shifted())
    found = leading_steps(stream)
    assert found is not None
    ((name,),) = (each.symbols for each in shifts(stream).values())
    assert found[0].evaluate({"$p1": 0, name: symbol, "N": 700}) == 0


def test_sums_that_would_wrap_free_no_step() -> None:
    stream = stream_of(shifted())
    found = leading_steps(stream)
    assert found is not None
    ((name,),) = (each.symbols for each in shifts(stream).values())
    last = (2**31 - HALF) // 64  # the program in which a row of HALF - 1 more is 2^31
    at = {name: 2 * HALF - 1, "N": 700}
    assert found[0].evaluate({**at, "$p1": last - 2}) > 0
    assert found[0].evaluate({**at, "$p1": last}) == 0


def test_what_holds_only_from_some_step_on_is_not_bound() -> None:
    stream = stream_of(shifted(far=True))
    assert shifts(stream) == {}
    assert leading_steps(stream) is None


@pytest.mark.parametrize("causal", [False, True])
def test_a_tile_without_rows_has_no_step(causal: bool) -> None:
    """Of 32 sequences of 1,024 rows a ninth of the programs have none; each once took the steps of a whole sequence."""
    stream = stream_of(request(attention, causal=causal))
    (rows,) = filled(stream)
    (origin,) = rows.origin.symbols
    (stop,) = rows.stop.symbols - {"M"}
    (first,) = stream.axis.data.origin.symbols - {stream.counter.data}
    all_keys = dict.fromkeys(stream.trip.expr.symbols, 1024) | {first: 0, stop: 1024}
    assert stream.trip.expr.evaluate(all_keys | {origin: 1023}) == 1024 // stream.axis.data.size
    assert stream.trip.expr.evaluate(all_keys | {origin: 1024}) == 0


def test_programs_of_a_ragged_grid_alternate_where_their_lengths_are_loaded() -> None:
    assert lengthening(request(attention, causal=True)) == "$p0"
    grouped = load("grouped_matmul").grouped_matmul
    assert lengthening(traced(p.request(grouped, "bf16", 16, {"offsets": "i32"}))) is None


@pytest.mark.parametrize("causal", [False, True])
def test_streams_that_begin_at_a_loaded_tile_are_taken_from_the_first(causal: bool) -> None:
    """Causal keys are seen by the queries from their tile on: in descending order the longest programs were last."""
    whole = varlen_key_gradients(WIDTH).without({"q_used", "k_used"})
    kernel = request(whole, {**INDICES, "delta": "f32"}, causal=causal)  # pyright: ignore[reportArgumentType]
    assert (lengthening(kernel), shortening(kernel)) == ((None, "$p0") if causal else ("$p0", None))


# -- the whole kernel --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return attention.compile(dtypes={**INDICES, **dict.fromkeys("qkvo", "bf16"), "lse": "f32"}, causal=True, group=2)


def drawn(queries: list[int], keys: list[int], seed: int = 0) -> dict[str, Any]:
    """Guards of NaN lie in rows of no sequence, of which each tensor has some."""
    rng, heads, groups = np.random.default_rng(seed), 2, 1
    rows, others = (queries[-1] + 7) // 4 * 4, keys[-1] + 5
    found = {
        "q_offsets": np.array(queries, np.int32),
        "k_offsets": np.array(keys, np.int32),
        "q": rng.normal(size=(rows, heads, WIDTH)).astype(BF16),
        "k": rng.normal(size=(others, groups, WIDTH)).astype(BF16),
        "v": rng.normal(size=(others, groups, WIDTH)).astype(BF16),
        "o": np.full((rows, heads, WIDTH), np.nan, BF16),
        "lse": np.full((heads, rows), np.nan, np.float32),
    }
    for name in "kv":
        found[name][keys[-1] :] = np.nan
    return found


def exact(arrays: dict[str, Any], scale: float) -> np.ndarray:
    found: Any = np.zeros(arrays["o"].shape)
    bounds = zip(pairwise(arrays["q_offsets"]), pairwise(arrays["k_offsets"]), strict=True)
    for (first, last), (begin, end) in bounds:
        for s, h in ((s, h) for s in range(first, last) for h in range(found.shape[1])):
            stop = end - (last - 1 - s)
            if stop > begin:
                x = arrays["k"][begin:stop, 0].astype(np.float64) @ arrays["q"][s, h].astype(np.float64) * scale
                weights = np.exp(x - x.max())
                found[s, h] = weights / weights.sum() @ arrays["v"][begin:stop, 0].astype(np.float64)
    return found


SEQUENCES = {
    "several": ([0, 0, 5, 135, 136, 266], [0, 3, 12, 142, 142, 400]),
    "whole tiles": ([0, 128, 256], [0, 128, 384]),
    "no keys": ([0, 9, 20], [0, 0, 0]),
    "many": (list(range(0, 60, 3)), list(range(0, 100, 5))),
}


@pytest.mark.parametrize("name", rest_slow(SEQUENCES, ("whole tiles",)))
def test_simulator_and_ptx_agree_with_float64(name: str, artifact: Artifact) -> None:
    simulated, executed = (drawn(*SEQUENCES[name]) for _ in range(2))
    attention(**simulated, scale=0.125, causal=True, group=2)
    wanted = exact(simulated, 0.125)
    assert np.abs(simulated["o"].astype(np.float64) - wanted).max() < 0.03
    driver = run_artifact(artifact, executed, {"scale": 0.125})
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert np.abs(executed["o"].astype(np.float64) - wanted).max() < 0.03
    np.testing.assert_allclose(executed["lse"], simulated["lse"], atol=1e-5)


HOSTILE = [[0, 50, 20, 100], [-5, 10, 20, 100], [0, 10, 20, 200], [1, 10, 20, 100], [0, 2**31 - 1, -(2**31), 100]]


@pytest.mark.parametrize("name", ["q_offsets", "k_offsets"])
@pytest.mark.parametrize("offsets", HOSTILE)
def test_hostile_offsets_write_nothing_and_are_reported(offsets: list[int], name: str, artifact: Artifact) -> None:
    simulated, executed = (drawn([0, 10, 20, 100], [0, 10, 20, 100]) for _ in range(2))
    for arrays in (simulated, executed):
        arrays[name] = np.array(offsets, np.int32)
    with pytest.raises(tw.TilewrightError, match=rf"offsets\({name}\) of varlen_attention"):
        attention(**simulated, scale=0.125, causal=True, group=2)
    driver = run_artifact(artifact, executed, {"scale": 0.125})
    with pytest.raises(tw.TilewrightError, match="RUN023"):
        tw.check()
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    for arrays in (simulated, executed):
        assert np.isnan(arrays["o"].astype(np.float32)).all()
        assert np.isnan(arrays["lse"]).all()


@pytest.mark.parametrize("keywords", [{}, {"causal": True}, {"causal": True, "window": 40}])
def test_both_offsets_are_checked(keywords: dict[str, Any]) -> None:
    """Also where a window makes the bound the greater of an offset and another integer."""
    relied_on = [str(promise) for promise in promises_of(request(attention, **keywords))]
    assert relied_on == [f"offsets({name})" for name in INDICES]


@pytest.fixture(scope="module")
def lowered() -> t.Kernel:
    candidate = Candidate(2, stages=2, software_pipelined=True)
    found = p.lower(attention, candidate, "bf16", 16, {**INDICES, "lse": "f32"}, causal=True, bq=128, bk=64)
    assert not isinstance(found, Refused), found.reason
    return found.scheduled.kernel


def test_masks_stay_out_of_whole_steps(lowered: t.Kernel) -> None:
    """Of the first step and of the others, each lowered with masks and without."""
    loops = [op for op in lowered.walk() if isinstance(op, t.For) and any(map(is_exp, op.walk()))]
    assert [any(isinstance(inner, tile.Select) for inner in op.walk()) for op in loops] == [False, True, False, True]


def is_exp(op: object) -> bool:
    return isinstance(op, t.Approximate)


def test_values_behind_a_sequence_arrive_as_zeros(lowered: t.Kernel) -> None:
    """Their map ends with the sequence: no consumer clears rows."""
    assert not any(isinstance(op, a.ZeroFill) for op in lowered.walk())
    ragged = [op for op in lowered.walk() if isinstance(op, a.TensorMap) and op.numbers.ragged_axis is not None]
    assert [op.hint.data.split("_")[0] for op in ragged] == ["v", "o"]


def test_both_are_checked_by_each_cta(artifact: Artifact) -> None:
    checked = [o for o in artifact.certificate if o.method == CHECKED]
    assert [o.name for o in checked] == ["offsets(q_offsets)", "offsets(k_offsets)"]
    fill, *others = artifact.variants[0].steps  # of the queue's counter, so that the kernel still begins with the judge
    assert isinstance(fill, Fill)
    assert not any(isinstance(step, Fill) for step in others)
    assert [o.detail for o in checked] == [BY_EACH_CTA] * 2
    assert [step.kernel for step in others if isinstance(step, Launch)] == ["kernel_varlen_attention"]


# -- the gate, judged by each CTA and handed on in shared memory -------------------------------------------------------
@cache
def judged() -> tuple[str, str]:
    found = attention.plan(dtypes=dict.fromkeys("qkvo", "bf16") | INDICES | {"lse": "f32"}).variants[-1]
    return str(found.tile), str(found.transport)


def latest(kernel: t.Kernel, kind: type[t.TransportOp]) -> Any:
    """The last op of a kind before the roles part."""
    return [op for op in kernel.body.block.ops if isinstance(op, kind)][-1]


def no_barrier(kernel: t.Kernel) -> None:
    latest(kernel, t.Barrier).detach()


def handed_on_behind_the_barrier(kernel: t.Kernel) -> None:
    write = latest(kernel, t.SharedWrite)
    write.detach()
    kernel.body.block.insert_op_after(write, latest(kernel, t.Barrier))


def read_before_the_barrier(kernel: t.Kernel) -> None:
    barrier = latest(kernel, t.Barrier)
    barrier.detach()
    kernel.body.block.insert_op_after(barrier, latest(kernel, t.SharedRead))


def handed_on_by_a_warp(kernel: t.Kernel) -> None:
    latest(kernel, t.SharedWrite).attributes["guard"] = ExprAttr.of(Sym(t.THREAD) < 32)


def read_by_some(kernel: t.Kernel) -> None:
    latest(kernel, t.SharedRead).attributes["guard"] = ExprAttr.of(Sym(t.THREAD) < 128)


def made_in_some(kernel: t.Kernel) -> None:
    handed = latest(kernel, t.SharedWrite).buffer
    made = next(op for op in kernel.body.block.ops if isinstance(op, t.Map) and handed in op.outputs)
    made.attributes["live"] = ExprAttr.of(Sym(t.THREAD) < 32)


def shares_bytes(kernel: t.Kernel) -> None:
    slot = latest(kernel, t.SharedWrite).shared.owner
    slot.attributes["offset"] = IntAttr(0)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (no_barrier, "bytes are there before they are read is open"),
        (handed_on_behind_the_barrier, "bytes are there before they are read is open"),
        (read_before_the_barrier, "bytes are there before they are read is open"),
        (handed_on_by_a_warp, "several threads"),
        (read_by_some, "uniform is open"),
        (made_in_some, "CRT010"),
        (shares_bytes, "share bytes"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_gate_that_is_handed_on_otherwise_is_refused(change: Callable[[t.Kernel], None], found: str) -> None:
    source, text = judged()
    kernel = transport_kernel(text)
    change(kernel)
    answer = prove(tile_kernel(source), kernel, check_descriptors(kernel))
    assert isinstance(answer, str)
    assert found in answer


def test_a_gate_that_is_handed_on_is_proved() -> None:
    source, text = judged()
    kernel = transport_kernel(text)
    assert not isinstance(prove(tile_kernel(source), kernel, check_descriptors(kernel)), str)
