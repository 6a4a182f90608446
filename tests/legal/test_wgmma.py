"""wgmma operands: rules with their twins, and the descriptor read back as the instruction reads it."""

from __future__ import annotations

import itertools

import pytest

from tilewright.base.dtypes import DType, bf16, e4m3, f16, f32, i8, tf32
from tilewright.base.verdict import Illegal, Legal, Repairs
from tilewright.hw.target import SM100A
from tilewright.hw.tensormap import Swizzle
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.wgmma import Major, OperandRole, WgmmaOperand, WgmmaOperandPlan, admissible, legalise, plan

pytestmark = pytest.mark.sample(1)


def read(chosen: WgmmaOperandPlan, first_mn: int, step: int, element: int, mn: int, k: int) -> int:
    """Byte address the instruction reads for element (mn, k) of its matrix, from the descriptor's bits alone.

    Written from the canonical layouts of the PTX document in units of 16 bytes (T elements), address bits permuted as
    its swizzle tables say.
    """
    start = chosen.mn_offset(first_mn) + chosen.k_offsets[step]
    bits = chosen.descriptor(start)
    base = (bits & 0x3FFF) << 4
    leading = (bits >> 16 & 0x3FFF) << 4
    stride = (bits >> 32 & 0x3FFF) << 4
    width = {0: 1, 1: 8, 2: 4, 3: 2}[bits >> 62]
    t = 16 // element
    if chosen.transpose == 0:
        row, group = mn % 8, mn // 8
        unit, inner = divmod(k, t)
        offset = row * width * 16 + group * stride + inner * element
        offset += unit * leading if width == 1 else unit * 16
    else:
        unit, inner = divmod(mn, t)
        if width == 1:
            offset = unit * stride + (k % 8) * 16 + (k // 8) * leading + inner * element
        else:
            offset = unit % width * 16 + unit // width * leading
            offset += (k % 8) * width * 16 + (k // 8) * stride + inner * element
    address = base + offset
    return address ^ ((address >> 7) & (width - 1)) << 4


CASES = [
    (dtype, major, mn, k)
    for dtype, major in [
        (bf16, Major.K), (f16, Major.K), (bf16, Major.MN), (tf32, Major.K), (e4m3, Major.K), (i8, Major.K),
    ]
    for mn, k in ((rows, width // dtype.bytes) for rows, width in [(64, 32), (128, 128), (192, 256), (96, 64)])
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "major", "mn", "k"), CASES)
def test_the_instruction_reads_the_tile(dtype: DType, major: Major, mn: int, k: int) -> None:
    tiles = admissible(dtype, major, mn, k)
    assert tiles
    depth = 32 // dtype.bytes
    for tile in tiles:
        accumulator = "i32" if dtype.is_int else "f32"
        answer = plan(WgmmaOperand(OperandRole.B, dtype, tile, major, 32, accumulator))
        assert isinstance(answer, Legal), answer
        chosen = answer.fields
        for first in range(0, mn - 31, 32 if major is Major.K else max(32, tile.panel)):
            for step, row, depth_at in itertools.product(range(k // depth), range(0, 32, 3), range(0, depth, 3)):
                at = (step * depth + depth_at, first + row)
                expected = tile.offset(at if major is Major.K else (at[1], at[0]))
                assert read(chosen, first, step, dtype.bytes, row, depth_at) == expected


@pytest.mark.parametrize("dtype", [e4m3, i8, tf32], ids=str)
def test_only_16_bit_floats_may_be_mn_major(dtype: DType) -> None:
    assert not admissible(dtype, Major.MN, 128, 64)
    assert admissible(bf16, Major.MN, 128, 64)


@pytest.mark.parametrize(
    ("operand", "rules"),
    [
        (WgmmaOperand(OperandRole.A, bf16, SmemTile((64, 64), 64, 2, Swizzle.NONE), Major.K, 64), {"WGM015"}),
        (WgmmaOperand(OperandRole.A, bf16, SmemTile((64, 64), 32, 2, Swizzle.B128), Major.K, 64), {"WGM014"}),
        (WgmmaOperand(OperandRole.A, bf16, SmemTile((64, 68), 64, 2, Swizzle.B128), Major.K, 64), {"WGM017"}),
        (WgmmaOperand(OperandRole.A, bf16, SmemTile((64, 56), 64, 2, Swizzle.B128), Major.K, 64), {"WGM019"}),
        (WgmmaOperand(OperandRole.B, bf16, SmemTile((64, 120), 64, 2, Swizzle.B128), Major.K, 128), {"WGM019"}),
        (WgmmaOperand(OperandRole.A, bf16, SmemTile((64, 64), 64, 2, Swizzle.B128), Major.K, 64, "f16"), {"WGM006"}),
        (WgmmaOperand(OperandRole.A, f32, SmemTile((32, 64), 32, 4, Swizzle.B128), Major.K, 64), {"WGM006"}),
        (
            WgmmaOperand(OperandRole.A, bf16, SmemTile((64, 64), 64, 2, Swizzle.B128), Major.K, 64, "f32", 128),
            {"WGM012"},
        ),
        (WgmmaOperand(OperandRole.B, i8, SmemTile((128, 64), 128, 1, Swizzle.B128), Major.K, 40, "i32"), {"WGM005"}),
        (WgmmaOperand(OperandRole.B, e4m3, SmemTile((128, 64), 128, 1, Swizzle.B128), Major.MN, 64), {"WGM007"}),
    ],
)  # fmt: skip
def test_inadmissible_operands_are_refused_with_their_rules(operand: WgmmaOperand, rules: set[str]) -> None:
    answer = plan(operand)
    assert isinstance(answer, Illegal)
    assert {v.rule for v in answer.core} == rules


def test_other_architectures_have_no_wgmma() -> None:
    tile = admissible(bf16, Major.K, 64, 64)[0]
    answer = plan(WgmmaOperand(OperandRole.A, bf16, tile, Major.K, 64), SM100A)
    assert isinstance(answer, Illegal)
    assert {v.rule for v in answer.core} == {"WGM001"}


def test_worked_examples_of_the_document() -> None:
    """K-major tf32 with swizzle 32B: stride 256, encoded 16; leading encoded 1 (PTX ISA 9.1, 9.7.15.5.1.2)."""
    tile = SmemTile((8, 16), 8, 4, Swizzle.B32)
    answer = plan(WgmmaOperand(OperandRole.B, tf32, tile, Major.K, 16))
    assert isinstance(answer, Legal)
    assert answer.fields.template == 3 << 62 | 16 << 32 | 1 << 16


def test_the_nearest_layouts_are_admissible_and_priced() -> None:
    row_major = SmemTile((64, 128), 64, 2, Swizzle.NONE)
    answer = legalise(WgmmaOperand(OperandRole.A, bf16, row_major, Major.K, 64))
    assert isinstance(answer, Repairs)
    assert {v.rule for v in answer.core} == {"WGM015"}
    first = answer.repairs[0]
    assert (first.fields.major, first.fields.swizzle) == (Major.K, Swizzle.B128)
    assert 0 < first.cost < answer.repairs[-1].cost
    transposed = SmemTile((128, 64), 128, 1, Swizzle.B128)
    other = legalise(WgmmaOperand(OperandRole.B, e4m3, transposed, Major.MN, 64))
    assert isinstance(other, Repairs)
    assert {repair.fields.major for repair in other.repairs} == {Major.K}


def test_no_layout_helps_a_wrong_type() -> None:
    tile = SmemTile((64, 64), 64, 2, Swizzle.B128)
    assert isinstance(legalise(WgmmaOperand(OperandRole.A, bf16, tile, Major.K, 64, "f16")), Illegal)
