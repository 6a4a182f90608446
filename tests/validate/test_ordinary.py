"""Ordinary kernels whose PTX was undecided once: rectifiers, and rows that are laid from boundaries."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

import tilewright as tw
from support import products as p
from tilewright.artifact.schema import Artifact, Launch
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.transport.text import transport_kernel
from tilewright.validate.kernel import compare
from tilewright.validate.match import Difference

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
def normal(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=2048)
    row = x[m, n].to(tw.f32)
    y[m, n] = row / row.sum(1)[:, None]


KERNELS = {
    "rectified": (rectified, {"x": "f32", "y": "f32"}),
    "at_most_six": (at_most_six, {"x": "bf16", "y": "bf16"}),
    "added_where_positive": (added_where_positive, {"x": "f32", "at": "i32", "y": "f32"}),
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
        for found in compare(transport_kernel(image.transport_ir), change(image.ptx), launch.args, launch.grid[0])
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
        ("normal", "0f00000000", "0f3F800000"),
    ],
)
def test_another_choice_is_refused(name: str, old: str, new: str) -> None:
    assert any(old in image.ptx for image in compiled(name).kernels)
    assert differences(name, lambda ptx: ptx.replace(old, new))
