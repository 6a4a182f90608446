"""First steps of software-pipelined streams without masks: which launches have them, and what they store."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from examples import attention as example
from support import products as p
from tilewright import simulate
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan, traced
from tilewright.lang.schedule import Schedule
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidates import Candidate
from tilewright.schedule.hopper.predicates import whole_first_step
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

RNG = np.random.default_rng(5)
BF16 = ml_dtypes.bfloat16
WHOLE = Candidate(1, stages=2, software_pipelined=True, whole_first_steps=True)


def condition(kernel: tw.Kernel, *, causal: bool = False) -> str:
    """Under what the first step of a kernel's one stream is whole."""
    found = traced(p.request(kernel, causal=causal) if causal else p.request(kernel))
    (stream,) = (op for op in found.walk() if isinstance(op, tile.Stream))
    return str(whole_first_step(found, stream))


def from_row(start: int) -> tw.Kernel:
    @tw.kernel
    def kernel(a: tw.Tensor["M", 64], b: tw.Tensor["N", 64], o: tw.Tensor["M", 64]):
        m = tw.grid(a.shape[0], 64)
        acc = tw.zeros((m, 64), tw.f32)
        for n in tw.stream(b.shape[0], 32, start=start):
            acc += tw.dot(tw.dot(a[m, :], b[n, :].T).to(a.dtype), b[n, :])
        o[m, :] = acc

    return kernel


def test_what_it_asks_of_a_launch() -> None:
    assert condition(p.attention) == "64 <= T"
    assert condition(p.attention, causal=True) == "None"
    assert condition(from_row(0)) == "32 <= N"
    assert condition(from_row(40)) == "72 <= N"


def attended(arrays: dict[str, np.ndarray], scale: float) -> np.ndarray:
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    x = q @ k.swapaxes(-1, -2) * scale
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def inputs(queries: int, keys: int, *outer: int) -> dict[str, np.ndarray]:
    shapes = {"q": queries, "k": keys, "v": keys, "o": queries}
    return {name: RNG.normal(size=(*outer, n, 64)).astype(BF16) for name, n in shapes.items()}


def difference(arrays: dict[str, np.ndarray], scale: float) -> float:
    exact = attended(arrays, scale)
    return float(np.linalg.norm(arrays["o"].astype(np.float64) - exact) / np.linalg.norm(exact))


def masks(candidate: Candidate) -> int:
    """How many loops ask for elements whether they lie inside of the domain."""
    found = p.lower(p.attention, candidate)
    assert not isinstance(found, Refused), found.reason
    loops = [op for op in found.scheduled.kernel.walk() if isinstance(op, t.For)]
    return sum(any(isinstance(op, tile.Select) for op in loop.walk()) for loop in loops)


def test_the_first_step_asks_nothing() -> None:
    assert masks(WHOLE) == masks(Candidate(1, stages=2, software_pipelined=True)) - 1


@pytest.mark.parametrize("keys", [64, 65, 127, 128, 129, 200])
def test_values(keys: int) -> None:
    found = p.lower(p.attention, WHOLE)
    assert not isinstance(found, Refused), found.reason
    assert "64 <= T" in map(str, found.scheduled.guards)
    arrays = inputs(70, keys)
    simulate.run(found.scheduled.kernel, arrays, {"scale": 0.125})
    assert difference(arrays, 0.125) < 1e-2


def planned(dims: Mapping[str, int] | None = None, consumers: int | None = None) -> Sequence[PlannedKernel]:
    return plan(replace(p.request(example.forward(64)), schedule=Schedule(consumers=consumers)), dims).variants


def whole(kernel: PlannedKernel) -> bool:
    return "first steps whole" in " ".join(kernel.notes)


@pytest.mark.parametrize(
    ("keys", "expected"), [(1, False), (111, False), (112, True), (127, True), (128, True), (4096, True)]
)
def test_which_launches_have_it(keys: int, expected: bool) -> None:
    """Tiles of 192 rows take 112 keys at a time."""
    dims = {"B": 4, "H": 16, "G": 16, "S": 4096, "T": keys}
    serving = next(v for v in planned() if v.predicate.evaluate(dims))
    (alone,) = planned(dims=dims)
    assert (whole(serving), whole(alone)) == (expected, expected)


def test_a_pin_that_excludes_it_leaves_the_class_out() -> None:
    """Its kernel would be that of the others."""
    assert sum(map(whole, planned())) == 2
    kernels = planned(consumers=1)
    assert not any(map(whole, kernels))
    assert len({str(kernel.predicate) for kernel in kernels}) == len(kernels)
