"""What moving bytes into shared memory costs, by method: the price model that ranks repairs.

Rates are bytes per cycle and SM. The ceiling of 64 for tensor copies is the L2-to-SM path; the others follow from the
issue slots a method spends: a warp instruction moves 32 vectors, cp.async needs one instruction a vector, a load
through registers two and the address arithmetic. They are estimates, and each says so.
"""

from __future__ import annotations

from enum import Enum

from tilewright.hw.target import Target


class CopyMethod(Enum):
    """How a tile's bytes reach shared memory."""

    TENSOR_COPY = "tensor copy"
    CP_ASYNC = "cp.async"
    LOADS = "loads and stores"


SHARED_BYTES_PER_CYCLE = 128.0
"""Shared-memory bandwidth of an SM: 32 banks of 4 bytes (CUDA Programming Guide, shared memory)."""

TENSOR_COPY_RATE = 64.0
THREAD_COPY_RATE = 40.0
"""Ceiling of copies issued by threads: address arithmetic and barrier arrivals of the producer warps (estimate)."""
_ISSUE_CYCLES = {CopyMethod.CP_ASYNC: 6.0, CopyMethod.LOADS: 14.0}
"""Issue cycles of one warp-wide vector: instruction, address and predicate (estimate)."""

EXTRA_COPY_CYCLES = 24.0
"""Issue and completion of one more tensor copy for the same tile, not hidden at small tiles (estimate)."""

THREAD_TILE_CYCLES = 120.0
"""Addresses, predicates and barrier arrivals of a tile that threads copy, whatever its size (estimate)."""

LAUNCH_SECONDS = 3.0e-6
"""One more kernel launch in the same stream (estimate)."""

STAGING_EFFICIENCY = 0.85
"""Share of the memory bandwidth a plain copy kernel reaches (estimate)."""


def rate(method: CopyMethod, vector_bytes: int) -> float:
    """Bytes per cycle and SM of ``method`` with vectors of ``vector_bytes``."""
    if method is CopyMethod.TENSOR_COPY:
        return TENSOR_COPY_RATE
    return min(THREAD_COPY_RATE, 32 * vector_bytes / _ISSUE_CYCLES[method])


def copy_seconds(method: CopyMethod, total_bytes: int, vector_bytes: int, target: Target) -> float:
    """Time to move ``total_bytes`` into shared memory, spread over all SMs."""
    return total_bytes / (rate(method, vector_bytes) * target.sm_count * target.clock_hz)


def staging_seconds(tensor_bytes: int, target: Target) -> float:
    """Time to copy a tensor once into an aligned layout: read, write, launch."""
    return 2 * tensor_bytes / (STAGING_EFFICIENCY * target.memory_bytes_per_second) + LAUNCH_SECONDS


def split_seconds(extra_copies: int, tiles: int, target: Target) -> float:
    """Time of ``extra_copies`` more tensor copies for each of ``tiles`` tiles, spread over all SMs."""
    return extra_copies * tiles * EXTRA_COPY_CYCLES / (target.sm_count * target.clock_hz)


def thread_seconds(tiles: int, target: Target) -> float:
    """Fixed time of ``tiles`` tiles copied by threads, spread over all SMs."""
    return tiles * THREAD_TILE_CYCLES / (target.sm_count * target.clock_hz)
