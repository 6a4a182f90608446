"""What the row of a target says, and the limits that all targets share.

Sources: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (limits); NVIDIA H100 and
H200 data sheets (rates). What was measured is in ``copy_prices``, ``engine_prices`` and ``sync_prices``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_CTA_THREADS = 1024
"""Threads of a CTA, at most, on every target (CUDA C++ Programming Guide, technical specifications)."""

MAX_GRID = (2**31 - 1, 65535, 65535)
"""CTAs of a grid along x, y and z, at most, on every target (same table)."""

MAX_VECTOR_BYTES = 16
"""Widest access of one thread to global or shared memory, sm_70 to sm_100 (PTX ISA, vectors: 128 bits)."""

NAMED_BARRIERS = 16
"""Named barriers of a CTA, on every target: ids 0 to 15 (PTX ISA 9.1, 9.7.13.1)."""

MBARRIER_BYTES = 8
"""Shared memory that an mbarrier takes (PTX ISA 9.1, 9.7.13.15.1)."""

STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel of any target may declare; more is dynamic and opted into (CUDA C++ Programming Guide,
compute capabilities)."""


_SYSTEM_SHARED_BYTES = 1024


class InstructionSet(Enum):
    """Families of instructions that only some targets have (PTX ISA 9.1, target notes of each)."""

    TMA = "bulk and tensor copies, transactions of mbarriers, clusters"
    WGMMA = "wgmma"
    TCGEN05 = "tcgen05"


@dataclass(frozen=True)
class Target:
    """One GPU architecture. ``shared_per_cta_bytes``: an SM's, less the KiB that the system keeps for each CTA."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    max_threads_per_cta: int = MAX_CTA_THREADS
    max_threads_per_sm: int = 2048
    max_ctas_per_sm: int = 32
    registers_per_sm: int = 65536
    max_registers_per_thread: int = 255
    shared_per_cta_bytes: int = 0
    instructions: frozenset[InstructionSet] = frozenset()
    product_schedules: str = "hopper"
    """The folder of ``schedule`` for matrix products; hopper's have some without wgmma, too."""
    clock_hz: float = 1.7e9
    memory_bytes_per_second: float = 1.0e12

    def __str__(self) -> str:
        return self.name

    def shared_bytes_of(self, ctas: int) -> int:
        """The shared memory available to each of ``ctas`` CTAs that share an SM."""
        return (self.shared_per_cta_bytes + _SYSTEM_SHARED_BYTES) // ctas - _SYSTEM_SHARED_BYTES
