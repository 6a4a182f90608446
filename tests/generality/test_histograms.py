"""Histograms: NumPy, the simulator, the PTX machine and an evaluator agree; barriers; what is refused."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.indexed import facts_of
from support.lowered import lowered
from support.ptx_driver import run_artifact
from support.tile_evaluator import evaluate
from tilewright.base.expr import TRUE
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.compiler.proofs.shared_memory import prove_initialised
from tilewright.diag import TilewrightError
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.simulate import run
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.tracer import trace
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.compare import compare


@tw.kernel
def rows(x: tw.Tensor["M", "N"], counts: tw.Tensor["M", 10], *, bn=128):
    m = tw.grid(x.shape[0], None)
    found = tw.zeros((tw.axis(10),), tw.i32)
    for n in tw.stream(x.shape[1], bn):
        found += tw.histogram(x[m, n], 10)
    counts[m, :] = found


@tw.kernel
def most(x: tw.Tensor["M", "N"], counts: tw.Tensor["M", 10], *, bn=128):
    """Of the histograms of a row's parts the greatest counts: each is needed in its step."""
    m = tw.grid(x.shape[0], None)
    found = tw.zeros((tw.axis(10),), tw.i32)
    for n in tw.stream(x.shape[1], bn):
        found.set(tw.maximum(found, tw.histogram(x[m, n], 10)))
    counts[m, :] = found


@tw.kernel
def tiles(x: tw.Tensor["M", "N"], counts: tw.Tensor[300], *, bm=4):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=70)
    tw.reduce_add(counts, slice(None), tw.histogram(x[m, n], 300))


@tw.kernel
def shifted(x: tw.Tensor["N"], counts: tw.Tensor[8], *, bn=64):
    """Keys two before each: the first two are absent."""
    n = tw.grid(x.shape[0], bn)
    tw.reduce_add(counts, slice(None), tw.histogram(x[n.index - 2], 8))


def counted(x: np.ndarray, bins: int) -> np.ndarray:
    return np.bincount(x[(x >= 0) & (x < bins)], minlength=bins)


def drawn(kernel: Any) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    if kernel is rows:
        x = rng.integers(-2, 12, (3, 330)).astype(np.int32)
        return {"x": x, "counts": np.full((3, 10), 7, np.int32)}, np.array([counted(r, 10) for r in x])
    if kernel is most:
        x = rng.integers(-2, 12, (3, 330)).astype(np.int32)
        parts = [[counted(part, 10) for part in np.split(r, (128, 256))] for r in x]
        return {"x": x, "counts": np.full((3, 10), 7, np.int32)}, np.max(parts, 1)
    if kernel is tiles:
        x = rng.integers(-20, 320, (9, 61)).astype(np.int32)
        return {"x": x, "counts": np.zeros(300, np.int32)}, counted(x.ravel(), 300)
    x = rng.integers(0, 8, 150).astype(np.int32)
    return {"x": x, "counts": np.zeros(8, np.int32)}, counted(x[:-2], 8)


KERNELS = pytest.mark.parametrize("kernel", [rows, most, tiles, shifted], ids=lambda k: k.name)
DTYPES = {"x": "i32", "counts": "i32"}


@KERNELS
def test_simulator_agrees_with_numpy(kernel: Any) -> None:
    arrays, expected = drawn(kernel)
    kernel(**arrays)
    assert np.array_equal(arrays["counts"], expected)


@KERNELS
def test_ptx_machine_agrees_with_numpy(kernel: Any) -> None:
    arrays, expected = drawn(kernel)
    artifact = kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    driver = run_artifact(artifact, arrays, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert np.array_equal(arrays["counts"], expected)


@pytest.mark.parametrize("kernel", [rows, most, tiles], ids=lambda k: k.name)
def test_evaluator_agrees_with_numpy(kernel: Any) -> None:
    arrays, expected = drawn(kernel)
    evaluate(trace(kernel, Signature.of({"x": tw.i32, "counts": tw.i32})), arrays)
    assert np.array_equal(arrays["counts"], expected)


def transported(kernel: Any, **options: Any) -> t.Kernel:
    return list(lowered(kernel, DTYPES, **options).values())[-1][1]


@KERNELS
def test_equal_to_tile_ir(kernel: Any) -> None:
    for source, lower in lowered(kernel, DTYPES).values():
        assert compare(source, lower) == ()


@KERNELS
def test_a_count_of_more_is_seen(kernel: Any) -> None:
    source, lower = list(lowered(kernel, DTYPES).values())[-1]
    for op in lower.walk():
        if isinstance(op, t.SharedCount):
            op.attributes["guard"] = ExprAttr.of(TRUE)
    assert compare(source, lower)


def only(kernel: t.Kernel, kind: type[Any]) -> list[Any]:
    return [op for op in kernel.walk() if isinstance(op, kind)]


def test_a_stream_clears_and_reads_counters_once() -> None:
    """They are counted in by each step; where a step needs its own counts, it has its own counters."""
    inside = {
        kernel.name: [isinstance(op.parent_op(), t.For) for op in only(transported(kernel), t.SharedRead)]
        for kernel in (rows, most)
    }
    assert inside == {"rows": [False], "most": [True, True]}  # in whole steps, and in the partial one


@pytest.mark.parametrize(("kernel", "least"), [(rows, 2), (most, 6)], ids=["rows", "most"])
def test_every_barrier_is_needed(kernel: Any, least: int) -> None:
    """Counters are cleared after all have read them, counted in when all are cleared, read when all is counted."""

    def made() -> t.Kernel:
        return transported(kernel, schedule=Schedule(warps=4))

    assert isinstance(prove_protocols(made()), Proved)
    count = len(only(made(), t.Barrier))
    assert count == least
    for number in range(count):
        fewer = made()
        only(fewer, t.Barrier)[number].detach()
        assert not isinstance(prove_protocols(fewer), Proved)


def test_the_simulator_sees_missing_barriers() -> None:
    for number in range(len(only(transported(rows, schedule=Schedule(warps=4)), t.Barrier)) // 2):
        kernel = transported(rows, schedule=Schedule(warps=4))
        only(kernel, t.Barrier)[number].detach()
        arrays, _ = drawn(rows)
        with pytest.raises(TilewrightError):
            run(kernel, {"x": np.ascontiguousarray(arrays["x"][:, :256]), "counts": arrays["counts"]})


def test_counters_that_are_not_cleared() -> None:
    kernel = transported(rows)
    for op in only(kernel, t.SharedWrite):
        op.detach()
    assert isinstance(prove_initialised(kernel), Refuted)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (lambda x: tw.histogram(x.to(tw.f32), 8), "a histogram of f32"),
        (lambda x: tw.histogram(x, 0), "0 bins"),
        (lambda x: tw.histogram(x, 40000), "40000 bins"),
    ],
)
def test_refused(body: Callable[[Any], Any], found: str) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["N"], y: tw.Tensor["N"]):
        n = tw.grid(x.shape[0], 32)
        y[n] = body(x[n]).sum()

    with pytest.raises(TilewrightError, match=found):
        trace(kernel, Signature.of({"x": tw.i32, "y": tw.i64}))
