"""Conversions between all dtypes, in and out of range: every value up to 16 bits, the edges and random ones beyond."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.casts import FLOATS, NUMPY, converted, same, samples
from tilewright.base.dtypes import DTYPES

pytestmark = pytest.mark.sample(2)


@tw.kernel
def cast(x: tw.Tensor["M"], y: tw.Tensor["M"], *, to: Any, bm=1024):
    m = tw.grid(y, bm)
    y[m] = x[m].to(to)


@pytest.mark.parametrize("target", NUMPY)
@pytest.mark.parametrize("source", NUMPY)
def test_the_simulator_converts_as_the_formats_say(source: str, target: str) -> None:
    x = samples(source, np.random.default_rng(5), 3000)
    y = np.zeros(x.shape, NUMPY[target])
    cast(x, y, to=DTYPES[target])
    expected = converted(x, source, target) if source != target else x
    wrong = np.flatnonzero(~same(y, expected))
    assert not wrong.size, [(x[i], y[i], expected[i]) for i in wrong[:5]]


@tw.kernel
def moved(x: tw.Tensor["M"], keep: tw.Tensor["M"], y: tw.Tensor["M", 4]):
    """Elements that are chosen, reduced and broadcast, never converted."""
    m, n = tw.grid(y, (64, 4))
    least = tw.where(keep[m][:, None], x[m][:, None], x[m][:, None]).max(1)
    y[m, n] = tw.where(n.index[None, :] < 2, x[m][:, None], least[:, None])


@pytest.mark.parametrize("dtype", FLOATS)
def test_elements_that_are_only_moved_stay_as_they_are(dtype: str) -> None:
    x = samples(dtype, np.random.default_rng(1), 10)
    y = np.zeros((len(x), 4), NUMPY[dtype])
    moved(x, np.ones(len(x), np.bool_), y)
    assert same(y, np.stack([x] * 4, 1)).all()


def test_the_oracle_knows_the_corners() -> None:
    """Spelt out, so that a mistake in the oracle shows."""
    table = [
        ("f32", "i8", [127.9, 128, 1e30, -128.9, -129, -math.inf, math.nan], [127, 127, 127, -128, -128, -128, 0]),
        ("f32", "i32", [2.0**31, -(2.0**31), -(2.0**33), math.nan], [2**31 - 1, -(2**31), -(2**31), 0]),
        ("f32", "i64", [2.0**63, -(2.0**63), math.inf, math.nan], [2**63 - 1, -(2**63), 2**63 - 1, -(2**63)]),
        ("i32", "i8", [127, 128, 255, 256, -129], [127, -128, -1, 0, 127]),
        ("i64", "i32", [2**31, 2**32 + 5, -(2**31) - 1], [-(2**31), 5, 2**31 - 1]),
        ("f32", "u8", [-0.9, -1, 255.9, 256, -math.inf, math.inf, math.nan], [0, 0, 255, 255, 0, 255, 0]),
        ("f32", "u32", [2.0**31, 2.0**32, -5, 1e30, math.nan], [2**31, 2**32 - 1, 0, 2**32 - 1, 0]),
        ("f32", "i16", [32767.9, -32769, 1e9], [32767, -32768, 32767]),
        ("i32", "u8", [-1, 256, 255], [255, 0, 255]),
        ("i8", "u32", [-1], [2**32 - 1]),
        ("u8", "i8", [128, 255], [-128, -1]),
        ("u32", "i32", [2**31, 2**32 - 1], [-(2**31), -1]),
        ("u32", "i64", [2**32 - 1], [2**32 - 1]),
        ("u32", "f32", [2**32 - 1, 2**24 + 1], [2.0**32, 2**24]),
        ("f32", "e4m3", [448, 464, 1e9, -math.inf, 2.0**-10, 3 * 2.0**-11], [448, 448, 448, -448, 0, 2.0**-9]),
        ("f32", "e5m2", [57344, 65536, math.inf], [57344, 57344, 57344]),
        ("f32", "f16", [65504, 65519, 65520, -1e9, 2.0**-25], [65504, 65504, math.inf, -math.inf, 0]),
        ("f32", "bf16", [1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38], [1, 1 + 2.0**-6, math.inf]),
        ("i32", "f32", [2**24 + 1, 2**24 + 3], [2**24, 2**24 + 4]),
        ("i32", "bf16", [2**30 + 2**22 + 1], [2**30]),  # by way of f32, a tie that was none
        ("f32", "bool", [math.nan, -0.0, 1e-45], [True, False, True]),
    ]
    for source, target, values, expected in table:
        found = converted(np.array(values, NUMPY[source]), source, target)
        assert same(found, np.array(expected, NUMPY[target])).all(), (source, target, found)


def test_no_conversion_is_left_to_c() -> None:
    """Of C's casts of floats to integers only those in range are defined; the PTX names the conversion."""
    narrow = dict.fromkeys(("i8", "i16", "u8", "u16"), "s32")
    for target, instruction in {**narrow, "i32": "s32", "i64": "s64", "u32": "u32"}.items():
        for source in FLOATS:
            kernel = cast.compile(dtypes={"x": source, "y": target}, to=DTYPES[target]).kernels[0]
            assert f"{target}_of_f32(" in kernel.source
            assert set(re.findall(r"cvt\.rzi\S*", kernel.ptx)) == {f"cvt.rzi.{instruction}.f32"}


NUMBERS = [
    0.1,
    -0.0,
    1e300,
    -1e300,
    10**400,
    -(10**400),
    3e-46,
    2**54 + 2**30 + 1,
    math.nan,
    math.inf,
    70000,
    500,
    300.5,
]


@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_python_numbers_are_rounded_once(number: float) -> None:
    @tw.kernel
    def filled(y: tw.Tensor["M"], *, value: Any, to: Any):
        m = tw.grid(y, 8)
        y[m] = tw.full((m,), 1.0, tw.f32) * value
        del to

    y = np.zeros(3, np.float32)
    filled(y, value=number, to=tw.f32)
    if isinstance(number, int):
        number = (
            float(math.inf if number > 2**200 else -math.inf)
            if abs(number) > 2**200
            else converted(np.array([number]), "i64", "f32")[0]
        )
    with np.errstate(over="ignore"):
        assert same(y, np.full(3, number, np.float64).astype(np.float32)).all()


@pytest.mark.parametrize("target", NUMPY)
@pytest.mark.parametrize("number", [-0.0, 300.5, -1e9, math.inf, math.nan, 500.0, 70000.0, 1e39])
def test_python_numbers_out_of_range(number: float, target: str) -> None:
    """Stored, a Python float is converted as an f32."""

    @tw.kernel
    def stored(y: tw.Tensor["M"], *, value: float):
        m = tw.grid(y, 8)
        y[m] = tw.full((m,), value, tw.f32).to(DTYPES[target])

    y = np.zeros(2, NUMPY[target])
    stored(y, value=number)
    with np.errstate(over="ignore"):
        single = np.full(2, number).astype(np.float32)
    assert same(y, converted(single, "f32", target)).all()


def test_functions_of_python_numbers_where_python_has_none() -> None:
    cases = [
        (tw.exp, 1e4, math.inf),
        (tw.exp2, 1e4, math.inf),
        (tw.log, 0, -math.inf),
        (tw.log2, 0.0, -math.inf),
        (tw.log, -1, math.nan),
        (tw.sqrt, -2.0, math.nan),
        (tw.rsqrt, 0.0, math.inf),
        (tw.rsqrt, -0.0, -math.inf),
        (tw.rsqrt, -1.0, math.nan),
        (tw.tanh, 10**400, 1.0),
        (tw.sigmoid, -(10**400), 0.0),
    ]
    for fn, number, expected in cases:
        found = fn(number)
        assert found == expected or (math.isnan(expected) and math.isnan(found)), (fn.__name__, number, found)
