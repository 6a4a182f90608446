"""The PTX of scans does what the IR says; mistakes planted in it are refused."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from support.indexed import SHORT
from support.parsed import transport_kernel
from support.scans import CASES
from tilewright.artifact.schema import Artifact, Launch
from tilewright.validate.match import Difference
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(2)


@cache
def compiled(name: str) -> Artifact:
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(0))
    dtypes = {n: SHORT[a.dtype.name] for n, a in arrays.items()}
    return case.kernel.compile(dtypes=dtypes, **dict(case.keywords))


def differences(name: str, number: int, text: str) -> tuple[Difference, ...]:
    artifact = compiled(name)
    image = artifact.kernels[number]
    launch = next(s for v in artifact.variants for s in v.steps if isinstance(s, Launch) and s.kernel == image.symbol)
    return compare(transport_kernel(image.transport_ir), text, launch.args, launch.grid[0], 1)


@pytest.mark.parametrize("name", ["every of float32", "every of float32 reverse"])
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    for number, image in enumerate(compiled(name).kernels):
        assert differences(name, number, image.ptx) == ()


HALVES = {
    "another distance": (r"(add\.s64 \t%rd\d+, %rd\d+), 128;", r"\1, 132;"),
    "the upper half": (r"cvt\.u32\.u64 \t(%r\d+), (%rd\d+);", r"{ .reg .b32 t; mov.b64 {t, \1}, \2; }"),
    "extended without a sign": (r"mul\.wide\.s32( \t%rd\d+, %r\d+), 4;", r"mul.wide.u32\1, 4;"),
    "extended twice": (r"cvt\.s64\.s32 (\t%rd\d+), (%r\d+);", r"mul.wide.s32 \1, \2, 3;"),
    "the row before": (r"(shl\.b32 \t%r\d+, %r\d+), 1;", r"\1, 0;"),
}
"""Of an offset that is extended to 64 bits, added to, and cut again."""


@pytest.mark.parametrize("what", HALVES)
@pytest.mark.parametrize("place", [0, -1])
def test_another_half_of_an_offset_is_refused(what: str, place: int) -> None:
    name, (pattern, other) = "every of float32", HALVES[what]
    text = compiled(name).kernels[1].ptx
    found = list(re.finditer(pattern, text))
    assert found, what
    changed = text[: found[place].start()] + found[place].expand(other) + text[found[place].end() :]
    assert differences(name, 1, changed)
