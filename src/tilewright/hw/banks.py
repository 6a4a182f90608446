"""Shared-memory banks of NVIDIA GPUs: what one access of a warp costs.

Sources: CUDA C++ Programming Guide, compute capabilities (32 banks of 4 bytes, broadcast of one word). Accesses of 8
and 16 bytes per lane are served in half and quarter warps (practice; no vendor document found).
"""

from __future__ import annotations

from collections.abc import Sequence

BANKS = 32
BANK_BYTES = 4


def wavefronts(addresses: Sequence[int], bytes_per_lane: int) -> int:
    """Cycles in which the banks serve one access: ``addresses`` are the byte addresses of the lanes, in lane order.

    Lanes of one phase that touch the same word share it; different words in one bank follow one another.
    """
    lanes_per_phase = max(1, min(32, 128 // max(bytes_per_lane, BANK_BYTES)))
    total = 0
    for start in range(0, len(addresses), lanes_per_phase):
        words: dict[int, set[int]] = {}
        for address in addresses[start : start + lanes_per_phase]:
            for word in range(address // BANK_BYTES, (address + bytes_per_lane - 1) // BANK_BYTES + 1):
                words.setdefault(word % BANKS, set()).add(word)
        total += max((len(w) for w in words.values()), default=0)
    return total
