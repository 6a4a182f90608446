"""What moving tiles into shared memory costs, by method: the price model that ranks repairs.

A kernel streams tiles through a ring of shared-memory slots. Its time is the longer of two: the memory's, for each byte
of the tensor once, and the SMs', for every tile that each of them brings in. The cycles of a tile are counted from what
the method does: lines that the copy unit fetches, instructions that threads issue, latencies that nothing hides.

Figures marked *measured* are of one H200 at 1.98 GHz: plain rings of 2 and 16 KiB tiles from the L2 cache and from
memory, two CTAs an SM with 128 copying threads each (``tools/tma_prices.py``, the rates in
``benchmarks/results/repair_prices.json``). No figure is taken from the accesses that the predictions are compared on.
"""

from __future__ import annotations

from enum import Enum

from tilewright.hw.target import Target


class CopyMethod(Enum):
    """A method of copying a tile to shared memory."""

    TENSOR_COPY = "tensor copy"
    CP_ASYNC = "cp.async"
    LOADS = "loads and stores"


SHARED_BYTES_PER_CYCLE = 128.0
"""Shared-memory bandwidth of an SM: 32 banks of 4 bytes (CUDA Programming Guide, shared memory)."""

LINE_BYTES = 128
"""The largest unit that the copy unit fetches."""
LINE_CYCLES = 1.0
"""A request of one line or part of one, beside its bytes in shared memory: whole lines arrive at 64 bytes a cycle, rows
of 64, 32 and 16 bytes at 39, 26 and 15 (measured)."""
ASKEW_BYTES_PER_CYCLE = 26.0
"""Rows without swizzle whose places in shared memory and in the tensor drift apart from row to row, modulo a line: rows
of 144 to 528 bytes arrive at 20 to 31 bytes a cycle, rows of 256 to 1024 that do not drift at 59 to 73 (measured)."""
BOX_CYCLES = 8.0
"""Issue of one tensor copy (measured)."""
SLOT_CYCLES = 220.0
"""Waits and arrivals of one slot of the ring: a tile takes no less (measured)."""

THREAD_SLOT_CYCLES = 270.0
"""The same where threads copy, before the first vector: coordinates and predicates come on top (measured)."""
VECTOR_CYCLES = 10.5
"""InstructionSet of one warp-wide vector beside its bytes in shared memory: address, predicate, copy (measured)."""
LOAD_LATENCY_CYCLES = 500.0
"""Time until a round of loads has arrived, which the threads that store them wait for (measured)."""
COPY_THREADS = 128
LOADS_TOGETHER = 8
"""Vectors a thread holds in registers at once."""

SHIFTED_LOAD_CYCLES = 1.2
"""One warp-wide load of single elements at addresses known before the tile, beside its bytes: 128 rows of 128 bytes of
e4m3, four loads a row, take 680 to 800 cycles with all else (measured)."""

MEMORY_EFFICIENCY = 0.8
"""Share of the memory's peak bandwidth that streams reach, read or written (measured: 3.8 of 4.8 TB/s)."""
CACHE_BYTES = 50_000_000
"""L2 cache (H100 and H200 data sheets): a staged copy that fits is read from it; the beginning of a larger one has left
it by the time it is read."""
LAUNCH_SECONDS = 3.4e-6
"""The time of one more kernel in the same stream (measured)."""


def lines_of_row(row_bytes: int, align_bytes: int) -> float:
    """Lines that a row touches on average, if rows begin anywhere at multiples of ``align_bytes``, which divides a
    line."""
    starts = range(0, LINE_BYTES, align_bytes)
    return sum(-(-(start + row_bytes) // LINE_BYTES) for start in starts) / len(starts)


def tensor_copy_cycles(
    rows: int, row_bytes: int, boxes: int, align_bytes: int = LINE_BYTES, askew: bool = False
) -> float:
    """Cycles of one tile that ``boxes`` tensor copies bring in: ``rows`` rows of ``row_bytes`` in all, which begin at
    multiples of ``align_bytes``; ``askew`` if rows without swizzle lie otherwise apart than in the tensor, modulo a
    line."""
    row = lines_of_row(row_bytes, align_bytes) * LINE_CYCLES + row_bytes / SHARED_BYTES_PER_CYCLE
    if askew:
        row = max(row, row_bytes / ASKEW_BYTES_PER_CYCLE)
    return max(rows * row + boxes * BOX_CYCLES, SLOT_CYCLES)


def thread_copy_cycles(method: CopyMethod, tile_bytes: int, vector_bytes: int) -> float:
    """Cycles of one tile that threads copy in vectors of ``vector_bytes``."""
    vectors = -(-tile_bytes // vector_bytes)
    issue = vectors / 32 * VECTOR_CYCLES + tile_bytes / SHARED_BYTES_PER_CYCLE
    rounds = -(-vectors // (COPY_THREADS * LOADS_TOGETHER)) if method is CopyMethod.LOADS else 0
    return THREAD_SLOT_CYCLES + issue + rounds * LOAD_LATENCY_CYCLES


def shifted_read_cycles(rows: int, columns: int, element_bytes: int) -> float:
    """Cycles of the threads that read a tile whose rows lie shifted, beyond those that any reader takes.

    Shifted rows can't be read 16 bytes at a time: a warp loads 32 elements of one row. It takes rows of the same class
    in every tile, so that the shift is a part of its addresses and costs nothing.
    """
    loads = rows * -(-columns // 32)
    return loads * SHIFTED_LOAD_CYCLES + rows * columns * element_bytes / SHARED_BYTES_PER_CYCLE


def stream_seconds(
    tile_cycles: float, tiles: int, memory_bytes: int, target: Target, read_cycles: float = 0.0
) -> float:
    """Time to bring in ``tiles`` tiles, spread over all SMs, that take ``memory_bytes`` from memory.

    ``read_cycles`` are those of readers beyond vectors of 16 bytes, whose cycles are among those of the slot. Other
    warps copy meanwhile, but nothing overlaps the first tile.
    """
    busy = tiles * max(tile_cycles, read_cycles) / (target.sm_count * target.clock_hz)
    return max(busy, memory_seconds(memory_bytes, target)) + (tile_cycles + read_cycles) / target.clock_hz


def staging_seconds(tensor_bytes: int, target: Target, staged_bytes: int | None = None) -> float:
    """Time to copy a tensor once into an aligned layout of ``staged_bytes`` (as many, if None)."""
    written = tensor_bytes if staged_bytes is None else staged_bytes
    return memory_seconds(tensor_bytes + written, target) + LAUNCH_SECONDS


def memory_seconds(moved_bytes: int, target: Target) -> float:
    """Time of a stream of ``moved_bytes`` to or from memory."""
    return moved_bytes / (MEMORY_EFFICIENCY * target.memory_bytes_per_second)
