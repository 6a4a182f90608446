"""Loaded bounds in kernels with roles: one load a program, published to all roles, whatever the integers are."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from xdsl.ir import SSAValue

import tilewright as tw
from support import products as p
from support.slow import rest_slow
from tilewright import simulate
from tilewright.base.expr import Const, sym
from tilewright.base.verdict import Proved, Unknown
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.shared_memory import prove_initialised
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.proofs.uniform import prove_uniform
from tilewright.diag import TilewrightError
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(12)
BF16 = ml_dtypes.bfloat16


@tw.kernel
def attend(
    offsets: tw.Tensor["E"],
    q: tw.Tensor["B", "M", 64],
    k: tw.Tensor["T", 64],
    v: tw.Tensor["T", 64],
    o: tw.Tensor["B", "M", 64],
    *,
    bq: int = 64,
    bk: int = 64,
):
    b, m = tw.grid(q, (None, bq))
    query = q[b, m]
    acc, total = tw.zeros((m, 64), tw.f32), tw.zeros((m,), tw.f32)
    top = tw.full((m,), -tw.inf, tw.f32)
    for n in tw.stream(k.shape[0], bk, start=offsets[b], until=offsets[b + 1]):
        x = tw.dot(query, k[n].T) * 0.125
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[n])
    o[b, m] = acc / tw.maximum(total, 1e-30)[:, None]


@tw.kernel
def weights(
    offsets: tw.Tensor["E"],
    x: tw.Tensor["T", "M"],
    y: tw.Tensor["T", "N"],
    c: tw.Tensor["G", "M", "N"],
    *,
    bm: int = 64,
    bn: int = 64,
    bk: int = 64,
):
    """A product for each group of rows: the gradient of grouped weights."""
    g, m, n = tw.grid(c, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for r in tw.stream(x.shape[0], bk, start=offsets[g], until=offsets[g + 1]):
        acc += tw.dot(x[r, m].T, y[r, n])
    c[g, m, n] = acc


OFFSETS = np.array([0, 0, 50, 51, 180, 200, -7, 2**40, 64, 2**32 + 5, 100], np.int64)
"""Groups of no rows, of one, of many; then what is no offset at all."""
ROWS = 200


def ranges() -> list[tuple[int, int]]:
    ends = np.clip(OFFSETS, 0, ROWS)
    return [(int(lo), max(int(lo), int(hi))) for lo, hi in pairwise(ends)]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(BF16)


def lowered(kernel: tw.Kernel, candidate: Candidate, align: int = 16, **keywords: object) -> p.Lowered:
    found = p.lower(kernel, candidate, "bf16", align, {"offsets": "i64", "c": "f32"}, **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def assert_proved(found: p.Lowered) -> None:
    kernel = found.scheduled.kernel
    for proof in (prove_stores(found.tile, kernel), prove_initialised(kernel), prove_uniform(kernel)):
        assert isinstance(proof, Proved), proof
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))


CANDIDATES: dict[str, tuple[Candidate, int, dict[str, int]]] = {
    "one warpgroup": (Candidate(1, stages=2), 16, {}),
    "pipelined": (Candidate(1, stages=2, software_pipelined=True), 16, {}),
    "two, pipelined": (Candidate(2, stages=2, software_pipelined=True), 16, {"bq": 128, "bk": 32}),
    "copied by threads": (Candidate(1, stages=2), 8, {}),
    "without a producer": (Candidate(1, copies=False), 16, {}),
}


@pytest.mark.parametrize("name", rest_slow(CANDIDATES, ("two, pipelined", "copied by threads", "without a producer")))
def test_attention_over_ranges_of_keys(name: str) -> None:
    candidate, align, keywords = CANDIDATES[name]
    found = lowered(attend, candidate, align, **keywords)
    assert_proved(found)
    kernel = found.scheduled.kernel
    if name != "without a producer":
        bars = {op.hint.data for op in kernel.walk() if isinstance(op, a.Mbarriers)}
        assert {"bound_full", "bound_empty"} <= bars
    heads = len(OFFSETS) - 1
    for seed in range(3):
        q, k, v = normal(heads, 70, 64), normal(ROWS, 64), normal(ROWS, 64)
        o = np.full((heads, 70, 64), np.nan, BF16)
        simulate.run(kernel, {"offsets": OFFSETS, "q": q, "k": k, "v": v, "o": o}, seed=seed, grid_size=3 + seed)
        for b, (lo, hi) in enumerate(ranges()):
            x = q[b].astype(np.float64) @ k[lo:hi].astype(np.float64).T * 0.125
            w = np.exp(x - x.max(1, keepdims=True, initial=-1e9))
            exact = w / np.maximum(w.sum(1, keepdims=True), 1e-30) @ v[lo:hi].astype(np.float64)
            assert np.abs(o[b].astype(np.float64) - exact).max() < 0.03


@pytest.mark.parametrize("align", [16, 4])
def test_products_of_groups_of_rows(align: int) -> None:
    found = lowered(weights, Candidate(1, stages=3), align)
    assert_proved(found)
    x, y = normal(ROWS, 96), normal(ROWS, 72)
    c = np.full((len(OFFSETS) - 1, 96, 72), np.nan, np.float32)
    simulate.run(found.scheduled.kernel, {"offsets": OFFSETS, "x": x, "y": y, "c": c}, grid_size=3)
    for g, (lo, hi) in enumerate(ranges()):
        exact = x[lo:hi].astype(np.float64).T @ y[lo:hi].astype(np.float64)
        np.testing.assert_allclose(c[g], exact, atol=1e-3)


@pytest.mark.parametrize("name", ["two, pipelined", "copied by threads"])
def test_it_assembles(name: str) -> None:
    candidate, align, keywords = CANDIDATES[name]
    emitted = emit_kernel(lowered(attend, candidate, align, **keywords).scheduled.kernel)
    assert defects(assemble(emitted.source, "sm_90a", emitted.entry)) == ()


# -- what the proof of one value rests on ------------------------------------------------------------------------------
def hint_of(value: SSAValue) -> str:
    owner = value.owner
    return owner.hint.data if isinstance(owner, t.Shared | a.Mbarriers) else ""


def first(kernel: t.Kernel, kind: type[t.TransportOp], hint: str, number: int = 0) -> t.TransportOp:
    """An op on the barriers or the slot of bounds."""
    named = [op for op in kernel.walk() if isinstance(op, kind) and any(hint_of(v) == hint for v in op.operands)]
    return named[number]


def wrong_parity(kernel: t.Kernel) -> None:
    op = first(kernel, a.MbarrierWait, "bound_full")
    op.attributes["parity"] = ExprAttr.of((sym("$i_bound") + 1) % 2)


def arrives_first(kernel: t.Kernel) -> None:
    arrive, write = first(kernel, a.MbarrierArrive, "bound_full"), first(kernel, t.SharedWrite, "bound")
    arrive.detach()
    block = write.parent_block()
    assert block is not None
    block.insert_op_before(arrive, write)


def another_element(kernel: t.Kernel) -> None:
    read = first(kernel, t.SharedRead, "bound", -1)
    assert isinstance(read, t.SharedRead)
    read.attributes["offset"] = ExprAttr.of(Const(0))


def reads_unawaited(kernel: t.Kernel) -> None:
    first(kernel, a.MbarrierWait, "bound_full").detach()


def writes_twice(kernel: t.Kernel) -> None:
    write = first(kernel, t.SharedWrite, "bound")
    block = write.parent_block()
    assert block is not None
    block.insert_op_after(write.clone(), write)


def counts_by_two(kernel: t.Kernel) -> None:
    advances = [op for op in kernel.walk() if isinstance(op, a.Advance) and op.symbol.data == "$i_bound"]
    advances[-1].attributes["by"] = ExprAttr.of(Const(2))


@pytest.mark.parametrize(
    "change",
    [wrong_parity, arrives_first, another_element, reads_unawaited, writes_twice, counts_by_two],
    ids=lambda f: f.__name__,
)
def test_roles_that_may_read_different_bounds_are_not_proved(change: Callable[[t.Kernel], None]) -> None:
    kernel = lowered(attend, Candidate(1, stages=2)).scheduled.kernel
    assert isinstance(prove_uniform(kernel), Proved)
    change(kernel)
    assert isinstance(prove_uniform(kernel), Unknown)


def test_threads_of_the_producer_read_between_barriers() -> None:
    """Where all of them copy, one writes: without the barrier behind it the others may read an older bound."""
    kernel = lowered(attend, Candidate(1, stages=2), 8).scheduled.kernel
    write = first(kernel, t.SharedWrite, "bound")
    assert isinstance(write.next_op, t.Barrier)
    write.next_op.detach()
    assert isinstance(prove_uniform(kernel), Unknown)


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_ping_pong_and_clusters_are_refused() -> None:
    found = p.lower(weights, Candidate(1, ping_pong=2, stages=2), "bf16", 16, {"offsets": "i64", "c": "f32"})
    assert isinstance(found, Refused)
    assert "walk the same programs" in found.reason
    found = p.lower(attend, Candidate(1, stages=2, cluster=(2, 1)), "bf16", 16, {"offsets": "i64"})
    assert isinstance(found, Refused)
    assert "walk the same programs" in found.reason


@tw.kernel
def nested(
    ends: tw.Tensor["H"],
    x: tw.Tensor["M", "K"],
    y: tw.Tensor["N", "K"],
    c: tw.Tensor["M", "N"],
    *,
    bm=64,
    bn=64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for h in tw.stream(ends.shape[0], None):
        for k in tw.stream(x.shape[1], 64, until=ends[h]):
            acc += tw.dot(x[m, k], y[n, k].T)
    c[m, n] = acc


def test_bounds_inside_of_streams_have_no_producer() -> None:
    """The consumers stage the tiles themselves then."""
    found = p.lower(nested, Candidate(1, stages=2), "bf16", 16, {"ends": "i32", "c": "f32"})
    assert isinstance(found, Refused)
    assert "once a program" in found.reason
    kernel = lowered_ends(Candidate(1, copies=False)).scheduled.kernel
    assert isinstance(prove_uniform(kernel), Proved)
    x, y, c = normal(70, 136), normal(72, 136), np.full((70, 72), np.nan, np.float32)
    ends = np.array([0, 65, -1, 400], np.int32)
    simulate.run(kernel, {"ends": ends, "x": x, "y": y, "c": c})
    exact = sum(x[:, :e].astype(np.float64) @ y[:, :e].astype(np.float64).T for e in np.clip(ends, 0, 136))
    np.testing.assert_allclose(c, exact, atol=1e-2)


def lowered_ends(candidate: Candidate) -> p.Lowered:
    found = p.lower(nested, candidate, "bf16", 16, {"ends": "i32", "c": "f32"})
    assert not isinstance(found, Refused), found.reason
    return found


def test_a_call_takes_the_first_schedule_that_is_proved() -> None:
    q, k, v, o = normal(4, 64, 64), normal(100, 64), normal(100, 64), np.full((4, 64, 64), np.nan, BF16)
    offsets = np.array([0, 10, 10, 90, 100], np.int64)
    attend(offsets, q, k, v, o)
    assert not np.isnan(o.astype(np.float32)).any()
    assert (o[1].astype(np.float32) == 0).all()
    with pytest.raises(TilewrightError, match=r"SCH00[12]"):
        attend.compile(dtypes={"offsets": "i64", **dict.fromkeys("qkvo", "bf16")}, schedule=tw.Schedule(cluster=(2, 1)))


@tw.kernel
def block_weights(
    offsets: tw.Tensor["E"],
    x: tw.Tensor["S", 64, "M"],
    y: tw.Tensor["S", 64, "N"],
    c: tw.Tensor["G", "M", "N"],
    *,
    bm: int = 64,
    bn: int = 64,
):
    g, m, n = tw.grid(c, (None, bm, bn))
    row = tw.axis(64)
    acc = tw.zeros((m, n), tw.f32)
    for s in tw.stream(x.shape[0], None, start=offsets[g], until=offsets[g + 1]):
        acc += tw.dot(x[s, row, m].T, y[s, row, n])
    c[g, m, n] = acc


@pytest.mark.parametrize("bounds", [[0, 2, 2, 5], [1, 3, 2, 9], [-4, 0, 2**31 - 1, 3]], ids=["blocks", "ends", "junk"])
def test_steps_of_a_loaded_start_lie_inside(bounds: list[int]) -> None:
    """One integer a step, from a loaded one on, stays below the extent: tensor copies bring whole blocks of rows."""
    dtypes = {"offsets": "i32", "x": "bf16", "y": "bf16", "c": "bf16"}
    copies = [
        line for line in block_weights.explain(dtypes=dtypes).splitlines() if "load of" in line and "offs" not in line
    ]
    assert len(copies) == 2
    assert all(line.endswith("by tensor copies") for line in copies)
    x, y = (RNG.normal(size=(5, 64, n)).astype(BF16) for n in (72, 40))
    c = np.full((3, 72, 40), np.nan, BF16)
    block_weights(np.array(bounds, np.int32), x, y, c)
    for g, (low, high) in enumerate(pairwise(np.clip(bounds, 0, 5))):
        a, b = (t[low:high].reshape(-1, t.shape[2]).astype(np.float64) for t in (x, y))
        np.testing.assert_allclose(c[g].astype(np.float64), a.T @ b, atol=0.3)


def test_a_step_beside_a_loaded_start_may_lie_outside() -> None:
    @tw.kernel
    def shifted(offsets: tw.Tensor["E"], x: tw.Tensor["S"], y: tw.Tensor["G"]):
        g = tw.grid(y, None)
        total = tw.zeros((), tw.f32)
        for s in tw.stream(x.shape[0], None, start=offsets[g], until=offsets[g + 1]):
            total += x[s + 1].fill(100.0)
        y[g] = total

    y = np.zeros(2, np.float32)
    shifted(np.array([0, 2, 4], np.int32), np.arange(4, dtype=np.float32), y)
    np.testing.assert_array_equal(y, [3, 103])
