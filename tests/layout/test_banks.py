"""The bank model against the published tables, and against a count that shares no code with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.attempts import attempt
from tilewright.hw.banks import ACCESSES, LaneGroupEvidence, bank_access
from tilewright.layout.banks import WaveAccess, instruction

TABLE = json.loads((Path(__file__).parents[1] / "data" / "smem_banks.json").read_text())["access"]
OPS = {
    "ld/st.shared 1,2,4 bytes": ("ld.shared.b32", "st.shared.b32"),
    "ld/st.shared 8 bytes (b64, v2.b32)": ("ld.shared.b64", "st.shared.b64"),
    "ld/st.shared 16 bytes (v4.b32, v2.b64)": ("ld.shared.b128", "st.shared.b128"),
    "ldmatrix/stmatrix .m8n8.b16 .x1": ("ldmatrix.x1", "stmatrix.x1"),
    "ldmatrix/stmatrix .m8n8.b16 .x2": ("ldmatrix.x2", "stmatrix.x2"),
    "ldmatrix/stmatrix .m8n8.b16 .x4": ("ldmatrix.x4", "stmatrix.x4"),
}
ROWS = [
    (("nvidia" if arch.startswith("nvidia") else arch), op, row)
    for arch, table in TABLE.items()
    for row in table["rows"]
    for op in OPS.get(row["op"], (row["op"],))
]


@pytest.mark.parametrize(("arch", "op", "row"), ROWS, ids=[f"{a}-{o}" for a, o, _ in ROWS])
def test_lane_groups_are_the_published_ones(arch: str, op: str, row: dict[str, Any]) -> None:
    access = ACCESSES[arch, op]
    assert access.bytes_per_lane == row["bytes_per_lane"]
    if row["lane_groups"] is None:
        assert access.groups is None
        assert access.evidence is LaneGroupEvidence.UNKNOWN
        return
    assert {frozenset(g) for g in access.groups or ()} == {frozenset(g) for g in row["lane_groups"]}
    assert access.phases == row["phases"]
    assert access.banks == row["banks"]


def test_every_row_is_published() -> None:
    assert {(a, o) for a, o, _ in ROWS} == set(ACCESSES)


def count(groups: list[list[int]], banks: int, size: int, address: Callable[[int], int]) -> list[int]:
    """Words per bank, byte by byte."""
    cycles: list[int] = []
    for group in groups:
        words = {(address(lane) + b) // 4 for lane in group for b in range(size)}
        cycles.append(max(sum(1 for w in words if w % banks == bank) for bank in range(banks)))
    return cycles


PATTERNS: dict[str, Callable[[int, int], int]] = {
    "consecutive": lambda t, n: t * n,
    "stride 2": lambda t, n: t * 2 * n,
    "stride 8": lambda t, n: t * 8 * n,
    "column of 128 B rows": lambda t, n: t * 128,
    "column of 144 B rows": lambda t, n: t * 144,
    "column of 256 B rows": lambda t, n: t * 256,
    "rows of 64 B, xor": lambda t, n: t * 64 ^ (t >> 1 & 3) << 4,
    "rows of 128 B, xor": lambda t, n: t * 128 ^ (t & 7) << 4,
    "broadcast": lambda t, n: 0,
    "two words of a bank": lambda t, n: t % 2 * 512,
    "tile of 16 rows": lambda t, n: t % 16 * 128 + t // 16 * 16,
    "tile of 32 rows": lambda t, n: t % 32 * 128 + t // 32 * 16,
}


@pytest.mark.parametrize(("arch", "op", "row"), ROWS, ids=[f"{a}-{o}" for a, o, _ in ROWS])
def test_cycles_agree_with_counting(arch: str, op: str, row: dict[str, Any]) -> None:
    if row["lane_groups"] is None:
        return
    access, size = ACCESSES[arch, op], row["bytes_per_lane"]
    step = size & -size
    for name, pattern in PATTERNS.items():

        def address(t: int, pattern: Callable[[int, int], int] = pattern) -> int:
            return pattern(t, size) // step * step

        cost = WaveAccess.of(access, address, name).cost
        assert sorted(cost.cycles) == sorted(count(row["lane_groups"], row["banks"], size, address))


KNOWN = [
    # NVIDIA: stride s of 4-byte words conflicts gcd(s, 32)-fold (CUDA Programming Guide, strided accesses)
    ("sm_90a", "ld.shared.b32", lambda t: 4 * t, 1, 1),
    ("sm_90a", "ld.shared.b32", lambda t: 8 * t, 2, 2),
    ("sm_90a", "ld.shared.b32", lambda t: 12 * t, 1, 1),
    ("sm_90a", "ld.shared.b32", lambda t: 128 * t, 32, 32),
    ("sm_90a", "ld.shared.b32", lambda t: 132 * t, 1, 1),
    ("sm_90a", "ld.shared.b32", lambda t: 0, 1, 1),
    ("sm_90a", "ld.shared.b64", lambda t: 8 * t, 1, 2),
    ("sm_90a", "ld.shared.b128", lambda t: 16 * t, 1, 4),
    ("sm_90a", "ld.shared.b128", lambda t: 32 * t, 2, 8),
    # a matrix is free of conflicts if its 8 rows lie in 8 different 16-byte columns
    ("sm_90a", "ldmatrix.x4", lambda t: 128 * t, 8, 32),
    ("sm_90a", "ldmatrix.x4", lambda t: 144 * t, 1, 4),
    ("sm_90a", "stmatrix.x4", lambda t: 64 * t, 4, 16),
    # CK's example: 128-byte rows read by 16 bytes, lanes 0-3 and 20-23 together
    ("gfx942", "ds_read_b128", lambda t: 16 * t, 1, 8),
    ("gfx942", "ds_read_b128", lambda t: 128 * (t % 16) + 16 * (t // 16), 4, 32),
]


@pytest.mark.parametrize(("target", "op", "address", "degree", "total"), KNOWN)
def test_published_degrees(target: str, op: str, address: Callable[[int], int], degree: int, total: int) -> None:
    cost = WaveAccess.of(instruction(target, op), address).cost
    assert (cost.degree, cost.total) == (degree, total)


def test_refusals() -> None:
    read = bank_access("sm_90a", "ld.shared.b128")
    assert attempt(lambda: WaveAccess(read, tuple(16 * t for t in range(32))).cost)[1] == ""
    assert attempt(lambda: WaveAccess(read, tuple(16 * t for t in range(31))).cost)[1] == "LAY027"
    assert attempt(lambda: WaveAccess(read, tuple(16 * t + 4 for t in range(32))).cost)[1] == "LAY027"
    assert attempt(lambda: instruction("gfx942", "ds_read_b96"))[1] == "LAY026"
    assert attempt(lambda: instruction("gfx90a", "ds_read_b32"))[1] == "LAY026"
    unknown = instruction("gfx950", "ds_write_b128")
    assert attempt(lambda: WaveAccess(unknown, tuple(16 * t for t in range(64))).cost)[1] == "LAY026"
