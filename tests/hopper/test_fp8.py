"""Products of 8-bit floats: what tensor cores keep of their sums, simulated, and sums that are promoted to f32."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler import differential
from tilewright.compiler.launch_recipe import recipe
from tilewright.ptx.machine.matrices import accumulate_bytes
from tilewright.simulate.tensor_core import fp8_product
from tilewright.transport import asynchronous as a
from tilewright.transport.text import transport_kernel

pytestmark = pytest.mark.sample(1)

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bk=128, accumulate="fast"):
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T, accumulate=accumulate)
    c[m, n] = acc


def _cut(value: Fraction, last: int) -> Fraction:
    scaled = abs(value) / Fraction(2) ** last
    return (scaled.numerator // scaled.denominator) * Fraction(2) ** last * (1 if value >= 0 else -1)


def _exponent(value: Fraction) -> int:
    n = 0
    value = abs(value)
    while value >= 2:
        value, n = value / 2, n + 1
    while value and value < 1:
        value, n = value * 2, n - 1
    return n


def of_the_ptx_machine(x: Any, y: Any, old: Any) -> Any:
    """Its own model of the same instruction, on the words of registers."""
    return accumulate_bytes(x.astype(np.float64), y.astype(np.float64), old.view(np.uint32), "f32").view(np.float32)


@pytest.mark.parametrize("model", [fp8_product, of_the_ptx_machine])
@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=["e4m3", "e5m2"])
def test_the_model_of_an_instruction(dtype: Any, model: Any) -> None:
    """Against the definition in rational numbers."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((6, 32)) * 2.0 ** rng.integers(-6, 6, (6, 1))).astype(dtype).astype(np.float32)
    y = (rng.standard_normal((5, 32)) * 2.0 ** rng.integers(-3, 3, (5, 1))).astype(dtype).astype(np.float32)
    old = (rng.standard_normal((6, 5)) * 100).astype(np.float32)
    found = model(x, y, old)
    for i, j in np.ndindex(found.shape):
        terms = [Fraction(float(u)) * Fraction(float(v)) for u, v in zip(x[i], y[j], strict=True)]
        terms.append(Fraction(float(old[i, j])))
        last = max(_exponent(term) for term in terms if term) - 13
        total = sum(_cut(term, last) for term in terms)
        assert Fraction(float(found[i, j])) == _cut(total, _exponent(total) - 13)


@pytest.mark.parametrize("model", [fp8_product, of_the_ptx_machine])
def test_what_is_no_number(model: Any) -> None:
    x, y = np.ones((1, 32), np.float32), np.ones((3, 32), np.float32)
    y[1, 5], y[2, 5] = np.nan, np.inf
    found = model(x, y, np.zeros((1, 3), np.float32))
    assert np.array_equal(found[0], np.array([32, np.nan, np.inf], np.float32), equal_nan=True)


@pytest.mark.parametrize("accumulate", ["fast", "promoted"])
def test_ptx_and_ir_are_executed_alike(accumulate: str) -> None:
    """Sums in the PTX machine and in the simulator are cut at the same places: no difference refutes a kernel."""
    image = product.compile(dtypes={"a": "e4m3", "b": "e4m3", "c": "f32"}, accumulate=accumulate).kernels[0]
    kernel = transport_kernel(image.transport_ir)
    found = differential.run_differential_test(kernel, image.ptx, recipe([kernel]))
    assert not found.differences
    assert found.launches


def errors(accumulate: str, bk: int = 128) -> float:
    rng = np.random.default_rng(4)
    x, y = (np.abs(rng.standard_normal((64, 2048))).astype(E4M3) for _ in range(2))
    z = np.empty((64, 64), np.float32)
    product(x, y, z, bk=bk, accumulate=accumulate)
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    return float(np.linalg.norm(z - exact) / np.linalg.norm(exact))


def test_promoted_sums_are_more_exact() -> None:
    """Sums of 2,048 products of one sign: each is cut at the last place of the sum so far, promoted of a step's."""
    fast, promoted = errors("fast"), errors("promoted")
    assert 2.0**-12 < fast < 2.0**-4
    assert promoted < fast / 5
    assert errors("promoted", 64) < promoted  # two instructions a step


def test_promoted_products_compile_and_end_with_each_step() -> None:
    dtypes = {"a": "e4m3", "b": "e4m3", "c": "f32"}
    kernels = {}
    for accumulate in ("fast", "promoted"):
        request = product.compiled._ahead("sm_90a", dtypes, None, None, None, {"accumulate": accumulate})
        kernels[accumulate] = product.compiled._plan(request).variants[0].transport
    first = {name: [op for op in k.walk() if isinstance(op, a.Wgmma)] for name, k in kernels.items()}
    assert not any(op.scale_d.data for op in first["promoted"][::4])  # each step of 128 starts its own sum
    assert all(op.scale_d.data for op in first["promoted"][1:4])
    assert "__fadd_rn(" in emit_kernel(kernels["promoted"]).source
    assert product.compile(dtypes=dtypes, accumulate="promoted").kernels


def test_a_promoted_step_is_short() -> None:
    x, y, z = np.zeros((64, 256), E4M3), np.zeros((64, 256), E4M3), np.zeros((64, 64), np.float32)
    for keywords in ({"bk": 256, "accumulate": "promoted"}, {"accumulate": "exact"}):
        with pytest.raises(tw.TilewrightError, match="LNG024"):
            product(x, y, z, **keywords)
    product(x, y, z, bk=256)
    product(x, y, z, accumulate="promoted")


def test_promoted_products_are_cut_into_parts() -> None:
    """Whole and last steps of a part stand in two loops, which together count no more than one."""
    dtypes = {"a": "e4m3", "b": "e4m3", "c": "f32"}
    artifact = product.compile(dtypes=dtypes, accumulate="promoted", schedule=tw.Schedule(split_k=3))
    assert len(artifact.kernels) == 2
    assert any("split-K" in note for note in artifact.plan)
