"""The PTX of histograms, sorts and random numbers does what the IR says; mistakes planted in it are refused."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import tilewright as tw
from support.example_cases import load
from support.indexed import SHORT
from support.parsed import transport_kernel
from support.sorts import CASES as SORTS
from tilewright.artifact.schema import Artifact, Launch
from tilewright.validate.match import Difference
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(2)


@tw.kernel
def bins(keys: tw.Tensor["N"], counts: tw.Tensor[256], *, bn=8192):
    n = tw.grid(keys.shape[0], bn)
    tw.reduce_add(counts, tw.axis(256), tw.histogram(keys[n], 256))


@tw.kernel
def masked_bins(x: tw.Tensor["M", "N"], counts: tw.Tensor["M", 40], *, bn=128):
    m = tw.grid(x.shape[0], None)
    found = tw.zeros((tw.axis(40),), tw.i32)
    for n in tw.stream(x.shape[1], bn):
        found += tw.histogram(x[m, n] & 63, 40)
    counts[m, :] = found


@cache
def compiled(name: str) -> Artifact:
    match name:
        case "bins":
            return bins.compile(dtypes={"keys": "i32", "counts": "i32"})
        case "masked":
            return masked_bins.compile(dtypes={"x": "i32", "counts": "i32"})
        case "many bins":
            return load("histogram").many_bins.compile(dtypes={"keys": "i32", "counts": "i32"})
        case "ranks":
            return load("scan").rank_in_bin.compile(dtypes={"bins": "i32", "rank": "i32", "counts": "i32"})
        case "dropout":
            return load("dropout").dropout.compile(dtypes={"x": "bf16", "y": "bf16"})
        case _:
            case = SORTS[name]
            arrays = case.draw(np.random.default_rng(0))
            dtypes = {n: SHORT[a.dtype.name] for n, a in arrays.items()}
            return case.kernel.compile(dtypes=dtypes, **dict(case.keywords))


def ptx(name: str) -> str:
    return compiled(name).kernels[-1].ptx


def differences(name: str, text: str) -> tuple[Difference, ...]:
    artifact = compiled(name)
    image = artifact.kernels[-1]
    launch = next(s for v in artifact.variants for s in v.steps if isinstance(s, Launch) and s.kernel == image.symbol)
    return compare(transport_kernel(image.transport_ir), text, launch.args, launch.grid[0], 1)


DECIDED = ["bins", "many bins", "ranks", "masked", "dropout", "float16 ascending", "float32 ascending",
           "int8 descending", "greatest of bfloat16", "narrow rows across warps", "float8_e4m3fn ascending",
           "float8_e4m3fn descending", "bool ascending"]  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    assert differences(name, ptx(name)) == ()


BINS = {
    "a bin less": (r"setp\.gt\.u32(\s+%p\d+, %r\d+), 255;", r"setp.gt.u32\1, 254;"),
    "a bin more": (r"setp\.gt\.u32(\s+%p\d+, %r\d+), 255;", r"setp.gt.u32\1, 256;"),
    "numbers below 0": (r"setp\.gt\.u32(\s+%p\d+, %r\d+), 255;", r"setp.gt.s32\1, 255;"),
    "two for each": (r"(atom\.shared\.add\.u32 \t%r\d+, \[%rd\d+\]), 1;", r"\1, 2;"),
    "the greatest": (r"atom\.shared\.add\.u32", r"atom.shared.max.u32"),
    "no addition": (r"\tatom\.shared\.add\.u32[^\n]+\n", ""),
    "the bin beside": (r"(atom\.shared\.add\.u32 \t%r\d+, \[%rd\d+)\]", r"\1+4]"),
    "the same key again": (r"mul\.wide\.s32 (\t%rd\d+), %r\d+, 4;\n(\tadd\.s64 [^\n]+\n\tatom)",
                           r"mul.wide.s32 \1, %r203, 4;\n\2"),
    "counted before the bins are cleared": (r"\tbar\.sync \t0;\n(\tsetp\.g)", r"\1"),
    "read while they are counted": (r"\tbar\.sync \t0;\n(\tld\.shared)", r"\1"),
    "atomic in the CTA alone": (r"(atom|red)\.global\.add", r"\1.relaxed.cta.global.add"),
}  # fmt: skip


@pytest.mark.parametrize("what", BINS)
def test_a_wrong_count_is_refused(what: str) -> None:
    pattern, other = BINS[what]
    text = re.sub(pattern, other, ptx("bins"), count=1)
    if text == ptx("bins"):
        pytest.skip("no such instruction")
    assert differences("bins", text)


COUNTED = {
    "a bin more": ("many bins", r"(setp\.gt\.u32\s+%p\d+, %r\d+), 32767;", r"\1, 32768;"),
    "bins of the other half": ("many bins", r"(shl\.b32\s+%r\d+, %r\d+), 15;", r"\1, 16;"),
    "a key more": ("many bins", r"setp\.ge\.s64(\s[^;]+;\n\tsetp\.gt\.u32)", r"setp.gt.s64\1"),
    "keys of the next block": ("many bins", r"add\.s64(\s+%rd\d+, %rd\d+), 4096;", r"add.s64\1, 4100;"),
    "the bin beside": ("many bins", r"(atom\.shared\.add\.u32 \t%r\d+, \[%rd\d+)\]", r"\1+4]"),
    "two for each": ("many bins", r"(atom\.shared\.add\.u32 \t%r\d+, \[%rd\d+\]), 1;", r"\1, 2;"),
    "zeros where keys are": ("many bins", r"(ld\.global\.nc\.u32 \t%r\d+, \[%rd\d+\+8\]);", r"mov.u32 \t%r300, 0;"),
    "the low bits without their sign": (
        "ranks",
        r"cvt\.s64\.s32 (\t%rd\d+), (%rd\d+);",
        r"and.b64 \1, \2, 4294967295;",
    ),
    "the upper half": ("ranks", r"cvt\.u32\.u64 \t%r389, %rd473;", "{ .reg .b32 t; mov.b64 {t, %r389}, %rd473; }"),
    "another count": ("ranks", r"cvt\.u32\.u64 \t%r389, %rd473;", "cvt.u32.u64 \t%r389, %rd474;"),
    "the count before": ("ranks", r"add\.s64 \t%rd473, %rd175, %rd77;", "mov.u64 \t%rd473, %rd77;"),
    "another lane": ("ranks", r"(shfl\.sync\.idx\.b32\s+[^,]+, [^,]+, )(%r\d+)", r"\g<1>%r1"),
    "not exchanged": ("ranks", r"shfl\.sync\.idx\.b32\s+(%r103)\|%p\d+, (%r\d+), [^;]+;", r"mov.u32 \t\1, \2;"),
    "without the hit": ("ranks", r"(selp\.b64\s+%rd\d+, %rd\d+), 0, (%p\d+);", r"\1, 1, \2;"),
}


@pytest.mark.parametrize("what", COUNTED)
@pytest.mark.parametrize("place", [0, -1])
def test_a_wrong_rank_or_bin_is_refused(what: str, place: int) -> None:
    name, pattern, other = COUNTED[what]
    text = ptx(name)
    found = list(re.finditer(pattern, text))
    assert found, what
    changed = text[: found[place].start()] + found[place].expand(other) + text[found[place].end() :]
    assert differences(name, changed)


SORTED = {
    "the greater": ("greatest of bfloat16", r"min\.s32", "max.s32"),
    "the lesser": ("float32 ascending", r"max\.s64", "min.s64"),
    "without a sign": ("greatest of bfloat16", r"min\.s32", "min.u32"),
    "another lane": ("greatest of bfloat16", r"(shfl\.sync\.idx\.b32\s+[^,]+, [^,]+, )(%r\d+)", r"\g<1>%r1"),
    "another bit of the key": ("greatest of bfloat16", r"(shl\.b32 \t%r\d+, %r\d+), 31;", r"\1, 30;"),
    "another padding": ("float16 ascending", r", 2147483647(?=[,;])", ", 2147483646"),
    "bytes exchanged": ("float8_e4m3fn ascending", r"(prmt\.b32\s+%r\d+), (%r\d+), (%r\d+),", r"\1, \3, \2,"),
    "another type": ("float8_e4m3fn ascending", r"cvt\.rn\.f16x2\.e4m3x2", "cvt.rn.f16x2.e5m2x2"),
    "the lesser of bytes": ("float8_e4m3fn descending", r"max\.s32", "min.s32"),
    "one bit of the key": ("bool ascending", r"(and\.b32\s+%r\d+, %r\d+), -1073741824;", r"\1, -2147483648;"),
    "where it is 0": ("bool ascending", r"setp\.ne\.s32(\s+%p\d+, %r\d+), 0;", r"setp.eq.s32\1, 0;"),
}


@pytest.mark.parametrize("what", SORTED)
@pytest.mark.parametrize("place", [0, -1])
def test_a_wrong_network_is_refused(what: str, place: int) -> None:
    name, pattern, other = SORTED[what]
    text = ptx(name)
    found = list(re.finditer(pattern, text))
    assert found, what
    changed = text[: found[place].start()] + found[place].expand(other) + text[found[place].end() :]
    assert differences(name, changed)


RANDOM = {
    "another multiplier": (r"-766435501", "-766435499"),
    "another key": (r"-1640531527", "-1640531526"),
    "the lower half": (r"(shr\.u64 \t%rd\d+, %rd\d+), 32;", r"\1, 31;"),
    "no exclusive or": (r"xor\.b32", "or.b32"),
    "another bit": (r"(shr\.u32 \t%r\d+, %r\d+), 8;", r"\1, 9;"),
    "the same word again": (r"xor\.b32  (\t%r\d+), (%r\d+), %r\d+;", r"xor.b32  \1, \2, \2;"),
    "a sum for a difference": (r"add\.s64", "sub.s64"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("what", RANDOM)
@pytest.mark.parametrize("place", [0, -1])
def test_a_wrong_random_number_is_refused(what: str, place: int) -> None:
    pattern, other = RANDOM[what]
    text = ptx("dropout")
    found = list(re.finditer(pattern, text))
    if not found:
        pytest.skip("no such instruction")
    changed = text[: found[place].start()] + found[place].expand(other) + text[found[place].end() :]
    assert differences("dropout", changed)
