"""What stands around an instruction's opcode, and around the instructions: every modifier and declaration is read."""

from __future__ import annotations

import re

import pytest

from support.compiled_examples import Compiled, compiled, compiled_for
from tilewright.lang.schedule import Schedule

pytestmark = pytest.mark.sample(1)

Example = tuple[str, str, str, Schedule | tuple[tuple[str, int], ...]]
"""A kernel of the examples: the example, its name, the dtype, and what is pinned or the extents that it serves."""
PRODUCT: Example = ("matmul", "matmul", "bf16", Schedule(extents={"bm": 64, "bn": 32}))
SUM: Example = ("add", "add", "bf16", Schedule())
FEW_ROWS: Example = ("matmul", "matmul", "bf16", (("M", 16), ("N", 64), ("K", 512)))
"""A product of few rows, whose right operand is read once."""
ROWS: Example = ("softmax", "softmax", "bf16", (("M", 4), ("N", 1000)))
CASES = [
    # a wait that is tried once; arrivals of more threads, of another order; other orders, scopes, dimensions of copies
    (PRODUCT, r"\nbra WAIT_1;", "\n"),
    (PRODUCT, r"mbarrier.arrive.shared::cta.b64 _, (\[\S+\]);", r"mbarrier.arrive.shared::cta.b64 _, \1, 2;"),
    (PRODUCT, r"mbarrier.arrive.shared::cta", "mbarrier.arrive.relaxed.cta.shared::cta"),
    (PRODUCT, r"mbarrier.arrive.shared::cta", "mbarrier.arrive.noComplete.shared::cta"),
    (PRODUCT, r"mbarrier.arrive.expect_tx.shared", "mbarrier.arrive.expect_tx.relaxed.cta.shared"),
    (PRODUCT, r"mbarrier.try_wait.parity.shared", "mbarrier.try_wait.parity.relaxed.cta.shared"),
    (PRODUCT, r"mbarrier.try_wait.parity.shared", "mbarrier.try_wait.shared"),
    (PRODUCT, r"mbarrier.init.shared::cta", "mbarrier.init"),
    (PRODUCT, r"shared::cluster.global.mbarrier", "shared::cluster.global.im2col.mbarrier"),
    (PRODUCT, r"shared::cluster.global.mbarrier", "shared::cta.global.mbarrier"),
    (PRODUCT, r"m8n8.x4.shared", "m8n8.x4"),
    # cache hints: of a register that is no policy, of another kind, beside another form
    (FEW_ROWS, r"createpolicy[^;]*;", "mov.u64 policy, 0;"),
    (FEW_ROWS, r"createpolicy.fractional.L2::evict_first", "createpolicy.fractional.L2::evict_last"),
    (FEW_ROWS, r"\.L2::cache_hint", ".multicast::cluster.L2::cache_hint"),
    # directives: registers that setmaxnreg hands on, clusters; parameters
    (PRODUCT, r"(\.maxntid \d+, 1, 1)", r"\1\n.maxnreg 32"),
    (PRODUCT, r"(\.maxntid \d+, 1, 1)", r"\1\n.reqnctapercluster 2, 1, 1"),
    (PRODUCT, r"\.maxntid (\d+), 1, 1", r".maxntid \1, 2, 1"),
    (PRODUCT, r"\.minnctapersm 1", ".minnctapersm 2"),
    (PRODUCT, r"\.minnctapersm 1", ""),
    (PRODUCT, r"\.param \.align 64 (\S+ \w+)\[128\]", r".param .align 8 \1[128]"),
    (PRODUCT, r"\.param \.align 64 (\S+ \w+)\[128\]", r".param .align 64 \1[64]"),
    (PRODUCT, r"\.extern \.shared", ".extern .global"),
    (PRODUCT, r"\.extern \.shared \.align 16", ".extern .shared .align 1"),
    (ROWS, r"\.shared \.align \d+", ".shared .align 2"),
    (SUM, r"\.param \.u32", ".param .u64"),
    (SUM, r"\.param \.u64", ".param .u32"),
    (SUM, r"\.target sm_90a", ".target sm_80"),
    (SUM, r"\.global \.align 16 \.b8 no_elements\[16\][^;]*;", ".extern .global .align 16 .b8 no_elements[16];"),
    (SUM, r"(\n\s*ld\.global)", r'\n\t.pragma "used_bytes_mask 0x1";\1'),
    (SUM, r"(\n\s*ld\.global)", r'\n\t.pragma "nounroll", "used_bytes_mask 0xfff0";\1'),
    (SUM, r"(\n\s*st\.global)", r'\n\t.pragma "used_bytes_mask 0xffff";\1'),
    # what a parameter holds, and where it lies
    (SUM, r"ld.param.u64 (\s*%rd\d+), \[(\w+)\]", r"mov.u64 \1, \2"),
    # arithmetic
    (ROWS, r"max.NaN.f32", "max.NaN.xorsign.abs.f32"),
    (SUM, r"add.rn.f32", "add.f32"),
    (SUM, r"add.rn.f32", "add.rn.ftz.f32"),
    (SUM, r"(add.rn.f32 (\s*%f\d+), %f\d+, %f\d+;)", r"\1\n\tneg.ftz.f32 \2, \2;\n\tneg.f32 \2, \2;"),
    # state spaces, orders
    (SUM, r"ld.global.nc", "ld.local"),
    (SUM, r"ld.global.nc", "ld.shared"),
    (SUM, r"ld.global.nc", "ld.acquire.sys.global"),
    (SUM, r"ld.global.nc", "ld.volatile.global"),
    (SUM, r"st.global", "st.shared"),
    (SUM, r"st.global", "st.local"),
    (SUM, r"st.global", "st.release.gpu.global"),
    # registers of another size
    (SUM, r"add.s32", "add.s16"),
    # a branch that a warp is said to take as one
    (SUM, r"(@%p\d+ bra)", r"\1.uni"),
]


def kernel_of(example: Example) -> Compiled:
    name, variant, dtype, of = example
    return (compiled(name, dtype, of) if isinstance(of, Schedule) else compiled_for(name, dtype, of))[variant]


@pytest.mark.parametrize(("example", "pattern", "other"), CASES, ids=str)
def test_a_modifier_or_declaration_is_not_overlooked(example: Example, pattern: str, other: str) -> None:
    kernel = kernel_of(example)
    changed, count = re.subn(pattern, other, kernel.ptx, count=1)
    assert count, "nothing to change"
    assert kernel.differences(changed, 1)


@pytest.mark.parametrize(
    ("example", "pattern", "other"),
    [
        (SUM, r"ld.global.nc", "ld.weak.global"),
        (SUM, r"ld.global.nc", "ld"),
        (SUM, r"st.global", "st.weak.global"),
        (SUM, r"(\n\s*ld\.global)", r'\n\t.pragma "used_bytes_mask 0xffff";\1'),
        (PRODUCT, r"mbarrier.try_wait", "mbarrier.test_wait"),
        (PRODUCT, r"bar.sync", "barrier.sync.aligned"),
    ],
)
def test_other_words_for_the_same(example: Example, pattern: str, other: str) -> None:
    kernel = kernel_of(example)
    changed, count = re.subn(pattern, other, kernel.ptx, count=1)
    assert count
    assert kernel.differences(changed) == []
