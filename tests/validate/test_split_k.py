"""Streams that are cut into parts: the kernel of the parts, whose loop may make no step, and the one of their sums."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

import tilewright as tw
from support import products as p
from support.example_cases import load
from support.parsed import tile_kernel, transport_kernel
from support.slow import rest_slow
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.compiler.requests import Request
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(1)


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@cache
def compiled() -> dict[str, tuple[KernelImage, Launch]]:
    """The kernels of a variant that is cut."""
    rows = {"a": 4096, "b": 4096, "c": 64}
    sizes = {"M": 64, "N": 64, "K": 4096, **{f"{x}.stride0": n for x, n in rows.items()}}
    sizes |= {f"{x}.{of}": n for x in rows for of, n in (("stride1", 1), ("address", 0))}
    return cut(replace(p.request(product), schedule=tw.Schedule(split_k=4)), sizes)


@cache
def summed() -> dict[str, tuple[KernelImage, Launch]]:
    """Those of a sum over the rows of a narrow matrix."""
    sizes = {"M": 1 << 20, "N": 8, "x.stride0": 8, "x.stride1": 1, "x.address": 0, "y.stride0": 1, "y.address": 0}
    return cut(p.request(load("reductions").column_sum), sizes)


def cut(request: Request, sizes: dict[str, int]) -> dict[str, tuple[KernelImage, Launch]]:
    """The kernels of the variant that serves some sizes."""
    artifact = build(replace(plan(request, sizes), left_out=()))
    (variant,) = artifact.variants
    launches = [step for step in variant.steps if isinstance(step, Launch)]
    return {kind: (artifact.kernel(x.kernel), x) for kind, x in zip(("parts", "sums"), launches, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parts", "sums"])
def test_sums_of_parts_are_those_of_the_program(kind: str) -> None:
    """A part's steps end at the least of its own and of what is left, and the last ones are full up to M."""
    image, launch = summed()[kind]
    kernel = transport_kernel(image.transport_ir)
    assert compare(kernel, image.ptx, launch.args, launch.grid[0]) == ()
    assert compare_lowering(tile_kernel(image.tile_ir), kernel) == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ M // 512, max(", "+ (M + 1) // 512, max("),  # full steps, one too many of them
        ("$p0)*512 + $k0*512", "$p0)*512 + $k0*512 + 512"),
        ('end = #tile.expr<"$k0_full">', 'end = #tile.expr<"$k0_full - 1">'),
    ],
)
def test_other_steps_of_a_part_are_seen(old: str, new: str) -> None:
    image, _ = summed()["parts"]
    assert old in image.transport_ir
    assert compare_lowering(tile_kernel(image.tile_ir), transport_kernel(image.transport_ir.replace(old, new)))


def ptx(kind: str, pattern: str = "", to: str = "", count: int = 0) -> int:
    """Whether the PTX, in which a pattern is replaced, is told apart: 1, or 0."""
    image, launch = compiled()[kind]
    text = re.sub(pattern, to, image.ptx, count=count) if pattern else image.ptx
    assert not pattern or text != image.ptx
    return len(compare(transport_kernel(image.transport_ir), text, launch.args, launch.grid[0], 1))


def lowering(kind: str, old: str = "", new: str = "") -> int:
    """Differences of the Transport IR, in which a text is replaced."""
    image, _ = compiled()[kind]
    text = image.transport_ir.replace(old, new) if old else image.transport_ir
    assert not old or text != image.transport_ir
    return len(compare_lowering(tile_kernel(image.tile_ir), transport_kernel(text)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parts", "sums"])
def test_both_kernels_do_what_the_program_says(kind: str) -> None:
    assert ptx(kind) == 0
    assert lowering(kind) == 0


PARTS = {
    "a step that counts two": (r"(add\.s32\s+(%r\d+), \2), 1;", r"\1, 2;"),
    "a step more": (r"setp\.lt\.s32(\s+%p\d+, %r\d+, %r\d+);", r"setp.le.s32\1;"),
    "the more of two ends": (r"min\.s64", "max.s64"),
    "one step at least": (r"max\.s64(\s+%rd\d+, %rd\d+), 0;", r"max.s64\1, 1;"),
}


@pytest.mark.parametrize("what", rest_slow(PARTS, ("a step more", "one step at least")))
def test_a_wrong_number_of_steps_is_seen(what: str) -> None:
    """How often the loop runs is what the stages of the pipeline are counted by in the program after it."""
    pattern, other = PARTS[what]
    assert ptx("parts", pattern, other) > 0


SUMS = {
    "a part less": ('end = #tile.expr<"split$parts">', 'end = #tile.expr<"split$parts - 1">'),
    "the first part each time": ('coords = [#tile.expr<"$kpart">', 'coords = [#tile.expr<"0">'),
    "a column less": ("< N and", "< N - 1 and"),
    "no rows": (' < M">, vector', ' < 0">, vector'),
}


@pytest.mark.parametrize("what", SUMS)
def test_another_sum_is_seen(what: str) -> None:
    """Also beyond the bounds inside of which what the loop carries is asked for."""
    old, new = SUMS[what]
    assert lowering("sums", old, new) > 0
