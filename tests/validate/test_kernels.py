"""The PTX of compiled kernels against their Transport IR, and planted mistakes in it."""

from __future__ import annotations

import re

import pytest

from support.compiled_examples import Compiled, compiled, compiled_for, of_each_kind
from tilewright.lang.schedule import Schedule

pytestmark = pytest.mark.sample(2)

PINNED = {"matmul": Schedule(extents={"bm": 64, "bn": 64})}
VALID = [
    *(("softmax", "bf16"), ("axpy", "f16"), ("permute_inner", "f32")),
    *((name, "bf16") for name in ("add", "column_sum", "cross_entropy", "matmul", "rms_norm", "softmax_streamed")),
    *((name, "bf16") for name in ("swiglu", "transpose")),
    *(("rotary", "f16"), ("row_max", "f32")),
]


@pytest.mark.parametrize(("example", "dtype"), VALID)
def test_the_ptx_does_what_the_ir_says(example: str, dtype: str) -> None:
    for variant, kernel in of_each_kind(example, dtype).items():
        assert kernel.differences() == [], variant


def replaced(text: str, pattern: str, to: str, which: int = 0) -> str:
    """The text with one match of a pattern replaced."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    assert len(found) > which, f"{pattern} stands {len(found)} times"
    match = found[which]
    new = text[: match.start()] + match.expand(to) + text[match.end() :]
    assert new != text
    return new


MISTAKES = {
    "another mbarrier": ("matmul", r"(mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+)\]", r"\1+8]"),
    "the parity inverted": (
        "matmul",
        r"(mbarrier\.try_wait\.parity\.shared::cta\.b64 \S+, \[)(%r\d+)(\], )(%r\d+);",
        r"xor.b32 \4, \4, 1;\n\1\2\3\4;",
    ),
    "coordinates exchanged": (
        "matmul",
        r"(cp\.async\.bulk\.tensor\.2d\.shared.*?\{)(%r\d+), (%r\d+)\}",
        r"\1\3, \2}",
    ),
    "fewer bytes expected": ("matmul", r"(mov\.u32\s+%r\d+, )16384;", r"\g<1>16368;"),
    "a descriptor 16 bytes off": ("matmul", r"(add\.s64\s+%rd\d+, %rd\d+, 4611686293305360\d*)(\d);", r"\g<1>9;"),
    "another named barrier": ("matmul", r"bar\.sync (%r\d+), (%r\d+);", r"bar.sync 3, \2;"),
    "a barrier less": ("matmul", r"bar\.sync (%r\d+), (%r\d+);", ""),
    "a fence less": ("matmul", r"fence\.proxy\.async\.shared::cta;", ""),
    "a commit less": ("matmul", r"wgmma\.commit_group\.sync\.aligned;", ""),
    "a later wait": ("matmul", r"wgmma\.wait_group\.sync\.aligned 0;", "wgmma.wait_group.sync.aligned 1;"),
    "an earlier read of the epilogue": ("matmul", r"cp\.async\.bulk\.wait_group\.read 0;", ""),
    "words exchanged": ("matmul", r"(stmatrix.*?\{)(%r\d+), (%r\d+)", r"\1\3, \2"),
    "another map": ("matmul", r"(mov\.b64\s+%rd\d+, kernel_matmul_param_)2;", r"\g<1>1;"),
    "a step more": ("matmul", r"setp\.lt\.s32(\s+%p\d+, %r\d+, %r\d+);", r"setp.le.s32\1;"),
    "another stride": ("softmax", r"ld\.param\.u32(\s+%r\d+, \[\S+_param_)4\]", r"ld.param.u32\g<1>5]"),
    "another distance": ("softmax", r"(shfl\.sync\.bfly\.b32\s+%r\d+\|%p\d+, %r\d+, )(%r\d+|\d+)", r"\g<1>3"),
    "another operation": ("softmax", r"max\.NaN\.f32", "min.NaN.f32"),
    "a max that loses NaN": ("softmax", r"max\.NaN\.f32", "max.f32"),
    "a sum that is a difference": ("softmax", r"add\.rn\.f32", "sub.rn.f32"),
    "a contracted product": ("softmax", r"mul\.rn\.f32(\s+%f\d+, %f\d+, %f\d+);", r"fma.rn.f32\1, 0f00000000;"),
    "a CTA barrier less": ("softmax", r"bar\.sync\s+0;", ""),
    "an element further": ("softmax", r"(st\.global\.v4\.u32\s+\[%rd\d+)\]", r"\1+2]"),
    "an element less": ("softmax", r"st\.global\.u16\s+\[%rd\d+\+4\], %r\w+;", ""),
    "a wider guard": ("softmax", r"setp\.(lt|ge|gt|le)\.s32", "setp.ne.s32"),
    "another element": ("add", r"(ld\.global\S*\.v4\.u32\s+\{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+)\]", r"\1+16]"),
    "a rounding mode": ("add", r"cvt\.rn\.bf16x2\.f32", "cvt.rz.bf16x2.f32"),
    "a guarded arrival": (
        "matmul",
        r"(mbarrier\.arrive\.shared::cta.*;)",
        r"{ .reg .pred q; .reg .b32 x; mov.u32 x, %tid.x; setp.eq.u32 q, x, 1; @q \1 }",
    ),
    "a wait that ends before the phase": ("matmul", r"@done bra", "@!done bra"),
    "a wait whose result nothing reads": ("matmul", r"@done bra", "@%p1 bra"),
    "a guarded load": ("add", r"(ld\.global)", r"@!%p1 \1"),
    "a load skipped by a branch": (
        "add",
        r"(ld\.global\S*\.v4.*\[%rd\d+\+4096\];)",
        r"{ .reg .pred q; .reg .b32 x; mov.u32 x, %tid.x; setp.eq.u32 q, x, 1; @q bra SKIP; }\n\1\nSKIP:",
    ),
    "a guard that nothing wrote": (
        "add",
        r"(\.reg \.pred[\s\S]*?)@%p\d+ bra",
        r".reg .pred %unwritten;\n\1@%unwritten bra",
    ),
    "a guard that a shuffle overwrites": (
        "softmax",
        r"(setp\.\w+\.s32\s+(%p\d+), .*;\n)(\s*@\2 bra)",
        r"\1{ .reg .b32 x; mov.u32 x, 1; shfl.sync.bfly.b32 x|\2, x, 1, 31, -1; }\n\3",
    ),
    "a map's contents for its address": (
        "matmul",
        r"mov\.b64(\s+%rd\d+, )(kernel_matmul_param_2);",
        r"ld.param.u64\1[\2];",
    ),
    "an extent with what lies behind it": (
        "softmax",
        r"(ld\.param\.u32\s+(%r\d+), (\[\S+_param_3\]);)",
        r"\1\n{ .reg .b64 x; ld.param.u64 x, \3; cvt.u32.u64 \2, x; }",
    ),
    "an unused half that is not aligned": (
        "add",
        r"(ld\.global\S*\.v4.*\[(%rd\d+)\];)",
        r"\1\n{ .reg .b16 x; ld.global.nc.u16 x, [\2+1]; }",
    ),
    "shared memory of a launch declared in bytes": (
        "matmul",
        r"\.extern (\.shared .*dynamic_shared\[)\]",
        r"\g<1>1024]",
    ),
    "a variable more in shared memory": (
        "softmax",
        r"(mov\.u32\s+%r\d+, %tid\.x;)",
        r".shared .align 4 .b8 more[16];\n\1",
    ),
    "a barrier by halves of a warp": (
        "softmax",
        r"bar\.sync\s+0;",
        r"{ .reg .pred q; .reg .b32 x; mov.u32 x, %tid.x; and.b32 x, x, 1; setp.eq.u32 q, x, 0;"
        r" @q bar.sync 0; @!q bar.sync 0; }",
    ),
    "fewer words of matrices": ("matmul", r"stmatrix\.sync\.aligned\.m8n8\.x4", "stmatrix.sync.aligned.m8n8.x2"),
    "halves exchanged": ("add", r"(cvt\.rn\.bf16x2\.f32 %r\d+, )(%f\d+), (%f\d+)", r"\1\3, \2"),
}


def of(example: str) -> Compiled:
    """A kernel whose PTX is changed."""
    if example == "softmax":
        return compiled_for(example, "bf16", (("M", 4), ("N", 1000)))[example]
    return compiled(example, schedule=PINNED.get(example))[example]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_ptx_is_found(mistake: str) -> None:
    example, pattern, to = MISTAKES[mistake]
    kernel = of(example)
    assert kernel.differences(replaced(kernel.ptx, pattern, to), 1), mistake


@pytest.mark.parametrize(
    "wrong",
    [
        "add.s32 %r1, %r2;",
        "add.s32 %p1, %r1, %r2;",
        "not.pred %r1, %p1;",
        "mov.u32 %r1, %r2, %r3;",
        "elect.sync %r1, -1;",
        "shfl.sync.bfly.b32 %r1, %r2;",
        "st.global.u32 [%rd1];",
        "cvt.u32.u16 %r1;",
        "bar.sync;",
        "add %r1, %r1, %r2;",
        "ld.global.v2.u32 {%r1, %r2, %r3, %r4}, [%rd1];",
        "st.global.v4.u32 [%rd1], {%r1, %r2};",
    ],
)
def test_an_instruction_that_is_none_is_undecided(wrong: str) -> None:
    """In a bundle of a stranger's the text may be anything."""
    kernel = compiled("add")["add"]
    (found,) = kernel.differences(replaced(kernel.ptx, r"^(\s+)(ld\.global)", rf"\1{wrong}\n\2"))
    assert wrong.split()[0].rstrip(";") in found


def test_a_comparison_ends_with_the_differences_that_are_asked_for() -> None:
    kernel = compiled("add")["add"]
    other = kernel.ptx.replace("add.rn.f32", "sub.rn.f32")
    every = kernel.differences(other)
    assert len(every) > 2
    assert kernel.differences(other, most=2) == every[:2]
    assert kernel.differences(most=1) == []
