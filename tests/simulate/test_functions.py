"""Functions of one element are as exact in the simulator as docs/language.md says of the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.base.dtypes import f32
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.simulate.elementwise import APPROXIMATE, UNARY, binary

ULP = {"exp": 2, "exp2": 2, "log": 1, "log2": 1, "tanh": 2, "log1p": 1, "expm1": 1, "rsqrt": 2, "erf": 2, "sqrt": 0.5,
       "log10": 2, "cbrt": 1, "sin": 2, "cos": 2, "tan": 4, "asin": 2, "acos": 2, "atan": 2, "sinh": 3, "cosh": 2,
       "asinh": 3, "acosh": 4, "atanh": 3}  # fmt: skip
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")
INSIDE = {"asin": 1, "acos": 1, "atanh": 1 - 1e-6}


def reference(name: str) -> Any:
    fn = UnaryFn(name).row.number
    assert fn is not None
    return np.vectorize(fn, otypes=[np.float64])


@pytest.mark.parametrize("name", ULP)
def test_functions_keep_their_bounds(name: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-4, 4, 20_000), rng.normal(size=4000) * 30]).astype(np.float32)
    x = np.abs(x) + np.float32(1e-3) if name in POSITIVE else x
    x = np.abs(x) + 1 if name == "acosh" else x
    x = np.clip(x, -INSIDE[name], INSIDE[name]).astype(np.float32) if name in INSIDE else x
    x = np.clip(x, -85, 85) if name in ("sinh", "cosh") else x
    exact = reference(name)(x.astype(np.float64))
    normal = (np.abs(exact) > 2.0**-126) & (np.abs(exact) < 2.0**127)
    with np.errstate(over="ignore"):
        got = np.asarray(UNARY[name](x))
    ulp = np.spacing(np.abs(exact[normal]).astype(np.float32)).astype(np.float64)
    assert got.dtype == np.float32
    assert (np.abs(got[normal] - exact[normal]) / ulp).max() <= ULP[name]


@pytest.mark.parametrize("name", ["ex2", "lg2"])
def test_single_instructions_are_rounded_once(name: str) -> None:
    x = np.random.default_rng(2).uniform(0.5, 4, 20_000).astype(np.float32)
    exact = reference({"ex2": "exp2", "lg2": "log2"}[name])(x.astype(np.float64))
    assert (APPROXIMATE[name](x) == exact.astype(np.float32)).mean() > 0.999


@pytest.mark.parametrize(("name", "first"), [("max", 0.0), ("min", -0.0)])
def test_extrema_order_zeros_by_their_sign_and_keep_nan(name: str, first: float) -> None:
    values = np.array([first, -first, 1, -1, np.nan, np.inf, -np.inf], np.float32)
    left, right = (v.ravel() for v in np.meshgrid(values, values))
    got = binary(name, f32)(left, right)
    zeros = (left == 0) & (right == 0)
    either = (np.signbit(left) == np.signbit(first)) | (np.signbit(right) == np.signbit(first))
    assert (np.signbit(got) == np.where(either, np.signbit(first), np.signbit(-first)))[zeros].all()
    np.testing.assert_array_equal(got, {"max": np.maximum, "min": np.minimum}[name](left, right))
    assert np.signbit(binary(name, f32)(np.float32(-first), np.float32(first))) == np.signbit(first)
