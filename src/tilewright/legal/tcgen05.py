"""Shared-memory operands of tcgen05.mma (Blackwell): judged, and their descriptors derived from the tile's layout.

The canonical layouts are those of wgmma; the encoding of the swizzle differs and tf32 may be MN-major with the swizzle
of 32-byte atoms. Nothing here has been executed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtypes import DType
from tilewright.base.verdict import Illegal, Legal
from tilewright.hw.rules.tcgen05 import (
    AB_FORMAT,
    D_FORMAT,
    DESCRIPTOR,
    ENUMERATORS,
    INSTRUCTION,
    LAYOUT_TYPE,
    RULES,
)
from tilewright.hw.rules.wgmma import CORE_ROWS, INSTRUCTION_K_BITS
from tilewright.hw.target import SM100A, Target
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.legal.predicates import broken
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tensormap import cc_of
from tilewright.legal.wgmma import Major, OperandRole, canonical_k_offsets, canonical_strides, pack

_VERSION = 1


@dataclass(frozen=True)
class UmmaOperand:
    """An operand in shared memory; ``shared.extents`` are (K, MN) if ``major`` is K, else (MN, K). ``m``, ``n`` and
    ``cta_group`` are the instruction's."""

    dtype: DType
    shared: SmemTile
    major: Major
    m: int
    n: int
    cta_group: int = 1
    base_bytes: int = 0
    role: OperandRole = OperandRole.B


@dataclass(frozen=True)
class UmmaOperandPlan:
    """Descriptor fields of one tile; ``k_offsets`` are added to the start address for successive instructions."""

    major: Major
    swizzle: Swizzle
    leading_bytes: int
    stride_bytes: int
    k_offsets: tuple[int, ...]
    align_bytes: int

    def descriptor(self, start_bytes: int) -> int:
        """The 64-bit descriptor of the matrix that starts at shared-memory byte ``start_bytes``."""
        return pack(
            DESCRIPTOR,
            {
                "start_address": start_bytes & 0x3FFFF,
                "leading_bytes": self.leading_bytes,
                "stride_bytes": self.stride_bytes,
                "version": _VERSION,
                "base_offset": 0,
                "layout_type": LAYOUT_TYPE[self.swizzle],
            },
        )


def plan(operand: UmmaOperand, target: Target = SM100A) -> Legal[UmmaOperandPlan] | Illegal:
    """Descriptor fields for ``operand``, or every rule it breaks."""
    tile = operand.shared
    group_rows = 4 if tile.swizzle is Swizzle.B128_ATOM_32B else CORE_ROWS  # of a swizzle atom
    leading, stride = canonical_strides(tile, operand.major, group_rows)
    step = INSTRUCTION_K_BITS // operand.dtype.bits
    fields = {
        "compute_capability": cc_of(target),
        "m": operand.m,
        "n": operand.n,
        "cta_group": operand.cta_group,
        "k": step,
        "element_bits": operand.dtype.bits,
        "is_integer": int(operand.dtype.is_int),
        "mn_major": operand.major.value,
        "is_b": int(operand.role is OperandRole.B),
        "start_address": operand.base_bytes,
        "leading_bytes": leading,
        "stride_bytes": stride,
        "swizzle": tile.swizzle,
        "swizzle_span_bytes": PATTERNS[tile.swizzle].span_bytes,
        "row_bytes": tile.row_bytes,
        "b_in_tmem": 0,
        "tmem_columns": 512,
        "tmem_column": 0,
        "tmem_lane": 0,
        "columns_of_resident_ctas": 512,
    }
    core = broken(RULES, fields, cc_of(target), ENUMERATORS)
    if core:
        return Illegal(core)
    offsets = canonical_k_offsets(tile, operand.major, step)
    return Legal(UmmaOperandPlan(operand.major, tile.swizzle, leading, stride, offsets, tile.align_bytes))


def instruction_descriptor(operand: DType, accumulator: str, m: int, n: int, a: Major, b: Major) -> int:
    """The 32-bit instruction descriptor of a dense product of ``operand`` types (PTX ISA 9.1, 9.7.16.4.2)."""
    values = {
        "d_format": D_FORMAT[accumulator],
        "a_format": AB_FORMAT[operand.name],
        "b_format": AB_FORMAT[operand.name],
        "negate_a": 0,
        "negate_b": 0,
        "transpose_a": a.value,
        "transpose_b": b.value,
        "n": n,
        "m": m,
    }
    return pack(INSTRUCTION, values)
