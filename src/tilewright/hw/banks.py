"""Banks of shared memory (NVIDIA) and LDS (AMD): which lanes of an access are served together, and what it costs.

An access of a wave is served in phases, one group of lanes after the other. In a phase each bank delivers one word of 4
bytes per cycle; lanes that want the same word share it, different words of one bank follow one another::

    cycles = sum over phases of (max over banks of distinct words)        bank = address // 4 % banks

Which lanes form a phase depends on the architecture and the instruction, not on the width alone: ds_read_b128 of gfx942
pairs lanes 0-3 with 20-23. Each row says where that is known from. Sources:

- CUDAPG: CUDA Programming Guide, shared memory (banks, broadcast) and compute capabilities, table 31
- CUTISSUE: CUTLASS issue 328 and maxas issue 8: half and quarter warps for 8 and 16 bytes
- PTX: PTX ISA 9.1, 9.7.14.5.15 (ldmatrix row addresses)
- H200: cycles of 95 accesses timed there, all within 1 % of these rows (benchmarks/results/bank_conflicts.json)
- CK: AMD Composable Kernel, lds_bank_conflicts; ROCMBLOG: ROCm blog on LDS bank conflicts, 2025-07-25
- SHARK: amd-shark-ai docs/empirical-lds (measured); HK: HipKittens phase solver (measured); TRITON: triton PR 11365
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

BANKS = 32
BANK_BYTES = 4
LINE_BYTES = BANKS * BANK_BYTES
"""Bytes that NVIDIA's banks deliver in one cycle."""


class LaneGroupEvidence(Enum):
    """The evidence for the lane groups of a row."""

    DOCUMENTED = "documented"
    MEASURED = "measured"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class BankAccess:
    """One instruction's access: ``lanes`` addresses of ``bytes_per_lane``, served in ``groups`` of lanes.

    ``groups`` is None where nobody knows them. Lanes in no group supply no address.
    """

    architecture: str
    op: str
    bytes_per_lane: int
    lanes: int
    groups: tuple[tuple[int, ...], ...] | None
    banks: int
    evidence: LaneGroupEvidence
    source: str

    @property
    def line_bytes(self) -> int:
        """Bytes that all banks deliver in one cycle."""
        return self.banks * BANK_BYTES

    @property
    def phases(self) -> int:
        """Cycles of an access without conflicts; 0 when the groups are not known."""
        return len(self.groups or ())


def phase_cycles(addresses: Sequence[int], bytes_per_lane: int, banks: int = BANKS) -> int:
    """Cycles of one phase: the most distinct words that one bank must deliver."""
    words = {w for a in addresses for w in range(a // BANK_BYTES, (a + bytes_per_lane - 1) // BANK_BYTES + 1)}
    load = [0] * banks
    for word in words:
        load[word % banks] += 1
    return max(load)


def access_cycles(access: BankAccess, addresses: Sequence[int]) -> tuple[int, ...]:
    """Cycles of every phase; ``addresses`` are the lanes' byte addresses. The groups must be known."""
    assert access.groups is not None, f"{access.op}: callers refuse unknown groups"
    return tuple(
        phase_cycles([addresses[lane] for lane in group], access.bytes_per_lane, access.banks)
        for group in access.groups
    )


# -- lane groups ----------------------------------------------------------------------------------------------------


def _consecutive(lanes: int, together: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(start, start + together)) for start in range(0, lanes, together))


def _agreeing(key: Callable[[int], object]) -> tuple[tuple[int, ...], ...]:
    """Of 64 lanes those with equal keys are served together."""
    groups: dict[object, list[int]] = {}
    for lane in range(64):
        groups.setdefault(key(lane), []).append(lane)
    return tuple(map(tuple, groups.values()))


_CDNA3_WIDE = _agreeing(lambda t: (t >> 5 & 1, t >> 3 & 1, (t >> 2 ^ t >> 4) & 1))
"""Eight phases; a phase agrees on lane bits 5 and 3 and on bit 2 xor bit 4 (CK, SHARK, TRITON)."""
_CDNA4_WIDE = _agreeing(lambda t: (t >> 5 & 1, (t >> 2 ^ t >> 3 ^ t >> 4) & 1))
"""Four phases; a phase agrees on lane bit 5 and on bits 2 xor 3 xor 4 (SHARK, HK, TRITON)."""


def _nvidia() -> tuple[BankAccess, ...]:
    rows: list[BankAccess] = []
    for way in ("ld", "st"):
        for size, together in ((4, 32), (8, 16), (16, 8)):
            known = LaneGroupEvidence.DOCUMENTED if size == 4 else LaneGroupEvidence.MEASURED
            source = "CUDAPG" if size == 4 else "CUTISSUE, H200"
            groups = _consecutive(32, together)
            rows.append(BankAccess("nvidia", f"{way}.shared.b{8 * size}", size, 32, groups, 32, known, source))
        for matrices in (1, 2, 4):
            groups = _consecutive(8 * matrices, 8)
            op = f"{way}matrix.x{matrices}"
            rows.append(BankAccess("nvidia", op, 16, 32, groups, 32, LaneGroupEvidence.MEASURED, "PTX, H200"))
    return tuple(rows)


def _amd(
    architecture: str,
    rows: Sequence[tuple[str, int, tuple[tuple[int, ...], ...] | None, int, LaneGroupEvidence, str]],
) -> tuple[BankAccess, ...]:
    return tuple(BankAccess(architecture, op, size, 64, g, banks, e, s) for op, size, g, banks, e, s in rows)


ACCESSES: dict[tuple[str, str], BankAccess] = {
    (a.architecture, a.op): a
    for a in (
        *_nvidia(),
        *_amd(
            "gfx942",
            (
                ("ds_read_b32", 4, _consecutive(64, 32), 32, LaneGroupEvidence.MEASURED, "SHARK"),
                ("ds_read_b64", 8, _consecutive(64, 16), 32, LaneGroupEvidence.MEASURED, "SHARK"),
                ("ds_read_b128", 16, _CDNA3_WIDE, 32, LaneGroupEvidence.DOCUMENTED, "CK, ROCMBLOG, SHARK, TRITON"),
                ("ds_write_b64", 8, _consecutive(64, 16), 32, LaneGroupEvidence.ASSUMED, "HK (measured on gfx950)"),
                ("ds_write_b128", 16, _consecutive(64, 8), 32, LaneGroupEvidence.DOCUMENTED, "CK, ROCMBLOG"),
            ),
        ),
        *_amd(
            "gfx950",
            (
                ("ds_read_b32", 4, _consecutive(64, 64), 64, LaneGroupEvidence.MEASURED, "SHARK"),
                ("ds_read_b64", 8, _consecutive(64, 32), 64, LaneGroupEvidence.MEASURED, "SHARK, HK"),
                ("ds_read_b96", 12, _CDNA3_WIDE, 32, LaneGroupEvidence.MEASURED, "HK"),
                ("ds_read_b128", 16, _CDNA4_WIDE, 64, LaneGroupEvidence.MEASURED, "SHARK, HK, TRITON"),
                ("ds_write_b64", 8, _consecutive(64, 16), 32, LaneGroupEvidence.MEASURED, "HK"),
                ("ds_write_b128", 16, None, 0, LaneGroupEvidence.UNKNOWN, "no document and no measurement found"),
            ),
        ),
    )
}
"""By (architecture, instruction); NVIDIA's rows hold for sm_80 to sm_100."""


def bank_access(architecture: str, op: str) -> BankAccess:
    """The row of an instruction; sm_* is ``nvidia``. KeyError when there is none."""
    return ACCESSES["nvidia" if architecture.startswith("sm_") else architecture, op]
