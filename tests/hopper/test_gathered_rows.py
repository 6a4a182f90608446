"""Products of rows that lie where loaded integers say: copied into the pipeline by the producer's threads, right for
every integer, proved, and refuted when changed."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright import simulate
from tilewright.artifact.schema import Artifact
from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, conjuncts
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.ops import exprs
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

BF16 = ml_dtypes.bfloat16
Array = np.ndarray[Any, np.dtype[Any]]
FED = Candidate(1, stages=3)


@tw.kernel
def rows_by_columns(
    idx: tw.Tensor["P"], x: tw.Tensor["T", "K"], w: tw.Tensor["N", "K"], c: tw.Tensor["P", "N"], *, bm=64, bn=64, bk=64
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], bk):
        acc += tw.dot(x[idx[m], k], w[n, k].T)
    c[m, n] = acc


@tw.kernel
def columns_by_rows(
    idx: tw.Tensor["P"], x: tw.Tensor["T", "K"], w: tw.Tensor["N", "K"], c: tw.Tensor["P", "N"], *, bm=16, bn=64, bk=64
):
    m, n = tw.grid(c, (bm, bn))
    rows = idx[m]
    acc = tw.zeros((n, m), tw.f32)
    for k in tw.stream(x.shape[1], bk):
        acc += tw.dot(w[n, k], x[rows, k].T)
    c[m, n] = acc.T


@tw.kernel
def of_heads(
    idx: tw.Tensor["H", "P"],
    x: tw.Tensor["H", "T", "K"],
    w: tw.Tensor["N", "K"],
    c: tw.Tensor["H", "P", "N"],
    *,
    bm=64,
    bn=64,
    bk=64,
):
    h, m, n = tw.grid(c, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[2], bk):
        acc += tw.dot(x[h, idx[h, m], k], w[n, k].T)
    c[h, m, n] = acc


@tw.kernel
def side_by_side(
    idx: tw.Tensor["P"], x: tw.Tensor["T", "K"], w: tw.Tensor[2, "N", "K"], c: tw.Tensor["P", "N"], *, bm=64, bn=64
):
    m, n = tw.grid(c, (bm, bn))
    one, other = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        rows = x[idx[m], k]
        one += tw.dot(rows, w[0, n, k].T)
        other += tw.dot(rows, w[1, n, k].T)
    c[m, n] = one * other


@tw.kernel
def of_groups(
    offsets: tw.Offsets["G + 1"],
    idx: tw.Tensor["P"],
    x: tw.Tensor["T", "K"],
    w: tw.Tensor["G", "N", "K"],
    c: tw.Tensor["P", "N"],
    *,
    bm=64,
    bn=64,
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        acc += tw.dot(x[idx[m], k], w[g, n, k].T)
    c[m, n] = acc


INTEGERS = {"idx": "i32"}
T, K, N, P = 37, 136, 72, 152


def hostile(kind: type = np.int32, seed: int = 0, count: int = P) -> Array:
    """Rows in any order and several times, none, and far outside."""
    rng = np.random.default_rng(seed)
    ends = np.iinfo(kind)
    wild = np.array([-1, -2, T, T + 1, ends.max, ends.min, ends.max - T], kind)
    return np.where(rng.random(count) < 0.4, rng.choice(wild, count), rng.integers(0, T, count)).astype(kind)


def drawn(idx: Array, seed: int = 0, k: int = K) -> dict[str, Array]:
    """Operands among NaN: a row that nobody names, read, would show."""
    rng = np.random.default_rng(seed)
    return {
        "idx": idx,
        "x": rng.normal(size=(T, k)).astype(BF16),
        "w": rng.normal(size=(N, k)).astype(BF16),
        "c": np.full((len(idx), N), np.nan, BF16),
    }


def exact(arrays: dict[str, Array]) -> Array:
    idx, x, w = arrays["idx"].astype(np.int64), arrays["x"].astype(np.float64), arrays["w"].astype(np.float64)
    there = (idx >= 0) & (idx < len(x))
    return np.where(there[:, None], x[np.where(there, idx, 0)], 0) @ w.T


def lowered(kernel: tw.Kernel, candidate: Candidate = FED, align: int = 16, **keywords: Any) -> p.Lowered:
    found = p.lower(kernel, candidate, "bf16", align, INTEGERS, **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def gathered(found: p.Lowered) -> list[a.CpAsync]:
    return [op for op in found.scheduled.kernel.walk() if isinstance(op, a.CpAsync) and op.indices]


CASES: dict[str, tuple[tw.Kernel, Candidate, int, dict[str, int]]] = {
    "rows": (rows_by_columns, FED, 16, {}),
    "two warpgroups": (rows_by_columns, Candidate(2, stages=2), 16, {"bm": 128}),
    "two panels": (rows_by_columns, FED, 16, {"bk": 128}),
    "8 bytes at a time": (rows_by_columns, FED, 8, {}),
    "stored from registers": (rows_by_columns, Candidate(1, stages=2, matrix_stores=False), 16, {}),
    "columns": (columns_by_rows, FED, 16, {}),
    "8 columns": (columns_by_rows, Candidate(2, stages=3), 16, {"bm": 8, "bn": 128}),
}


@pytest.mark.parametrize("name", rest_slow(CASES, ("rows", "two panels", "8 columns")))
def test_rows_are_copied_from_where_integers_say(name: str) -> None:
    kernel, candidate, align, keywords = CASES[name]
    found = lowered(kernel, candidate, align, **keywords)
    copies = gathered(found)
    assert {op.copy_bytes for op in copies} == {align}
    certificate = prove(found.tile, found.scheduled.kernel, check_descriptors(found.scheduled.kernel))
    assert not isinstance(certificate, str), certificate
    for seed in range(2):
        arrays = drawn(hostile(seed=seed), seed)
        simulate.run(found.scheduled.kernel, arrays, seed=seed, grid_size=2 + seed)
        np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.2)


def test_integers_are_loaded_once_a_program() -> None:
    """Also where the index stands inside of the stream."""
    kernel = lowered(rows_by_columns).scheduled.kernel
    (load,) = (op for op in kernel.walk() if isinstance(op, t.Load))
    assert isinstance(load.parent_op(), t.Programs)


def test_products_side_by_side_share_one_copy() -> None:
    found = lowered(side_by_side)
    assert len(gathered(found)) == 1
    arrays = drawn(hostile())
    arrays["w"] = np.stack([arrays["w"], -arrays["w"]])
    simulate.run(found.scheduled.kernel, arrays)
    one = exact({**arrays, "w": arrays["w"][0]})
    np.testing.assert_allclose(arrays["c"].astype(np.float64), -one * one, rtol=0.02, atol=0.5)


def test_rows_of_heads() -> None:
    found = lowered(of_heads)
    assert gathered(found)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    parts = [drawn(hostile(seed=h), h) for h in range(3)]
    w = parts[0]["w"]
    arrays = {name: np.stack([part[name] for part in parts]) for name in ("idx", "x", "c")} | {"w": w}
    simulate.run(found.scheduled.kernel, arrays)
    for h, part in enumerate(parts):
        np.testing.assert_allclose(arrays["c"][h].astype(np.float64), exact({**part, "w": w}), atol=0.2)


@pytest.mark.parametrize("rows", [64, 16], ids=("rows", "swapped"))
def test_rows_of_groups(rows: int) -> None:
    """Groups whose lengths only the device knows, each with a weight of its own, in the simulator and as PTX."""
    offsets = [0, 0, 5, 70, 70, 131]
    dtypes = {"offsets": "i32", "idx": "i32", "x": "bf16", "w": "bf16", "c": "bf16"}
    artifact = of_groups.compile(dtypes=dtypes, bm=rows)
    assert any("rows gathered by cp.async: x" in note for note in artifact.plan)
    drawn_ = drawn(hostile(seed=7))
    weights = np.random.default_rng(3).normal(size=(5, N, K)).astype(BF16)
    simulated = {**drawn_, "offsets": np.array(offsets, np.int32), "w": weights}
    executed = {**simulated, "c": simulated["c"].copy()}
    expected = np.zeros(simulated["c"].shape)
    for g, (low, high) in enumerate(pairwise(offsets)):
        expected[low:high] = exact({"idx": simulated["idx"][low:high], "x": simulated["x"], "w": weights[g]})
    of_groups(**simulated, bm=rows)
    tw.check()
    np.testing.assert_allclose(simulated["c"].astype(np.float64), expected, atol=0.2)
    driver = run_artifact(artifact, executed)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_array_equal(executed["c"].view(np.uint16), simulated["c"].view(np.uint16))


@pytest.fixture(scope="module")
def artifacts() -> dict[str, Artifact]:
    return {
        kind: rows_by_columns.compile(dtypes={"idx": kind, "x": "bf16", "w": "bf16", "c": "bf16"})
        for kind in ("i32", "i64", "u8")
    }


@pytest.mark.parametrize("kind", ["i32", "i64", "u8"])
def test_hostile_integers_touch_nothing_outside(kind: str, artifacts: dict[str, Artifact]) -> None:
    """On the PTX machine, which reports every access outside of a tensor."""
    dtype = {"i32": np.int32, "i64": np.int64, "u8": np.uint8}[kind]
    arrays = drawn(hostile(np.int32) if kind == "i32" else hostile(np.int64).astype(dtype))
    driver = run_artifact(artifacts[kind], arrays)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.2)
    simulated = {**arrays, "c": np.full_like(arrays["c"], np.nan)}
    rows_by_columns(**simulated)
    np.testing.assert_array_equal(arrays["c"].view(np.uint16), simulated["c"].view(np.uint16))


@pytest.mark.parametrize("rows", [1, 63, 64, 65])
def test_no_row_at_all_gives_zeros(rows: int) -> None:
    arrays = drawn(np.full(rows, -1, np.int32))
    rows_by_columns(**arrays)
    np.testing.assert_array_equal(arrays["c"].astype(np.float32), 0)


# -- integers that differ from step to step ----------------------------------------------------------------------------
@tw.kernel
def stepping(
    idx: tw.Tensor["S", "P"], x: tw.Tensor["T", "K"], w: tw.Tensor["N", "K"], c: tw.Tensor["P", "N"], *, bm=64, bn=64
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for s in tw.stream(idx.shape[0], None):
        for k in tw.stream(x.shape[1], 64):
            acc += tw.dot(x[idx[s, m], k], w[n, k].T)
    c[m, n] = acc


@tw.kernel
def named_by_k(
    idx: tw.Tensor["H", "Q"],
    y: tw.Tensor["H", "M", "Q"],
    x: tw.Tensor["T", 1, "N"],
    c: tw.Tensor["H", "M", "N"],
    *,
    bm=64,
    bn=64,
    bk=64,
):
    """Rows of k: those of pages of one row."""
    h, m, n = tw.grid(c, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(y.shape[2], bk):
        acc += tw.dot(y[h, m, k], x[idx[h, k], 0, n])
    c[h, m, n] = acc


def test_integers_of_each_step() -> None:
    found = lowered(stepping)
    assert gathered(found)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    arrays = drawn(hostile())
    arrays["idx"] = np.stack([hostile(seed=4), hostile(seed=5)])
    simulate.run(found.scheduled.kernel, arrays)
    expected = sum(exact({**arrays, "idx": one}) for one in arrays["idx"])
    np.testing.assert_allclose(arrays["c"].astype(np.float64), expected, atol=0.3)


@pytest.mark.parametrize("keywords", [{}, {"bn": 128}, {"bk": 128}], ids=["one panel", "two panels", "long steps"])
def test_rows_of_k_are_named_in_each_step(keywords: dict[str, int]) -> None:
    found = lowered(named_by_k, **keywords)
    assert gathered(found)
    certificate = prove(found.tile, found.scheduled.kernel, check_descriptors(found.scheduled.kernel))
    assert not isinstance(certificate, str), certificate
    rng = np.random.default_rng(1)
    idx = np.stack([hostile(seed=h, count=140) for h in range(2)])[:, :137]
    x = rng.normal(size=(T, 1, N)).astype(BF16)
    x[~np.isin(np.arange(T), idx)] = np.nan  # a row that nobody names
    y = rng.normal(size=(2, 70, 144)).astype(BF16)[:, :, :137]
    c = np.full((2, 70, N), np.nan, BF16)
    simulate.run(found.scheduled.kernel, {"idx": idx, "x": x, "y": y, "c": c}, grid_size=2)
    there = (idx >= 0) & (idx < T)
    rows = np.where(there[..., None], x.astype(np.float64)[np.where(there, idx, 0), 0], 0)
    np.testing.assert_allclose(c.astype(np.float64), y.astype(np.float64) @ rows, atol=0.3)


def integers_at(kernel: t.Kernel, copy: a.CpAsync, step: Callable[[Sym], Expr]) -> None:
    writer = next(op for op in kernel.walk() if isinstance(op, t.Load) and op.buffer is copy.indices[0])
    counters = {s for c in writer.coords for s in c.expr.symbols if s.startswith("$k")}
    assert counters
    moved = {s: step(Sym(s)) for s in counters}
    writer.attributes["coords"] = exprs([c.expr.substitute(moved) for c in writer.coords])


def integers_of_the_first_step(kernel: t.Kernel, copy: a.CpAsync) -> None:
    integers_at(kernel, copy, lambda _: Const(0))


def integers_of_the_next_step(kernel: t.Kernel, copy: a.CpAsync) -> None:
    integers_at(kernel, copy, lambda k: k + 1)


@pytest.mark.parametrize("change", [integers_of_the_first_step, integers_of_the_next_step], ids=lambda f: f.__name__)
def test_integers_of_another_step_are_refuted(change: Callable[[t.Kernel, a.CpAsync], None]) -> None:
    found = lowered(named_by_k)
    kernel = found.scheduled.kernel
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    change(kernel, gathered(found)[0])
    assert not isinstance(prove_copies(found.tile, kernel), Proved)


# -- changes that the proof refutes ------------------------------------------------------------------------------------
def other_integer(kernel: t.Kernel, copy: a.CpAsync) -> None:
    load = next(op for op in kernel.walk() if isinstance(op, t.Load))
    load.attributes["coords"] = exprs([load.coords.data[0].expr + 1])


def other_register(kernel: t.Kernel, copy: a.CpAsync) -> None:
    copy.attributes["index_registers"] = exprs([Const(0)])


def other_register_throughout(kernel: t.Kernel, copy: a.CpAsync) -> None:
    other_register(kernel, copy)
    copy.attributes["guard"] = ExprAttr.of(copy.guard.expr.substitute({t.REGISTER: Const(0)}))


def registers_behind(kernel: t.Kernel, copy: a.CpAsync) -> None:
    """Rows that come again with the registers behind those that are loaded."""
    load = next(op for op in kernel.walk() if isinstance(op, t.Load))
    held, register = t.registers_of(load.buffer).count.data, Sym(t.REGISTER)
    again = {t.REGISTER: register % held}
    copy.attributes["index_registers"] = exprs([register + held])
    load.attributes["coords"] = exprs([c.expr.substitute(again) for c in load.coords])
    load.attributes["guard"] = ExprAttr.of(load.guard.expr.substitute(again))


def other_row(kernel: t.Kernel, copy: a.CpAsync) -> None:
    coords = [c.expr for c in copy.coords]
    copy.attributes["coords"] = exprs([coords[0] + 1, coords[1]])


def rows_outside(kernel: t.Kernel, copy: a.CpAsync) -> None:
    kept = [test for test in conjuncts(copy.guard.expr) if Sym("T") not in (getattr(test, "rhs", None),)]
    copy.attributes["guard"] = ExprAttr.of(all_of(kept))


def rows_left_out(kernel: t.Kernel, copy: a.CpAsync) -> None:
    copy.attributes["guard"] = ExprAttr.of(all_of([copy.guard.expr, copy.coords.data[0].expr > 0]))


def integers_left_out(kernel: t.Kernel, copy: a.CpAsync) -> None:
    load = next(op for op in kernel.walk() if isinstance(op, t.Load))
    load.attributes["guard"] = ExprAttr.of(all_of([load.guard.expr, Sym(t.THREAD) > 0]))


def integers_written_twice(kernel: t.Kernel, copy: a.CpAsync) -> None:
    load = next(op for op in kernel.walk() if isinstance(op, t.Load))
    block = load.parent_block()
    assert block is not None
    block.insert_op_after(load.clone(), load)


@pytest.mark.parametrize(
    "change",
    [
        other_integer, other_register, other_register_throughout, registers_behind, other_row, rows_outside,
        rows_left_out, integers_left_out, integers_written_twice,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_copies_of_other_rows_are_refuted(change: Callable[[t.Kernel, a.CpAsync], None]) -> None:
    found = lowered(rows_by_columns)
    kernel = found.scheduled.kernel
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    change(kernel, gathered(found)[0])
    assert isinstance(prove_copies(found.tile, kernel), Refuted)


def test_a_copy_without_its_tests_leaves_the_tensor() -> None:
    found = lowered(rows_by_columns)
    (copy,) = gathered(found)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    copy.attributes["guard"] = ExprAttr.of(TRUE)
    assert not isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
