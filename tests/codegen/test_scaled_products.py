"""Sums of products on tensor cores that are scaled and added: one rounding instead of two under ``accurate``."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr

import tilewright as tw
from support.casts import nearest
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.proofs.numerics import other_numerics
from tilewright.lang.enums import Numerics
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.compare import compare


def scaled(numerics: str) -> tw.Kernel:
    @tw.kernel(numerics=numerics)
    def kernel(
        a: tw.Tensor["M", "K"],
        b: tw.Tensor["N", "K"],
        s: tw.Tensor["M"],
        r: tw.Tensor["M", "N"],
        plus: tw.Tensor["M", "N"],
        minus: tw.Tensor["M", "N"],
        apart: tw.Tensor["M", "N"],
    ):
        m, n = tw.grid(plus, (64, 64))
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], 64):
            acc += tw.dot(a[m, k], b[n, k].T)
        scale, rest = s[m][:, None], r[m, n]
        plus[m, n] = acc * scale + rest
        minus[m, n] = rest - scale * acc
        apart[m, n] = rest * rest + scale

    return kernel


def planned(numerics: str) -> PlannedKernel:
    kernel = scaled(numerics).compiled
    dtypes = {"a": "bf16", "b": "bf16", **dict.fromkeys(("s", "r", "plus", "minus", "apart"), "f32")}
    return kernel._plan(kernel._ahead("sm_90a", dtypes, None, None, None, {})).variants[-1]


@pytest.mark.parametrize(("numerics", "fused"), [("strict", 0), ("accurate", 2), ("fast", 3)])
def test_where_an_fma_stands(numerics: str, fused: int) -> None:
    """Of what is loaded alone nothing is contracted but under ``fast``."""
    found = planned(numerics)
    assert sum(isinstance(op, t.Fma) for op in found.transport.walk()) == fused
    assert other_numerics(found.tile, found.transport) == ()
    assert compare(found.tile, found.transport) == ()


def test_other_policies_refuse_it() -> None:
    """The fma of what is loaded is not ``accurate``'s, and none is ``strict``'s."""
    for made, claimed in (("fast", "accurate"), ("accurate", "strict")):
        found = planned(made)
        found.tile.attributes["numerics"] = tile.NumericsAttr(Numerics(claimed))
        found.transport.attributes["numerics"] = StringAttr(claimed)
        assert other_numerics(found.tile, found.transport)


def test_results_are_rounded_once() -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((20, 32), (24, 32)))
    s, r = rng.standard_normal(20).astype(np.float32), rng.standard_normal((20, 24)).astype(np.float32)
    half = {x.ctypes.data: x.astype(np.float16) for x in (a, b)}
    plus, minus, apart = (np.zeros((20, 24), np.float32) for _ in range(3))
    scaled("accurate")(*half.values(), s, r, plus, minus, apart)
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    for i, j in np.ndindex(exact.shape):
        product, rest = Fraction(int(exact[i, j])) * Fraction(float(s[i])), Fraction(float(r[i, j]))
        assert plus[i, j] == np.float32(nearest(product + rest, "f32"))
        assert minus[i, j] == np.float32(nearest(rest - product, "f32"))
    assert (apart == r * r + s[:, None]).all()
    assert (plus != exact.astype(np.float32) * s[:, None] + r).any()


def test_a_factor_that_the_kernel_takes_is_no_sum_of_products() -> None:
    @tw.kernel
    def kernel(
        a: tw.Tensor["M", "K"],
        b: tw.Tensor["N", "K"],
        r: tw.Tensor["M", "N"],
        y: tw.Tensor["M", "N"],
        z: tw.Tensor["M", "N"],
        *,
        alpha: tw.f32,
    ):
        m, n = tw.grid(y, (64, 64))
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], 64):
            acc += tw.dot(a[m, k], b[n, k].T)
        y[m, n] = acc * alpha + r[m, n]
        z[m, n] = r[m, n] * alpha + r[m, n]

    made, dtypes = kernel.compiled, {"a": "bf16", "b": "bf16", "r": "f32", "y": "f32", "z": "f32"}
    found = made._plan(made._ahead("sm_90a", dtypes, None, None, None, {})).variants[-1]
    assert sum(isinstance(op, t.Fma) for op in found.transport.walk()) == 1
    assert compare(found.tile, found.transport) == ()
