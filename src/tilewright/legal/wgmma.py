"""Shared-memory operands of wgmma: judged, and their descriptor fields derived from the tile's layout.

An operand is a two-dimensional ``SmemTile``: one axis is K, the other M (for A) or N (for B). K innermost is
K-major. The canonical layouts of PTX ISA 9.1, 9.7.15.5.1.2.1 are exactly the panels of a ``SmemTile`` whose rows are
one swizzle span wide, or 16 bytes without swizzle::

    K-major, swizzled     rows of one span; 8 rows are an atom; panels follow along K
    K-major, none         rows of 16 bytes; 8 rows are a core matrix; panels follow along K
    MN-major, swizzled    rows (one per k) of one span of MN; panels follow along MN
    MN-major, none        rows (one per k) of 16 bytes of MN; panels follow along MN
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from tilewright.base.dtypes import DType
from tilewright.base.verdict import Illegal, Legal, Repair, Repairs
from tilewright.hw.copy_prices import SHARED_BYTES_PER_CYCLE
from tilewright.hw.rules.wgmma import (
    CORE_ROW_BYTES,
    CORE_ROWS,
    DESCRIPTOR,
    ENUMERATORS,
    INSTRUCTION_K_BITS,
    INSTRUCTION_M,
    LAYOUT_TYPE,
    OPERAND_TYPES,
    RULES,
    DescriptorField,
)
from tilewright.hw.target import SM90A, Target
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.legal.factor import offsets_of, rewrites, smem_layout
from tilewright.legal.predicates import broken
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tensormap import cc_of


class Major(Enum):
    """The axis of an operand that is contiguous in shared memory; the value is the instruction's transpose
    immediate."""

    K = 0
    MN = 1


class OperandRole(Enum):
    """The left or right operand of the product."""

    A = "A"
    B = "B"


@dataclass(frozen=True)
class WgmmaOperand:
    """An operand in shared memory. ``shared.extents`` are (K, MN) if ``major`` is K, else (MN, K).

    ``n`` is the instruction's N; ``accumulator`` its D type; ``base_bytes`` the tile's address in shared memory.
    """

    role: OperandRole
    dtype: DType
    shared: SmemTile
    major: Major
    n: int
    accumulator: str = "f32"
    base_bytes: int = 0

    @property
    def tile_k(self) -> int:
        """Depth of the tile, in elements."""
        return self.shared.extents[0 if self.major is Major.K else 1]

    @property
    def tile_mn(self) -> int:
        """Rows of A or columns of B in the tile."""
        return self.shared.extents[1 if self.major is Major.K else 0]


@dataclass(frozen=True)
class WgmmaOperandPlan:
    """Descriptor fields of the instructions that read one tile.

    ``leading_bytes`` and ``stride_bytes`` are descriptor fields; ``k_offsets`` is the byte offset to add to the start
    address for each successive instruction along K; ``transpose`` is the immediate. ``align_bytes`` is the alignment of
    the tile's first byte that the fields assume.
    """

    role: OperandRole
    major: Major
    swizzle: Swizzle
    leading_bytes: int
    stride_bytes: int
    k_offsets: tuple[int, ...]
    align_bytes: int
    shared: SmemTile

    @property
    def layout_type(self) -> int:
        """Bits 62-63 of the descriptor."""
        return LAYOUT_TYPE[self.swizzle]

    @property
    def transpose(self) -> int:
        """The trans immediate of 16-bit forms: 1 for MN-major."""
        return self.major.value

    @property
    def template(self) -> int:
        """The descriptor with start address 0; add ``(start_bytes & 0x3FFFF) >> 4``."""
        return self.descriptor(0)

    def descriptor(self, start_bytes: int) -> int:
        """The 64-bit descriptor of the matrix that starts at shared-memory byte ``start_bytes``."""
        return pack(
            DESCRIPTOR,
            {
                "start_address": start_bytes & 0x3FFFF,
                "leading_bytes": self.leading_bytes,
                "stride_bytes": self.stride_bytes,
                "base_offset": 0,
                "layout_type": self.layout_type,
            },
        )

    def mn_offset(self, first: int) -> int:
        """Byte offset of the matrix whose first row (A) or column (B) is ``first`` of the tile.

        ``first`` is a multiple of 8 if K-major, of the panel's width if MN-major.
        """
        if self.major is Major.K:
            assert first % CORE_ROWS == 0, first
            return first * self.shared.row_bytes
        assert first % self.shared.panel == 0, first
        return first // self.shared.panel * self.shared.panel_bytes


def plan(operand: WgmmaOperand, target: Target = SM90A) -> Legal[WgmmaOperandPlan] | Illegal:
    """Descriptor fields for ``operand``, or every rule its layout breaks.

    The answer is complete for tiles of the ``SmemTile`` family: no other strides describe the same bytes.
    """
    return _planned(operand, target)


@lru_cache(maxsize=1 << 12)
def _planned(operand: WgmmaOperand, target: Target) -> Legal[WgmmaOperandPlan] | Illegal:
    """``plan``, cached by operand."""
    fields = _fields(operand, target)
    core = broken(RULES, fields, cc_of(target), ENUMERATORS)
    if core:
        return Illegal(core)
    leading, stride = canonical_strides(operand.shared, operand.major)
    return Legal(
        WgmmaOperandPlan(
            operand.role,
            operand.major,
            operand.shared.swizzle,
            leading,
            stride,
            canonical_k_offsets(operand.shared, operand.major, INSTRUCTION_K_BITS // operand.dtype.bits),
            operand.shared.align_bytes,
            operand.shared,
        )
    )


def admissible(dtype: DType, major: Major, mn: int, k: int) -> tuple[SmemTile, ...]:
    """Every shared-memory layout of an ``mn`` x ``k`` operand that the instruction reads, widest swizzle first."""
    inner, outer = (k, mn) if major is Major.K else (mn, k)
    tiles: list[SmemTile] = []
    for swizzle in (Swizzle.B128, Swizzle.B64, Swizzle.B32, Swizzle.NONE):
        width = PATTERNS[swizzle].span_bytes or CORE_ROW_BYTES
        if inner * dtype.bytes % width == 0:
            tile = SmemTile((inner, outer), width // dtype.bytes, dtype.bytes, swizzle)
            if isinstance(
                plan(WgmmaOperand(OperandRole.B, dtype, tile, major, 8, OPERAND_TYPES[dtype.name][-1])), Legal
            ):
                tiles.append(tile)
    return tuple(tiles)


def legalise(
    operand: WgmmaOperand, target: Target = SM90A
) -> Legal[WgmmaOperandPlan] | Repairs[WgmmaOperandPlan] | Illegal:
    """The plan of ``operand``, or the nearest layouts of the same tile that the instruction reads.

    A tile that a tensor copy has yet to write can be given another layout at no cost. One already in shared memory is
    rewritten by a warpgroup: ``cost`` is the price of the cheapest rewrite (``factor.rewrites``), in seconds on one SM.
    """
    answer = plan(operand, target)
    if isinstance(answer, Legal):
        return answer
    repairs: list[Repair[WgmmaOperandPlan]] = []
    for major in (operand.major, *(m for m in Major if m is not operand.major)):
        for tile in admissible(operand.dtype, major, operand.tile_mn, operand.tile_k):
            other = plan(replace(operand, shared=tile, major=major, base_bytes=0), target)
            if isinstance(other, Legal):
                cycles = _rewriting_cycles(operand.shared, tile, transposed=major is not operand.major)
                action = f"lay the tile out {major.name}-major with swizzle {tile.swizzle.name}"
                repairs.append(Repair(action, other.fields, cycles / target.clock_hz))
    return Repairs(answer.core, tuple(sorted(repairs, key=lambda r: r.cost))) if repairs else answer


def _rewriting_cycles(source: SmemTile, target: SmemTile, *, transposed: bool) -> float:
    """Cycles to rewrite a tile; where no shape of a warp divides it, its bytes read and written once."""
    inner, rows = source.extents
    if inner % source.panel == 0:
        wanted = offsets_of(smem_layout(target))
        if transposed:
            wanted = [wanted[y + x * rows] for y in range(rows) for x in range(inner)]
        ways = rewrites(offsets_of(smem_layout(source)), wanted, (inner, rows), source.element_bytes)
        cycles = min((price for _, price in ways), default=None)
        if cycles is not None:
            return cycles
    return 2 * target.size_bytes / SHARED_BYTES_PER_CYCLE


def pack(fields: tuple[DescriptorField, ...], values: Mapping[str, int]) -> int:
    """The bits of a descriptor. Asserts that each value fits its field: the rules have been checked before."""
    bits = 0
    for field in fields:
        part = values[field.name] >> field.shift
        assert 0 <= part < 1 << field.width, (field, values)
        bits |= part << field.low
    return bits


def canonical_strides(tile: SmemTile, major: Major, group_rows: int = CORE_ROWS) -> tuple[int, int]:
    """Leading and stride byte offsets (canonical layouts; unswizzled MN-major exchanges the two roles)."""
    group = group_rows * tile.row_bytes
    match major, tile.swizzle is Swizzle.NONE:
        case Major.K, False:
            return CORE_ROW_BYTES, group  # leading is unused; 1 is what the documents encode
        case Major.MN, True:
            return group, tile.panel_bytes
        case _:
            return tile.panel_bytes, group


def canonical_k_offsets(tile: SmemTile, major: Major, step: int) -> tuple[int, ...]:
    """Start of the operand of each instruction, which takes ``step`` elements along K.

    Inside a swizzle span the start moves by 32 bytes and leaves the pattern alone: the hardware permutes address bits
    above bit 3 by bits above bit 6, which the step does not reach.
    """
    if major is Major.MN:
        return tuple(first * tile.row_bytes for first in range(0, tile.extents[1], step))
    pairs = (divmod(first, tile.panel) for first in range(0, tile.extents[0], step))
    return tuple(panel * tile.panel_bytes + inner * tile.element_bytes for panel, inner in pairs)


def _fields(operand: WgmmaOperand, target: Target) -> dict[str, int]:
    tile, kind = operand.shared, operand.dtype
    leading, stride = canonical_strides(operand.shared, operand.major)
    return {
        "compute_capability": cc_of(target),
        "m": INSTRUCTION_M,
        "n": operand.n,
        "k": INSTRUCTION_K_BITS // kind.bits,
        "element_bits": kind.bits,
        "known_type": int(operand.accumulator in OPERAND_TYPES.get(kind.name, ())),
        "is_16bit_float": int(kind.is_float and kind.bits == 16),
        "is_integer": int(kind.is_int),
        "major": operand.major.value,
        "a_in_registers": 0,
        "b_in_registers": 0,
        "start_address": operand.base_bytes,
        "leading_bytes": leading,
        "stride_bytes": stride,
        "pattern_phase": operand.base_bytes % PATTERNS[tile.swizzle].repeat_bytes,
        "swizzle": tile.swizzle,
        "swizzle_span_bytes": PATTERNS[tile.swizzle].span_bytes,
        "row_bytes": tile.row_bytes,
        "instruction_mn": INSTRUCTION_M if operand.role is OperandRole.A else operand.n,
        "tile_mn": operand.tile_mn,
        "tile_k": operand.tile_k,
        "panel_mn": tile.panel,
    }
