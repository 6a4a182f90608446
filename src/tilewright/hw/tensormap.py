"""Tensor maps: the enumerators of ``cuTensorMapEncodeTiled`` with their attributes, and the shared-memory swizzles.

Values are those of ``cuda.h`` (CUtensorMapDataType and its neighbours, toolkit 13.0). Swizzles are given as the
address bits they exchange, read from the tables of PTX ISA 9.1, section 5.5.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class DataType(IntEnum):
    """CUtensorMapDataType. 8-bit floats and signed bytes travel as UINT8."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12
    U4X16_ALIGN8B = 13
    U4X16_ALIGN16B = 14
    U6X16_ALIGN16B = 15


class Interleave(IntEnum):
    """CUtensorMapInterleave."""

    NONE = 0
    B16 = 1
    B32 = 2


class Swizzle(IntEnum):
    """CUtensorMapSwizzle."""

    NONE = 0
    B32 = 1
    B64 = 2
    B128 = 3
    B128_ATOM_32B = 4
    B128_ATOM_32B_FLIP_8B = 5
    B128_ATOM_64B = 6


class L2Promotion(IntEnum):
    """CUtensorMapL2promotion: a hint about the fetch granularity."""

    NONE = 0
    L2_64B = 1
    L2_128B = 2
    L2_256B = 3


class OobFill(IntEnum):
    """CUtensorMapFloatOOBfill: what elements outside the tensor read as."""

    NONE = 0
    NAN_REQUEST_ZERO_FMA = 1


class Direction(IntEnum):
    """The direction of the copy."""

    LOAD = 0
    STORE = 1
    REDUCE = 2


ELEMENT_BITS: tuple[int, ...] = (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6)
"""Bits of one element in global memory, by DataType."""

IS_FLOAT: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0)
"""1 for the data types that may be filled with NaN, by DataType."""

SWIZZLE_SPAN_BYTES: tuple[int, ...] = (0, 32, 64, 128, 128, 128, 128)
"""Widest inner box row a swizzle admits, by Swizzle; 0 for none."""

MAX_RANK = 5
MAX_BOX_EXTENT = 256
MAX_BOX_BYTES = 233_472
"""Largest box, in bytes, that the driver encodes: 228 KiB, the shared memory of one SM on sm_90 and 1 KiB more than one
CTA can have."""
MAX_SMEM_TILE_BYTES = 232_448
"""Shared memory one CTA can have on sm_90 and sm_100: where the box has to land."""
ADDRESS_ALIGN_BYTES = 16
INNER_BOX_ALIGN_BYTES = 16
MAX_EXTENT = 2**32
MAX_STRIDE_BYTES = 2**40
SHARED_ALIGN_BYTES = 128
MAP_BYTES, MAP_ALIGN_BYTES = 128, 64
"""Of an encoded tensor map itself (CUDA Driver API, CUtensorMap; PTX ISA 9.1, 5.5.8: an opaque object of 128 bytes)."""


@dataclass(frozen=True)
class SwizzlePattern:
    """A shared-memory swizzle: bit ``target`` of a byte address is exclusive-ored with bit ``source``, pairwise.

    ``span_bytes`` is the row it permutes, ``repeat_bytes`` its period: a tile that starts at a multiple of it starts
    at the beginning of the pattern. ``atom_bytes`` stay contiguous.
    """

    mode: Swizzle
    span_bytes: int
    atom_bytes: int
    repeat_bytes: int
    pairs: tuple[tuple[int, int], ...]

    def apply(self, address: int) -> int:
        """Physical shared-memory byte address of logical byte address ``address`` (an involution)."""
        result = address
        for target, source in self.pairs:
            result ^= (address >> source & 1) << target
        return result


PATTERNS: dict[Swizzle, SwizzlePattern] = {
    p.mode: p
    for p in (
        SwizzlePattern(Swizzle.NONE, 0, 16, 16, ()),
        SwizzlePattern(Swizzle.B32, 32, 16, 256, ((4, 7),)),
        SwizzlePattern(Swizzle.B64, 64, 16, 512, ((4, 7), (5, 8))),
        SwizzlePattern(Swizzle.B128, 128, 16, 1024, ((4, 7), (5, 8), (6, 9))),
        SwizzlePattern(Swizzle.B128_ATOM_32B, 128, 32, 512, ((5, 7), (6, 8))),
        SwizzlePattern(Swizzle.B128_ATOM_32B_FLIP_8B, 128, 32, 512, ((5, 7), (6, 8), (3, 7))),
        SwizzlePattern(Swizzle.B128_ATOM_64B, 128, 64, 256, ((6, 7),)),
    )
}
"""Swizzles by mode. That bit 3 follows bit 7 in the FLIP_8B mode is inferred: the document shows it in a figure."""

ENUMERATORS: dict[str, int] = {
    **{f"{m.name}": m.value for m in DataType},
    **{f"INTERLEAVE_{m.name}": m.value for m in Interleave},
    **{f"SWIZZLE_{m.name}": m.value for m in Swizzle},
    **{f"OOB_{m.name}": m.value for m in OobFill},
    **{f"{m.name}": m.value for m in L2Promotion if m is not L2Promotion.NONE},
    **{m.name: m.value for m in Direction},
    "MAX_EXTENT": MAX_EXTENT,
    "MAX_STRIDE_BYTES": MAX_STRIDE_BYTES,
    "MAX_BOX_BYTES": MAX_BOX_BYTES,
    "MAX_SMEM_TILE_BYTES": MAX_SMEM_TILE_BYTES,
}
"""Names that rule predicates may use: enumerators and limits."""
