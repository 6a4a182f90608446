"""Compilation targets, a row each: the limits of an architecture, from the vendor's documents.

Sources: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (limits); NVIDIA H100 and
H200 data sheets (rates). What was measured is in ``copy_prices``, ``engine_prices`` and ``sync_prices``.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    has_tma: bool = False
    has_wgmma: bool = False
    clock_hz: float = 1.7e9
    memory_bytes_per_second: float = 1.0e12

    def __str__(self) -> str:
        return self.name

    def shared_bytes_of(self, ctas: int) -> int:
        """What each of ``ctas`` CTAs that share an SM may have."""
        return (self.shared_per_cta_bytes + _SYSTEM_SHARED_BYTES) // ctas - _SYSTEM_SHARED_BYTES


SM80 = Target(
    "sm_80",
    (8, 0),
    sm_count=108,
    shared_per_cta_bytes=166_912,
    clock_hz=1.41e9,
    memory_bytes_per_second=2.04e12,
)
SM90A = Target(
    "sm_90a",
    (9, 0),
    sm_count=132,
    shared_per_cta_bytes=232_448,
    has_tma=True,
    has_wgmma=True,
    clock_hz=1.83e9,
    memory_bytes_per_second=4.8e12,
)
SM100A = Target(
    "sm_100a",
    (10, 0),
    sm_count=148,
    shared_per_cta_bytes=232_448,
    has_tma=True,
    clock_hz=1.85e9,
    memory_bytes_per_second=8.0e12,
)

TARGETS: dict[str, Target] = {t.name: t for t in (SM80, SM90A, SM100A)}
