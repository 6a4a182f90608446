"""Integer arithmetic of compiled kernels: the PTX that NVRTC makes of floor division, remainders and shifts."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import re
from functools import cache

import pytest

import tilewright as tw
from support.parsed import transport_kernel
from tilewright.artifact.schema import Launch
from tilewright.validate.transport_to_ptx import compare


@tw.kernel
def quotients(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=64):
    m = tw.grid(y, bm)
    p, q = a[m], b[m]
    y[m] = (p // q) * 1000 + p % q


@tw.kernel
def shifts(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M"], *, s: tw.i32 = 3, bm=64):
    m = tw.grid(y, bm)
    p, q = a[m], b[m]
    y[m] = (p << q) + (p >> q) + (p >> s) + (p << s) + (p << 3) + (p >> 4)


@tw.kernel
def products(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=64):
    m = tw.grid(y, bm)
    y[m] = a[m] * a[m] * b[m] - b[m] ** 13


@tw.kernel
def by_numbers(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=64):
    m = tw.grid(y, bm)
    y[m] = (a[m] // 7) * 100 + b[m] % 10


@tw.kernel
def places(a: tw.Tensor["M"], b: tw.Tensor["N"], y: tw.Tensor["M"], *, bm=64):
    m = tw.grid(y, bm)
    y[m] = a[m.index // 7 + m.index % 3] + b[m.index // 5]


@tw.kernel
def signs(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=64):
    """Where a is no sign, max(a, -1) is a, which is 0 there."""
    m = tw.grid(y, bm)
    y[m] = tw.sign(a[m]) + b[m]


@tw.kernel
def masks(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=64):
    m = tw.grid(y, bm)
    y[m] = tw.where((a[m] & 5) == 0, a[m], b[m])


KERNELS = {
    "masks": masks,
    "quotients": quotients,
    "shifts": shifts,
    "products": products,
    "by_numbers": by_numbers,
    "places": places,
    "signs": signs,
}
MISTAKES = {
    "other bits": ("masks", r"(and\.b32[^;]*), 5;", r"\1, 9;"),
    "a quotient of unsigned words": ("quotients", r"div\.s32", "div.u32"),
    "a remainder with the dividend's sign": ("quotients", r"(selp\.b32\s+%r\d+), (%r\d+), 0", r"\1, 0, \2"),
    "divisors from -2 to 1 left out": ("quotients", r"(setp\.lt\.u32\s+%p\d+, %r\d+), 2;", r"\1, 3;"),
    "a shift without its bound": ("shifts", r"min\.u32(\s+%r\d+, %r\d+), 31;", r"min.u32\1, 30;"),
    "a logical shift": ("shifts", r"shr\.s32", "shr.u32"),
    "another reciprocal": ("by_numbers", "-1840700269", "-1840700267"),
    "another shift of the upper half": ("by_numbers", r"(shr\.s32\s+%r\d+, %r\d+), 2;", r"\1, 3;"),
    "another upper half": ("by_numbers", r"mul\.hi\.s32", "mul.hi.u32"),
    "a quotient of a negative number that is one less": (
        "by_numbers",
        r"(shr\.u32\s+%r\d+, %r\d+), 31;",
        r"\1, 30;",
    ),
    "the sign of another word": ("by_numbers", r"(shr\.u32\s+%r\d+), %r\d+, 31;", r"\1, %r1, 31;"),
    "a remainder that is never negative": ("by_numbers", r"(setp\.lt\.s32\s+%p\d+, %r\d+), 0;", r"\1, -1;"),
    "a place that is divided by another reciprocal": ("places", "1431655766", "1431655767"),
    "a place that is divided by a greater number": ("places", "1717986919", "1717986887"),
    "a sign of -2": ("signs", r"(max\.s32\s+%r\d+, %r\d+), -1;", r"\1, -2;"),
    "a number that is its own sign": ("signs", r"(setp\.gt\.s32\s+%p\d+, %r\d+), 0;(\s+selp)", r"\1, 2;\2"),
    "a sign of 2": ("signs", r"(selp\.b32\s+%r\d+), 1,", r"\1, 2,"),
    "no sign of words without one": ("signs", r"max\.s32", "max.u32"),
    "another factor twice": (
        "products",
        r"(mul\.lo\.s32\s+(%r\d+), %r\d+, (%r\d+);\s+mul\.lo\.s32\s+%r\d+, \2), %r\d+;",
        r"\1, \3;",
    ),
}


@cache
def differences(name: str, pattern: str = "", to: str = "") -> tuple[str, ...]:
    """What the validator says of a kernel, with one place of its PTX replaced."""
    names = ("a", "b", "y")
    artifact = KERNELS[name].compile(dtypes=dict.fromkeys(names, "i32"))
    (variant,) = artifact.variants
    launch = variant.steps[-1]
    assert isinstance(launch, Launch)
    image = artifact.kernel(launch.kernel)
    ptx, count = re.subn(pattern, to, image.ptx, count=1) if pattern else (image.ptx, 1)
    assert count == 1
    return tuple(map(str, compare(transport_kernel(image.transport_ir), ptx, launch.args, launch.grid[0], 1)))


@pytest.mark.parametrize("name", KERNELS)
def test_integer_arithmetic_validates(name: str) -> None:
    assert differences(name) == ()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_integer_arithmetic_is_found(mistake: str) -> None:
    assert differences(*MISTAKES[mistake])
