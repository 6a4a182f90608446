"""Promises and loaded bounds on a real device: results, broken promises at a later call, CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.example_cases import load
from support.indexed import CASES
from tilewright.diag import TilewrightError

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

ragged = load("ragged")
SCATTER = CASES["scatter_rows"].kernel
T, V, D = 37, 50, 100


def on_device(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)).cuda() for name, array in arrays.items()}


@pytest.mark.parametrize("name", CASES)
def test_kernels_at_loaded_coordinates(name: str) -> None:
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(3))
    expected = case.expected({n: a.copy() for n, a in arrays.items()})
    tensors = on_device(arrays)
    case.kernel(**tensors)
    tw.check()
    for output, exact in expected.items():
        np.testing.assert_allclose(tensors[output].cpu().numpy(), exact, rtol=1e-5, atol=max(case.within, 1e-5))


@pytest.fixture
def scattered() -> tuple[Any, Any, Any]:
    """Rows that are unique, what is stored there, and an output of sevens."""
    rows = torch.randperm(V, device="cuda")[:T].to(torch.int32)
    return rows, torch.randn(T, D, device="cuda"), torch.full((V, D), 7.0, device="cuda")


def test_a_broken_promise_stores_nothing_and_is_reported(scattered: tuple[Any, Any, Any]) -> None:
    rows, x, y = scattered
    rows[5] = rows[6]
    SCATTER(rows, x, y)
    with pytest.raises(TilewrightError, match="RUN023"):
        tw.check()
    assert (y == 7).all()
    tw.check()  # once


def test_a_broken_promise_is_reported_by_the_next_call(scattered: tuple[Any, Any, Any]) -> None:
    rows, x, y = scattered
    broken = rows.clone()
    broken[5] = broken[6]
    SCATTER(broken, x, y)
    torch.cuda.synchronize()
    with pytest.raises(TilewrightError, match="RUN023"):
        SCATTER(rows, x, y)
    SCATTER(rows, x, y)
    tw.check()
    assert torch.equal(y[rows.long()], x)


def test_a_graph_checks_its_promises_at_every_replay(scattered: tuple[Any, Any, Any]) -> None:
    rows, x, y = scattered
    good = rows.clone()
    SCATTER(rows, x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        SCATTER(rows, x, y)
    for broken in (False, True, False):
        rows.copy_(good)
        if broken:
            rows[5] = rows[6]
        y.fill_(7)
        graph.replay()
        if broken:
            with pytest.raises(TilewrightError, match="RUN023"):
                tw.check()
            assert (y == 7).all()
        else:
            tw.check()
            assert torch.equal(y[rows.long()], x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_attention_over_lengths(dtype: str) -> None:
    kind = getattr(torch, dtype)
    lengths = torch.tensor([0, 1, 130, 77, -4, 2**31 - 1], dtype=torch.int32, device="cuda")
    q, k, v = (torch.randn(6, s, 128, device="cuda").to(kind) for s in (48, 130, 130))
    o = torch.full_like(q, float("nan"))
    used = lengths.clamp(0, 130).tolist()
    for b, length in enumerate(used):
        k[b, length:], v[b, length:] = float("nan"), float("nan")
    ragged.attention_over_lengths(lengths, q, k, v, o, scale=0.1)
    for b, length in enumerate(used):
        p = (q[b].double() @ k[b, :length].double().T * 0.1).softmax(-1)
        exact = p @ v[b, :length].double() if length else torch.zeros_like(q[b]).double()
        assert (o[b].double() - exact).abs().max() < 0.03


def test_grouped_weight_gradient() -> None:
    offsets = torch.tensor([0, 0, 50, 51, 200], dtype=torch.int32, device="cuda")
    x, y = (torch.randn(200, n, device="cuda").bfloat16() for n in (72, 40))
    w = torch.full((4, 72, 40), float("nan"), device="cuda")
    ragged.grouped_weight_gradient(offsets, x, y, w)
    bounds = offsets.tolist()
    for g in range(4):
        rows = slice(bounds[g], bounds[g + 1])
        assert (w[g].double() - x[rows].double().T @ y[rows].double()).abs().max() < 1e-3
