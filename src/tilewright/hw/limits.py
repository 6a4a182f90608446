"""Limits of a launch: shared memory, threads, registers, clusters.

Sources: CUDA Programming Guide, 5.1, tables 30 and 31; PTX ISA 9.1, 9.7.19.5 (setmaxnreg).
"""

from __future__ import annotations

from tilewright.hw.rules import Consequence, Evidence, Example, HardwareRule

_GUIDE = "CUDA Programming Guide, 5.1"
_PTX = "PTX ISA 9.1, 9.7.19.5"
_DOC = Evidence.DOCUMENTED
_FAULT, _HANG, _REJECTS = Consequence.FAULT, Consequence.HANG, Consequence.ASSEMBLER_REJECTS

ENUMERATORS: dict[str, int] = {}

BASE_CASE: Example = (
    ("shared_bytes", 200_000),
    ("threads", 384),
    ("registers_per_thread", 168),
    ("cluster_ctas", 2),
    ("setmaxnreg", 240),
    ("warpgroup_registers", 504),
    ("entry_registers", 168),
    ("warpgroups", 3),
)
"""A warp-specialised kernel: three warpgroups, 168 registers at entry, redistributed to 24 + 240 + 240."""

RULES: tuple[HardwareRule, ...] = (
    HardwareRule(
        "LIM001",
        "shared_bytes <= 232448",
        _FAULT,
        _DOC,
        f"{_GUIDE}, table 30",
        good=(("shared_bytes", 232_448),),
        bad=(("shared_bytes", 232_449),),
    ),
    HardwareRule(
        "LIM002",
        "threads >= 1 and threads <= 1024",
        _FAULT,
        _DOC,
        f"{_GUIDE}, table 30",
        good=(("threads", 1024), ("registers_per_thread", 64)),
        bad=(("threads", 1025), ("registers_per_thread", 32)),
    ),
    HardwareRule(
        "LIM003",
        "(registers_per_thread + 7) // 8 * 8 * ((threads + 31) // 32 * 32) <= 65536",
        _FAULT,
        _DOC,
        f"{_GUIDE}, table 31",
        good=(("registers_per_thread", 168),),
        bad=(("registers_per_thread", 169),),
    ),
    HardwareRule(
        "LIM004",
        "registers_per_thread <= 255",
        _REJECTS,
        _DOC,
        f"{_GUIDE}, table 31",
        good=(("registers_per_thread", 255), ("threads", 128)),
        bad=(("registers_per_thread", 256), ("threads", 128)),
    ),
    HardwareRule(
        "LIM005",
        "cluster_ctas >= 1 and cluster_ctas <= 8",
        _FAULT,
        _DOC,
        f"{_GUIDE}: portable cluster size",
        good=(("cluster_ctas", 8),),
        bad=(("cluster_ctas", 9),),
    ),
    HardwareRule(
        "LIM006",
        "setmaxnreg >= 24 and setmaxnreg <= 256 and setmaxnreg % 8 == 0",
        _REJECTS,
        _DOC,
        _PTX,
        good=(("setmaxnreg", 232),),
        bad=(("setmaxnreg", 236),),
    ),
    HardwareRule(
        "LIM007",
        "warpgroup_registers <= entry_registers * warpgroups",
        _HANG,
        _DOC,
        f"{_PTX}: the pool of the CTA",
        good=(("warpgroup_registers", 504),),
        bad=(("warpgroup_registers", 505),),
    ),
)
"""Every limit of a launch. ``warpgroup_registers`` is the sum of the counts the warpgroups ask for."""
