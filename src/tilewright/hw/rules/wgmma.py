"""wgmma (sm_90a): instruction shapes, shared-memory descriptors and the rules both obey.

Sources: PTX ISA 9.1, section 9.7.15 (wgmma); what the assembler accepts was tried with ptxas 13.0.88. Every admissible
type, major and swizzle, A in shared memory and in registers, was multiplied on an H200 (tools/wgmma_execute.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.hw.rules.row import Consequence, Evidence, HardwareRule, RuleScope
from tilewright.hw.tensormap import Swizzle

_PTX = "PTX ISA 9.1, 9.7.15"
_HOPPER = RuleScope(90, 91)
_DOC = Evidence.DOCUMENTED

INSTRUCTION_M = 64
INSTRUCTION_K_BITS = 256
"""Bits of A or B one instruction contracts per row: k16 for 16-bit types, k32 for 8-bit, k8 for tf32."""
MAX_N = 256
CORE_ROWS = 8
CORE_ROW_BYTES = 16
"""A core matrix is 8 rows of 16 bytes."""

LAYOUT_TYPE: dict[Swizzle, int] = {Swizzle.NONE: 0, Swizzle.B128: 1, Swizzle.B64: 2, Swizzle.B32: 3}
"""Bits 62-63 of the descriptor (PTX ISA 9.1, 9.7.15.5.1.2.2). Wider-atom swizzles have no counterpart."""


@dataclass(frozen=True)
class DescriptorField:
    """Bits ``[low, low + width)`` of a descriptor, holding ``value >> shift``."""

    name: str
    low: int
    width: int
    shift: int = 0


DESCRIPTOR: tuple[DescriptorField, ...] = (
    DescriptorField("start_address", 0, 14, 4),
    DescriptorField("leading_bytes", 16, 14, 4),
    DescriptorField("stride_bytes", 32, 14, 4),
    DescriptorField("base_offset", 49, 3),
    DescriptorField("layout_type", 62, 2),
)
"""The 64-bit shared-memory matrix descriptor."""
MATRIX_ADDRESS_BITS = 18
"""Bits of a shared address that a descriptor encodes, ``(x & 0x3FFFF) >> 4`` (PTX ISA 9.1, 9.7.15.5.1.2.2). In a
cluster those above bit 23 are the CTA's rank, which without the mask is added to the leading byte offset: seen on an
H200."""

OPERAND_TYPES: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"),
    "bf16": ("f32",),
    "tf32": ("f32",),
    "e4m3": ("f16", "f32"),
    "e5m2": ("f16", "f32"),
    "i8": ("i32",),
}
"""Accumulator types by operand type."""

ENUMERATORS: dict[str, int] = {
    "MAJOR_K": 0,
    "MAJOR_MN": 1,
    "SWIZZLE_NONE": Swizzle.NONE.value,
    "SWIZZLE_B128": Swizzle.B128.value,
}


def _rule(id: str, predicate: str, consequence: Consequence, where: str) -> HardwareRule:
    return HardwareRule(id, predicate, consequence, _DOC, f"{_PTX}{where}", scope=_HOPPER)


_REJECTS, _RACE, _UNDEFINED = Consequence.ASSEMBLER_REJECTS, Consequence.RACE, Consequence.UNDEFINED

RULES: tuple[HardwareRule, ...] = (
    HardwareRule("WGM001", "compute_capability == 90", _REJECTS, _DOC, f"{_PTX}; assembled for sm_90a only"),
    _rule("WGM002", "m == 64", _REJECTS, ".2"),
    _rule("WGM003", "k * element_bits == 256", _REJECTS, ".2"),
    _rule("WGM004", f"n >= 8 and n <= {MAX_N} and n % 8 == 0", _REJECTS, ".2"),
    _rule("WGM005", "is_integer == 0 or n <= 32 or n % 16 == 0", _REJECTS, ".2"),
    _rule("WGM006", "known_type == 1", _REJECTS, ".3"),
    _rule("WGM007", "major == MAJOR_K or is_16bit_float == 1", _REJECTS, ".5.2"),
    _rule("WGM008", "a_in_registers == 0 or major == MAJOR_K", _REJECTS, ".5.2"),
    _rule("WGM009", "b_in_registers == 0", _REJECTS, ".5.1"),
    _rule(
        "WGM010", "start_address >= 0 and start_address % 16 == 0 and start_address < 262144", _UNDEFINED, ".5.1.2.2"
    ),
    _rule(
        "WGM011",
        "leading_bytes >= 0 and leading_bytes % 16 == 0 and leading_bytes < 262144"
        " and stride_bytes >= 0 and stride_bytes % 16 == 0 and stride_bytes < 262144",
        _UNDEFINED,
        ".5.1.2.2",
    ),
    _rule("WGM012", "swizzle == SWIZZLE_NONE or pattern_phase == 0", _RACE, ".5.1.2.2, base_offset"),
    _rule("WGM013", "swizzle <= SWIZZLE_B128", _RACE, ".5.1.2.2"),
    _rule("WGM014", "swizzle == SWIZZLE_NONE or row_bytes == swizzle_span_bytes", _RACE, ".5.1.2.1, canonical layouts"),
    _rule("WGM015", "swizzle != SWIZZLE_NONE or row_bytes == 16", _RACE, ".5.1.2.1, canonical layouts"),
    _rule("WGM016", "tile_k >= k and tile_k % k == 0", _RACE, ".2"),
    _rule("WGM017", "tile_mn % 8 == 0", _RACE, ".5.1.2.1, core matrices"),
    _rule("WGM018", "major == MAJOR_K or tile_mn % panel_mn == 0", _RACE, ".5.1.2.1, canonical layouts"),
    _rule("WGM019", "tile_mn >= instruction_mn", _RACE, ".2"),
)
"""Every rule of wgmma operands."""
