"""Kernels of other shapes than the examples': the language has no favourites."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.refusals import refused, traced
from support.tile_evaluator import evaluate

RNG = np.random.default_rng(11)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def test_a_row_with_three_outputs_of_three_dtypes() -> None:
    @tw.kernel
    def kernel(
        x: tw.Tensor["M", "N"],
        y: tw.Tensor["M", "N"],
        low: tw.Tensor["M"],
        at: tw.Tensor["M"],
        *,
        bm=tw.auto,
        bn=tw.auto,
    ):
        m = tw.grid(x.shape[0], bm)
        least, place = tw.full(m, tw.inf, tw.f32), tw.zeros(m, tw.i64)
        for n in tw.stream(x.shape[1], bn):
            v = x[m, n]
            part = v.min(1)
            place.set(tw.where(part < least, (-v).argmax(1) + n.start, place))
            least.set(tw.minimum(least, part))
        low[m], at[m] = least, place
        for n in tw.stream(x.shape[1], bn):
            y[m, n] = x[m, n] - least[:, None]

    x = normal(19, 45)
    out = {"y": np.zeros((19, 45), ml_dtypes.bfloat16), "low": np.zeros(19, np.float16), "at": np.zeros(19, np.int64)}
    module = traced(kernel, dtypes={"y": tw.bf16, "low": tw.f16, "at": tw.i64}, extents={"bm": 4, "bn": 7})
    evaluate(module, {"x": x, **out})
    np.testing.assert_array_equal(out["low"], x.min(1).astype(np.float16))
    np.testing.assert_array_equal(out["at"], x.argmin(1))
    np.testing.assert_array_equal(out["y"], (x - x.min(1, keepdims=True)).astype(ml_dtypes.bfloat16))


def test_grouped_heads_by_a_scalar_of_the_launch() -> None:
    @tw.kernel
    def kernel(
        q: tw.Tensor["H", "S", "D"],
        k: tw.Tensor["G", "T", "D"],
        x: tw.Tensor["H", "S", "T"],
        *,
        group: tw.i32,
        b=tw.auto,
    ):
        h, s, t = tw.grid(x, (None, b, b))
        total = tw.zeros((s, t), tw.f32)
        for d in tw.stream(q.shape[2], b):
            total += tw.dot(q[h, s, d], k[h // group, t, d].T)
        x[h, s, t] = total

    module = traced(kernel)
    requires = {r.expr.text for r in module.body.block.first_op.requires}
    assert requires == {"0 < group", "(H - 1) // group + 1 <= G"}
    q, k, x = normal(6, 9, 20), normal(2, 18, 20), np.zeros((6, 9, 18), np.float32)
    evaluate(module, {"q": q, "k": k, "x": x}, {"group": 3})
    np.testing.assert_allclose(x, np.einsum("hsd,htd->hst", q, np.repeat(k, 3, 0)), rtol=1e-4, atol=1e-5)


def test_group_norm_over_two_axes_in_place() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["B", "G", "C", "P"], *, eps: tw.f32 = 1e-5):
        b, g = tw.grid((x.shape[0], x.shape[1]), (None, None))
        c, p = tw.axis(x.shape[2], upto=8), tw.axis(x.shape[3], upto=64)
        v = x[b, g, c, p]
        centred = v - v.mean()
        x[b, g, c, p] = centred * tw.rsqrt((centred * centred).mean() + eps)

    x = normal(2, 3, 5, 33)
    wide = x.astype(np.float64)
    centred = wide - wide.mean((2, 3), keepdims=True)
    evaluate(traced(kernel), {"x": x}, {"eps": 1e-5})
    np.testing.assert_allclose(
        x, centred / np.sqrt((centred**2).mean((2, 3), keepdims=True) + 1e-5), rtol=1e-4, atol=1e-5
    )


def test_a_reduction_over_the_outermost_axis() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["A", "B", "C"], y: tw.Tensor["B", "C"], *, ba=3, bb=tw.auto, bc=tw.auto):
        b, c = tw.grid(y, (bb, bc))
        total = tw.zeros((b, c), tw.f32)
        for a in tw.stream(x.shape[0], ba):
            total += x[a, b, c].to(tw.f32).sum(0)
        y[b, c] = total / x.shape[0]

    x, y = normal(10, 7, 21, dtype=np.float16), np.zeros((7, 21), np.float32)
    evaluate(traced(kernel, dtypes={"x": tw.f16, "y": tw.f32}), {"x": x, "y": y})
    np.testing.assert_allclose(y, x.astype(np.float64).mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 8, 21])
def test_a_triangular_mask_and_a_stream_up_to_the_diagonal(n: int) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["N", "N"], y: tw.Tensor["N"], *, b=8):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        for t in tw.stream(x.shape[1], b, until=m.stop):
            total += tw.where(m.index[:, None] >= t.index[None, :], x[m, t], 0).sum(1)
        y[m] = total

    x, y = normal(n, n), np.zeros(n, np.float32)
    evaluate(traced(kernel), {"x": x, "y": y})
    np.testing.assert_allclose(y, np.tril(x).sum(1), rtol=1e-5, atol=1e-6)


def test_helpers_unrolled_loops_and_lists_of_fragments() -> None:
    def polynomial(v: Any, coefficients: tuple[float, ...]) -> Any:
        result = coefficients[0]
        for c in coefficients[1:]:
            result = result * v + c
        return result

    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", 3], *, b=tw.auto, coefficients=(0.5, -1.0, 2.0)):
        m = tw.grid(x.shape[0], b)
        moments = [tw.zeros(m, tw.f32) for _ in range(3)]
        for n in tw.stream(x.shape[1], b):
            v = polynomial(x[m, n], coefficients)
            power = v
            for moment in moments:
                moment += power.sum(1)
                power = power * v
        for i, moment in enumerate(moments):
            y[m, i] = moment

    x, y = normal(5, 19), np.zeros((5, 3), np.float32)
    evaluate(traced(kernel), {"x": x, "y": y})
    v = 0.5 * x.astype(np.float64) ** 2 - x + 2
    np.testing.assert_allclose(y, np.stack([(v**k).sum(1) for k in (1, 2, 3)], 1), rtol=1e-4)


def test_other_tensors_ranges_become_requirements() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["P"], z: tw.Tensor["M"], *, b=8):
        m = tw.grid(z, b)
        z[m] = x[m] + y[m]

    module = traced(kernel)
    assert [r.expr.text for r in module.body.block.first_op.requires] == ["M <= P"]

    @tw.kernel
    def unbounded(x: tw.Tensor["M"], z: tw.Tensor["M"], *, b=8):
        i = tw.grid(z, None)
        z[i] = x[i + 8]  # <-

    refused(unbounded, "LNG020", static={"M": 8})
