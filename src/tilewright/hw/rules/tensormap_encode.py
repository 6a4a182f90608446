"""Rules of tiled tensor maps that the driver enforces: a map that breaks one is refused when it is encoded. Maps that
it encodes, and whose copies then fail, are in ``tensormap_copies``; what helps, in ``legal.rule_help``.

Field names are the parameters of ``cuTensorMapEncodeTiled`` in snake case; strides in bytes, extents in elements,
dimension 0 innermost and dense. Derived fields: ``element_bits`` and ``is_float`` of the data type and
``swizzle_span_bytes`` of the swizzle.

Observations were made on an NVIDIA H200 with driver 580.159 over 300,000 labelled requests; a rule marked observed is
stated by no document.
"""

from __future__ import annotations

from tilewright.hw.rules.row import Consequence, Evidence, HardwareRule, Per, RuleScope
from tilewright.hw.rules.tensormap_copies import RUNS

_API = "CUDA Driver API, cuTensorMapEncodeTiled"
_SEEN = "observed: 300,000 labelled requests, H200"
_DRIVER = "580.159"
_HOPPER = RuleScope(90, 100, driver=_DRIVER)
_BLACKWELL = RuleScope(100, toolkit_from=12080)
_REJECTS, _DOC, _OBS = Consequence.DRIVER_REJECTS, Evidence.DOCUMENTED, Evidence.OBSERVED

_PADDED = "(tensor_data_type != U4X16_ALIGN16B and tensor_data_type != U6X16_ALIGN16B)"

_ENUMERATIONS = (
    HardwareRule(
        "TMA001",
        "tensor_data_type >= 0 and tensor_data_type <= U6X16_ALIGN16B",
        _REJECTS,
        _DOC,
        f"{_API}, tensorDataType",
        scope=RuleScope(100, toolkit_from=12080),
    ),
    HardwareRule(
        "TMA002",
        "tensor_data_type >= 0 and tensor_data_type <= TFLOAT32_FTZ",
        _REJECTS,
        _OBS,
        f"{_SEEN}: none of 55,815 requests with a packed type was accepted",
        scope=_HOPPER,
    ),
    HardwareRule("TMA003", "tensor_rank >= 1 and tensor_rank <= 5", _REJECTS, _DOC, f"{_API}, tensorRank"),
    HardwareRule("TMA004", "interleave == INTERLEAVE_NONE or tensor_rank >= 3", _REJECTS, _DOC, f"{_API}, tensorRank"),
    HardwareRule("TMA005", "interleave >= 0 and interleave <= INTERLEAVE_B32", _REJECTS, _DOC, f"{_API}, interleave"),
    HardwareRule(
        "TMA006",
        "swizzle >= 0 and swizzle <= SWIZZLE_B128_ATOM_64B",
        _REJECTS,
        _DOC,
        f"{_API}, swizzle",
        scope=RuleScope(100, toolkit_from=12080),
    ),
    HardwareRule(
        "TMA007",
        "swizzle >= 0 and swizzle <= SWIZZLE_B128",
        _REJECTS,
        _OBS,
        f"{_SEEN}: none of 77,766 requests with a 32- or 64-byte-atom swizzle was accepted",
        scope=_HOPPER,
    ),
    HardwareRule("TMA008", "l2_promotion >= 0 and l2_promotion <= L2_256B", _REJECTS, _DOC, f"{_API}, l2Promotion"),
    HardwareRule(
        "TMA009", "oob_fill >= 0 and oob_fill <= OOB_NAN_REQUEST_ZERO_FMA", _REJECTS, _DOC, f"{_API}, oobFill"
    ),
    HardwareRule("TMA021", "oob_fill == OOB_NONE or is_float == 1", _REJECTS, _DOC, f"{_API}, oobFill"),
)

_GLOBAL_SIDE = (
    HardwareRule("TMA010", "global_address % 16 == 0", _REJECTS, _DOC, f"{_API}, globalAddress"),
    HardwareRule(
        "TMA011", "interleave != INTERLEAVE_B32 or global_address % 32 == 0", _REJECTS, _DOC, f"{_API}, globalAddress"
    ),
    HardwareRule("TMA012", "global_stride % 16 == 0", _REJECTS, _DOC, f"{_API}, globalStrides", per=Per.STRIDE),
    HardwareRule(
        "TMA013",
        "interleave != INTERLEAVE_B32 or global_stride % 32 == 0",
        _REJECTS,
        _DOC,
        f"{_API}, globalStrides",
        per=Per.STRIDE,
    ),
    HardwareRule(
        "TMA014",
        "global_stride >= 0 and global_stride < MAX_STRIDE_BYTES",
        _REJECTS,
        _DOC,
        f"{_API}, globalStrides",
        per=Per.STRIDE,
        of_sizes=True,
    ),
    HardwareRule(
        "TMA015",
        "global_dim >= 1 and global_dim <= MAX_EXTENT",
        _REJECTS,
        _DOC,
        f"{_API}, globalDim",
        per=Per.DIMENSION,
        of_sizes=True,
    ),
)

_BOX = (
    HardwareRule("TMA016", "box_dim >= 1 and box_dim <= 256", _REJECTS, _DOC, f"{_API}, boxDim", per=Per.DIMENSION),
    HardwareRule(
        "TMA017",
        "element_stride >= 1 and element_stride <= 8",
        _REJECTS,
        _DOC,
        f"{_API}, elementStrides",
        per=Per.DIMENSION,
    ),
    HardwareRule(
        "TMA018",
        "interleave != INTERLEAVE_NONE or box_dim_0 * element_bits % 128 == 0",
        _REJECTS,
        _DOC,
        f"{_API}, boxDim",
    ),
    HardwareRule(
        "TMA019",
        "interleave != INTERLEAVE_NONE or swizzle == SWIZZLE_NONE"
        " or box_dim_0 * element_bits <= swizzle_span_bytes * 8",
        _REJECTS,
        _DOC,
        f"{_API}, interleave and swizzle",
    ),
    HardwareRule(
        "TMA020",
        "box_dim_0 // max(element_stride_0, 1) * (box_dim_1 // max(element_stride_1, 1))"
        " * (box_dim_2 // max(element_stride_2, 1)) * (box_dim_3 // max(element_stride_3, 1))"
        " * (box_dim_4 // max(element_stride_4, 1)) * element_bits <= MAX_BOX_BYTES * 8",
        _REJECTS,
        _OBS,
        "observed: 70,000 requests at the edges of the rules, H200, driver 580.159.04: of boxes within 256 bytes of the"
        " limit those up to 233,472 bytes are accepted and those from 233,478 bytes rejected, each extent divided by"
        " its element stride and rounded down",
        scope=_HOPPER,
    ),
    HardwareRule(
        "TMA022",
        "interleave == INTERLEAVE_NONE or box_dim_0 * element_bits % 128 == 0",
        _REJECTS,
        _OBS,
        f"{_SEEN}: the document asks this of interleave NONE only",
        scope=_HOPPER,
    ),
)

_PACKED = (
    HardwareRule(
        "TMA023", f"{_PADDED} or global_address % 32 == 0", _REJECTS, _DOC, f"{_API}, globalAddress", scope=_BLACKWELL
    ),
    HardwareRule(
        "TMA024", f"{_PADDED} or global_dim_0 % 128 == 0", _REJECTS, _DOC, f"{_API}, globalDim", scope=_BLACKWELL
    ),
    HardwareRule(
        "TMA025",
        "tensor_data_type != U4X16_ALIGN8B or global_dim_0 % 2 == 0",
        _REJECTS,
        _DOC,
        f"{_API}, globalDim",
        scope=_BLACKWELL,
    ),
    HardwareRule(
        "TMA026",
        f"{_PADDED} or global_stride % 32 == 0",
        _REJECTS,
        _DOC,
        f"{_API}, globalStrides",
        per=Per.STRIDE,
        scope=_BLACKWELL,
    ),
    HardwareRule("TMA027", f"{_PADDED} or box_dim_0 == 128", _REJECTS, _DOC, f"{_API}, boxDim", scope=_BLACKWELL),
    HardwareRule(
        "TMA028",
        "tensor_data_type != U6X16_ALIGN16B or interleave == INTERLEAVE_NONE",
        _REJECTS,
        _DOC,
        f"{_API}, interleave",
        scope=_BLACKWELL,
    ),
    HardwareRule(
        "TMA029",
        f"{_PADDED} or swizzle == SWIZZLE_NONE or swizzle == SWIZZLE_B128 or swizzle == SWIZZLE_B128_ATOM_32B"
        " or (tensor_data_type == U6X16_ALIGN16B and swizzle == SWIZZLE_B128_ATOM_64B)",
        _REJECTS,
        _DOC,
        f"{_API}, swizzle",
        scope=_BLACKWELL,
    ),
)

RULES: tuple[HardwareRule, ...] = (*_ENUMERATIONS, *_GLOBAL_SIDE, *_BOX, *_PACKED, *RUNS)
"""Every rule of tiled tensor maps."""
