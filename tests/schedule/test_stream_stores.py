"""Stores of each step of a stream that another Range ends: what causal loops write as they go."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false
# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.ptx_driver import run_artifact
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.diag import TilewrightError
from tilewright.transport import dialect as transport

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(3)


@tw.kernel
def lower(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=64, bn=64):
    m = tw.grid(y.shape[0], bm)
    for n in tw.stream(y.shape[1], bn, until=m.stop):
        y[m, n] = x[m, n]


@tw.kernel
def window(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, w=32):
    m = tw.grid(y.shape[0], 16)
    for n in tw.stream(y.shape[1], 16, start=tw.maximum(m.start - w, 0), until=m.stop):
        y[m, n] = x[m, n]


@tw.kernel
def between(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, lo: tw.i32, hi: tw.i32):
    m = tw.grid(y.shape[0], 16)
    for n in tw.stream(y.shape[1], 16, start=tw.maximum(lo, 0), until=hi):
        y[m, n] = x[m, n]


@tw.kernel
def unclamped(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, lo: tw.i32):
    m = tw.grid(y.shape[0], 16)
    for n in tw.stream(y.shape[1], 16, start=lo):
        y[m, n] = x[m, n]


@tw.kernel
def running(x: tw.Tensor["B", "M", "N"], y: tw.Tensor["B", "M", "N"], last: tw.Tensor["B", "M"]):
    """Sums of the steps before, written as the stream goes; the last of them behind it."""
    i, m = tw.grid((x.shape[0], x.shape[1]), (None, 16))
    before = tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[2], 32, until=m.stop):
        y[i, m, n] = x[i, m, n] + before[:, None]
        before += x[i, m, n].sum(1)
    last[i, m] = before


@tw.kernel
def gram(a: tw.Tensor["M", 64], c: tw.Tensor["M", "M"], s: tw.Tensor["M"]):
    m = tw.grid(c.shape[0], 64)
    rows, total = a[m], tw.zeros((m,), tw.f32)
    for n in tw.stream(c.shape[1], 64, until=m.stop):
        products = tw.dot(rows, a[n].T)
        c[m, n] = products
        total += products.sum(1)
    s[m] = total


def ends(rows: int, columns: int, tile: int) -> np.ndarray:
    """Which columns each row's stream reaches."""
    stop = np.minimum((np.arange(rows) // tile + 1) * tile, rows)
    return np.arange(columns) < stop[:, None]


@pytest.mark.parametrize(("bm", "bn"), [(64, 64), (64, 32), (32, 64), (16, 48)])
@pytest.mark.parametrize("columns", [152, 72, 300])
def test_steps_up_to_the_rows(bm: int, bn: int, columns: int) -> None:
    x = RNG.standard_normal((150, columns)).astype(np.float32)
    expected = np.where(ends(150, columns, bm), x, -1)
    artifact = lower.compile(bm=bm, bn=bn)
    for run in (lambda y: lower(x, y, bm=bm, bn=bn), lambda y: run_artifact(artifact, {"x": x, "y": y})):
        y = np.full_like(x, -1)
        run(y)
        np.testing.assert_array_equal(y, expected)


def test_a_window_before_the_rows() -> None:
    x = RNG.standard_normal((90, 100)).astype(np.float32)
    first = np.maximum(np.arange(90) // 16 * 16 - 32, 0)[:, None]
    expected = np.where(ends(90, 100, 16) & (np.arange(100) >= first), x, -1)
    artifact = window.compile()
    for run in (lambda y: window(x, y), lambda y: run_artifact(artifact, {"x": x, "y": y})):
        y = np.full_like(x, -1)
        run(y)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(("lo", "hi"), [(0, 100), (16, 48), (5, 41), (-3, 41), (50, 10), (99, 1000), (200, 300)])
def test_scalars_bound_what_is_written(lo: int, hi: int) -> None:
    x = RNG.standard_normal((33, 100)).astype(np.float32)
    y = np.full_like(x, -1)
    between(x, y, lo=lo, hi=hi)
    reached = (np.arange(100) >= lo) & (np.arange(100) < hi)
    np.testing.assert_array_equal(y, np.where(reached, x, -1))


def test_a_negative_start_is_refused_with_what_to_write() -> None:
    x = np.zeros((33, 100), np.float32)
    with pytest.raises(TilewrightError, match="RUN008") as caught:
        unclamped(x, x.copy(), lo=-3)
    assert "tw.maximum(lo, 0)" in caught.value.diagnostics[0].help
    y = np.full_like(x, -1)
    unclamped(x, y, lo=90)
    np.testing.assert_array_equal(y, np.where(np.arange(100) >= 90, x, -1))


def test_a_fragment_written_at_each_step() -> None:
    x = RNG.integers(-9, 9, (2, 72, 92)).astype(np.float32)
    expected, last = np.full_like(x, -1), np.zeros((2, 72), np.float32)
    for m in range(72):
        stop = min((m // 16 + 1) * 16, 72)
        for n in range(0, stop, 32):
            step = slice(n, min(n + 32, stop))
            expected[:, m, step] = x[:, m, step] + last[:, m, None]
            last[:, m] += x[:, m, step].sum(1)
    artifact = running.compile()
    for run in (lambda y, s: running(x, y, s), lambda y, s: run_artifact(artifact, {"x": x, "y": y, "last": s})):
        y, s = np.full_like(x, -1), np.full((2, 72), np.nan, np.float32)
        run(y, s)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(s, last)


def test_products_written_at_each_step() -> None:
    a = RNG.integers(-3, 4, (152, 64)).astype(ml_dtypes.bfloat16)
    product = a.astype(np.float32) @ a.astype(np.float32).T
    reached = ends(152, 152, 64)
    artifact = gram.compile(dtypes={"a": "bf16"})
    assert "wgmma" in artifact.kernels[-1].ptx
    for run in (lambda c, s: gram(a, c, s), lambda c, s: run_artifact(artifact, {"a": a, "c": c, "s": s})):
        c, s = np.full((152, 152), -1, np.float32), np.full(152, np.nan, np.float32)
        run(c, s)
        np.testing.assert_array_equal(c, np.where(reached, product, -1))
        np.testing.assert_array_equal(s, np.where(reached, product, 0).sum(1))


def planned(kernel: tw.Kernel) -> PlannedKernel:
    return kernel.plan().variants[-1]


@pytest.mark.parametrize("kernel", [lower, window, running])
def test_each_step_is_proved_to_keep_its_promise(kernel: tw.Kernel) -> None:
    """A lowering that loses a store, or stores a column further, is refuted."""
    plan = planned(kernel)
    assert isinstance(prove_stores(plan.tile, plan.transport), Proved)
    for number, store in enumerate(s for s in plan.transport.walk() if isinstance(s, transport.Store)):
        mutant = plan.transport.clone()
        [s for s in mutant.walk() if isinstance(s, transport.Store)][number].detach()
        answer = prove_stores(plan.tile, mutant)
        assert isinstance(answer, Refuted), store
        assert answer.witness.fault.value == "ACC003"


@tw.kernel
def shifted(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """Steps that overlap: the inner stream begins before the outer one's step ends."""
    m = tw.grid(x.shape[0], 16)
    for n in tw.stream(x.shape[1], 32, until=m.stop):
        for k in tw.stream(x.shape[1], 16, start=n.start, until=m.stop):
            y[m, k] = x[m, k]


def test_steps_that_write_one_element_twice_are_refused() -> None:
    with pytest.raises(TilewrightError, match="ACC002"):
        shifted.compile()
