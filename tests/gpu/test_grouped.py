"""Products of groups of rows on a real device: any offsets, broken ones, CUDA graphs, weights at loaded places."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.example_cases import load
from tilewright.diag import TilewrightError

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

grouped = load("grouped_matmul").grouped_matmul
ROWS, K, N = 1000, 200, 136


def drawn(groups: int) -> tuple[Any, Any, Any]:
    a, b = torch.randn(ROWS, K, device="cuda").bfloat16(), torch.randn(groups, N, K, device="cuda").bfloat16()
    return a, b, torch.full((ROWS, N), float("nan"), device="cuda", dtype=torch.bfloat16)


def agree(bounds: list[int], a: Any, b: Any, c: Any) -> None:
    exact = torch.zeros(ROWS, N, device="cuda", dtype=torch.float64)
    for g in range(len(bounds) - 1):
        rows = slice(bounds[g], bounds[g + 1])
        exact[rows] = a[rows].double() @ b[g].double().T
    assert float((c.double() - exact).abs().max()) < 0.3
    assert float((c.double() - exact).norm()) <= 3e-3 * float(exact.norm())


@pytest.mark.parametrize(
    "bounds",
    [
        [0, 0, 5, 70, 70, 999],
        [0, 1000],
        [0, 1, 2, 3, 4, 5],
        [0, 0, 0, 0],
        [0, 0, 0, 0, 1000],
        [0, *np.sort(np.random.default_rng(5).integers(0, 995, 300)).tolist(), 995],
    ],
    ids=["several", "one", "one row each", "all empty", "the last has all", "many"],
)
def test_any_lengths(bounds: list[int]) -> None:
    a, b, c = drawn(len(bounds) - 1)
    grouped(torch.tensor(bounds, dtype=torch.int32, device="cuda"), a, b, c)
    tw.check()
    agree(bounds, a, b, c)


def test_copies_end_with_their_group() -> None:
    """Through one map for all groups: no row of a neighbour is written, whichever is stored first."""
    artifact = grouped.compile(dtypes={"offsets": "i32", "a": "bf16", "b": "bf16", "c": "bf16"})
    sizes = {"G": 7, "M": ROWS, "N": N, "K": K, "a.stride0": K, "b.stride1": K}
    serving = next(v.name for v in artifact.variants if v.predicate.evaluate(sizes))
    assert "ragged" in {o.name for o in artifact.kernel(f"kernel_{serving}").certificate}
    a, b, c = drawn(7)
    for seed in range(40):
        inner = np.sort(np.random.default_rng(seed).integers(0, ROWS + 1, 7))
        bounds = [0, *inner.tolist()]
        c.fill_(float("nan"))
        grouped(torch.tensor(bounds, dtype=torch.int32, device="cuda"), a, b, c)
        tw.check()
        agree(bounds, a, b, c)


@tw.kernel
def added(offsets: tw.Offsets["G + 1"], a: tw.Tensor["M", "K"], b: tw.Tensor["G", "N", "K"], c: tw.Tensor["M", "N"]):
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64), rest="keep")
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] += acc


@pytest.mark.parametrize("groups", [3, 300])
def test_each_program_is_done_once(groups: int) -> None:
    """With fewer programs than CTAs, and with more."""
    a, b, c = drawn(groups)
    bounds = [0, *np.sort(np.random.default_rng(groups).integers(0, 950, groups)).tolist()]
    for _ in range(20):
        c.fill_(1)
        added(torch.tensor(bounds, dtype=torch.int32, device="cuda"), a, b, c)
        tw.check()
        assert (c[bounds[-1] :] == 1).all()
        c[: bounds[-1]] -= 1
        c[bounds[-1] :] = 0
        agree(bounds, a, b, c)


@tw.kernel
def until(lengths: tw.Tensor["B"], x: tw.Tensor["B", "M", "K"], w: tw.Tensor[72, "K"], y: tw.Tensor["B", "M", 72]):
    b, n = tw.grid((lengths.shape[0], 72), (None, 64))
    for m in tw.stream(x.shape[1], 64, until=lengths[b]):
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[2], 64):
            acc += tw.dot(x[b, m, k], w[n, k].T)
        y[b, m, n] = acc


def test_rows_behind_a_length_keep_their_bytes() -> None:
    lengths = [150, 64, 0, 1, 63, -5, 2**31 - 1]
    x, w = torch.randn(7, 150, 72, device="cuda").bfloat16(), torch.randn(72, 72, device="cuda").bfloat16()
    y = torch.full((7, 150, 72), float("nan"), device="cuda", dtype=torch.bfloat16)
    until(torch.tensor(lengths, dtype=torch.int32, device="cuda"), x, w, y)
    torch.cuda.synchronize()
    for stored, rows, length in zip(y, x, lengths, strict=True):
        end = min(max(length, 0), 150)
        torch.testing.assert_close(stored[:end].double(), rows[:end].double() @ w.double().T, rtol=1e-2, atol=0.1)
        assert stored[end:].isnan().all()


@pytest.mark.parametrize("bounds", [[0, 50, 40, 1000], [-1, 10, 20, 30], [0, 10, 20, 1001], [5, 10, 2**31 - 1, 3]])
def test_broken_offsets_store_nothing(bounds: list[int]) -> None:
    a, b, c = drawn(3)
    c.fill_(7)
    grouped(torch.tensor(bounds, dtype=torch.int32, device="cuda"), a, b, c)
    with pytest.raises(TilewrightError, match="RUN023"):
        tw.check()
    assert (c == 7).all()


def test_a_graph_takes_new_offsets() -> None:
    a, b, c = drawn(4)
    offsets = torch.tensor([0, 100, 200, 300, 1000], dtype=torch.int32, device="cuda")
    grouped(offsets, a, b, c)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grouped(offsets, a, b, c)
    for bounds in ([0, 10, 10, 990, 1000], [0, 0, 0, 0, 0], [0, 500, 500, 1000, 1000]):
        offsets.copy_(torch.tensor(bounds, dtype=torch.int32))
        c.fill_(float("nan"))
        graph.replay()
        tw.check()
        agree(bounds, a, b, c)
