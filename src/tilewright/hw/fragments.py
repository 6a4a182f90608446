"""Fragments: which lane of which warp holds which element of an instruction's tile, as bases over bits.

A fragment is linear over F2. ``register[i]`` is the coordinate that bit i of the element index (within one thread)
adds, likewise ``lane`` and ``warp``; bases of different bits never overlap, so the coordinate is their sum. Elements
narrower than 32 bits count singly: an f16 pair in one register is two elements.

Those of a target are in its module of ``hw.target``; here are those of AMD, which has no targets yet. Sources: AMD
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


ROWS_OF_8: Bases = ((1, 0), (2, 0), (4, 0))
"""Bases of three lane bits that count eight rows."""

PAIRS: Bases = ((0, 2), (0, 4), *ROWS_OF_8)
"""Bases of a warp's five lane bits: a lane holds two columns, four lanes a row."""

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
"""Accumulators by WMMA generation (1: gfx11, 2: gfx12, 3: gfx1250)."""
