"""Limits of a launch: shared memory, threads, registers, clusters.

Sources: CUDA Programming Guide, 5.1, tables 30 and 31; PTX ISA 9.1, 9.7.19.5 (setmaxnreg).
"""

from __future__ import annotations

from tilewright.hw.rules.row import Consequence, Evidence, HardwareRule

_GUIDE = "CUDA Programming Guide, 5.1"
_PTX = "PTX ISA 9.1, 9.7.19.5"
_DOC = Evidence.DOCUMENTED
_FAULT, _HANG, _REJECTS = Consequence.FAULT, Consequence.HANG, Consequence.ASSEMBLER_REJECTS

ENUMERATORS: dict[str, int] = {}

RULES: tuple[HardwareRule, ...] = (
    HardwareRule("LIM001", "shared_bytes <= 232448", _FAULT, _DOC, f"{_GUIDE}, table 30"),
    HardwareRule("LIM002", "threads >= 1 and threads <= 1024", _FAULT, _DOC, f"{_GUIDE}, table 30"),
    HardwareRule(
        "LIM003",
        "(registers_per_thread + 7) // 8 * 8 * ((threads + 31) // 32 * 32) <= 65536",
        _FAULT,
        _DOC,
        f"{_GUIDE}, table 31",
    ),
    HardwareRule("LIM004", "registers_per_thread <= 255", _REJECTS, _DOC, f"{_GUIDE}, table 31"),
    HardwareRule("LIM005", "cluster_ctas >= 1 and cluster_ctas <= 8", _FAULT, _DOC, f"{_GUIDE}: portable cluster size"),
    HardwareRule("LIM006", "setmaxnreg >= 24 and setmaxnreg <= 256 and setmaxnreg % 8 == 0", _REJECTS, _DOC, _PTX),
    HardwareRule(
        "LIM007", "warpgroup_registers <= entry_registers * warpgroups", _HANG, _DOC, f"{_PTX}: the pool of the CTA"
    ),
)
"""Every limit of a launch. ``warpgroup_registers`` is the sum of the counts the warpgroups ask for."""
