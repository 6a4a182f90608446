"""Functions of two elements, powers, and words made of others: their values, dtypes and validation."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.lowered import lowered
from support.ptx_driver import run_artifact
from tilewright.codegen.assemble import assemble
from tilewright.compiler.build import emit_kernel
from tilewright.compiler.validated import validated

pytestmark = pytest.mark.sample(2)

SPECIAL = np.float32([0.0, -0.0, 1, -1, 0.1, -0.3, 7.5, -7.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, 2**24, 1e-3])


@tw.kernel
def remainders(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M", 4], *, bm=256):
    m = tw.grid(a, bm)
    y[m, 0], y[m, 1], y[m, 2], y[m, 3] = a[m] // b[m], a[m] % b[m], tw.fmod(a[m], b[m]), b[m]


def pairs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    a, b = (np.array(v, np.float32) for v in zip(*itertools.product(SPECIAL, SPECIAL), strict=True))
    near = np.float32(rng.integers(-40, 40, 300)) * np.float32(0.1)
    return np.concatenate([a, near]), np.concatenate([b, np.full(300, 0.1, np.float32)])


def test_remainders_are_those_of_numpy_to_the_bit() -> None:
    """In the simulator and on the PTX machine: signs of zeros, infinities, quotients next to whole numbers."""
    a, b = pairs()
    with np.errstate(all="ignore"):
        expected = np.stack([*(f(a, b) for f in (np.floor_divide, np.mod, np.fmod)), b], 1)
    simulated, executed = np.empty_like(expected), np.empty_like(expected)
    remainders(a, b, simulated)
    artifact = remainders.compile(dtypes={"a": "f32", "b": "f32", "y": "f32"})
    run_artifact(artifact, {"a": a, "b": b, "y": executed})
    for found in (simulated, executed):
        numbers = ~np.isnan(expected)
        assert (np.isnan(found) == ~numbers).all()
        assert (found.view(np.uint32)[numbers] == expected.view(np.uint32)[numbers]).all()
    assert 1.0 // np.float32(0.1) == 9.0, "the floor of the rounded quotient would be 10"


def kernel_of(fn: Any) -> tw.Kernel:
    @tw.kernel
    def computed(x: tw.Tensor["M"], z: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=256):
        m = tw.grid(x, bm)
        y[m] = fn(x[m], z[m])

    return computed


ONE = (tw.sin, tw.cos, tw.tan, tw.asin, tw.acos, tw.atan, tw.sinh, tw.cosh, tw.asinh, tw.acosh, tw.atanh, tw.log10,
       tw.cbrt, tw.trunc, tw.square, tw.reciprocal, tw.sign)  # fmt: skip


def of_first(fn: Any) -> Any:
    return lambda x, _: fn(x)


DECIDED = {
    **{fn.__name__: of_first(fn) for fn in ONE},
    "atan2": tw.atan2,
    "hypot": tw.hypot,
    "pow": lambda x, z: x**z,
    "clamp": lambda x, z: tw.clamp(x, z, 1),
    "fma": lambda x, z: tw.fma(x, z, 1) + tw.fma(z, 2.0, x),
    "whole power": lambda x, z: x**5 + z**-2,
    "isfinite": lambda x, z: tw.where(tw.isfinite(x), x, z),
}


@pytest.mark.parametrize("name", DECIDED)
def test_the_ptx_is_validated(name: str) -> None:
    for tiles, kernel in lowered(kernel_of(DECIDED[name]), {"x": "f32", "z": "f32", "y": "f32"}).values():
        emitted = emit_kernel(kernel)
        ptx = assemble(emitted.source, "sm_90a", emitted.entry).ptx
        found = validated(tiles, kernel, ptx)
        assert found.undecided == ()
        assert not found.refuted


def test_other_coefficients_are_refused() -> None:
    ((tiles, kernel),) = lowered(kernel_of(DECIDED["sin"]), {"x": "f32", "z": "f32", "y": "f32"}).values()
    emitted = emit_kernel(kernel)
    ptx = assemble(emitted.source, "sm_90a", emitted.entry).ptx
    assert "0fBE2AAAA3" in ptx
    assert validated(tiles, kernel, ptx.replace("0fBE2AAAA3", "0fBE2AAAA4")).undecided


def test_fma_is_rounded_once() -> None:
    """Where the sum of the rounded product would be 0: in f32, and of narrow floats in f32 before it is rounded."""

    @tw.kernel
    def fused(x: tw.Tensor["M"], y: tw.Tensor["M", 4], *, bm=64):
        m = tw.grid(x, bm)
        y[m, 0] = tw.fma(x[m], x[m], -(x[m] * x[m]))
        y[m, 1] = x[m] * x[m] - x[m] * x[m]
        y[m, 2], y[m, 3] = x[m], x[m]

    x = np.float32([1 + 2.0**-12, 1 + 3 * 2.0**-23, 7.3])
    y = np.empty((3, 4), np.float32)
    fused(x, y)
    exact = x.astype(np.float64) ** 2 - (x * x).astype(np.float64)
    assert (y[:, 0] == exact.astype(np.float32)).all()
    assert y[1, 0] != 0
    assert not y[:, 1].any()
    run_artifact(fused.compile(dtypes={"x": "f32", "y": "f32"}), {"x": x, "y": y})
    assert (y[:, 0] == exact.astype(np.float32)).all()
    narrow = X.astype(np.float16)
    wide = narrow.astype(np.float32)
    assert (result(lambda v: tw.fma(v, v, 1), narrow) == (wide * wide + 1).astype(np.float16)).all()
    assert (result(lambda v: tw.fma(2, v, v), X) == X * 3).all()
    assert tw.fma(2, 3, 1.5) == 7.5


# -- powers -----------------------------------------------------------------------------------------------------------
def result(fn: Any, x: np.ndarray, dtype: Any = None) -> np.ndarray:
    y = np.empty(len(x), dtype or x.dtype)

    @tw.kernel
    def computed(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=64):
        m = tw.grid(x, bm)
        y[m] = fn(x[m])

    computed(x, y)
    return y


X = np.float32([-3, -1.5, -0.7, 0.1, 1.1, 2.5, 7])


def test_whole_exponents_are_products_in_the_order_of_the_binary_digits() -> None:
    square = X * X
    for exponent, expected in ((1, X), (2, square), (3, square * X), (4, square * square), (2.0, square)):
        assert (result(lambda v, e=exponent: v**e, X) == expected).all()
    five = square * square * X
    assert (result(lambda v: v**5, X) == five).all()
    assert (result(lambda v: v**-5, X) == np.float32(1) / five).all()


def test_exponents_beyond_products_and_no_whole_ones_are_powf() -> None:
    x = np.abs(X)
    for exponent in (17, -17, 0, 2.5, math.inf):
        np.testing.assert_allclose(result(lambda v, e=exponent: v**e, x), x.astype(float) ** exponent, rtol=3e-7)
    assert (result(lambda v: v**0, np.float32([np.nan, 0, np.inf])) == 1).all()
    np.testing.assert_allclose(result(lambda v: 2**v, X), 2.0**X, rtol=3e-7)


def test_roots() -> None:
    x = np.abs(X)
    assert (result(lambda v: v**0.5, x) == np.sqrt(x)).all()
    np.testing.assert_allclose(result(lambda v: v**-0.5, x), x**-0.5, rtol=3e-7)


def test_powers_of_integers_wrap() -> None:
    x = np.int32([-3, 0, 2, 46341])
    for exponent in (0, 1, 2, 7):
        assert (result(lambda v, e=exponent: v**e, x) == x**exponent).all()
    np.testing.assert_allclose(result(lambda v: v**0.5, x[1:], np.float32), x[1:] ** 0.5, rtol=3e-7)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_powers_of_narrow_floats_are_rounded_once(dtype: Any) -> None:
    x = X.astype(dtype)
    wide = x.astype(np.float32)
    assert (result(lambda v: v**3, x) == (wide * wide * wide).astype(dtype)).all()


def test_powers_of_extents_stay_integers() -> None:
    @tw.kernel
    def tail(x: tw.Tensor["M"], y: tw.Tensor["M"], *, k: tw.i32):
        m = tw.grid(y, 16)
        y[m] = x[m + (k**2 - k * k)]

    x = np.arange(20, dtype=np.float32)
    y = np.empty_like(x)
    tail(x, y, k=3)
    assert (y == x).all()


# -- words made of others ---------------------------------------------------------------------------------------------
def test_signs_and_classes_of_floats() -> None:
    x = np.float32([-2, -0.0, 0.0, 3, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(result(tw.sign, x), np.sign(x))
    for name in ("isnan", "isinf", "isfinite"):
        assert (result(getattr(tw, name), x, np.bool_) == getattr(np, name)(x)).all()
        assert getattr(tw, name)(math.inf) is bool(getattr(np, name)(math.inf))
    whole = np.int32([-5, 0, 2**31 - 1])
    assert (result(tw.sign, whole) == np.sign(whole)).all()
    assert result(tw.isfinite, whole, np.bool_).all()
    assert not result(tw.isnan, whole, np.bool_).any()


def test_clamps() -> None:
    x = np.float32([-2, 0.5, 3, np.nan])
    np.testing.assert_array_equal(result(lambda v: tw.clamp(v, -1, 1), x), np.clip(x, -1, 1))
    np.testing.assert_array_equal(result(lambda v: tw.clamp(v, high=1), x), np.minimum(x, 1))
    np.testing.assert_array_equal(result(lambda v: tw.clamp(v, 1), x), np.maximum(x, 1))
    assert tw.clamp(5, -1, 1) == 1


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: tw.pow(2, 10), 1024),
        (lambda: tw.pow(2, -1), 0.5),
        (lambda: tw.pow(-8.0, 1 / 3), math.nan),
        (lambda: tw.pow(-0.0, -3), -math.inf),
        (lambda: tw.pow(-10.0, 309), -math.inf),
        (lambda: tw.pow(0.0, -2.0), math.inf),
        (lambda: tw.atan2(1, -1), math.atan2(1, -1)),
        (lambda: tw.hypot(3, 4), 5.0),
        (lambda: tw.fmod(-7, 3), -1.0),
        (lambda: tw.fmod(1, 0), math.nan),
        (lambda: tw.sign(-3), -1),
        (lambda: tw.square(3), 9),
        (lambda: tw.reciprocal(4), 0.25),
        (lambda: tw.sinh(-1000), -math.inf),
        (lambda: tw.cosh(-1000), math.inf),
        (lambda: tw.atanh(-1), -math.inf),
        (lambda: tw.atanh(2), math.nan),
        (lambda: tw.log10(0), -math.inf),
        (lambda: tw.sin(math.inf), math.nan),
        (lambda: tw.trunc(-0.5), -0.0),
    ],
)
def test_numbers_of_python(found: Any, expected: float) -> None:
    value = found()
    assert value == expected or (math.isnan(value) and math.isnan(expected))
    assert math.copysign(1, value) == math.copysign(1, expected) or math.isnan(expected)


def test_functions_of_numpy_are_named() -> None:
    with pytest.raises(tw.TilewrightError, match=r"use tw\.atan2"):
        result(lambda v: np.arctan2(v, v), X)
    assert (result(lambda v: np.power(v, np.float32(2)), X) == X * X).all()
    with pytest.raises(tw.TilewrightError, match=r"tw\.asin"):
        tw.arcsin  # noqa: B018 - asks for a name
