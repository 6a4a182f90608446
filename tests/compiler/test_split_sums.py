"""Sums of kernels without products in parts: which launches have them, and what they add up to."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiler.test_split_k import BF16, moments, pinned
from support import products as p
from support.example_cases import load
from tilewright.artifact.schema import VALIDATION
from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan
from tilewright.diag import TilewrightError
from tilewright.simulate import run_steps

pytestmark = pytest.mark.sample(1)

reductions = load("reductions")


def served(kernel: tw.Kernel, m: int, n: int) -> PlannedKernel:
    sizes = {"M": m, "N": n, "x.stride0": n, "x.stride1": 1, "x.address": 0}
    results = {name: value for t in kernel.tensors if t.name != "x" for name, value in _of_vector(t.name)}
    (variant,) = plan(p.request(kernel), sizes | results).variants
    return variant


def _of_vector(name: str) -> tuple[tuple[str, int], ...]:
    return (f"{name}.stride0", 1), (f"{name}.address", 0)


@pytest.mark.parametrize(
    ("name", "m", "n", "cut"),
    [
        ("column_sum", 65536, 1024, True),
        ("column_sum", 1 << 20, 8, True),
        ("column_sum", 65536, 16384, False),  # a CTA for each SM
        ("column_sum", 512, 64, False),  # one step
        ("row_sum", 1, 1 << 24, True),
        ("row_sum", 64, 1 << 20, True),
        ("row_sum", 64, 65536, False),
        ("row_sum", 4096, 65536, False),
        ("row_sum", 1, 4096, False),
        ("column_max", 65536, 1024, True),
        ("argmax", 1, 1 << 20, False),  # two fragments that depend on each other
    ],
)
def test_sums_of_few_programs_are_cut(name: str, m: int, n: int, *, cut: bool) -> None:
    assert (served(getattr(reductions, name), m, n).product is not None) is cut


@pytest.mark.parametrize(
    ("name", "m", "n"), [("column_sum", 9001, 72), ("row_sum", 3, 400008), ("row_sum", 1, 1 << 19)]
)
def test_parts_add_up(name: str, m: int, n: int) -> None:
    x = np.random.default_rng(m).standard_normal((m, n)).astype(np.float32)
    variant = served(getattr(reductions, name), m, n)
    assert len(variant.steps) == 2
    axis = 0 if name == "column_sum" else 1
    arrays: dict[str, Any] = {"x": x.astype(BF16), "y": np.full(x.shape[1 - axis], np.nan, BF16)}
    run_steps(variant.steps, variant.scratch, arrays, symbols={"M": m, "N": n})
    exact = arrays["x"].astype(np.float64).sum(axis)
    np.testing.assert_allclose(arrays["y"].astype(np.float64), exact, rtol=8e-3, atol=1e-2)


@tw.kernel
def range_of(x: tw.Tensor["M", "N"], least: tw.Tensor["M"], most: tw.Tensor["M"], *, bm=tw.auto, bn=tw.auto):
    m = tw.grid(least, bm)
    low, high = tw.full(m, 2.0, tw.f32), tw.full(m, -tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        low.set(tw.minimum(low, x[m, n].to(tw.f32).min(1)))
        high.set(tw.maximum(high, x[m, n].to(tw.f32).max(1)))
    least[m] = low
    most[m] = high


@pytest.mark.parametrize("parts", [3, 20])
@pytest.mark.parametrize("n", [8, 4096, 50000])
def test_extrema_of_parts_are_those_of_all(n: int, parts: int) -> None:
    """The least begins with 2, which is below the elements of the last row; the greatest of negative elements is not
    that of a part without steps; a NaN stays."""
    x = -1 - np.random.default_rng(n).random((4, n))
    x[2, n // 2] = np.nan
    x[3] = 3 - x[3]
    (variant,) = plan(pinned(range_of, parts)).variants
    arrays: dict[str, Any] = {"x": x.astype(BF16), **{name: np.full(4, 7, BF16) for name in ("least", "most")}}
    run_steps(variant.steps, variant.scratch, arrays, symbols={"M": 4, "N": n})
    exact = arrays["x"].astype(np.float64)
    np.testing.assert_array_equal(arrays["least"].astype(np.float64), np.minimum(exact.min(1), 2.0))
    np.testing.assert_array_equal(arrays["most"].astype(np.float64), exact.max(1))


@pytest.mark.slow
@pytest.mark.parametrize("parts", [3, 20])
def test_pinned_parts_are_validated(parts: int) -> None:
    """Two sums in one stream, each with a tensor of its own; few parts one after the other, and many at once."""
    artifact = build(plan(pinned(moments, parts)), validate=True)
    held = {o.name: o for o in artifact.variants[0].certificate}
    assert held["split"].detail == f"{parts} parts, each step in one of them"
    combine = artifact.kernels[-1]
    assert combine.undecided == ()
    assert {o.method for o in combine.certificate if o.name in ("lowering", "ptx")} == {VALIDATION}


def test_parts_of_other_streams_are_refused() -> None:
    with pytest.raises(TilewrightError, match="SCH002"):
        plan(pinned(reductions.argmax, 2))
