"""Extrema, conjunctions and disjunctions in memory where thousands of elements meet at each place, on a real device."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

ROWS, PLACES, WIDTH = 20000, 7, 70


@tw.kernel
def extremes(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], top: tw.Tensor["V", "D"], least: tw.Tensor["V", "D"]):
    m, n = tw.grid(x, (16, 64))
    tw.reduce_max(top, (index[m], n), x[m, n])
    tw.reduce_min(least, (index[m], n), x[m, n])


@tw.kernel
def bits(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], every: tw.Tensor["V", "D"], some: tw.Tensor["V", "D"]):
    m, n = tw.grid(x, (16, 64))
    tw.reduce_and(every, (index[m], n), x[m, n])
    tw.reduce_or(some, (index[m], n), x[m, n])


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Integers of the whole range; floats of all exponents and signs, infinities among them, no NaN."""
    if dtype is not np.float32:
        limits = np.iinfo(dtype)  # type: ignore[arg-type]
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)  # type: ignore[call-overload]
    values = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    return np.where(np.isnan(values), np.float32(-0.0), values)


def check(kernel: Any, functions: dict[str, np.ufunc], dtype: type[np.generic]) -> None:
    """``kernel`` against NumPy, bit for bit, at rows of which some lead outside."""
    rng = np.random.default_rng(7)
    index, x = rng.integers(-1, PLACES + 1, ROWS), drawn(rng, (ROWS, WIDTH), dtype)
    targets = {name: drawn(rng, (PLACES, WIDTH), dtype) for name in functions}
    held = {name: torch.from_numpy(a.copy()).cuda() for name, a in {"index": index, "x": x, **targets}.items()}
    kernel(**held)
    tw.check()
    for name, function in functions.items():
        for row, wanted in enumerate(targets[name]):
            function(wanted, function.reduce(x[index == row], 0), out=wanted)
            np.testing.assert_array_equal(held[name][row].cpu().numpy(), wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float32])
def test_extremes(dtype: type[np.generic]) -> None:
    check(extremes, {"top": np.maximum, "least": np.minimum}, dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_bits(dtype: type[np.generic]) -> None:
    check(bits, {"every": np.bitwise_and, "some": np.bitwise_or}, dtype)


def test_extremes_where_an_element_is_nan() -> None:
    rng = np.random.default_rng(8)
    index, x = rng.integers(0, PLACES, ROWS), rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    x[rng.integers(0, ROWS, 40), rng.integers(0, WIDTH, 40)] = np.nan
    x[rng.integers(0, ROWS, 40), rng.integers(0, WIDTH, 40)] = -np.nan
    top = torch.full((PLACES, WIDTH), -np.inf, device="cuda")
    least = torch.full((PLACES, WIDTH), np.inf, device="cuda")
    extremes(torch.from_numpy(index).cuda(), torch.from_numpy(x).cuda(), top, least)
    for row in range(PLACES):
        np.testing.assert_array_equal(top[row].cpu().numpy(), x[index == row].max(0))
        np.testing.assert_array_equal(least[row].cpu().numpy(), x[index == row].min(0))
