"""What operations compute: every function, dtype rules, broadcasting and domains, against NumPy."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.refusals import traced
from support.tile_evaluator import NUMPY, evaluate
from tilewright.base.dtypes import DType
from tilewright.tile import dialect

RNG = np.random.default_rng(7)


def elementwise(body: Callable[..., Any], x: np.ndarray, dtype: DType, out: DType) -> np.ndarray:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        y[m] = body(x[m])

    y = np.zeros(x.shape, NUMPY[out.name])
    evaluate(traced(kernel, dtypes={"x": dtype, "y": out}), {"x": x.astype(NUMPY[dtype.name]), "y": y})
    return y


UNARY: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda v: -v, np.negative),
    (tw.abs, np.abs),
    (abs, np.abs),
    (tw.exp, np.exp),
    (tw.exp2, np.exp2),
    (tw.log, np.log),
    (tw.log2, np.log2),
    (tw.sqrt, np.sqrt),
    (tw.rsqrt, lambda v: 1 / np.sqrt(v)),
    (tw.tanh, np.tanh),
    (tw.sigmoid, lambda v: 1 / (1 + np.exp(-v))),
    (tw.erf, np.vectorize(math.erf)),
    (lambda v: tw.maximum(v, 1), lambda v: np.maximum(v, 1)),
    (lambda v: tw.minimum(0.5, v), lambda v: np.minimum(v, 0.5)),
    (lambda v: 1 / v - 2, lambda v: 1 / v - 2),
    (lambda v: tw.where(v > 1, v, -v), lambda v: np.where(v > 1, v, -v)),
    (lambda v: np.float32(3) * v, lambda v: 3 * v),
    (lambda v: v.to(tw.i32) // -2, lambda v: v.astype(np.int32) // -2),
    (lambda v: -v.to(tw.i32) % 3, lambda v: -v.astype(np.int32) % 3),
    (lambda v: (v.to(tw.i32) << 3) >> 1, lambda v: (v.astype(np.int32) << 3) >> 1),
    (lambda v: v.to(tw.i32) & 1 | 4 ^ 2, lambda v: v.astype(np.int32) & 1 | 4 ^ 2),
    (lambda v: ~v.to(tw.i32), lambda v: ~v.astype(np.int32)),
    (lambda v: ~(v > 1) | (v == 2), lambda v: ~(v > 1) | (v == 2)),
    (lambda v: (v != 1) & (v <= 2) ^ (v >= 1), lambda v: (v != 1) & (v <= 2) ^ (v >= 1)),
    (lambda v: v.to(tw.i32) / 2, lambda v: v.astype(np.int32) / 2),
]


@pytest.mark.parametrize("case", range(len(UNARY)))
def test_functions(case: int) -> None:
    ours, theirs = UNARY[case]
    x = np.abs(RNG.normal(size=21)) * 3 + 0.1
    x = x.astype(np.float32)
    np.testing.assert_allclose(elementwise(ours, x, tw.f32, tw.f32), theirs(x).astype(np.float32), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "dtype", "result"),
    [
        (lambda v: v + 1, tw.bf16, tw.bf16),  # Python numbers are weak
        (lambda v: v * 0.1, tw.f16, tw.f16),
        (lambda v: v + 1, tw.i32, tw.i32),
        (lambda v: v * 0.5, tw.i32, tw.f32),
        (lambda v: v / 2, tw.i64, tw.f32),
        (lambda v: v + v.to(tw.f32), tw.bf16, tw.f32),
        (lambda v: v.to(tw.f16) + v.to(tw.bf16), tw.f32, tw.f32),
        (lambda v: v + v.to(tw.i32), tw.i64, tw.i64),
        (lambda v: v > 0, tw.bf16, tw.bool),
        (lambda v: (v > 0) + 1, tw.f32, tw.i32),
        (lambda v: v + v.to(tw.f16), tw.i64, tw.f16),
        (lambda v: tw.exp(v), tw.i32, tw.f32),
        (lambda v: v.sum(), tw.bf16, tw.bf16),
        (lambda v: v.sum(), tw.i32, tw.i64),
        (lambda v: (v > 0).sum(), tw.f32, tw.i64),
        (lambda v: v.mean(), tw.f16, tw.f16),
        (lambda v: v.mean(), tw.i32, tw.f32),
        (lambda v: v.max(), tw.f16, tw.f16),
        (lambda v: (v > 0).max(), tw.f32, tw.bool),
        (lambda v: v.argmax(), tw.bf16, tw.i32),
        (lambda v: tw.where(v > 0, 1, 0), tw.f32, tw.i64),
        (lambda v: tw.where(v > 0, v, 0), tw.bf16, tw.bf16),
    ],
)
def test_dtypes_of_results(body: Callable[..., Any], dtype: DType, result: DType) -> None:
    found: list[DType] = []

    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        value = body(x[m])
        found.append(value.dtype)
        y[m] = value

    traced(kernel, dtype)
    assert found == [result]


def test_a_weak_float_is_not_rounded_to_16_bits() -> None:
    x = np.arange(1, 100).astype(np.float16)
    y = elementwise(lambda v: v * 0.1, x, tw.f16, tw.f16)
    np.testing.assert_array_equal(y, (x.astype(np.float32) * np.float32(0.1)).astype(np.float16))


def test_16_bit_sums_are_kept_in_f32() -> None:
    module_ops = []

    @tw.kernel
    def kernel(x: tw.Tensor["M", 2048], y: tw.Tensor["M"]):
        m = tw.grid(y, 4)
        y[m] = x[m].sum(1)

    module = traced(kernel, tw.f16)
    module_ops = [op for op in module.walk() if isinstance(op, dialect.Reduce)]
    assert [dialect.tile_type(op.x).element for op in module_ops] == [tw.f32]
    x = np.ones((5, 2048), np.float16) * np.float16(0.1)
    y = np.zeros(5, np.float16)
    evaluate(module, {"x": x, "y": y})
    np.testing.assert_allclose(y, x.astype(np.float64).sum(1), rtol=1e-3)


def test_nan_propagates_and_is_the_first_greatest() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", 8], top: tw.Tensor["M"], low: tw.Tensor["M"], at: tw.Tensor["M"]):
        m = tw.grid(top, 4)
        v = x[m]
        top[m], low[m], at[m] = v.max(1), v.min(-1), v.argmax(1)

    x = RNG.integers(-2, 2, (6, 8)).astype(np.float32)
    x[1, 3] = x[1, 5] = np.nan
    out = {n: np.zeros(6, np.float32) for n in ("top", "low")} | {"at": np.zeros(6, np.int32)}
    evaluate(traced(kernel, dtypes={"at": tw.i32}), {"x": x, **out})
    np.testing.assert_array_equal(out["top"], x.max(1))
    np.testing.assert_array_equal(out["low"], x.min(1))
    np.testing.assert_array_equal(out["at"], x.argmax(1))


def test_mean_counts_the_domain() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor[1], *, all_at_once: bool = True):
        m, n = tw.axis(x.shape[0], upto=16), tw.axis(x.shape[1], upto=16)
        y[0] = x[m, n].mean() if all_at_once else x[m, n].mean(0, keepdims=True).mean((0, 1))

    x = RNG.normal(size=(3, 7)).astype(np.float32)
    for choice in (True, False):
        y = np.zeros(1, np.float32)
        evaluate(traced(kernel, keywords={"all_at_once": choice}), {"x": x, "y": y})
        np.testing.assert_allclose(y[0], x.mean(), rtol=1e-5)


def test_broadcasting_follows_numpy() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], w: tw.Tensor["N"], one: tw.Tensor["M", 1], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(y, (1, 4))
        lead = x[m, n] * w[n] + one[m] + x[m, 0][:, None]
        y[m, n] = lead - x[m, n].sum(0) + m.index[:, None] + n.index[None, ...] + x.shape[0]

    x, w, one = (RNG.normal(size=s).astype(np.float32) for s in ((3, 7), (7,), (3, 1)))
    y = np.zeros((3, 7), np.float32)
    evaluate(traced(kernel), {"x": x, "w": w, "one": one, "y": y})
    expected = x * w + one + x[:, :1] - x + np.arange(3)[:, None] + np.arange(7) + 3
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_unit_dimensions_stay_axes() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", 1, 3], y: tw.Tensor["M", 1, 3]):
        m = tw.grid(x.shape[0], 4)
        value = x[m]
        assert value.shape == (4, 1, 3)
        y[m] = value * 2

    x = RNG.normal(size=(5, 1, 3)).astype(np.float32)
    y = np.zeros_like(x)
    evaluate(traced(kernel), {"x": x, "y": y})
    np.testing.assert_array_equal(y, 2 * x)


def test_scalars_and_programs() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, shift: tw.i32, scale: tw.f32):
        i, n = tw.grid(y, (None, 4))
        last = tw.minimum(i + shift, x.shape[0] - 1)
        other = tw.maximum(last - 1, 0)
        y[i, n] = x[last, n] * scale + x[other, n] * (i % 2) + shift

    x = RNG.normal(size=(5, 6)).astype(np.float32)
    y = np.zeros_like(x)
    evaluate(traced(kernel), {"x": x, "y": y}, {"shift": 2, "scale": 0.5})
    last = np.minimum(np.arange(5) + 2, 4)
    expected = x[last] * np.float32(0.5) + x[np.maximum(last - 1, 0)] * (np.arange(5) % 2)[:, None] + 2
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_reduce_add_sums_over_programs() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["N"]):
        m, n = tw.grid(x, (4, 4))
        tw.reduce_add(y, n, x[m, n].sum(0))

    x, y = RNG.normal(size=(9, 6)), np.zeros(6, np.float32)
    evaluate(traced(kernel), {"x": x.astype(np.float32), "y": y})
    np.testing.assert_allclose(y, x.sum(0), rtol=1e-4)


def test_streams_of_scalars_starts_and_nests() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["B", "M", "N"], y: tw.Tensor["M"], *, first: tw.i32):
        m = tw.grid(y, 4)
        total = tw.zeros(m, tw.f32)
        for b in tw.stream(x.shape[0], None):
            for n in tw.stream(x.shape[2], 4, start=first, until=x.shape[2] - 1):
                total += x[b, m, n].sum(1) * (b + 1)
        y[m] = total

    x = RNG.normal(size=(3, 5, 11)).astype(np.float32)
    y = np.zeros(5, np.float32)
    evaluate(traced(kernel), {"x": x, "y": y}, {"first": 2})
    np.testing.assert_allclose(y, np.einsum("bmn,b->m", x[:, :, 2:10], [1, 2, 3]), rtol=1e-4)


def test_prints_are_recorded() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 4)
        tw.print("x[{}] = {}", m.index, x[m])
        y[m] = x[m]

    (op,) = [op for op in traced(kernel).walk() if isinstance(op, dialect.Print)]
    assert op.format.data == "x[{}] = {}"
    assert len(op.values) == 2


def test_static_dimensions_become_numbers() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, wide: int = 64):
        m = tw.grid(y, 4)
        assert x.shape[1] == 48
        y[m] = x[m].sum(1) if x.shape[1] <= wide else x[m, 0]

    op = traced(kernel, static={"N": 48}).body.block.first_op
    assert [d.expr.text for d in op.body.block.args[0].type.dims] == ["M", "48"]
