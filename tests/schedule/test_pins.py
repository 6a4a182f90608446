"""Pins of kernels without matrix products: kept, or refused with the reason."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.artifact.schema import Launch
from tilewright.base.expr import Expr
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.planned import PlannedKernel
from tilewright.diag import TilewrightError
from tilewright.simulate import run
from tilewright.transport import dialect as t


@tw.kernel
def centred(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, upto: int = 512):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    y[m, n] = x[m, n] - x[m, n].mean(1)[:, None]


def planned(**pins: Any) -> PlannedKernel:
    kernel = centred.compiled
    request = kernel._ahead("sm_90a", None, None, tw.Schedule(**pins), None, {})
    return kernel._plan(request).variants[-1]


def grid(kernel: PlannedKernel) -> Expr:
    (launch,) = recipe([kernel.transport]).steps
    assert isinstance(launch, Launch)
    return launch.grid[0]


def test_persistent_ctas_walk_the_programs() -> None:
    walking, single = planned(persistent=True), planned(persistent=False)
    (programs,) = (op for op in walking.transport.walk() if isinstance(op, t.Programs))
    assert programs.persistent.data
    dims = {"M": 100_000, "N": 512}
    assert grid(walking).evaluate(dims) == 132 * walking.placement.min_ctas
    assert grid(walking).evaluate({"M": 2, "N": 512}) == 1
    assert grid(single).evaluate(dims) == 50_000
    x = np.random.default_rng(0).standard_normal((37, 500), dtype=np.float32)
    y = np.full_like(x, np.nan)
    run(walking.transport, {"x": x, "y": y}, {})
    np.testing.assert_allclose(y, x - x.mean(1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_vector_width_is_kept(width: int) -> None:
    accesses = [op for op in planned(vector=width).transport.walk() if isinstance(op, t.Load | t.Store)]
    assert {op.vector.data for op in accesses} == {width}


@pytest.mark.parametrize(
    "pins",
    [
        {"vector": 8},  # 32 bytes of f32
        {"stages": 2},
        {"consumers": 1},
        {"cluster": (2, 1)},
        {"mode": "pingpong"},
    ],
)
def test_what_this_kernel_has_no_use_for_is_refused(pins: dict[str, Any]) -> None:
    with pytest.raises(TilewrightError, match="SCH002") as caught:
        planned(**pins)
    (name,) = pins
    assert name in str(caught.value)
    assert "test_pins.py" in str(caught.value)


def test_every_pin_is_kept_by_some_kernel() -> None:
    """Two were accepted by ``Schedule`` and refused by all kernels."""
    of_products = {"stages", "consumers", "mode", "cluster", "staged", "split_k"}
    of_others = {"warps", "vector", "persistent", "dependent"}
    assert {f.name for f in dataclasses.fields(tw.Schedule)} == of_products | of_others | {"extents"}
    for key in ("rows_per_cta", "registers"):
        with pytest.raises(TilewrightError, match="LNG027"):
            tw.Schedule(**{key: 2})
