"""Hopper: its row, and the fragments of wgmma. Descriptors and rules are in ``hw.rules.wgmma``.

Source: PTX ISA 9.1, section 9.7.15.5.1.
"""

from __future__ import annotations

from tilewright.hw.fragments import PAIRS, ROWS_OF_8, Bases, FragmentAtom
from tilewright.hw.target.row import InstructionSet, Target

SM90A = Target(
    "sm_90a",
    (9, 0),
    sm_count=132,
    shared_per_cta_bytes=232_448,
    instructions=frozenset((InstructionSet.TMA, InstructionSet.WGMMA)),
    clock_hz=1.83e9,
    memory_bytes_per_second=4.8e12,
)

# -- wgmma: 64 rows, four warps of 16 -----------------------------------------------------------------------
_WARPGROUP: Bases = ((16, 0), (32, 0))

WGMMA_ACCUMULATOR = FragmentAtom(
    "wgmma.d", ("m", "n"), (64, 8), ((0, 1), (8, 0)), PAIRS, _WARPGROUP, "PTX ISA 9.1, 9.7.15.5.1.1, D fragment"
)
"""Accumulator m64n8, repeated along n; f32, s32 and f16 alike when elements are counted."""

WGMMA_A: dict[int, FragmentAtom] = {
    32: FragmentAtom(
        "wgmma.a.tf32",
        ("m", "k"),
        (64, 8),
        ((8, 0), (0, 4)),
        ((0, 1), (0, 2), *ROWS_OF_8),
        _WARPGROUP,
        "PTX ISA 9.1, 9.7.15.5.1.1, A fragment k8",
    ),
    16: FragmentAtom(
        "wgmma.a.b16",
        ("m", "k"),
        (64, 16),
        ((0, 1), (8, 0), (0, 8)),
        PAIRS,
        _WARPGROUP,
        "PTX ISA 9.1, 9.7.15.5.1.1, A fragment k16",
    ),
    8: FragmentAtom(
        "wgmma.a.b8",
        ("m", "k"),
        (64, 32),
        ((0, 1), (0, 2), (8, 0), (0, 16)),
        ((0, 4), (0, 8), *ROWS_OF_8),
        _WARPGROUP,
        "PTX ISA 9.1, 9.7.15.5.1.1, A fragment k32",
    ),
}
"""Register operand A by element bits, repeated along k."""

WGMMA_N: tuple[int, ...] = tuple(range(8, 257, 8))
"""Accumulator widths of float wgmma (PTX ISA 9.1, 9.7.15.2)."""

WGMMA_N_INTEGER: tuple[int, ...] = (8, 16, 24, *range(32, 257, 16))
"""Accumulator widths of integer wgmma (PTX ISA 9.1, 9.7.15.2)."""
