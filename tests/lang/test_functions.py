"""Functions of one element: of Python numbers, of narrow floats, and through compilation."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.lowered import lowered
from tilewright.codegen.assemble import assemble
from tilewright.compiler.build import emit_kernel
from tilewright.compiler.validated import validated
from tilewright.lang.elementwise_table import UnaryFn


@pytest.mark.parametrize("fn", [f for f in UnaryFn if f.row.number is not None], ids=str)
def test_every_function_has_its_name_in_the_language(fn: UnaryFn) -> None:
    function = getattr(tw, fn)
    assert function.__name__ == fn
    assert math.isnan(function(math.nan))
    assert fn.row.c.count("{0}") == 1


@pytest.mark.parametrize(
    ("x", "below", "above", "nearest"),
    [
        (2.5, 2.0, 3.0, 2.0),
        (3.5, 3.0, 4.0, 4.0),
        (-2.5, -3.0, -2.0, -2.0),
        (-0.25, -1.0, -0.0, -0.0),
        (0.25, 0.0, 1.0, 0.0),
        (7, 7.0, 7.0, 7.0),
        (math.inf, math.inf, math.inf, math.inf),
        (-math.inf, -math.inf, -math.inf, -math.inf),
    ],
)
def test_whole_numbers_beside_a_python_number(x: float, below: float, above: float, nearest: float) -> None:
    for found, expected in ((tw.floor(x), below), (tw.ceil(x), above), (tw.round(x), nearest)):
        assert isinstance(found, float)
        assert (found, math.copysign(1, found)) == (expected, math.copysign(1, expected))


def test_small_numbers_keep_their_digits() -> None:
    assert tw.log1p(1e-12) == math.log1p(1e-12) != math.log(1 + 1e-12)
    assert tw.expm1(1e-12) == math.expm1(1e-12) != math.exp(1e-12) - 1
    assert tw.expm1(1000) == math.inf
    assert math.isnan(tw.log1p(-2))


@tw.kernel
def whole(x: tw.Tensor["M"], y: tw.Tensor["M", 4], *, bm=256):
    m = tw.grid(x, bm)
    v = x[m]
    y[m, 0], y[m, 1], y[m, 2], y[m, 3] = tw.floor(v), tw.ceil(v), tw.round(v), tw.floor(v) * 3


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_whole_numbers_of_every_float_are_of_its_dtype(dtype: type) -> None:
    every = np.arange(-500, 500).astype(np.float32) / 7
    x = np.concatenate([every, every * 37, np.float32([0.5, -0.5, 1.5, 2.5, -0.0])]).astype(dtype)
    y = np.zeros((len(x), 4), dtype)
    whole(x, y)
    numbers = [Fraction(float(v)) for v in x]
    expected = np.array([[math.floor(v), math.ceil(v), round(v), 3 * math.floor(v)] for v in numbers], np.float64)
    np.testing.assert_array_equal(y.astype(np.float64), expected.astype(dtype).astype(np.float64))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_ptx_of_whole_numbers_is_validated(dtype: str) -> None:
    found = lowered(whole, {"x": dtype, "y": dtype})
    assert found
    for tiles, kernel in found.values():
        emitted = emit_kernel(kernel)
        ptx = assemble(emitted.source, "sm_90a", emitted.entry).ptx
        assert all(f"cvt.{way}.f32.f32" in ptx for way in ("rmi", "rpi", "rni"))
        assert validated(tiles, kernel, ptx).undecided == ()
        assert validated(tiles, kernel, ptx.replace("cvt.rmi.f32", "cvt.rpi.f32")).undecided
