"""tcgen05 operands and descriptors, bit by bit."""

from __future__ import annotations

import itertools

import pytest

from tilewright.base.dtypes import bf16, e4m3, f16, tf32
from tilewright.base.verdict import Illegal, Legal
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Swizzle
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tcgen05 import UmmaOperand, instruction_descriptor, plan
from tilewright.legal.wgmma import Major

SPANS = {Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128, Swizzle.NONE: 16}


@pytest.mark.parametrize("swizzle", SPANS)
def test_the_instruction_reads_a_k_major_tile(swizzle: Swizzle) -> None:
    span = SPANS[swizzle]
    tile = SmemTile((128, 64), span // 2, 2, swizzle)
    answer = plan(UmmaOperand(bf16, tile, Major.K, 128, 128))
    assert isinstance(answer, Legal)
    chosen = answer.fields
    for step, row, k in itertools.product(range(8), range(0, 64, 5), range(0, 16, 3)):
        bits = chosen.descriptor(chosen.k_offsets[step])
        assert bits >> 46 & 7 == 1
        assert bits >> 61 == {16: 0, 128: 2, 64: 4, 32: 6}[span]
        base, leading, stride = (bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4
        unit, inner = divmod(k, 8)
        address = base + row % 8 * span + row // 8 * stride + inner * 2
        address += unit * (leading if span == 16 else 16)
        address ^= ((address >> 7) & (span // 16 - 1)) << 4
        assert address == tile.offset((step * 16 + k, row))


def test_mn_major_halves_and_tf32() -> None:
    half = SmemTile((128, 64), 64, 2, Swizzle.B128)
    assert isinstance(plan(UmmaOperand(f16, half, Major.MN, 128, 128)), Legal)
    for swizzle, rules in ((Swizzle.B128, {"UMM005"}), (Swizzle.B128_ATOM_32B, set[str]())):
        answer = plan(UmmaOperand(tf32, SmemTile((64, 32), 32, 4, swizzle), Major.MN, 128, 128))
        found = {v.rule for v in answer.core} if isinstance(answer, Illegal) else set[str]()
        assert found == rules


@pytest.mark.parametrize(
    ("m", "n", "group", "rule"),
    [(256, 128, 1, "UMM001"), (128, 136, 1, "UMM002"), (128, 272, 1, "UMM002"), (64, 128, 2, "UMM001")],
)
def test_shapes_that_do_not_exist(m: int, n: int, group: int, rule: str) -> None:
    tile = SmemTile((64, 128), 64, 2, Swizzle.B128)
    answer = plan(UmmaOperand(bf16, tile, Major.K, m, n, group))
    assert isinstance(answer, Illegal)
    assert rule in {v.rule for v in answer.core}


def test_hopper_has_no_tcgen05() -> None:
    tile = SmemTile((64, 128), 64, 2, Swizzle.B128)
    answer = plan(UmmaOperand(bf16, tile, Major.K, 128, 128), SM90A)
    assert isinstance(answer, Illegal)
    assert {v.rule for v in answer.core} == {"UMM014"}


def test_instruction_descriptor_bits() -> None:
    bits = instruction_descriptor(bf16, "f32", 128, 256, Major.K, Major.MN)
    assert bits == 1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | 32 << 17 | 8 << 24
    assert instruction_descriptor(e4m3, "f16", 64, 8, Major.K, Major.K) == 1 << 17 | 4 << 24
