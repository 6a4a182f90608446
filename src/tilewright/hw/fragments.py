"""Fragments: which lane of which warp holds which element of an instruction's tile, as bases over bits.

A fragment is linear over F2. ``register[i]`` is the coordinate that bit i of the element index (within one thread)
adds, likewise ``lane`` and ``warp``; bases of different bits never overlap, so the coordinate is their sum. Elements
narrower than 32 bits count singly: an f16 pair in one register is two elements.

Sources: PTX ISA 9.1, sections 9.7.14.5 (mma, ldmatrix, stmatrix), 9.7.15.5.1 (wgmma), 9.7.16.8 (tcgen05 ld/st); AMD
"Instinct MI300 ISA", matrix fused-multiply-add register layouts; AMD "RDNA3/RDNA4 ISA", WMMA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Bases: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FragmentAtom:
    """One atom. ``shape`` is its extent per dimension, named by ``dims``; ``source`` the table it was read from."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    register: Bases
    lane: Bases
    warp: Bases
    source: str


_ROWS_OF_8: Bases = ((1, 0), (2, 0), (4, 0))
_WARPGROUP: Bases = ((16, 0), (32, 0))
_PAIRS: Bases = ((0, 2), (0, 4), *_ROWS_OF_8)

# -- wgmma (sm_90a): 64 rows, four warps of 16 -----------------------------------------------------------------------
WGMMA_ACCUMULATOR = FragmentAtom(
    "wgmma.d", ("m", "n"), (64, 8), ((0, 1), (8, 0)), _PAIRS, _WARPGROUP, "PTX ISA 9.1, 9.7.15.5.1.1, D fragment"
)
"""Accumulator m64n8, repeated along n; f32, s32 and f16 alike when elements are counted."""

WGMMA_A: dict[int, FragmentAtom] = {
    32: FragmentAtom(
        "wgmma.a.tf32",
        ("m", "k"),
        (64, 8),
        ((8, 0), (0, 4)),
        ((0, 1), (0, 2), *_ROWS_OF_8),
        _WARPGROUP,
        "PTX ISA 9.1, 9.7.15.5.1.1, A fragment k8",
    ),
    16: FragmentAtom(
        "wgmma.a.b16",
        ("m", "k"),
        (64, 16),
        ((0, 1), (8, 0), (0, 8)),
        _PAIRS,
        _WARPGROUP,
        "PTX ISA 9.1, 9.7.15.5.1.1, A fragment k16",
    ),
    8: FragmentAtom(
        "wgmma.a.b8",
        ("m", "k"),
        (64, 32),
        ((0, 1), (0, 2), (8, 0), (0, 16)),
        ((0, 4), (0, 8), *_ROWS_OF_8),
        _WARPGROUP,
        "PTX ISA 9.1, 9.7.15.5.1.1, A fragment k32",
    ),
}
"""Register operand A by element bits, repeated along k."""

WGMMA_N: tuple[int, ...] = tuple(range(8, 257, 8))
"""Accumulator widths of float wgmma (PTX ISA 9.1, 9.7.15.2)."""

WGMMA_N_INTEGER: tuple[int, ...] = (8, 16, 24, *range(32, 257, 16))
"""Accumulator widths of integer wgmma (PTX ISA 9.1, 9.7.15.2)."""

# -- mma.sync m16n8k16 -----------------------------------------------------------------------------------------------
MMA_ACCUMULATOR = FragmentAtom(
    "mma.d", ("m", "n"), (16, 8), ((0, 1), (8, 0)), _PAIRS, (), "PTX ISA 9.1, 9.7.14.5, m16n8 C/D fragment"
)
MMA_A_16 = FragmentAtom(
    "mma.a.b16", ("m", "k"), (16, 16), ((0, 1), (8, 0), (0, 8)), _PAIRS, (), "PTX ISA 9.1, 9.7.14.5, m16n8k16 A"
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
    "ldmatrix.m8n8.b16", ("row", "column"), (8, 8), ((0, 1),), _PAIRS, (), "PTX ISA 9.1, 9.7.14.5.15, fragment table"
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

# -- tcgen05.ld and .st (sm_100a): rows are TMEM lanes, columns 32-bit cells; warp w reaches lanes 32w..32w+31 --------
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
        ((8, 0), (0, 1), *_ROWS_OF_8),
        (),
        _TMEM_SOURCE,
    ),
    "16x128b": FragmentAtom(
        "tcgen05.16x128b",
        ("row", "column"),
        (16, 4),
        ((8, 0),),
        ((0, 1), (0, 2), *_ROWS_OF_8),
        (),
        _TMEM_SOURCE,
    ),
    "16x256b": FragmentAtom("tcgen05.16x256b", ("row", "column"), (16, 8), ((0, 1), (8, 0)), _PAIRS, (), _TMEM_SOURCE),
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

# -- AMD: waves of 64 (MFMA) and 32 (WMMA) ---------------------------------------------------------------------------
MFMA_ACCUMULATOR: dict[tuple[int, int], FragmentAtom] = {
    (32, 32): FragmentAtom(
        "mfma.d.32x32",
        ("m", "n"),
        (32, 32),
        ((1, 0), (2, 0), (8, 0), (16, 0)),
        ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (4, 0)),
        (),
        "AMD MI300 ISA, V_MFMA_F32_32X32X8_F16 D matrix",
    ),
    (16, 16): FragmentAtom(
        "mfma.d.16x16",
        ("m", "n"),
        (16, 16),
        ((1, 0), (2, 0)),
        ((0, 1), (0, 2), (0, 4), (0, 8), (4, 0), (8, 0)),
        (),
        "AMD MI300 ISA, V_MFMA_F32_16X16X16_F16 D matrix",
    ),
    (64, 4): FragmentAtom(
        "mfma.d.64x4",
        ("m", "n"),
        (64, 4),
        ((1, 0), (2, 0)),
        ((0, 1), (0, 2), (4, 0), (8, 0), (16, 0), (32, 0)),
        (),
        "AMD MI300 ISA, V_MFMA_F32_4X4X4_16B_F16 used as one 64x4 tile",
    ),
    (4, 64): FragmentAtom(
        "mfma.d.4x64",
        ("m", "n"),
        (4, 64),
        ((1, 0), (2, 0)),
        ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (0, 32)),
        (),
        "AMD MI300 ISA, V_MFMA_F32_4X4X4_16B_F16 used as one 4x64 tile",
    ),
}
MFMA_ACCUMULATOR_64: dict[tuple[int, int], FragmentAtom] = {
    (16, 16): FragmentAtom(
        "mfma.d.16x16.f64",
        ("m", "n"),
        (16, 16),
        ((4, 0), (8, 0)),
        ((0, 1), (0, 2), (0, 4), (0, 8), (1, 0), (2, 0)),
        (),
        "AMD MI300 ISA, V_MFMA_F64_16X16X4_F64 D matrix",
    ),
}
WMMA_ACCUMULATOR: dict[int, FragmentAtom] = {
    1: FragmentAtom(
        "wmma.d.gfx11",
        ("m", "n"),
        (16, 16),
        ((2, 0), (4, 0), (8, 0)),
        ((0, 1), (0, 2), (0, 4), (0, 8), (1, 0)),
        (),
        "AMD RDNA3 ISA, WMMA f32 D matrix, wave32",
    ),
    2: FragmentAtom(
        "wmma.d.gfx12",
        ("m", "n"),
        (16, 16),
        ((1, 0), (2, 0), (4, 0)),
        ((0, 1), (0, 2), (0, 4), (0, 8), (8, 0)),
        (),
        "AMD RDNA4 ISA, WMMA f32 D matrix, wave32",
    ),
    3: FragmentAtom(
        "wmma.d.gfx1250",
        ("m", "n"),
        (16, 16),
        ((1, 0), (2, 0), (4, 0)),
        ((0, 1), (0, 2), (0, 4), (0, 8), (8, 0)),
        (),
        "AMD gfx1250 WMMA f32 D matrix, wave32",
    ),
}
"""By WMMA generation (1: gfx11, 2: gfx12, 3: gfx1250)."""
