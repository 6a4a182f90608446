"""Quotients by what elements share: by one reciprocal where the result is rounded to a narrow float, else exact."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.proofs.numerics import other_numerics
from tilewright.lang.enums import BinaryFn
from tilewright.schedule.transforms import numerics
from tilewright.tile import dialect as tile
from tilewright.validate.tile_to_transport.compare import compare


@tw.kernel
def weights(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m = tw.grid(x.shape[0], 4)
    n = tw.axis(x.shape[1], upto=512)
    row = x[m, n].to(tw.f32)
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel
def shares(x: tw.Tensor["M", "N"], s: tw.Tensor["M"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x, (4, 64))
    y[m, n] = x[m, n] / s[m][:, None]


@tw.kernel
def counted(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], s: tw.Tensor["M"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    y[m, n] = (acc / s[m][:, None]).to(tw.i8)


def by_reciprocal(kernel: tw.Kernel, dtypes: dict[str, str]) -> bool:
    """Whether the kernel's quotients, of which there are some, are products with a reciprocal; all or none."""
    found = kernel.plan(dtypes=dtypes).variants[-1]
    assert compare(found.tile, found.transport) == ()
    ops = [op for op in found.transport.walk() if isinstance(op, tile.Binary) and op.fn.data is BinaryFn.DIV]
    (ones,) = {isinstance(op.a.owner, tile.Constant) and op.a.owner.value.data == 1.0 for op in ops}
    return ones


@pytest.mark.parametrize(("dtype", "expected"), [("bf16", True), ("f16", True), ("e4m3", True), ("f32", False)])
def test_weights_of_narrow_floats_are_products(dtype: str, expected: bool) -> None:
    assert by_reciprocal(weights, {"x": "bf16", "y": dtype}) is expected


def test_a_reciprocal_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(self: Any, op: Any) -> Any:
        if not isinstance(op, tile.Binary) or op.fn.data is not BinaryFn.DIV:
            return None
        return self._mul(op.a, self._put(tile.Binary(BinaryFn.DIV, self._constant(1.0), op.b)))

    monkeypatch.setattr(numerics._Body, "_quotient", anywhere)
    wide, narrow = (tw.kernel(weights.fn).plan(dtypes={"x": "bf16", "y": y}).variants[-1] for y in ("f32", "bf16"))
    assert other_numerics(wide.tile, wide.transport)
    assert other_numerics(narrow.tile, narrow.transport) == ()


def test_a_reciprocal_elsewhere_is_refused_beside_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.kernel
    def beside(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], z: tw.Tensor["M"]):
        m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=512)
        e = tw.exp(x[m, n])
        total = e.sum(1)
        z[m] = 1.0 / total
        y[m, n] = e / total[:, None]

    def anywhere(self: Any, op: Any) -> Any:
        if not isinstance(op, tile.Binary) or op.fn.data is not BinaryFn.DIV or isinstance(op.a.owner, tile.Constant):
            return None
        return self._mul(op.a, self._put(tile.Binary(BinaryFn.DIV, self._constant(1.0), op.b)))

    dtypes = {"x": "f32", "y": "f32", "z": "f32"}
    found = tw.kernel(beside.fn).plan(dtypes=dtypes).variants[-1]
    assert other_numerics(found.tile, found.transport) == ()
    monkeypatch.setattr(numerics._Body, "_quotient", anywhere)
    found = tw.kernel(beside.fn).plan(dtypes=dtypes).variants[-1]
    assert len(set(other_numerics(found.tile, found.transport))) == 1


def test_the_programs_own_reciprocals_are_allowed() -> None:
    @tw.kernel
    def inverse(x: tw.Tensor["M", "N"], s: tw.Tensor["M"], y: tw.Tensor["M", "N"], *, of):
        m, n = tw.grid(x, (4, 64))
        y[m, n] = x[m, n] * of(s[m])[:, None]

    for of in (lambda v: 1.0 / v, tw.reciprocal, lambda v: v**-1, lambda v: tw.where(v > 0, 2.0, 1.0) / v):
        found = inverse.plan(dtypes={"x": "f32", "s": "f32", "y": "f32"}, of=of).variants[-1]
        assert other_numerics(found.tile, found.transport) == ()
        assert compare(found.tile, found.transport) == ()


def test_what_was_loaded_is_divided() -> None:
    assert not by_reciprocal(shares, {"x": "f32", "s": "f32", "y": "bf16"})


def test_weights_are_within_their_bound() -> None:
    """Half an ulp of bf16, the 1.5 of f32 that the reciprocal may take, and what the exponential may be off."""
    x = np.random.default_rng(3).standard_normal((64, 500)).astype(ml_dtypes.bfloat16)
    y = weights(x).astype(np.float64)
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    exact = e / e.sum(1, keepdims=True)
    assert (np.abs(y / exact - 1) <= 2.0**-8 * (1 + 2.0**-10)).all()


def test_whole_quotients_in_integers_are_whole() -> None:
    """41 * (1 / 41) is less than 1 in f32, which to an integer is 0."""
    whole = np.array([1, 3, 41, 47, 55, 61, 82, 83] * 8, np.float32)
    assert ((whole * (np.float32(1) / whole)) < 1).any()
    a, b = np.zeros((64, 64), np.float16), np.eye(64, dtype=np.float16)
    a[:] = whole[:, None]
    y = np.zeros((64, 64), np.int8)
    counted(a, b, whole, y)
    assert (y == 1).all()
    assert not by_reciprocal(counted, {"a": "f16", "b": "f16", "s": "f32", "y": "i8"})
