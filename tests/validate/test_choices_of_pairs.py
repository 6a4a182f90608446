"""Argmax and argmin: pairs that tests of pairs choose, in threads and through lanes. The PTX does what the IR says, and
mistakes in either are refused."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false
# pyright: reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from functools import cache

import pytest

import tilewright as tw
from support.example_cases import load
from support.generality import CASES
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.transport.text import transport_kernel
from tilewright.validate.match import Difference
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(1)


@tw.kernel
def down_columns(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bn=64):
    n = tw.grid(y, bn)
    y[n] = x[tw.axis(x.shape[0], upto=32), n].argmax(0)


@tw.kernel
def nearest(x: tw.Tensor["M", "D"], c: tw.Tensor["K", "D"], y: tw.Tensor["M"], *, bm=4):
    m, k, d = tw.grid(x.shape[0], bm), tw.axis(c.shape[0], upto=16), tw.axis(x.shape[1], upto=16)
    apart = x[m, d][:, None, :].to(tw.f32) - c[k, d][None, :, :].to(tw.f32)
    y[m] = (apart * apart).sum(2).argmin(1)


KERNELS = {
    "truths": (CASES["truths"].kernel, {"x": "f32", "product": "f32", "least": "i32", "flags": "bool"}),
    "argmax": (load("reductions").argmax, {"x": "bf16", "y": "i32"}),
    "down_columns": (down_columns, {"x": "f32", "y": "i32"}),
    "nearest": (nearest, {"x": "bf16", "c": "bf16", "y": "i32"}),
    "middle_axis": (CASES["middle_axis"].kernel, {"x": "bf16", "y": "bf16", "at": "i32"}),
}


@cache
def compiled(name: str) -> tuple[KernelImage, Launch]:
    kernel, dtypes = KERNELS[name]
    artifact = kernel.compile(dtypes=dtypes)
    (variant,) = artifact.variants
    (launch,) = variant.steps
    assert isinstance(launch, Launch)
    return artifact.kernel(launch.kernel), launch


def differences(name: str, ptx: str | None = None, ir: str | None = None) -> tuple[Difference, ...]:
    image, launch = compiled(name)
    return compare(transport_kernel(ir or image.transport_ir), ptx or image.ptx, launch.args, launch.grid[0], 1)


@pytest.mark.parametrize(
    "name",
    [
        "truths",
        "nearest",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("argmax", "down_columns", "middle_axis")),
    ],
)
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    assert differences(name) == ()


MISTAKES = {
    "NaN is passed over": (r"setp\.nan\.f32", "setp.num.f32"),
    "a number is kept where it is less": (r"setp\.(lt|gt)\.f32(?=[^;]*, %f)", "setp.ne.f32"),
    "the last of equals": (r"(setp\.eq\.f32[^;]*;(?:\s*add\.s32[^;]*;)?\s*setp)\.lt\.s32", r"\1.gt.s32"),
    "equals are not told apart": (r"(setp)\.eq(\.f32[^;]*;(?:\s*add\.s32[^;]*;)?\s*setp\.lt\.s32)", r"\1.neu\2"),
    "another lane": (r"(shfl\.sync\.bfly\.b32 \s*\S+, %r\d+), %r\d+, (%r\d+)", r"\1, \2, \2"),
    "lanes with less than all bits": (r"(shfl\.sync\.bfly\.b32 [^;]*;\s*mov\.b32 \s*%f\d+), %r\d+;", r"\1, 0;"),
    "infinity is above others": (r"setp\.gtu\.f32( \s*%p\d+, %f\d+), 0f7F800000;", r"setp.gt.f32\1, 0f7F7FFFFF;"),
    "places begin at one": (r"(mov\.u32 \s*%r\d+), 2147483647;", r"\1, 2147483646;"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_ptx_are_refused(mistake: str) -> None:
    """Everywhere: some of the code is for extents that no launch has."""
    old, new = MISTAKES[mistake]
    changed, count = re.subn(old, new, compiled("truths")[0].ptx)
    assert count
    assert differences("truths", changed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"argmax", distances = [#builtin.int<1>, #b', '"argmax", distances = [#builtin.int<2>, #b'),
        ('fn = "argmax", into = #tile.expr<"($r // 4) % 4">', 'fn = "argmax", into = #tile.expr<"$r % 4">'),
        ('fn = "min", distances', 'fn = "max", distances'),
        ("tile.unary <neg>", "tile.unary <abs>"),
        ("$r % 4 + $tid*4", "$r % 4 + $tid*4 + 1"),
    ],
)  # fmt: skip
def test_mistakes_in_the_ir_are_refused(old: str, new: str) -> None:
    ir = compiled("truths")[0].transport_ir
    assert old in ir
    assert differences("truths", ir=ir.replace(old, new))
