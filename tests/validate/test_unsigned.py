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
from support.parsed import transport_kernel
from tilewright.artifact.schema import Artifact, Launch
from tilewright.validate.transport_to_ptx import Difference, compare

pytestmark = pytest.mark.sample(1)


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


@tw.kernel
def widened(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x, 256)
    y[m] = x[m].to(tw.i32) * 3


@tw.kernel
def narrowed(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    """Two words between 0 and 65535 are put together as they are."""
    m = tw.grid(x, 64)
    y[m] = x[m].to(tw.u16)


@tw.kernel
def distances(x: tw.Tensor["M"], z: tw.Tensor["M"], y: tw.Tensor["M"]):
    """Two differences are put together in a word by their bytes."""
    m = tw.grid(x, 64)
    y[m] = tw.maximum(x[m], z[m]) - tw.minimum(x[m], z[m])


KERNELS = {
    "arithmetic": (CASES["arithmetic"].kernel, dict.fromkeys("xkabcdefgh", "u32")),
    "choices": (CASES["choices"].kernel, dict.fromkeys("xzabcd", "u32") | {"less": "bool"}),
    "conversions": (conversions, {"x": "u32", "f": "f32", "a": "f32", "b": "u32", "c": "i64"}),
    "gathered": (gathered, {"index": "u32", "x": "f32", "y": "f32"}),
    "widened": (widened, {"x": "i8", "y": "i32"}),
    "narrowed": (narrowed, {"x": "f32", "y": "u16"}),
    "distances": (distances, dict.fromkeys("xzy", "u16")),
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
    ("narrowed", r"(min\.s32\s+%r\d+, %r\d+), 65535", r"\1, 65534"),
    ("narrowed", r"(min\.s32\s+%r\d+, %r\d+), 65535", r"\1, 131071"),
    ("narrowed", r"(max\.s32\s+%r\d+, %r\d+), 0", r"\1, 1"),
    ("narrowed", r"(max\.s32\s+%r\d+, %r\d+), 0", r"\1, -1"),
    ("narrowed", r"min\.s32", "min.u32"),
    ("distances", r"(prmt\.b32\s+%r\d+, %r\d+, %r\d+), 4180;", r"\1, 4164;"),
    ("distances", r"(prmt\.b32\s+%r\d+, %r\d+, %r\d+), 4180;", r"\1, 21520;"),
    ("distances", r"(prmt\.b32\s+%r\d+, %r\d+, %r\d+), 4180;", r"\1, 12884;"),
]


@cache
def compiled(name: str) -> Artifact:
    kernel, dtypes = KERNELS[name]
    return kernel.compile(dtypes=dtypes)


def differences(name: str, change: Callable[[str], str] = str) -> tuple[Difference, ...]:
    artifact = compiled(name)
    (image,) = artifact.kernels
    (launch,) = {s for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    return compare(transport_kernel(image.transport_ir), change(image.ptx), launch.args, launch.grid[0], 1)


@pytest.mark.parametrize("name", KERNELS)
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    assert differences(name) == ()


@pytest.mark.parametrize(("name", "pattern", "other"), OTHERWISE)
def test_a_sign_is_seen(name: str, pattern: str, other: str) -> None:
    assert re.search(pattern, compiled(name).kernels[0].ptx)
    assert differences(name, lambda ptx: re.sub(pattern, other, ptx))


def test_a_load_takes_its_sign_into_a_wider_register() -> None:
    """Bytes of words are cut to 8 bits before they are put together: with their sign, where they are not. (The last
    byte of a vector at the edge is none, and may be anything.)"""
    cut = re.compile(r"prmt\.b32(\s+%r\d+), (%r\d+), (%r\d+), 30212;")  # b0 of the one, b0, b2 and b3 of the other
    assert cut.search(compiled("widened").kernels[0].ptx)
    signed = lambda ptx: re.sub(r"ld\.global\.nc\.u8(?=\s)", "ld.global.nc.s8", ptx)  # noqa: E731
    assert differences("widened", signed) == ()
    uncut = lambda ptx: cut.sub(r"shl.b32 \2, \2, 8;\n\tor.b32\1, \2, \3;", ptx)  # noqa: E731
    assert differences("widened", uncut) == ()
    assert differences("widened", lambda ptx: uncut(signed(ptx)))


def test_a_parameter_is_read_into_a_wider_register() -> None:
    widened_there = re.compile(r"cvt\.s64\.s32(\s+%rd\d+), %r45;")
    at = "[kernel_gathered_param_4]"
    assert "ld.param.u32 \t%r45, " + at in compiled("gathered").kernels[0].ptx
    assert differences("gathered", lambda ptx: widened_there.sub(rf"ld.param.s32\1, {at};", ptx)) == ()
    assert differences("gathered", lambda ptx: widened_there.sub(rf"ld.param.s32\1, {at.replace('4', '3')};", ptx))
