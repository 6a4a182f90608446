"""Inputs whose elements share their bytes, as sliding windows and repeated rows: tensor copies bring them."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import bf16
from tilewright.simulate.arguments import BoundTensor
from tilewright.simulate.tensor_copy import indices

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(ml_dtypes.bfloat16)


@tw.kernel
def convolution(
    x: tw.Tensor["P", "T", "C"], w: tw.Tensor["T", "C", "N"], y: tw.Tensor["P", "N"], *, bp=64, bn=64, bc=32
):
    p, n = tw.grid(y, (bp, bn))
    acc = tw.zeros((p, n), tw.f32)
    for t in tw.stream(w.shape[0], None):
        for c in tw.stream(x.shape[2], bc):
            acc += tw.dot(x[p, t, c], w[t, c, n])
    y[p, n] = acc


@pytest.mark.parametrize("shared", ["windows", "rows"])
def test_agrees_with_numpy(shared: str) -> None:
    rows, w = normal(66, 32), normal(3, 32, 64)
    windows = np.lib.stride_tricks.sliding_window_view(rows, 3, axis=0).swapaxes(1, 2)
    x = windows if shared == "windows" else np.broadcast_to(rows[:1, None], (64, 3, 32))
    y = np.full((64, 64), np.nan, np.float32)
    convolution(x, w, y)
    expected = np.einsum("ptc,tcn->pn", x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 4), (8, 2)), ((3, 4), (2, 2)), ((3, 3), (10, 6)), ((4, 2), (0, 6))]
)
def test_only_bytes_of_elements_have_an_element(shape: tuple[int, int], strides: tuple[int, int]) -> None:
    array = np.lib.stride_tricks.as_strided(np.zeros(64, ml_dtypes.bfloat16), shape, strides)
    bound = BoundTensor("x", bf16, array, (strides[0] // 2, strides[1] // 2))
    elements = {i * strides[0] + j * strides[1] for i in range(shape[0]) for j in range(shape[1])}
    for offset in range(-4, 60):
        found = indices(bound, np.array([offset]))
        assert (found is not None) == (offset in elements), offset
        if found is not None:
            assert sum(int(i[0]) * s for i, s in zip(found, strides, strict=True)) == offset
