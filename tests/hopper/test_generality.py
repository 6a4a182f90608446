"""Kernels with products in odd places, under the first candidates that take them, in the simulator."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import registers_of

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(17)
CANDIDATES = [
    Candidate(1, stages=2),
    Candidate(1, copies=False),
    Candidate(1, copies=False, matrix_stores=False, ordinary=True),
]


@tw.kernel
def both_sums(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], rows: tw.Tensor["M"], columns: tw.Tensor["N"], *, bm=64, bn=64
):
    m, n = tw.grid((a.shape[0], b.shape[0]), (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    tw.reduce_add(rows, (m,), acc.sum(1))
    tw.reduce_add(columns, (n,), acc.sum(0))


@tw.kernel
def extremes(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], index: tw.Tensor["M"], top: tw.Tensor["G", "N"], *, bm=64, bn=64
):
    """Maxima over rows of a group: from the accumulators of several programs, at loaded rows."""
    m, n = tw.grid((a.shape[0], b.shape[0]), (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    tw.reduce_max(top, (index[m], n), acc)


@tw.kernel
def two_streams(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    d: tw.Tensor["M", "J"],
    e: tw.Tensor["J", "N"],
    low: tw.Tensor["M", "N"],
    full: tw.Tensor["M", "N"],
    *,
    bm=64,
    bn=40,
):
    m, n = tw.grid(low, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    acc.set(tw.minimum(acc, 1.0))
    for j in tw.stream(d.shape[1], 32):
        acc += tw.dot(d[m, j], e[j, n])
    low[m, n] = acc
    full[m, n] = acc


@tw.kernel
def masked(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        tile = tw.where(m.index[:, None] >= k.index[None, :], a[m, k], 0.0)
        acc += tw.dot(tile, b[n, k].T)
    c[m, n] = acc


@tw.kernel
def gram(a: tw.Tensor["M", "K"], c: tw.Tensor["M", "M"], *, bm=64):
    m, n = tw.grid(c, (bm, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], a[n, k].T)
    c[m, n] = acc - 1.0


def padded(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> np.ndarray:
    whole = np.full((*shape[:-1], -(-shape[-1] // 8) * 8), np.nan, dtype)
    view = whole[..., : shape[-1]]
    view[...] = RNG.normal(size=shape).astype(dtype)
    return view


def run(kernel: tw.Kernel, candidate: Candidate, tensors: dict[str, np.ndarray], dtypes: dict[str, str] | None = None):
    found = p.lower(kernel, candidate, dtypes=dtypes)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    simulate.run(found.scheduled.kernel, tensors)


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = 6e-3) -> None:
    error = np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected)
    assert error < tolerance, error


def f64(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=["copies", "staged", "ordinary"])
def test_sums_over_rows_and_columns(candidate: Candidate) -> None:
    a, b = padded(70, 72), padded(66, 72)
    rows, columns = np.zeros(70, np.float32), np.zeros(66, np.float32)
    run(both_sums, candidate, {"a": a, "b": b, "rows": rows, "columns": columns}, {"rows": "f32", "columns": "f32"})
    whole = f64(a) @ f64(b).T
    close(rows, whole.sum(1), 1e-4)
    close(columns, whole.sum(0), 1e-4)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=["copies", "staged", "ordinary"])
def test_maxima_at_loaded_rows(candidate: Candidate) -> None:
    a, b, index = padded(70, 72), padded(68, 72), RNG.integers(-1, 5, 70).astype(np.int32)
    top = np.full((5, 68), -np.inf, np.float32)
    run(extremes, candidate, {"a": a, "b": b, "index": index, "top": top}, {"index": "i32", "top": "f32"})
    whole = f64(a) @ f64(b).T
    close(top, np.stack([whole[index == g].max(0) for g in range(5)]), 1e-4)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=["copies", "staged", "ordinary"])
def test_two_streams_and_two_outputs(candidate: Candidate) -> None:
    a, b, d, e = padded(70, 72), padded(50, 72), padded(70, 40), padded(40, 50)
    low, full = padded(70, 50), padded(70, 50, dtype=np.float32)
    run(two_streams, candidate, {"a": a, "b": b, "d": d, "e": e, "low": low, "full": full}, {"full": "f32"})
    expected = np.minimum(f64(a) @ f64(b).T, 1) + f64(d) @ f64(e)
    close(low, expected)
    close(full, expected, 1e-5)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=["copies", "staged", "ordinary"])
def test_an_operand_that_is_computed(candidate: Candidate) -> None:
    a, b, c = padded(70, 130), padded(66, 130), padded(70, 66)
    run(masked, candidate, {"a": a, "b": b, "c": c})
    seen = np.where(np.arange(70)[:, None] >= np.arange(130)[None, :], f64(a), 0)
    close(c, seen @ f64(b).T)


def test_one_tensor_on_both_sides() -> None:
    a, c = padded(130, 72), padded(130, 130)
    run(gram, CANDIDATES[0], {"a": a, "c": c})
    close(c, f64(a) @ f64(a).T - 1)


@tw.kernel
def antisymmetric(a: tw.Tensor["M", "K"], b: tw.Tensor["M", "K"], c: tw.Tensor["M", "M"], *, bm=64):
    m = tw.grid(a.shape[0], bm)
    acc = tw.zeros((m, m), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[m, k].T)
    c[m, m] = acc - acc.T


def test_a_product_and_its_transpose_meet_through_shared_memory() -> None:
    a, b, c = padded(64, 72), padded(64, 72), padded(64, 64)
    found = p.lower(antisymmetric, CANDIDATES[0])
    assert not isinstance(found, Refused), found.reason
    simulate.run(found.scheduled.kernel, {"a": a, "b": b, "c": c})
    whole = f64(a) @ f64(b).T
    close(c, whole - whole.T)


@tw.kernel
def distances(x: tw.Tensor["M", "K"], y: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=32):
    """Squared distances: operands of a product whose squares are added up along the axis it contracts."""
    m, n = tw.grid(c, (bm, bn))
    both = tw.zeros((m, n), tw.f32)
    rows, columns = tw.zeros((m,), tw.f32), tw.zeros((n,), tw.f32)
    for k in tw.stream(x.shape[1], bk):
        a, b = x[m, k], y[n, k]
        both += tw.dot(a, b.T)
        rows += (a.to(tw.f32) * a.to(tw.f32)).sum(1)
        columns += (b.to(tw.f32) * b.to(tw.f32)).sum(1)
    c[m, n] = rows[:, None] + columns[None, :] - 2.0 * both


@pytest.mark.parametrize("candidate", CANDIDATES, ids=["copies", "staged", "ordinary"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (67, 70, 33)])
def test_operands_that_are_also_reduced(candidate: Candidate, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, y, c = padded(m, k), padded(n, k), padded(m, n, dtype=np.float32)
    run(distances, candidate, {"x": x, "y": y, "c": c}, {"c": "f32"})
    close(c, ((f64(x)[:, None] - f64(y)[None]) ** 2).sum(2), 1e-6)


@pytest.mark.parametrize("warpgroups", [1, 2])
def test_an_axis_beside_that_of_a_product_is_dealt_to_the_threads_it_leaves(warpgroups: int) -> None:
    """A thread holds two rows of x or sixteen of y, and of each no more than its share: not the whole axis, which would
    take more registers than there are."""
    found = p.lower(distances, Candidate(warpgroups), dtypes={"c": "f32"}, bm=64 * warpgroups)
    assert not isinstance(found, Refused), found.reason
    loads = [op for op in found.scheduled.kernel.walk() if isinstance(op, t.Load)]
    assert {registers_of(op.buffer).count.data for op in loads} == {2 * 32 // 4, 16 * 32 // 32}
