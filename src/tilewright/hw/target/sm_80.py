"""Ampere: its row, and the fragments of mma.sync, ldmatrix and stmatrix, which later targets have, too.

Source: PTX ISA 9.1, section 9.7.14.5.
"""

from __future__ import annotations

from tilewright.hw.fragments import PAIRS, FragmentAtom
from tilewright.hw.target.row import Target

SM80 = Target(
    "sm_80",
    (8, 0),
    sm_count=108,
    shared_per_cta_bytes=166_912,
    clock_hz=1.41e9,
    memory_bytes_per_second=2.04e12,
)

# -- mma.sync m16n8k16 -----------------------------------------------------------------------------------------------
MMA_ACCUMULATOR = FragmentAtom(
    "mma.d", ("m", "n"), (16, 8), ((0, 1), (8, 0)), PAIRS, (), "PTX ISA 9.1, 9.7.14.5, m16n8 C/D fragment"
)
MMA_A_16 = FragmentAtom(
    "mma.a.b16", ("m", "k"), (16, 16), ((0, 1), (8, 0), (0, 8)), PAIRS, (), "PTX ISA 9.1, 9.7.14.5, m16n8k16 A"
)
MMA_B_16 = FragmentAtom(
    "mma.b.b16",
    ("k", "n"),
    (16, 8),
    ((1, 0), (8, 0)),
    ((2, 0), (4, 0), (0, 1), (0, 2), (0, 4)),
    (),
    "PTX ISA 9.1, 9.7.14.5, m16n8k16 B",
)

# -- ldmatrix and stmatrix: 8x8 matrices of 16-bit elements, one row address per lane --------------------------------
LDMATRIX = FragmentAtom(
    "ldmatrix.m8n8.b16", ("row", "column"), (8, 8), ((0, 1),), PAIRS, (), "PTX ISA 9.1, 9.7.14.5.15, fragment table"
)
LDMATRIX_TRANS = FragmentAtom(
    "ldmatrix.m8n8.trans.b16",
    ("row", "column"),
    (8, 8),
    ((1, 0),),
    ((2, 0), (4, 0), (0, 1), (0, 2), (0, 4)),
    (),
    "PTX ISA 9.1, 9.7.14.5.15, .trans",
)
MATRIX_COUNTS: tuple[int, ...] = (4, 2, 1)
"""Matrices one ldmatrix or stmatrix moves; lane 8*i + r gives the address of row r of matrix i."""
MATRIX_ROW_BYTES = 16
