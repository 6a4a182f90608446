"""Blackwell: its row, and the fragments of tcgen05.ld and .st. Descriptors and rules are in ``hw.rules.tcgen05``.

Source: PTX ISA 9.1, section 9.7.16.8.
"""

from __future__ import annotations

from tilewright.hw.fragments import PAIRS, ROWS_OF_8, Bases, FragmentAtom
from tilewright.hw.target.row import InstructionSet, Target

SM100A = Target(
    "sm_100a",
    (10, 0),
    sm_count=148,
    shared_per_cta_bytes=232_448,
    instructions=frozenset((InstructionSet.TMA, InstructionSet.TCGEN05)),
    clock_hz=1.85e9,
    memory_bytes_per_second=8.0e12,
)

# -- tcgen05.ld and .st: rows are TMEM lanes, columns 32-bit cells; warp w reaches lanes 32w..32w+31 -----------------
_TMEM_WARPS: Bases = ((32, 0), (64, 0))
_TMEM_SOURCE = "PTX ISA 9.1, 9.7.16.8, data movement shapes"
TCGEN05_LDST: dict[str, FragmentAtom] = {
    "32x32b": FragmentAtom(
        "tcgen05.32x32b",
        ("lane", "column"),
        (128, 1),
        (),
        ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0)),
        _TMEM_WARPS,
        _TMEM_SOURCE,
    ),
    "16x64b": FragmentAtom(
        "tcgen05.16x64b",
        ("row", "column"),
        (16, 2),
        (),
        ((8, 0), (0, 1), *ROWS_OF_8),
        (),
        _TMEM_SOURCE,
    ),
    "16x128b": FragmentAtom(
        "tcgen05.16x128b",
        ("row", "column"),
        (16, 4),
        ((8, 0),),
        ((0, 1), (0, 2), *ROWS_OF_8),
        (),
        _TMEM_SOURCE,
    ),
    "16x256b": FragmentAtom("tcgen05.16x256b", ("row", "column"), (16, 8), ((0, 1), (8, 0)), PAIRS, (), _TMEM_SOURCE),
    "16x32bx2": FragmentAtom(
        "tcgen05.16x32bx2",
        ("row", "half", "column"),
        (16, 2, 1),
        (),
        ((1, 0, 0), (2, 0, 0), (4, 0, 0), (8, 0, 0), (0, 1, 0)),
        (),
        _TMEM_SOURCE,
    ),
}
"""One step (x1) of each shape. The 16-lane shapes describe one warp at one base lane; ``half`` is the second access."""
TCGEN05_MAX_REGISTERS = 128
