"""Steps of software-pipelined streams without masks: which launches have them, and what they store."""

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
from tilewright.base.expr import conjuncts
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan, traced
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.lang.schedule import Schedule
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.mask_free_steps import whole_first_step, whole_steps
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import exprs
from tilewright.validate.tile_to_transport.compare import compare

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(5)
BF16 = ml_dtypes.bfloat16
WHOLE = Candidate(1, stages=2, software_pipelined=True, whole_steps=True)


def condition(kernel: tw.Kernel, *, causal: bool = False) -> str:
    """Under what the first step of a kernel's one stream is whole."""
    found = traced(p.request(kernel, causal=causal) if causal else p.request(kernel))
    (stream,) = (op for op in found.walk() if isinstance(op, tile.StreamLoop))
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
    return "whole steps" in " ".join(kernel.notes)


@pytest.mark.parametrize(
    ("keys", "expected"), [(1, False), (63, False), (64, True), (112, False), (128, True), (4096, True)]
)
def test_which_launches_have_it(keys: int, expected: bool) -> None:
    """Tiles of 256 rows take 64 keys at a time, of 128 rows 128, of 192 rows 112."""
    dims = {"B": 4, "H": 16, "G": 16, "S": 4096, "T": keys}
    serving = next(v for v in planned() if v.predicate.evaluate(dims))
    (alone,) = planned(dims=dims)
    assert (whole(serving), whole(alone)) == (expected, expected)


def test_a_pin_that_excludes_it_leaves_the_class_out() -> None:
    """Its kernel would be that of the others."""
    assert sum(map(whole, planned())) == 3
    kernels = planned(consumers=1)
    assert not any(map(whole, kernels))
    assert len({str(kernel.predicate) for kernel in kernels}) == len(kernels)


# -- where indices are compared: all steps --------------------------------------------------------------------------
def causal(candidate: Candidate) -> p.Lowered:
    found = p.lower(p.attention, candidate, causal=True)
    assert not isinstance(found, Refused), found.reason
    return found


def test_what_all_steps_ask_of_a_launch() -> None:
    found = traced(p.request(p.attention, causal=True))
    (stream,) = (op for op in found.walk() if isinstance(op, tile.StreamLoop))
    assert str(whole_steps(found, stream)) == "S % 64 == 0 and T % 64 == 0"


def test_only_the_comparison_is_left() -> None:
    """No element is asked whether it lies in the domain, and no row of a tile is cleared."""
    kernels = [causal(each).scheduled.kernel for each in (WHOLE, replace(WHOLE, whole_steps=False))]
    predicates, cleared = (
        [sum(isinstance(op, kind) for op in kernel.walk()) for kernel in kernels] for kind in (t.Predicate, a.ZeroFill)
    )
    assert predicates[0] == 0 < predicates[1]
    assert cleared[0] == 0 < cleared[1]


@pytest.mark.parametrize("resident", [1, 3])
@pytest.mark.parametrize(("queries", "keys"), [(64, 64), (128, 128), (192, 64), (64, 192), (192, 192)])
def test_values_of_whole_steps(queries: int, keys: int, resident: int) -> None:
    arrays, scale = inputs(queries, keys), 0.125
    kernel = causal(replace(WHOLE, resident=resident, stages=2)).scheduled.kernel
    assert kernel.min_ctas.data == resident
    simulate.run(kernel, arrays, {"scale": scale})
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    x = np.where(np.arange(queries)[:, None] >= np.arange(keys), q @ k.T * scale, -np.inf)
    weights = np.exp(x - x.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True) @ v
    assert np.linalg.norm(arrays["o"].astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize("left_out", ["S", "T"])
def test_steps_are_whole_only_where_a_launch_was_asked(left_out: str) -> None:
    found = causal(WHOLE)
    kernel = found.scheduled.kernel
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert compare(found.tile, kernel) == ()
    asked = [fact for each in kernel.assumptions for fact in conjuncts(each.expr)]
    kernel.attributes["assumptions"] = exprs([fact for fact in asked if str(fact) != f"{left_out} % 64 == 0"])
    refused = prove_copies(found.tile, kernel)
    assert isinstance(refused, Refuted)
    assert "are multiplied" in str(refused)
    assert compare(found.tile, kernel)


@pytest.mark.parametrize(("length", "expected"), [(512, True), (4096, True), (500, False), (576, False)])
def test_which_causal_launches_have_them(length: int, expected: bool) -> None:
    """Tiles of 128 rows take 128 keys at a time."""
    dims = {"B": 4, "H": 16, "G": 16, "S": length, "T": length}
    (alone,) = plan(p.request(example.forward(128), causal=True), dims).variants
    assert whole(alone) == expected


@pytest.mark.parametrize(("length", "expected"), [(512, 1), (1024, 1), (1152, 33), (4096, 33)])
def test_which_causal_launches_walk_head_by_head(length: int, expected: int) -> None:
    dims = {"B": 4, "H": 16, "G": 16, "S": length, "T": length}
    (alone,) = plan(p.request(example.forward(128), causal=True), dims).variants
    bands = {op.group.data for op in alone.transport.walk() if isinstance(op, t.Programs) and op.group}
    assert bands == {expected}
