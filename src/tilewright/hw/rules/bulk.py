"""Bulk copies without a tensor map, and cp.async: sizes, alignments, pairings, byte counts.

Source: PTX ISA 9.1, 9.7.9.25 (cp.async.bulk and its relatives) and 9.7.9.24 (cp.async); what the assembler accepts was
tried with ptxas 13.0.88.
"""

from __future__ import annotations

from tilewright.hw.rules.row import Consequence, Evidence, HardwareRule, RuleScope

_PTX = "PTX ISA 9.1"
_DOC = Evidence.DOCUMENTED
_REJECTS, _UNDEFINED, _HANG = Consequence.ASSEMBLER_REJECTS, Consequence.UNDEFINED, Consequence.HANG

ENUMERATORS: dict[str, int] = {
    "GLOBAL_TO_SHARED": 0,
    "SHARED_TO_GLOBAL": 1,
    "SHARED_TO_CLUSTER": 2,
    "MBARRIER": 0,
    "BULK_GROUP": 1,
}

RULES: tuple[HardwareRule, ...] = (
    HardwareRule("BLK001", "size_bytes > 0 and size_bytes % 16 == 0", _UNDEFINED, _DOC, f"{_PTX}, 9.7.9.25.4.1"),
    HardwareRule("BLK002", "source_address % 16 == 0", _UNDEFINED, _DOC, f"{_PTX}, 9.7.9.25.4.1"),
    HardwareRule("BLK003", "shared_address % 16 == 0", _UNDEFINED, _DOC, f"{_PTX}, 9.7.9.25.4.1"),
    HardwareRule("BLK004", "mbarrier_address % 8 == 0", _UNDEFINED, _DOC, f"{_PTX}, 9.7.13.15.1"),
    HardwareRule(
        "BLK005",
        "(direction == SHARED_TO_GLOBAL and completion == BULK_GROUP)"
        " or (direction != SHARED_TO_GLOBAL and completion == MBARRIER)",
        _REJECTS,
        _DOC,
        f"{_PTX}, 9.7.9.25.4.1",
    ),
    HardwareRule("BLK006", "outstanding_bytes <= 1048575", _UNDEFINED, _DOC, f"{_PTX}, 9.7.13.15.2"),
    HardwareRule("BLK007", "expected_bytes == completed_bytes", _HANG, _DOC, f"{_PTX}, 9.7.9.25.4.1 and 9.7.13.15.5"),
    HardwareRule("BLK008", "multicast_mask > 0 and multicast_mask < 65536", _REJECTS, _DOC, f"{_PTX}, 9.7.9.25.4.1"),
    HardwareRule(
        "BLK009",
        "cp_async_bytes == 4 or cp_async_bytes == 8 or cp_async_bytes == 16",
        _REJECTS,
        _DOC,
        f"{_PTX}, 9.7.9.24",
        scope=RuleScope(80),
    ),
    HardwareRule(
        "BLK010",
        "cp_async_source % cp_async_bytes == 0 and cp_async_target % cp_async_bytes == 0",
        _UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.9.24",
        scope=RuleScope(80),
    ),
)
"""Every rule of bulk and asynchronous copies without a tensor map."""
