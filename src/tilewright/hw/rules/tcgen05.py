"""tcgen05 (Blackwell): shared-memory and instruction descriptors, shapes, tensor memory.

Source: PTX ISA 9.1, 9.7.16; what the assembler accepts was tried with ptxas 13.0.88 for sm_100a. Nothing here has been
executed.
"""

from __future__ import annotations

from tilewright.hw.rules.row import Consequence, Evidence, HardwareRule, RuleScope
from tilewright.hw.rules.wgmma import DescriptorField
from tilewright.hw.tensormap import Swizzle

_PTX = "PTX ISA 9.1, 9.7.16"
_BLACKWELL = RuleScope(100, 120)
_DOC = Evidence.DOCUMENTED
_REJECTS, _UNDEFINED, _HANG = Consequence.ASSEMBLER_REJECTS, Consequence.UNDEFINED, Consequence.HANG

LAYOUT_TYPE: dict[Swizzle, int] = {
    Swizzle.NONE: 0,
    Swizzle.B128_ATOM_32B: 1,
    Swizzle.B128: 2,
    Swizzle.B64: 4,
    Swizzle.B32: 6,
}
"""Bits 61-63 of the shared-memory descriptor (table of 9.7.16.4.1)."""

DESCRIPTOR: tuple[DescriptorField, ...] = (
    DescriptorField("start_address", 0, 14, 4),
    DescriptorField("leading_bytes", 16, 14, 4),
    DescriptorField("stride_bytes", 32, 14, 4),
    DescriptorField("version", 46, 3),
    DescriptorField("base_offset", 49, 3),
    DescriptorField("layout_type", 61, 3),
)
"""The 64-bit shared-memory matrix descriptor; ``version`` is 1."""

INSTRUCTION: tuple[DescriptorField, ...] = (
    DescriptorField("d_format", 4, 2),
    DescriptorField("a_format", 7, 3),
    DescriptorField("b_format", 10, 3),
    DescriptorField("negate_a", 13, 1),
    DescriptorField("negate_b", 14, 1),
    DescriptorField("transpose_a", 15, 1),
    DescriptorField("transpose_b", 16, 1),
    DescriptorField("n", 17, 6, 3),
    DescriptorField("m", 24, 5, 4),
)
"""The 32-bit instruction descriptor of the dense kinds f16, tf32, f8f6f4 and i8."""

D_FORMAT: dict[str, int] = {"f16": 0, "f32": 1, "i32": 2}
AB_FORMAT: dict[str, int] = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "i8": 1}
"""Operand format codes; their meaning depends on the kind (f16: 0 and 1, tf32: 2, f8f6f4: 0 and 1, i8: 1)."""

TMEM_COLUMNS = 512
TMEM_LANES = 128

ENUMERATORS: dict[str, int] = {
    "SWIZZLE_NONE": Swizzle.NONE.value,
    "SWIZZLE_B128": Swizzle.B128.value,
    "SWIZZLE_B128_ATOM_32B": Swizzle.B128_ATOM_32B.value,
    "TMEM_COLUMNS": TMEM_COLUMNS,
    "TMEM_LANES": TMEM_LANES,
}


def _rule(id: str, predicate: str, consequence: Consequence, where: str) -> HardwareRule:
    return HardwareRule(id, predicate, consequence, _DOC, f"{_PTX}{where}", scope=_BLACKWELL)


RULES: tuple[HardwareRule, ...] = (
    _rule(
        "UMM001",
        "(cta_group == 1 and (m == 64 or m == 128)) or (cta_group == 2 and (m == 128 or m == 256))",
        _UNDEFINED,
        ".2, table 39",
    ),
    _rule(
        "UMM002",
        "n >= 8 and n <= 256 and n % 8 == 0 and (m == 64 or n % 16 == 0) and (cta_group == 1 or n % 16 == 0)",
        _UNDEFINED,
        ".2, table 39",
    ),
    _rule("UMM003", "k * element_bits == 256", _UNDEFINED, ".2, table 39"),
    _rule("UMM004", "is_integer == 0 or n == 8 or n % 16 == 0", _UNDEFINED, ".2, table 39"),
    _rule(
        "UMM005",
        "mn_major == 0 or element_bits == 8 or element_bits == 16 or swizzle == SWIZZLE_B128_ATOM_32B",
        _UNDEFINED,
        ".10.1, table 51",
    ),
    _rule(
        "UMM006",
        "swizzle <= SWIZZLE_B128 or (swizzle == SWIZZLE_B128_ATOM_32B and mn_major == 1 and element_bits == 32)",
        _UNDEFINED,
        ".4.1 and .10.1, table 51",
    ),
    _rule("UMM007", "start_address >= 0 and start_address % 16 == 0 and start_address < 262144", _UNDEFINED, ".4.1"),
    _rule(
        "UMM008",
        "leading_bytes % 16 == 0 and leading_bytes < 262144 and stride_bytes % 16 == 0 and stride_bytes < 262144",
        _UNDEFINED,
        ".4.1",
    ),
    _rule(
        "UMM009",
        "(swizzle == SWIZZLE_NONE and row_bytes == 16)"
        " or (swizzle != SWIZZLE_NONE and row_bytes == swizzle_span_bytes)",
        Consequence.RACE,
        ".4, canonical layouts",
    ),
    _rule("UMM010", "b_in_tmem == 0", _REJECTS, ".10"),
    _rule(
        "UMM011",
        "tmem_columns == 32 or tmem_columns == 64 or tmem_columns == 128 or tmem_columns == 256 or tmem_columns == 512",
        _REJECTS,
        ".7",
    ),
    _rule(
        "UMM012",
        "tmem_column >= 0 and tmem_column < TMEM_COLUMNS and tmem_lane >= 0 and tmem_lane < TMEM_LANES",
        _UNDEFINED,
        ".1",
    ),
    HardwareRule(
        "UMM014",
        "compute_capability >= 100 and compute_capability < 120",
        _REJECTS,
        _DOC,
        f"{_PTX}; assembled for sm_100a, sm_100f and sm_103a",
    ),
    _rule("UMM013", "columns_of_resident_ctas <= TMEM_COLUMNS", _HANG, ".7"),
    _rule(
        "UMM015",
        "element_bits != 8 or mn_major == 0 or is_b == 0 or n % (16 * cta_group) == 0",
        _UNDEFINED,
        ".10.1, table 51",
    ),
)
"""Every rule of tcgen05 operands and tensor memory."""
