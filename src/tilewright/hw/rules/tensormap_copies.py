"""Rules of copies through a tensor map: what the driver encodes and the hardware does not do, or nobody says.

Field names as in ``tensormap_encode``; fields of the copy are ``direction``, ``shared_address`` and
``start_coordinate``.
"""

from __future__ import annotations

from tilewright.hw.rules.row import Consequence, Evidence, HardwareRule, Per, RuleScope

_API = "CUDA Driver API, cuTensorMapEncodeTiled"
_GUIDE = "CUDA Programming Guide, 4.11.2.2.5"
_PTX = "PTX ISA 9.1"
_EXECUTED = RuleScope(90, driver="580.159")
_BLACKWELL = RuleScope(100, toolkit_from=12080)
_EXECUTED_STARTS = (
    "executed on an H200 (tools/tma_execute.py): copies whose first inner coordinate is no multiple of 16 bytes end in"
    " an illegal instruction, loads and stores, every swizzle and rank; stated by no document"
)
_EXECUTED_EDGES = (
    "executed on an H200 (tools/tma_execute.py): a store clips rows to whole 16 bytes, so that up to 15 bytes after"
    " each row are written; stated by no document"
)
_EXECUTED_ROUNDING = (
    "executed on an H200 (tools/tma_execute.py): loaded singles are rounded to the nearest tf32, ties to even, NaNs to"
    " 0x7fffe000; a FLOAT32_FTZ map changes nothing"
)
_EXECUTED_SLICES = (
    "executed on an H200 (tools/tma_execute.py probe): with an interleave dimension 0 counts slices of 16 or 32 bytes"
    " that lie densely, and a copy takes one of the channel slices, dimension rank - 2, whatever its box says"
)
_DOC, _OBS = Evidence.DOCUMENTED, Evidence.OBSERVED

RUNS: tuple[HardwareRule, ...] = (
    HardwareRule(
        "TMA040",
        "descriptor_address % 64 == 0",
        Consequence.UNDEFINED,
        _DOC,
        f"{_API}, tensorMap; the driver does not check it (requests at offsets 1, 8, 16 and 32 are accepted)",
    ),
    HardwareRule(
        "TMA041",
        "shared_address % 128 == 0",
        Consequence.FAULT,
        _DOC,
        f"{_GUIDE}, tables 24 and 25; executed on an H200 at offsets 16 and 64: misaligned address",
    ),
    HardwareRule(
        "TMA042",
        "direction == LOAD or start_coordinate >= 0",
        Consequence.FAULT,
        _DOC,
        f"{_PTX}, 9.7.9.27.1.1; executed on an H200: illegal instruction",
        per=Per.DIMENSION,
    ),
    HardwareRule(
        "TMA043",
        "interleave != INTERLEAVE_B32 or swizzle == SWIZZLE_B32",
        Consequence.UNDEFINED,
        _DOC,
        f"{_API}, swizzle; the driver does not check it (259 such requests accepted)",
    ),
    HardwareRule(
        "TMA044",
        "direction == LOAD or global_stride != 0 or global_dim <= 1",
        Consequence.RACE,
        _DOC,
        f"{_PTX}, 9.7.9.27.1.1: the writes of one copy are unordered",
        per=Per.STRIDE,
        of_sizes=True,
    ),
    HardwareRule(
        "TMA045",
        "direction != LOAD or global_stride != 0 or global_dim <= 1",
        Consequence.ADVISORY,
        _OBS,
        "executed on an H200 (tools/tma_execute.py): 272 loads of tiles along a stride of 0, ranks 2 to 5, delivered"
        " the same elements at every index; stated by no document",
        per=Per.STRIDE,
    ),
    HardwareRule(
        "TMA046",
        "box_dim_0 * ((box_dim_1 + max(element_stride_1, 1) - 1) // max(element_stride_1, 1))"
        " * ((box_dim_2 + max(element_stride_2, 1) - 1) // max(element_stride_2, 1))"
        " * ((box_dim_3 + max(element_stride_3, 1) - 1) // max(element_stride_3, 1))"
        " * ((box_dim_4 + max(element_stride_4, 1) - 1) // max(element_stride_4, 1))"
        " * element_bits <= MAX_SMEM_TILE_BYTES * 8",
        Consequence.FAULT,
        _DOC,
        f"{_API}, elementStrides (the copy rounds up); CUDA Programming Guide, 5.1, shared memory of a block",
    ),
    HardwareRule(
        "TMA047",
        "interleave != INTERLEAVE_NONE or element_stride_0 == 1",
        Consequence.UNDEFINED,
        _DOC,
        f"{_PTX}, 5.5.3.2; {_API}: ignored",
    ),
    HardwareRule(
        "TMA048",
        "interleave != INTERLEAVE_NONE or swizzle == SWIZZLE_NONE"
        " or box_dim_0 * element_bits >= swizzle_span_bytes * 8",
        Consequence.ADVISORY,
        _DOC,
        f"{_GUIDE}: the landing area keeps the full span; executed on an H200 with rows of 16 to 112 bytes: rows lie a"
        " span apart, their own bytes complete",
    ),
    HardwareRule(
        "TMA049",
        "interleave == INTERLEAVE_NONE or (element_bits == 16 and element_stride_0 == 1 and element_stride_1 == 1"
        " and element_stride_2 == 1 and element_stride_3 == 1 and element_stride_4 == 1)",
        Consequence.UNSETTLED,
        _OBS,
        "interleaved loads and stores of 16-bit elements were executed on an H200 (tools/tma_execute.py probe), ranks"
        " 3 to 5; other widths and element strides were not",
        scope=_EXECUTED,
    ),
    HardwareRule(
        "TMA050",
        "swizzle == SWIZZLE_NONE or global_address % 128 == 0",
        Consequence.ADVISORY,
        _DOC,
        f"{_GUIDE}, table 25; the driver encodes 16-byte aligned addresses with every swizzle",
    ),
    HardwareRule(
        "TMA051",
        "global_dim <= MAX_EXTENT // 2",
        Consequence.ADVISORY,
        _DOC,
        f"{_PTX}, 9.7.9.27.1.2: coordinates are signed 32-bit",
        per=Per.DIMENSION,
    ),
    HardwareRule(
        "TMA052",
        "interleave != INTERLEAVE_NONE or start_coordinate_0 * element_bits % 128 == 0",
        Consequence.FAULT,
        _OBS,
        _EXECUTED_STARTS,
        scope=_EXECUTED,
    ),
    HardwareRule(
        "TMA053",
        "direction == LOAD or interleave != INTERLEAVE_NONE or global_dim_0 * element_bits % 128 == 0",
        Consequence.OVERWRITES,
        _OBS,
        _EXECUTED_EDGES,
        scope=_EXECUTED,
        of_sizes=True,
    ),
    HardwareRule(
        "TMA054",
        "direction != LOAD or (tensor_data_type != TFLOAT32 and tensor_data_type != TFLOAT32_FTZ)",
        Consequence.ADVISORY,
        _OBS,
        _EXECUTED_ROUNDING,
        scope=_EXECUTED,
    ),
    HardwareRule(
        "TMA055",
        "interleave == INTERLEAVE_NONE or (tensor_rank == 3 and box_dim_1 == 1)"
        " or (tensor_rank == 4 and box_dim_2 == 1) or (tensor_rank == 5 and box_dim_3 == 1)",
        Consequence.HANG,
        _OBS,
        _EXECUTED_SLICES,
        scope=_EXECUTED,
    ),
    HardwareRule(
        "TMA056",
        "box_dim_0 * box_dim_1 * box_dim_2 * box_dim_3 * box_dim_4 * interleave * 16 <= MAX_SMEM_TILE_BYTES",
        Consequence.FAULT,
        _OBS,
        f"{_EXECUTED_SLICES}; CUDA Programming Guide, 5.1, shared memory of a block",
        scope=_EXECUTED,
    ),
    HardwareRule(
        "TMA057",
        "tensor_data_type != U4X16_ALIGN16B or direction == LOAD",
        Consequence.UNDEFINED,
        _DOC,
        f"{_API}, swizzle",
        scope=_BLACKWELL,
    ),
    HardwareRule(
        "TMA058",
        "tensor_data_type != U6X16_ALIGN16B or swizzle != SWIZZLE_B128_ATOM_64B or direction != LOAD",
        Consequence.UNDEFINED,
        _DOC,
        f"{_API}, swizzle",
        scope=_BLACKWELL,
    ),
    HardwareRule(
        "TMA059",
        "(tensor_data_type != U4X16_ALIGN16B and tensor_data_type != U6X16_ALIGN16B) or start_coordinate_0 % 128 == 0",
        Consequence.UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.9.27.1.1",
        scope=_BLACKWELL,
    ),
)
"""Every rule about running a copy."""
