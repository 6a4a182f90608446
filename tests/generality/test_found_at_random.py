"""Kernels that random ones led to (``tools/random_kernels.py``), each against NumPy in the simulator."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw

RNG = np.random.default_rng(7)


@tw.kernel
def rows_from(x: tw.Tensor["N", "M"], y: tw.Tensor["M"], *, first: tw.i32, bm=tw.auto):
    m = tw.grid(y, bm)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[0], 32, start=first):
        total += x[n, m].sum(0)
    y[m] = total


@pytest.mark.parametrize(("rows", "first"), [(0, 1), (2, 40), (70, 3), (70, 69), (70, 70), (64, 64), (100, 0)])
def test_a_stream_that_begins_behind_its_end(rows: int, first: int) -> None:
    """No steps are whole there, and not less than none."""
    x = RNG.integers(-9, 9, (rows, 37)).astype(np.float32)
    y = np.full(37, np.nan, np.float32)
    rows_from(x, y, first=first)
    np.testing.assert_array_equal(y, x[first:].sum(0))


@tw.kernel
def short_product(a: tw.Tensor["B", 27, "M"], b: tw.Tensor["B", 27, "N"], c: tw.Tensor["B", "M", "N"], *, bk=tw.auto):
    i, m, n = tw.grid(c, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[i, k, m].T, b[i, k, n])
    c[i, m, n] = acc


def test_a_known_extent_below_one_step() -> None:
    """Whole steps are none, so that NVRTC drops their loop: the text must not have it either."""
    artifact = short_product.compile(dtypes={"a": "bf16", "b": "bf16"})
    assert "kernel_short_product" in artifact.kernels[-1].ptx
    a, b = (RNG.integers(-3, 4, (2, 27, n)).astype(ml_dtypes.bfloat16) for n in (70, 65))
    c = np.full((2, 70, 65), np.nan, np.float32)
    short_product(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32).transpose(0, 2, 1) @ b.astype(np.float32))
