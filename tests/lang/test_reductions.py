"""Products, any, all and places of the least element, beside NumPy: dtypes, axes, what is absent, and validation."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

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

pytestmark = pytest.mark.sample(1)

WIDE = {np.dtype(np.float16): np.float32, np.dtype(ml_dtypes.bfloat16): np.float32}
DTYPES: list[Any] = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.int64, np.bool_]


@tw.kernel
def rows(
    x: tw.Tensor["M", "N"],
    product: tw.Tensor["M"],
    some: tw.Tensor["M"],
    every: tw.Tensor["M"],
    least: tw.Tensor["M"],
    *,
    bm=8,
):
    m = tw.grid(x.shape[0], bm)
    v = x[m, tw.axis(x.shape[1], upto=64)]
    product[m], some[m], every[m], least[m] = v.prod(1), v.any(1), v.all(1), v.argmin(1)


def drawn(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(list(shape))
    if np.dtype(dtype) == np.bool_:
        return rng.integers(0, 4, shape) > 0
    if np.dtype(dtype).kind == "i":
        return rng.integers(-3, 4, shape).astype(dtype)
    return rng.choice([-2, -1.25, -0.75, 0.5, 1, 1.5], shape).astype(dtype)


def expected(x: np.ndarray) -> dict[str, np.ndarray]:
    wide = x.astype(WIDE.get(x.dtype, np.int64 if x.dtype.kind in "ib" else x.dtype))
    return {
        "product": np.prod(wide, 1),
        "some": (wide != 0).any(1),
        "every": (wide != 0).all(1),
        "least": wide.argmin(1).astype(np.int32),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("columns", [1, 5, 33])
def test_along_rows(dtype: Any, columns: int) -> None:
    x = drawn(dtype, (19, columns))
    found = {n: np.empty_like(v) for n, v in expected(x).items()}
    rows(x, **found)
    for name, value in expected(x).items():
        if value.dtype.kind == "f":
            room = 1e-2 if x.dtype.itemsize == 2 else 1e-5  # a product is of the dtype of its elements
            np.testing.assert_allclose(found[name], value, rtol=room)
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@tw.kernel
def products(x: tw.Tensor["M", 32], y: tw.Tensor["M"], *, bm=8):
    m = tw.grid(x.shape[0], bm)
    y[m] = x[m, tw.axis(32)].prod(1)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64"])
def test_the_ptx_of_products_is_validated(dtype: str) -> None:
    for tiles, kernel in lowered(products, {"x": dtype, "y": dtype}).values():
        emitted = emit_kernel(kernel)
        ptx = assemble(emitted.source, "sm_90a", emitted.entry).ptx
        assert validated(tiles, kernel, ptx).undecided == ()
        sums = validated(tiles, kernel, ptx.replace("mul.rn.f32", "add.rn.f32").replace("mul.lo.s64", "add.s64"))
        assert sums.undecided


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "i32", "i64", "bool"])
def test_the_ptx_machine_agrees_with_numpy(dtype: str) -> None:
    numpy = {"bf16": ml_dtypes.bfloat16, "bool": np.bool_, "f32": np.float32}.get(dtype) or np.dtype(f"int{dtype[1:]}")
    result = "f32" if dtype in ("f32", "bf16") else "i64"
    dtypes = {"x": dtype, "product": result, "some": "bool", "every": "bool", "least": "i32"}
    x = drawn(numpy, (9, 32))
    found = {n: np.empty_like(v) for n, v in expected(x).items()}
    run_artifact(rows.compile(dtypes=dtypes), {"x": x, **found})
    for name, value in expected(x).items():
        room = 1e-2 if dtype == "bf16" else 1e-5  # a product is of the dtype of its elements
        np.testing.assert_allclose(found[name].astype(float), value.astype(float), rtol=room, err_msg=name)


def test_special_elements() -> None:
    x = np.float32([[np.nan, 0, 1, 2], [np.inf, 0, 1, 2], [-0.0, 0.0, 0, 0], [3, -np.inf, np.nan, -np.inf]])
    with np.errstate(all="ignore"):
        found = {n: np.empty_like(v) for n, v in expected(x).items()}
        rows(x, **found)
        for name, value in expected(x).items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
    least = np.int32([[5, -(2**31), 2**31 - 1, -(2**31)]])
    found = {n: np.empty_like(v) for n, v in expected(least).items()}
    rows(least, **found)
    assert found["least"][0] == 1, "negation would have wrapped"


@pytest.mark.parametrize(("axis", "keepdims"), [(0, False), ((0, 2), False), (None, False), (1, True), ((0, 1), True)])
def test_along_other_axes(axis: Any, keepdims: bool) -> None:
    x = drawn(np.float32, (4, 3, 5))
    shape = np.prod(x, axis, keepdims=keepdims).shape
    out_shape = shape or (1,)
    out = {n: np.empty(out_shape, d) for n, d in (("product", np.float32), ("some", np.bool_), ("every", np.bool_))}

    place = tuple(slice(None) for _ in shape) or 0

    @tw.kernel
    def reduced(
        x: tw.Tensor[4, 3, 5], product: tw.Tensor[out_shape], some: tw.Tensor[out_shape], every: tw.Tensor[out_shape]
    ):
        v = x[tw.axis(4), tw.axis(3), tw.axis(5)]
        product[place] = v.prod(axis, keepdims)
        some[place], every[place] = (v > 1).any(axis, keepdims), (v > -2).all(axis, keepdims)

    reduced(x, **out)
    found = {n: v.reshape(shape) for n, v in out.items()}
    np.testing.assert_allclose(found["product"], np.prod(x, axis, keepdims=keepdims), rtol=1e-6)
    np.testing.assert_array_equal(found["some"], (x > 1).any(axis, keepdims=keepdims))
    np.testing.assert_array_equal(found["every"], (x > -2).all(axis, keepdims=keepdims))


def test_absent_elements_change_nothing() -> None:
    @tw.kernel
    def windows(
        x: tw.Tensor["N"], product: tw.Tensor["N"], some: tw.Tensor["N"], every: tw.Tensor["N"], least: tw.Tensor["N"]
    ):
        n, w = tw.grid(x.shape[0], 16), tw.axis(4)
        v = x[n.index[:, None] + w.index - 7]
        product[n], some[n], every[n] = v.prod(1), (v > 1).any(1), (v > 0).all(1)
        least[n] = v.argmin(1)

    x = np.float32([1.5, -2, 0.5, 3, 1, 1, 2, -1, 4, 5])
    out = [np.empty(10, d) for d in (np.float32, np.bool_, np.bool_, np.int32)]
    windows(x, *out)
    for n in range(10):
        inside = [i for i in range(n - 7, n - 3) if 0 <= i < 10]
        v = x[inside]
        assert (out[0][n], out[1][n], out[2][n]) == (np.prod(v), (v > 1).any(), (v > 0).all())
        assert not inside or out[3][n] == v.argmin() + (inside[0] - (n - 7))


def test_products_over_a_stream() -> None:
    @tw.kernel
    def streamed(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        total = tw.full((m,), 1.0, tw.f32)
        for n in tw.stream(x.shape[1], 16):
            total *= x[m, n].prod(1)
        y[m] = total

    x = drawn(np.float32, (10, 53))
    y = np.empty(10, np.float32)
    streamed(x, y)
    np.testing.assert_allclose(y, np.prod(x, 1), rtol=1e-5)
