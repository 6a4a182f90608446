"""Steps of a stream that need no mask, and programs walked downwards."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.compiler.program import traced
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidates import Candidate
from tilewright.schedule.hopper.predicates import leading_steps, longest_first
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

RNG = np.random.default_rng(37)


def banded(low: int, high: int | None, *, strict: bool = False) -> tw.Kernel:
    """Sums of products of rows and columns whose distance lies in a band."""

    @tw.kernel
    def kernel(a: tw.Tensor["M", 64], b: tw.Tensor["N", 64], c: tw.Tensor["N", 64], o: tw.Tensor["M", 64]):
        m = tw.grid(a.shape[0], 64)
        rows = a[m, :]
        acc = tw.zeros((m, 64), tw.f32)
        for n in tw.stream(b.shape[0], 32):
            x = tw.dot(rows, b[n, :].T)
            away = m.index[:, None] - n.index[None, :]
            x = tw.where(away > low if strict else away >= low, x, 0.0)
            if high is not None:
                x = tw.where(away <= high, x, 0.0)
            acc += tw.dot(x.to(a.dtype), c[n, :])
        o[m, :] = acc

    return kernel


def stream_of(kernel: tw.Kernel) -> tile.Stream:
    return next(op for op in traced(p.request(kernel)).walk() if isinstance(op, tile.Stream))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("low", [-40, 0, 7])
def test_as_many_steps_as_hold_everywhere(low: int, strict: bool) -> None:
    found = leading_steps(stream_of(banded(low, None, strict=strict)))
    assert found is not None
    for program in range(4):
        rows = np.arange(64)[:, None] + 64 * program
        apart = [rows - np.arange(32 * i, 32 * i + 32)[None, :] for i in range(12)]
        whole = [bool((x > low if strict else x >= low).all()) for x in apart]
        assert found[0].evaluate({"$p0": program}) == whole.index(False)


def test_the_far_side_of_a_band_is_always_asked() -> None:
    found = leading_steps(stream_of(banded(0, 90)))
    assert found is not None
    assert len(found[1]) == 1


@pytest.mark.parametrize(
    "candidate", [Candidate(1, stages=2), Candidate(1, stages=2, software_pipelined=True)], ids=str
)
@pytest.mark.parametrize(("low", "high"), [(0, None), (-40, None), (7, None), (0, 90)])
def test_values_near_the_diagonal(low: int, high: int | None, candidate: Candidate) -> None:
    found = p.lower(banded(low, high), candidate)
    assert not isinstance(found, Refused), found.reason
    a, b, c, o = (RNG.normal(size=(n, 64)).astype(ml_dtypes.bfloat16) for n in (130, 150, 150, 130))
    simulate.run(found.scheduled.kernel, {"a": a, "b": b, "c": c, "o": o})
    away = np.arange(130)[:, None] - np.arange(150)[None, :]
    x = a.astype(np.float64) @ b.astype(np.float64).T
    x = np.where((away >= low) & (away <= (high if high is not None else 10**6)), x, 0)
    exact = x.astype(ml_dtypes.bfloat16).astype(np.float64) @ c.astype(np.float64)
    assert np.linalg.norm(o.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


def test_masks_stay_out_of_the_steps_that_need_none() -> None:
    found = p.lower(p.attention, Candidate(1, stages=2), causal=True)
    assert not isinstance(found, Refused), found.reason
    loops = [op for op in found.scheduled.kernel.walk() if isinstance(op, t.For)]
    masked = [any(isinstance(op, tile.Select) for op in loop.walk()) for loop in loops if loop.body.block.ops]
    assert masked.count(True) == 1


def test_long_programs_come_first() -> None:
    assert longest_first(traced(p.request(p.attention, causal=True))) == ("$p0",)
    assert longest_first(traced(p.request(p.attention))) == ()
    found = p.lower(p.attention, Candidate(1, stages=2), causal=True)
    assert not isinstance(found, Refused), found.reason
    assert {op.downwards for op in found.scheduled.kernel.walk() if isinstance(op, t.Programs)} == {frozenset({"$p0"})}
