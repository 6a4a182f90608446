"""Bulk copies without a tensor map, and cp.async: sizes, alignments, pairings, byte counts.

Source: PTX ISA 9.1, 9.7.9.25 (cp.async.bulk and its relatives) and 9.7.9.24 (cp.async); what the assembler accepts was
tried with ptxas 13.0.88.
"""

from __future__ import annotations

from tilewright.hw.rules import Consequence, Evidence, Example, HardwareRule, RuleScope

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

BASE_CASE: Example = (
    ("size_bytes", 1024),
    ("source_address", 4096),
    ("shared_address", 1024),
    ("mbarrier_address", 64),
    ("direction", 0),
    ("completion", 0),
    ("outstanding_bytes", 32768),
    ("expected_bytes", 1024),
    ("completed_bytes", 1024),
    ("multicast_mask", 3),
    ("cp_async_bytes", 16),
    ("cp_async_source", 4096),
    ("cp_async_target", 1024),
)
"""A kibibyte from global to shared memory, multicast to two CTAs, and a 16-byte cp.async."""

RULES: tuple[HardwareRule, ...] = (
    HardwareRule(
        "BLK001",
        "size_bytes > 0 and size_bytes % 16 == 0",
        _UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.9.25.4.1",
        good=(("size_bytes", 1040),),
        bad=(("size_bytes", 1032),),
    ),
    HardwareRule(
        "BLK002",
        "source_address % 16 == 0",
        _UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.9.25.4.1",
        good=(("source_address", 4112),),
        bad=(("source_address", 4104),),
    ),
    HardwareRule(
        "BLK003",
        "shared_address % 16 == 0",
        _UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.9.25.4.1",
        good=(("shared_address", 1040),),
        bad=(("shared_address", 1032),),
    ),
    HardwareRule(
        "BLK004",
        "mbarrier_address % 8 == 0",
        _UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.13.15.1",
        good=(("mbarrier_address", 72),),
        bad=(("mbarrier_address", 68),),
    ),
    HardwareRule(
        "BLK005",
        "(direction == SHARED_TO_GLOBAL and completion == BULK_GROUP)"
        " or (direction != SHARED_TO_GLOBAL and completion == MBARRIER)",
        _REJECTS,
        _DOC,
        f"{_PTX}, 9.7.9.25.4.1",
        good=(("direction", 1), ("completion", 1)),
        bad=(("direction", 1), ("completion", 0)),
    ),
    HardwareRule(
        "BLK006",
        "outstanding_bytes <= 1048575",
        _UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.13.15.2",
        good=(("outstanding_bytes", 1048575),),
        bad=(("outstanding_bytes", 1048576),),
    ),
    HardwareRule(
        "BLK007",
        "expected_bytes == completed_bytes",
        _HANG,
        _DOC,
        f"{_PTX}, 9.7.9.25.4.1 and 9.7.13.15.5",
        good=(("expected_bytes", 1024),),
        bad=(("expected_bytes", 1040),),
    ),
    HardwareRule(
        "BLK008",
        "multicast_mask > 0 and multicast_mask < 65536",
        _REJECTS,
        _DOC,
        f"{_PTX}, 9.7.9.25.4.1",
        good=(("multicast_mask", 65535),),
        bad=(("multicast_mask", 65536),),
    ),
    HardwareRule(
        "BLK009",
        "cp_async_bytes == 4 or cp_async_bytes == 8 or cp_async_bytes == 16",
        _REJECTS,
        _DOC,
        f"{_PTX}, 9.7.9.24",
        scope=RuleScope(80),
        good=(("cp_async_bytes", 8),),
        bad=(("cp_async_bytes", 2),),
    ),
    HardwareRule(
        "BLK010",
        "cp_async_source % cp_async_bytes == 0 and cp_async_target % cp_async_bytes == 0",
        _UNDEFINED,
        _DOC,
        f"{_PTX}, 9.7.9.24",
        scope=RuleScope(80),
        good=(("cp_async_bytes", 8), ("cp_async_source", 4104)),
        bad=(("cp_async_bytes", 16), ("cp_async_source", 4104)),
    ),
)
"""Every rule of bulk and asynchronous copies without a tensor map."""
