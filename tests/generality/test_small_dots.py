"""Products of every dtype in tiles that no matrix instruction takes: scheduled, proved and right."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.slow import rest_slow

pytestmark = pytest.mark.sample(2)


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm, bn, bk, whole: bool = False):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.i32 if whole else tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


TILES = [(16, 64, 32), (32, 64, 64), (16, 16, 16), (48, 64, 64), (40, 48, 64), (64, 20, 64), (24, 40, 24), (8, 64, 64)]
DTYPES: list[Any] = [np.float32, np.int8, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


EVERY = [(tile, dtype) for tile in TILES for dtype in DTYPES]
QUICK = [*((TILES[0], dtype) for dtype in DTYPES), *((tile, ml_dtypes.bfloat16) for tile in TILES[1:])]


@pytest.mark.parametrize(("tile", "dtype"), rest_slow(EVERY, QUICK, several=True), ids=str)
def test_right(tile: tuple[int, int, int], dtype: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal((rows, 100)) * 3).astype(dtype) for rows in (40, 50))
    integers = np.dtype(dtype).kind == "i"
    c = np.empty((40, 50), np.int32 if integers else np.float32)
    product(a, b, c, bm=tile[0], bn=tile[1], bk=tile[2], whole=integers)
    x, y = a.astype(np.float64), b.astype(np.float64)
    allowed = 0 if integers else 1e-3
    if np.dtype(dtype).itemsize == 1 and not integers:  # tensor cores cut each of 33 terms of 4 instructions at 14 bits
        allowed = 4 * 33 * 2.0**-13 * (np.abs(x) @ np.abs(y).T)
    assert (np.abs(c - x @ y.T) <= allowed).all()


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_compiled(dtype: str) -> None:
    """Through NVRTC: what proves is also emitted."""
    whole = dtype == "i8"
    dtypes = {"a": dtype, "b": dtype, "c": "i32" if whole else "f32"}
    artifact = product.compile(dtypes=dtypes, bm=16, bn=64, bk=32, whole=whole)
    assert "filled" in {o.name for o in artifact.certificate}
