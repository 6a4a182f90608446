"""What memory holds outside of an operand's domain takes no part in a product: NaN in every byte beyond a length."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved, Refuted
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.ops import ops_before
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(77)
BF16 = ml_dtypes.bfloat16


@tw.kernel
def attend(
    q: tw.Tensor["M", "D"],
    k: tw.Tensor["T", "D"],
    v: tw.Tensor["T", "D"],
    o: tw.Tensor["M", "D"],
    *,
    length: tw.i32,
    width: int = 64,
    bq: int = 64,
    bk: int = 64,
):
    m = tw.grid(q, bq)
    d = tw.axis(q.shape[1], upto=width)
    acc, total = tw.zeros((m, d), tw.f32), tw.zeros((m,), tw.f32)
    top = tw.full((m,), -tw.inf, tw.f32)
    query = q[m, d]
    for n in tw.stream(k.shape[0], bk, until=length):
        x = tw.dot(query, k[n, d].T)
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[n, d])
    o[m, d] = acc / total[:, None]


@tw.kernel
def narrow(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, length: tw.i32, bm=64, bn=64, bk=64
):
    """A product over the first columns alone."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk, until=length):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def looked_up(
    q: tw.Tensor["M", "D"],
    k: tw.Tensor["T", "D"],
    o: tw.Tensor["M", "D"],
    *,
    length: tw.i32,
    bq: int = 128,
    bk: int = 64,
):
    """One tile on the right of both products: along its columns first, then along its rows."""
    m = tw.grid(q, bq)
    d = tw.axis(q.shape[1], upto=64)
    acc = tw.zeros((m, d), tw.f32)
    query = q[m, d]
    for n in tw.stream(k.shape[0], bk, until=length):
        keys = k[n, d]
        acc += tw.dot(tw.exp(tw.dot(query, keys.T)).to(q.dtype), keys)
    o[m, d] = acc


@tw.kernel
def looked_up_across(
    q: tw.Tensor["M", "D"],
    k: tw.Tensor["D", "T"],
    o: tw.Tensor["M", "D"],
    *,
    length: tw.i32,
    bq: int = 128,
    bk: int = 64,
):
    """The same of a transposed tensor: keys run along the lines of the tile."""
    m = tw.grid(q, bq)
    d = tw.axis(q.shape[1], upto=64)
    acc = tw.zeros((m, d), tw.f32)
    query = q[m, d]
    for n in tw.stream(k.shape[1], bk, until=length):
        keys = k[d, n]
        acc += tw.dot(tw.exp(tw.dot(query, keys)).to(q.dtype), keys.T)
    o[m, d] = acc


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(BF16)


def lowered(kernel: tw.Kernel, candidate: Candidate, **keywords: object) -> p.Lowered:
    found = p.lower(kernel, candidate, **keywords)  # pyright: ignore[reportArgumentType]
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


CANDIDATES = {
    "one warpgroup": (Candidate(1, stages=2), {}),
    "software_pipelined": (Candidate(1, stages=2, software_pipelined=True), {}),
    "two share the rows": (Candidate(2, stages=2), {"bq": 128, "bk": 32}),
    "two, software_pipelined": (Candidate(2, stages=2, software_pipelined=True), {"bq": 128, "bk": 128}),
    "three": (Candidate(3, stages=2, software_pipelined=True), {"bq": 192, "bk": 80}),
    "small steps": (Candidate(1, stages=3), {"bk": 16}),
    "wide heads": (Candidate(1, stages=2), {"width": 128, "bk": 48}),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_rows_beyond_a_length_are_cleared_before_they_are_multiplied(name: str) -> None:
    candidate, keywords = CANDIDATES[name]
    found = lowered(attend, candidate, **keywords)
    kernel, width = found.scheduled.kernel, keywords.get("width", 64)
    loads = [op for op in kernel.walk() if isinstance(op, a.TmaLoad)]
    assert loads
    assert any(isinstance(op, a.ZeroFill) for op in kernel.walk())
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))
    for length in (1, 64, 65, 199, 200):
        q, k, v, o = normal(70, width), normal(200, width), normal(200, width), normal(70, width)
        k[length:], v[length:] = np.nan, np.nan
        simulate.run(kernel, {"q": q, "k": k, "v": v, "o": o}, {"length": length}, seed=length)
        x = q.astype(np.float64) @ k[:length].astype(np.float64).T
        weights = np.exp(x - x.max(1, keepdims=True))
        exact = weights / weights.sum(1, keepdims=True) @ v[:length].astype(np.float64)
        assert np.linalg.norm(o.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize("warpgroups", [1, 2])
def test_rows_that_two_products_read_are_cleared_between_them(warpgroups: int) -> None:
    """None of the warpgroups clears a row before all have multiplied its columns."""
    found = lowered(looked_up, Candidate(warpgroups, stages=2))
    kernel = found.scheduled.kernel
    assert sum(isinstance(op, a.TensorMap) for op in kernel.walk()) == 3
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))
    for length in (1, 64, 130, 200):
        q, k, o = normal(70, 64), normal(200, 64), normal(70, 64)
        q *= BF16(0.125)
        k[length:] = np.nan
        simulate.run(kernel, {"q": q, "k": k, "o": o}, {"length": length}, seed=length)
        keys = k[:length].astype(np.float64)
        exact = np.exp(q.astype(np.float64) @ keys.T) @ keys
        assert np.linalg.norm(o.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize(("warpgroups", "bk"), [(1, 64), (2, 64), (2, 128)])
def test_rows_of_a_transposed_tensor_are_cleared_along_the_lines_of_their_tile(warpgroups: int, bk: int) -> None:
    found = lowered(looked_up_across, Candidate(warpgroups, stages=2), bk=bk)
    kernel = found.scheduled.kernel
    assert any(isinstance(op, a.ZeroFill) for op in kernel.walk())
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))
    for length in (1, 64, 130, 199, 200):
        q, k, o = normal(70, 64), normal(64, 200), normal(70, 64)
        q *= BF16(0.125)
        k[:, length:] = np.nan
        simulate.run(kernel, {"q": q, "k": k, "o": o}, {"length": length}, seed=length)
        keys = k[:, :length].astype(np.float64)
        exact = np.exp(q.astype(np.float64) @ keys) @ keys.T
        assert np.linalg.norm(o.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


def test_a_warpgroup_that_clears_rows_too_early_is_not_proved() -> None:
    kernel = lowered(looked_up, Candidate(2, stages=2)).scheduled.kernel
    fill = fill_of(kernel)
    barrier = next(op for op in reversed(list(ops_before(fill))) if isinstance(op, t.Barrier))
    barrier.detach()
    assert not all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))


def test_a_product_along_the_other_axis_of_a_tile_is_refuted() -> None:
    """Each product is compared with its own reading of a tile, though another reads it so."""
    found = lowered(looked_up, Candidate(1, stages=2), bq=64)
    kernel = found.scheduled.kernel
    groups = [op for op in kernel.walk() if isinstance(op, a.Wgmma)]
    first, second = groups[0], next(op for op in groups if op.b_operand != groups[0].b_operand)
    for op in groups:
        if op.b_operand == first.b_operand:
            op.attributes["b_operand"] = second.b_operand
    assert isinstance(prove_copies(found.tile, kernel), Refuted)


@pytest.mark.parametrize(("kernel", "stored"), [(attend, "uint4"), (looked_up_across, "unsigned short")])
def test_it_assembles(kernel: tw.Kernel, stored: str) -> None:
    found = lowered(kernel, Candidate(2, stages=2), bq=128)
    emitted = emit_kernel(found.scheduled.kernel)
    assert any(f"<{stored}*>" in line and line.endswith(" = {};") for line in emitted.source.splitlines())
    assert defects(assemble(emitted.source, "sm_90a", emitted.entry)) == ()


@pytest.mark.parametrize("length", [1, 63, 64, 100, 136])
def test_columns_beyond_a_length_are_not_multiplied(length: int) -> None:
    """Both operands are loaded: threads copy them, with zeros for what lies beyond."""
    found = lowered(narrow, Candidate(1, stages=2))
    kernel = found.scheduled.kernel
    assert not any(isinstance(op, a.TmaLoad) for op in kernel.walk())
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    x, y, c = normal(70, 136), normal(72, 136), normal(70, 72)
    exact = x[:, :length].astype(np.float64) @ y[:, :length].astype(np.float64).T
    x[:, length:], y[:, length:] = np.nan, np.nan
    simulate.run(kernel, {"a": x, "b": y, "c": c}, {"length": length})
    assert np.linalg.norm(c.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


def test_a_stream_to_the_end_of_the_tensor_needs_no_clearing() -> None:
    kernel = lowered(p.attention, Candidate(1, stages=2, software_pipelined=True)).scheduled.kernel
    assert not any(isinstance(op, a.ZeroFill) for op in kernel.walk())


def fill_of(kernel: t.Kernel) -> a.ZeroFill:
    return next(op for op in kernel.walk() if isinstance(op, a.ZeroFill))


def dropped(kernel: t.Kernel) -> None:
    fill_of(kernel).detach()


def later(kernel: t.Kernel) -> None:
    guard = fill_of(kernel).guard.expr
    fill_of(kernel).attributes["guard"] = ExprAttr.of(guard.lhs + 1 <= guard.rhs)  # pyright: ignore


def fewer(kernel: t.Kernel) -> None:
    fill_of(kernel).attributes["count"] = IntAttr(fill_of(kernel).count.data - 1)


def elsewhere(kernel: t.Kernel) -> None:
    fill_of(kernel).attributes["offset"] = ExprAttr.of(fill_of(kernel).offset.expr + 128)


def less_often(kernel: t.Kernel) -> None:
    around = fill_of(kernel).parent_op()
    assert isinstance(around, t.If)
    condition = around.condition.expr
    around.attributes["condition"] = ExprAttr.of(condition.lhs + 1 < condition.rhs)  # pyright: ignore


@pytest.mark.parametrize("name", ["one warpgroup", "software_pipelined"])
@pytest.mark.parametrize("change", [dropped, later, fewer, elsewhere], ids=lambda f: f.__name__)
def test_clearing_less_is_refuted(name: str, change: Callable[[t.Kernel], None]) -> None:
    found = lowered(attend, *CANDIDATES[name][:1], **CANDIDATES[name][1])
    change(found.scheduled.kernel)
    answer = prove_copies(found.tile, found.scheduled.kernel)
    assert isinstance(answer, Refuted)
    assert "are multiplied" in answer.witness


def test_clearing_in_fewer_programs_is_refuted() -> None:
    """Behind the loop a branch skips it where the last step is whole, and only there."""
    found = lowered(p.attention, Candidate(1, stages=2, software_pipelined=True), causal=True)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    less_often(found.scheduled.kernel)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)


def test_without_clearing_nan_reaches_the_result() -> None:
    """What the proof is about."""
    kernel = lowered(attend, Candidate(1, stages=2)).scheduled.kernel
    dropped(kernel)
    q, k, v, o = normal(64, 64), normal(128, 64), normal(128, 64), normal(64, 64)
    v[100:] = np.nan
    simulate.run(kernel, {"q": q, "k": k, "v": v, "o": o}, {"length": 100})
    assert np.isnan(o.astype(np.float32)).all()
