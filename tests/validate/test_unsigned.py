"""PTX of kernels on integers without a sign: what computes with one is seen."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

import tilewright as tw
from support.integers import CASES
from tilewright.artifact.schema import Artifact, Launch
from tilewright.transport.text import transport_kernel
from tilewright.validate.kernel import Difference, compare


@tw.kernel
def conversions(x: tw.Tensor["M"], f: tw.Tensor["M"], a: tw.Tensor["M"], b: tw.Tensor["M"], c: tw.Tensor["M"]):
    m = tw.grid(x, 64)
    a[m] = x[m].to(tw.f32)
    b[m] = f[m].to(tw.u32)
    c[m] = x[m].to(tw.i64)


@tw.kernel
def gathered(index: tw.Tensor["M"], x: tw.Tensor["V"], y: tw.Tensor["M"]):
    m = tw.grid(y, 64)
    y[m] = x[index[m]]


KERNELS = {
    "arithmetic": (CASES["arithmetic"].kernel, dict.fromkeys("xkabcdefgh", "u32")),
    "choices": (CASES["choices"].kernel, dict.fromkeys("xzabcd", "u32") | {"less": "bool"}),
    "conversions": (conversions, {"x": "u32", "f": "f32", "a": "f32", "b": "u32", "c": "i64"}),
    "gathered": (gathered, {"index": "u32", "x": "f32", "y": "f32"}),
}
OTHERWISE = [
    ("arithmetic", r"div\.u32", "div.s32"),
    ("arithmetic", r"shr\.u32(\s+%r\d+, %r\d+, %r)", r"shr.s32\1"),
    ("choices", r"max\.u32", "max.s32"),
    ("choices", r"min\.u32", "min.s32"),
    ("choices", r"setp\.(\w\w)\.u32", r"setp.\1.s32"),
    ("conversions", r"cvt\.rn\.f32\.u32", "cvt.rn.f32.s32"),
    ("conversions", r"cvt\.rzi\.u32\.f32", "cvt.rzi.s32.f32"),
    ("gathered", r"cvt\.u64\.u32", "cvt.s64.s32"),
]


@cache
def compiled(name: str) -> Artifact:
    kernel, dtypes = KERNELS[name]
    return kernel.compile(dtypes=dtypes)


def differences(name: str, change: Callable[[str], str] = str) -> tuple[Difference, ...]:
    artifact = compiled(name)
    (image,) = artifact.kernels
    (launch,) = {s for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    return compare(transport_kernel(image.transport_ir), change(image.ptx), launch.args, launch.grid[0])


@pytest.mark.parametrize("name", KERNELS)
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    assert differences(name) == ()


@pytest.mark.parametrize(("name", "pattern", "other"), OTHERWISE)
def test_a_sign_is_seen(name: str, pattern: str, other: str) -> None:
    assert re.search(pattern, compiled(name).kernels[0].ptx)
    assert differences(name, lambda ptx: re.sub(pattern, other, ptx))
