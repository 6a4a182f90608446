"""Philox4x32-10 in Python's integers, from the paper's text, and what Random123 is known to answer."""

from __future__ import annotations

from collections.abc import Sequence

KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Counter, key and answer (DEShawResearch/random123, tests/kat_vectors, philox4x32 with 10 rounds)."""


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Salmon et al. (SC 2011), 3.3: S-boxes by products of 32-bit words, a permutation, and a key that moves on."""
    r0, l0, r1, l1 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = divmod(r0 * 0xD2511F53, 1 << 32), divmod(r1 * 0xCD9E8D57, 1 << 32)
        r0, l0, r1, l1 = p1[0] ^ l0 ^ k0, p1[1], p0[0] ^ l1 ^ k1, p0[1]
        k0, k1 = (k0 + 0x9E3779B9) % (1 << 32), (k1 + 0xBB67AE85) % (1 << 32)
    return [r0, l0, r1, l1]


def uniform(seed: int, index: int) -> float:
    """What ``tw.rand`` gives."""
    wide = index % (1 << 64)
    words = philox((wide % (1 << 32), wide >> 32, 0, 0), (seed % (1 << 32), seed % (1 << 64) >> 32))
    return (words[0] >> 8) / (1 << 24)
