"""Ordinary kernels whose PTX was undecided once: rectifiers, and rows that are laid from boundaries."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

import tilewright as tw
from support import products as p
from support.parsed import transport_kernel
from tilewright.artifact.schema import Artifact, Launch
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.validate.match import Difference
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(3)


@tw.kernel
def rectified(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=1024):
    n = tw.grid(x, bn)
    y[n] = tw.where(x[n] > 0, x[n], 0.0)


@tw.kernel
def at_most_six(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=1024):
    n = tw.grid(x, bn)
    y[n] = tw.where(x[n] <= 6, x[n], 6.0)


@tw.kernel
def added_where_positive(x: tw.Tensor["M", "N"], at: tw.Tensor["M"], y: tw.Tensor["S", "N"], *, bm=8, bn=64):
    m, n = tw.grid(x, (bm, bn))
    tw.reduce_add(y, (at[m], n), tw.where(x[m, n] > 0, x[m, n], 0.0))


@tw.kernel
def gathered(x: tw.Tensor["M", "N"], index: tw.Tensor["K"], y: tw.Tensor["K", "N"]):
    k, n = tw.grid(y, (8, 64))
    i = index[k]
    y[k, n] = tw.where((i >= 0)[:, None], x[i, n], 2.0)


@tw.kernel
def paged(table: tw.Tensor["B", "P"], cache: tw.Tensor["Q", "S", "D"], y: tw.Tensor["B", "T", "D"]):
    b, t, d = tw.grid(y, (1, 16, 64))
    y[b, t, d] = cache[table[b, t.index // 16], t.index % 16, d]


@tw.kernel
def unravelled(x: tw.Tensor["M", "N"], y: tw.Tensor["K"]):
    k = tw.grid(y, 64)
    y[k] = x[k.index // x.shape[1], k.index % x.shape[1]]


@tw.kernel
def by_seven(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x, 64)
    y[m] = x[m] // 7 + x[m] % 7 * 8


@tw.kernel
def by_an_argument(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], d: tw.i32):
    m = tw.grid(x, 64)
    y[m], z[m] = x[m] // d, x[m] % d


@tw.kernel
def normal(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=2048)
    row = x[m, n].to(tw.f32)
    y[m, n] = row / row.sum(1)[:, None]


KERNELS = {
    "rectified": (rectified, {"x": "f32", "y": "f32"}),
    "at_most_six": (at_most_six, {"x": "bf16", "y": "bf16"}),
    "added_where_positive": (added_where_positive, {"x": "f32", "at": "i32", "y": "f32"}),
    "gathered": (gathered, {"x": "f32", "index": "i32", "y": "f32"}),
    "gathered_by_i64": (gathered, {"x": "bf16", "index": "i64", "y": "bf16"}),
    "unravelled": (unravelled, {"x": "f32", "y": "f32"}),
    "by_seven": (by_seven, {"x": "u32", "y": "u32"}),
    "by_seven_of_i8": (by_seven, {"x": "i8", "y": "i8"}),
    "by_an_argument": (by_an_argument, dict.fromkeys("xyz", "i32")),
    "paged": (paged, {"table": "i32", "cache": "bf16", "y": "bf16"}),
}


@cache
def compiled(name: str) -> Artifact:
    if name != "normal":
        kernel, dtypes = KERNELS[name]
        return kernel.compile(dtypes=dtypes)
    facts = CallFacts((("x", TensorFacts(1, 2)), ("y", TensorFacts(1, 2, "x"))))
    return build(plan(replace(p.request(normal), facts=facts)))


def differences(name: str, change: Callable[[str], str] = str) -> list[Difference]:
    artifact = compiled(name)
    launches = {s.kernel: s for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    return [
        found
        for image in artifact.kernels
        for launch in (launches[image.symbol],)
        for found in compare(transport_kernel(image.transport_ir), change(image.ptx), launch.args, launch.grid[0], 1)
    ]


@pytest.mark.parametrize("name", [*KERNELS, "normal"])
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    assert differences(name) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("rectified", "setp.gt.f32", "setp.ge.f32"),
        ("rectified", "0f00000000", "0f3F800000"),
        ("at_most_six", "min.f32", "max.f32"),
        ("added_where_positive", "max.f32", "min.f32"),
        ("added_where_positive", "0f00000000", "0f80000000"),
        ("gathered", ", 256;", ", 512;"),  # the second row's bit in a word that holds one of each
        ("gathered", "shr.u32", "shr.s32"),
        ("gathered", ", -1;", ", -2;"),
        ("gathered_by_i64", ", -1;", ", -2;"),
        ("gathered_by_i64", "setp.lt.s64", "setp.le.s64"),
        ("paged", ", -1;", ", -2;"),
        ("unravelled", "or.b32", "and.b32"),
        ("unravelled", "setp.lt.s32", "setp.le.s32"),
        ("by_seven", "613566757", "613566756"),
        ("by_seven", ", 2;", ", 3;"),
        ("by_seven", ", 1;", ", 0;"),
        ("by_seven_of_i8", "-1840700269", "-1840700261"),
        ("by_seven_of_i8", "shr.s32", "shr.u32"),
        ("by_an_argument", "setp.lt.u32", "setp.le.u32"),
        ("by_an_argument", "xor.b32", "or.b32"),
        ("normal", "0f00000000", "0f3F800000"),
    ],
)
def test_another_choice_is_refused(name: str, old: str, new: str) -> None:
    assert any(old in image.ptx for image in compiled(name).kernels)
    assert differences(name, lambda ptx: ptx.replace(old, new))
