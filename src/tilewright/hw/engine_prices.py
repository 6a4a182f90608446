"""What asynchronous engines of one SM cost, in cycles and bytes per cycle of one H200 SM.

A wgmma of M = 64 multiplies N x K elements of B by 64 rows; the tensor cores do 4096 flops a cycle in 16 bits (989
TFLOP/s of 132 SMs at 1.83 GHz, NVIDIA H100 data sheet), twice that in 8 and half in tf32, so for every type one byte of
B costs 1/64 cycle (CUTLASS counts the same 128 cycles for m64n256k16). They take no less than reading the operands from
shared memory does: that rule gives 22, 40, 67 and 100 % of the rate for N = 8, 16, 32 and 64 with both operands there,
and 21, 38, 63 and 95 % were measured (arXiv 2402.13499, on an H800).

Latencies and the issue of an instruction are estimates, not measured on the H200; of what they contain, plain loads
were measured at 29 cycles from shared memory, 263 from the L2 cache and 479 from memory (same paper).
"""

from __future__ import annotations

from tilewright.hw.copy_prices import LINE_BYTES, LINE_CYCLES, SHARED_BYTES_PER_CYCLE

COPY_BYTES_PER_CYCLE = LINE_BYTES / (LINE_CYCLES + LINE_BYTES / SHARED_BYTES_PER_CYCLE)
"""Bytes of whole lines that tensor copies bring into one SM a cycle."""

TENSOR_BYTES_PER_CYCLE = 64.0
"""Bytes of the B operand that the tensor cores consume a cycle, whatever the element type."""

TENSOR_LATENCY_CYCLES = 32.0
"""From the last operand byte of a product to its result in registers (estimate)."""

COPY_LATENCY_CYCLES = 700.0
"""From the issue of a tensor copy to its first byte in shared memory, the line in L2 (estimate)."""

STORE_LATENCY_CYCLES = 400.0
"""From the issue of a bulk store to its completion beyond the reading of its source (estimate)."""

ISSUE_CYCLES = 4.0
"""One instruction of a warp, issued without waiting (estimate)."""

FEED_VECTOR_CYCLES = 7.0
"""One warp-wide cp.async of a producer that feeds products, beside its bytes in shared memory and those that the
products read there meanwhile (measured on H200, 8 and 4 bytes at a time: 4100 x 4100 x 4100, 16 x 8196 x 8196,
64 x 8198 x 8198 in benchmarks/results/unaligned.json)."""

FEED_ELEMENT_CYCLES = 10.4
"""The same of one element loaded and stored, 32 of a thread's loads under way at a time (measured: 4099 x 4097 x 4101
there)."""

STAGED_COPY_SECONDS = 2.0e-6
"""What a kernel that copies a small tensor takes beside its launch and its bytes (measured: with two copies
4100 x 4100 x 68 took 60 us, fed by threads 52; 1024 x 1024 x 1028 took 22 and 16)."""
