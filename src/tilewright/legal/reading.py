"""The cost of reading a tile from shared memory: vector width, bank cycles, worst conflict degree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.hw.banks import BANK_BYTES, access_cycles, bank_access
from tilewright.layout.register import LANES, RegisterLayout

VECTOR_BYTES = 16
"""Widest shared-memory access of a thread (PTX ISA, ld.shared vectors)."""


@dataclass(frozen=True)
class TileReadCost:
    """Bank cycles of all accesses to one tile; ``degree`` is the most cycles of one phase (1: no conflict)."""

    cycles: int
    degree: int


def vector_along(offsets: Sequence[int], extents: tuple[int, int], axis: int, size: int) -> int:
    """The longest aligned vector of at most 16 bytes that lies consecutively along ``axis``, in elements.

    ``offsets`` are in elements, by index of a coordinate of ``extents``, axis 0 fastest.
    """
    step, other = (1, extents[0]) if axis == 0 else (extents[0], 1)
    vector = 1
    while 2 * vector * size <= VECTOR_BYTES and extents[axis] % (2 * vector) == 0:
        wide = 2 * vector
        starts = (a * step + b * other for a in range(0, extents[axis], wide) for b in range(extents[1 - axis]))
        if not all(
            offsets[s] % wide == 0 and all(offsets[s + i * step] == offsets[s] + i for i in range(1, wide))
            for s in starts
        ):
            break
        vector = wide
    return vector


def reading(
    layout: RegisterLayout, vector: int, offsets: Sequence[int], extents: tuple[int, int], size: int
) -> TileReadCost:
    """Bank cycles of reading a whole tile as ``layout``, ``vector`` elements at a time along its first dimension.
    Accesses narrower than 4 bytes cost as much as 4 bytes."""
    width = max(vector * size, BANK_BYTES)
    access = bank_access("sm_90a", f"ld.shared.b{8 * width}")
    cycles, degree = 0, 1
    for indices in _accesses(layout, vector, extents[0]):
        phases = access_cycles(access, [offsets[i] * size // width * width for i in indices])
        cycles += sum(phases)
        degree = max(degree, *phases)
    return TileReadCost(cycles, degree)


@lru_cache(maxsize=64)
def _accesses(layout: RegisterLayout, vector: int, columns: int) -> tuple[tuple[int, ...], ...]:
    """The index of the first element that each lane takes, for every access of every warp."""
    result: list[tuple[int, ...]] = []
    for warp in range(layout.warps):
        for register in range(0, layout.registers, vector):
            places = (layout.coordinate(LANES * warp + lane, register) for lane in range(LANES))
            result.append(tuple(x + y * columns for x, y in places))
    return tuple(result)
