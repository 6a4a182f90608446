"""Promises and loaded bounds on a real device: results, broken promises at a later call, CUDA graphs."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
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


@tw.kernel
def send(slots: tw.Unique["T", 2], x: tw.Tensor["T", "D"], y: tw.Tensor["P", "D"]):
    t = tw.grid(x.shape[0], 4)
    for d in tw.stream(x.shape[1], 32):
        y[slots[t], d] = x[t, d][:, None, :]


@pytest.mark.parametrize("handle", [True, False])
def test_slots_of_a_pack_plan_are_unique(handle: bool) -> None:
    """As a handle, without a check of the launch; as the tensor that they are, with it."""
    ids = torch.randint(-2, 9, (5000, 2), dtype=torch.int32, device="cuda")
    x = torch.randn(5000, 20, device="cuda")
    plan = tw.build_pack_plan(ids, 7, tw.PackPolicy(align=4), unique=True)
    y = torch.full((plan.capacity, 20), -1.0, device="cuda")
    send(plan.unique_slots if handle else plan.slots, x, y)
    tw.check()
    slots, wanted = plan.slots.long(), torch.full_like(y, -1.0)
    kept = slots >= 0
    assert int(kept.sum()) == int(((ids >= 0) & (ids < 7)).sum())
    wanted[slots[kept]] = x[:, None].expand(-1, 2, -1)[kept]
    assert torch.equal(y, wanted)


TRAP = """
import torch, tilewright as tw
from tilewright.runtime import load

@tw.kernel(on_out_of_range="trap")
def gathered(index: tw.Tensor["T"], x: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
    m, n = tw.grid(y, (4, 64))
    y[m, n] = x[index[m], n]

program = load(gathered.compile(dtypes={"index": tw.i64, "x": tw.f32, "y": tw.f32}, debug=True))
x, y = torch.randn(9, 64, device="cuda"), torch.zeros(5, 64, device="cuda")
for last in (7, 9):
    index = torch.tensor([3, -1, 0, 8, last], device="cuda")
    program.launch({"index": index, "x": x, "y": y})
    try:
        torch.cuda.synchronize()
        print("done", bool((y[0] == x[3]).all()), flush=True)
    except Exception as error:
        print("stopped", flush=True)
"""


def test_a_debug_build_prints_an_index_that_leads_outside_and_traps(tmp_path: Path) -> None:
    """In a process of its own: a trap ends its context."""
    (tmp_path / "trap.py").write_text(TRAP)
    ran = subprocess.run([sys.executable, tmp_path / "trap.py"], capture_output=True, text=True, check=False)
    assert "done True" in ran.stdout, ran.stdout + ran.stderr
    assert "stopped" in ran.stdout, ran.stdout + ran.stderr
    assert "leads outside of x" in ran.stdout, ran.stdout + ran.stderr


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
