"""Rows that start between 16-byte boundaries: laid from the boundary before them, proved, and run."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import bf16
from tilewright.base.expr import Const, Sym
from tilewright.base.verdict import Refuted
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.requests import Request
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.facts import Observed, observe_facts
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import ExprAttr

Array = np.ndarray[Any, Any]


@tw.kernel
def shares(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, upto: int = 2048):
    """A whole row at once."""
    m = tw.grid(x.shape[0], 1)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    y[m, n] = row / row.sum(1)[:, None] + n.index


@tw.kernel
def weighted(x: tw.Tensor["M", "N"], w: tw.Tensor["N"], y: tw.Tensor["M", "N"], *, bn=tw.auto):
    """A row in steps, and a tensor that lies otherwise."""
    m = tw.grid(x.shape[0], None)
    for n in tw.stream(x.shape[1], bn):
        y[m, n] = x[m, n] + w[n]


@tw.kernel
def columns(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm: int = 64, bn: int = 32):
    """Rows are added up, each column by itself."""
    n = tw.grid(y, bn)
    total = tw.zeros(n, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        total += x[m, n].to(tw.f32).sum(0)
    y[n] = total


def placed(rows: int, width: int, pitch: int, offset: int) -> tuple[Array, Array]:
    """A view of NaNs whose first element is ``offset`` elements beyond a boundary, and the memory around it."""
    dtype = np.dtype(ml_dtypes.bfloat16)
    memory = np.full(rows * pitch + 64, np.nan, dtype)
    first = -memory.__array_interface__["data"][0] % 16 // 2 + offset
    return memory[first : first + rows * pitch].reshape(rows, pitch)[:, :width], memory


def planned(kernel: tw.Kernel, **tensors: Array) -> PlannedKernel:
    seen = {
        n: Observed(bf16, a.__array_interface__["data"][0], a.shape, tuple(s // 2 for s in a.strides))
        for n, a in tensors.items()
    }
    function = kernel.compiled.function
    signature = Signature.of(dict.fromkeys(tensors, bf16))
    request = Request(function, signature, observe_facts(seen), SM90A, Schedule())
    (variant,) = plan(request, {"M": tensors["x"].shape[0], "N": tensors["x"].shape[1]}).variants
    return variant


@pytest.mark.parametrize(("pitch", "vector"), [(104, 8), (100, 1), (102, 1), (101, 1)])
def test_columns_of_rows_between_boundaries_have_threads_of_their_own(pitch: int, vector: int) -> None:
    """The last tile tests every vector again that is not whole, be it of 4 or 8 bytes."""
    variant = planned(columns, x=placed(5, 100, pitch, 0)[0], y=placed(1, 100, 104, 0)[0][0])
    loads = {op.vector.data for op in variant.transport.walk() if isinstance(op, t.Load)}
    assert loads == {vector}


LAYOUTS = ((513, 513, 0), (600, 600, 1), (777, 781, 3), (2042, 2043, 7), (2048, 2051, 5))


@pytest.mark.parametrize(("width", "pitch", "offset"), LAYOUTS)
def test_rows_between_boundaries_move_in_whole_vectors(width: int, pitch: int, offset: int) -> None:
    (x, _), (y, memory) = placed(3, width, pitch, offset), placed(3, width, pitch, offset + 8)
    x[...] = np.random.default_rng(0).uniform(0.5, 1.5, x.shape)
    variant = planned(shares, x=x, y=y)
    assert variant.placement.skew is not None
    assert {op.vector.data for op in variant.transport.walk() if isinstance(op, t.Load | t.Store)} == {8}
    shares(x, y)
    row = x.astype(np.float64)
    expected = row / row.sum(1, keepdims=True) + np.arange(width)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=1e-2)
    y[...] = np.nan
    assert np.isnan(memory.astype(np.float32)).all()  # nothing beside the rows was written


def test_no_vector_is_loaded_from_an_unaligned_base() -> None:
    """Lanes outside of a row load the tensor's first elements instead, which they may only where those are aligned."""
    (x, _), (y, _) = placed(3, 777, 777, 1), placed(3, 777, 777, 1)
    assert "base8_x" not in emit_kernel(planned(shares, x=x, y=y).transport).source
    (x, _), (y, _) = placed(3, 768, 768, 0), placed(3, 768, 768, 0)
    assert "base8_x + (" in emit_kernel(planned(shares, x=x, y=y).transport).source


def test_rows_that_start_apart_keep_single_elements() -> None:
    (x, _), (y, _) = placed(3, 777, 777, 0), placed(3, 777, 777, 1)
    assert planned(shares, x=x, y=y).placement.skew is None
    aligned, _ = placed(3, 776, 776, 0)
    assert planned(shares, x=aligned, y=aligned).placement.skew is None


def test_a_row_in_steps_beside_a_tensor_that_lies_otherwise() -> None:
    (x, _), (y, _) = placed(2, 4099, 4101, 3), placed(2, 4099, 4101, 3)
    w = np.arange(4099).astype(ml_dtypes.bfloat16)
    x[...] = 1
    weighted(x, w, y)
    np.testing.assert_array_equal(y, (x + w))


@pytest.mark.parametrize("part", ["distance", "guard"])
def test_a_tile_laid_from_another_place_is_refuted(part: str) -> None:
    """The proof looks at what was lowered: a store that keeps its guard but not its place, and the other way round."""
    (x, _), (y, _) = placed(3, 777, 781, 3), placed(3, 777, 781, 3)
    variant = planned(shares, x=x, y=y)
    assert isinstance(prove_stores(variant.tile, variant.transport), Refuted) is False
    store = next(op for op in variant.transport.walk() if isinstance(op, t.Store))
    if part == "distance":
        coords = [c.expr for c in store.coords]
        store.attributes["coords"] = type(store.coords)([ExprAttr.of(c) for c in (coords[0], coords[1] + 1)])
    else:
        store.attributes["guard"] = ExprAttr.of(store.guard.expr.substitute({"$skew": Const(0)}))
    assert isinstance(prove_stores(variant.tile, variant.transport), Refuted)


def test_peers_are_checked_before_a_launch() -> None:
    (x, _), (y, _) = placed(3, 777, 777, 1), placed(3, 777, 777, 1)
    facts = observe_facts(
        {n: Observed(bf16, a.__array_interface__["data"][0], a.shape, (777, 1)) for n, a in (("x", x), ("y", y))}
    )
    assert facts.of("y").peer == "x"
    apart = replace(Observed(bf16, 2, (3, 777), (777, 1)), address=4)
    assert observe_facts({"x": Observed(bf16, 2, (3, 777), (777, 1)), "y": apart}).of("y").peer == ""
    artifact = shares.compile(dtypes={"x": "bf16", "y": "bf16"}, facts=facts)
    said = [f for f in artifact.facts if {"x.address", "y.address"} <= f.symbols]
    assert len(said) == 1
    values = {"x.address": 2, "y.address": 18}
    assert said[0].evaluate(values)
    assert not said[0].evaluate(values | {"y.address": 20})
    assert any(f.symbols == {Sym("M").name, "x.stride0", "y.stride0"} for f in artifact.facts)
