"""Operands of products at coordinates that a program loads: brought like any other, zeros where they lead outside."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright import simulate
from tilewright.base.expr import TRUE
from tilewright.base.verdict import Proved
from tilewright.compiler.products import prove
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a

pytestmark = pytest.mark.sample(1)

BF16 = ml_dtypes.bfloat16
EXPERTS, M, N, K = 5, 70, 72, 136
HOSTILE = [0, 4, 5, -1, 2, 2**31 - 1, -(2**31)]
WIDE = [2**32 + 1, 2**32, 2**63 - 1, -(2**63)]
"""Whose low 32 bits lead inside, or whose successors and negatives wrap around."""


@tw.kernel
def experts(
    expert: tw.Tensor["B"],
    x: tw.Tensor["B", "M", "K"],
    w: tw.Tensor["E", "N", "K"],
    y: tw.Tensor["B", "M", "N"],
    *,
    bm: int = 64,
    bn: int = 64,
):
    b, m, n = tw.grid(y, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[2], 64):
        acc += tw.dot(x[b, m, k], w[expert[b], n, k].T)
    y[b, m, n] = acc


def drawn(dtype: str, seed: int) -> dict[str, np.ndarray]:
    rng, chosen = np.random.default_rng(seed), [*HOSTILE, *(WIDE if dtype == "i64" else [])]
    return {
        "expert": np.array(chosen, np.int64 if dtype == "i64" else np.int32),
        "x": rng.normal(size=(len(chosen), M, K)).astype(BF16),
        "w": rng.normal(size=(EXPERTS, N, K)).astype(BF16),
        "y": np.full((len(chosen), M, N), 7, BF16),
    }


def exact(arrays: dict[str, np.ndarray]) -> np.ndarray:
    found = np.zeros(arrays["y"].shape)
    for i, expert in enumerate(arrays["expert"]):
        if 0 <= expert < EXPERTS:
            found[i] = arrays["x"][i].astype(np.float64) @ arrays["w"][expert].astype(np.float64).T
    return found


CANDIDATES: dict[str, tuple[Candidate, int]] = {
    "tensor copies": (Candidate(1, stages=2), 16),
    "copied by threads": (Candidate(1, stages=2), 8),
    "element by element": (Candidate(1, stages=2), 2),
    "without a producer": (Candidate(1, copies=False), 16),
    "ordinary": (Candidate(1, copies=False, matrix_stores=False, ordinary=True), 16),
}


def lowered(candidate: Candidate, align: int, dtype: str = "i64") -> p.Lowered:
    found = p.lower(experts, candidate, "bf16", align, {"expert": dtype})
    assert not isinstance(found, Refused), found.reason
    return found


EVERY = [(name, dtype) for name in CANDIDATES for dtype in ("i64", "i32")]


@pytest.mark.parametrize(
    ("name", "dtype"),
    rest_slow(EVERY, [*((name, "i64") for name in CANDIDATES), ("tensor copies", "i32")], several=True),
)
def test_every_road_brings_zeros_where_an_index_leads_outside(name: str, dtype: str) -> None:
    found = lowered(*CANDIDATES[name], dtype)
    kernel = found.scheduled.kernel
    certificate = prove(found.tile, kernel, check_descriptors(kernel))
    assert not isinstance(certificate, str), certificate
    assert "uniform" in {o.name for o in certificate}
    assert any(isinstance(op, a.TmaLoad) for op in kernel.walk()) == (name == "tensor copies")
    arrays = drawn(dtype, 1)
    simulate.run(kernel, arrays, seed=3, grid_size=4)
    np.testing.assert_allclose(arrays["y"].astype(np.float64), exact(arrays), atol=0.15)


@pytest.mark.slow
def test_ptx_does_as_the_simulator() -> None:
    simulated, executed = drawn("i64", 2), drawn("i64", 2)
    experts(**simulated)
    np.testing.assert_allclose(simulated["y"].astype(np.float64), exact(simulated), atol=0.15)
    artifact = experts.compile(dtypes={"expert": "i64", "x": "bf16", "w": "bf16", "y": "bf16"})
    assert any("load of w [1 x 64 x 64] legal for tensor copies; by tensor copies" in line for line in artifact.plan)
    driver = run_artifact(artifact, executed)  # type: ignore[arg-type]
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_array_equal(executed["y"].view(np.uint16), simulated["y"].view(np.uint16))


def test_an_access_that_does_not_ask_is_not_proved() -> None:
    """Of copies by threads: that the index leads inside is part of their guard."""
    found = lowered(*CANDIDATES["copied by threads"])
    kernel = found.scheduled.kernel
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    for op in kernel.walk():
        if isinstance(op, a.CpAsync | a.LoadStore):
            op.attributes["guard"] = ExprAttr.of(TRUE)
    assert not isinstance(prove_stores(found.tile, kernel), Proved)


def test_an_index_is_bound_once_before_the_streams() -> None:
    @tw.kernel
    def twice(
        expert: tw.Tensor["B", 2],
        x: tw.Tensor["B", "M", "K"],
        w: tw.Tensor["E", "N", "K"],
        y: tw.Tensor["B", "M", "N"],
    ):
        b, m, n = tw.grid(y, (None, 64, 64))
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[2], 64):
            first, second = expert[b, 0], expert[b, 1]
            acc += tw.dot(x[b, m, k], w[first, n, k].T) + tw.dot(x[b, m, k], w[second, n, k].T)
        y[b, m, n] = acc

    kernel = traced(p.request(twice, "bf16", 16, {"expert": "i32"}))
    binds = [op for op in kernel.walk() if isinstance(op, tile.Bind)]
    assert len(binds) == 2
    assert all(op.parent_op() is kernel for op in binds)
    assert not any(isinstance(op, tile.Gather) for op in kernel.walk())
    rng = np.random.default_rng(4)
    chosen = np.array([[0, 4], [5, 1], [-1, 9]], np.int32)
    x, w = rng.normal(size=(3, M, K)).astype(BF16), rng.normal(size=(EXPERTS, N, K)).astype(BF16)
    y = np.full((3, M, N), 7, np.float32)
    twice(chosen, x, w, y)
    for i, pair in enumerate(chosen):
        wanted = sum(
            (x[i].astype(np.float64) @ w[e].astype(np.float64).T for e in pair if 0 <= e < EXPERTS), np.zeros((M, N))
        )
        np.testing.assert_allclose(y[i], wanted, atol=1e-3)


def test_pages_of_a_stream_are_gathered() -> None:
    """An index that changes with the steps is no program's: threads gather these tiles, as before."""

    @tw.kernel
    def paged(
        page: tw.Tensor["B", "S"],
        q: tw.Tensor["B", 64, 64],
        k: tw.Tensor["P", 64, 64],
        y: tw.Tensor["B", 64, 64],
    ):
        b = tw.grid(q.shape[0], None)
        acc = tw.zeros((tw.axis(64), tw.axis(64)), tw.f32)
        for s in tw.stream(page.shape[1], None):
            acc += tw.dot(q[b], k[page[b, s]].T)
        y[b] = acc

    kernel = traced(p.request(paged, "bf16", 16, {"page": "i32"}))
    assert not any(isinstance(op, tile.Bind) for op in kernel.walk())
    rng = np.random.default_rng(5)
    page = np.array([[0, 3, -1], [6, 2, 5]], np.int32)
    q, k = rng.normal(size=(2, 64, 64)).astype(BF16), rng.normal(size=(6, 64, 64)).astype(BF16)
    y = np.full((2, 64, 64), 7, np.float32)
    paged(page, q, k, y)
    for i, pages in enumerate(page):
        inside = [k[s].astype(np.float64) for s in pages if 0 <= s < 6]
        np.testing.assert_allclose(y[i], q[i].astype(np.float64) @ sum(inside).T, atol=1e-2)  # type: ignore[union-attr]


def test_indices_of_groups() -> None:
    """The expert of a group of rows, whose number the producer has found itself."""

    @tw.kernel
    def routed(
        offsets: tw.Offsets["G + 1"],
        expert: tw.Tensor["G"],
        x: tw.Tensor["T", "K"],
        w: tw.Tensor["E", "N", "K"],
        y: tw.Tensor["T", "N"],
    ):
        g, m, n = tw.ragged_grid(offsets, y.shape, (64, 64))
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[1], 64):
            acc += tw.dot(x[m, k], w[expert[g], n, k].T)
        y[m, n] = acc

    rng = np.random.default_rng(6)
    offsets, expert = np.array([0, 50, 50, 130, 200], np.int32), np.array([4, 0, 7, 1], np.int64)
    x, w = rng.normal(size=(210, K)).astype(BF16), rng.normal(size=(EXPERTS, N, K)).astype(BF16)
    y = np.full((210, N), 7, np.float32)
    routed(offsets, expert, x, w, y)
    wanted = np.zeros((210, N))
    wanted[:50] = x[:50].astype(np.float64) @ w[4].astype(np.float64).T
    wanted[130:200] = x[130:200].astype(np.float64) @ w[1].astype(np.float64).T
    np.testing.assert_allclose(y, wanted, atol=1e-3)
