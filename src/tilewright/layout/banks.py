"""Bank conflicts of one access of a wave: cycles per phase, and the worst degree (``hw.banks`` has the facts)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.diag import fail
from tilewright.hw.banks import ACCESSES, BankAccess, access_cycles
from tilewright.layout.checks import integer


@dataclass(frozen=True)
class BankCost:
    """Cycles of every phase of an access; 1 for a phase in which no bank serves two words."""

    access: BankAccess
    cycles: tuple[int, ...]

    @property
    def total(self) -> int:
        """Cycles of the access."""
        return sum(self.cycles)

    @property
    def degree(self) -> int:
        """The most words that one bank serves in one phase: 1 is free of conflicts."""
        return max(self.cycles)

    def __str__(self) -> str:
        return f"{self.access.op}: {self.total} cycles in {self.access.phases} phases, degree {self.degree}"


@dataclass(frozen=True)
class WaveAccess:
    """One instruction of one wave: the byte address of every lane. LAY026 where the instruction's phases are unknown,
    LAY027 for a wrong number of addresses or a misaligned one."""

    access: BankAccess
    addresses: tuple[int, ...]
    name: str = ""

    def __post_init__(self) -> None:
        access = self.access
        if access.groups is None:
            fail(
                "LAY026",
                found=f"{access.op} on {access.architecture}: {access.source}",
                required="known lane groups",
                help="use another width, or measure the instruction and add its row to hw.banks",
            )
        if len(self.addresses) != access.lanes:
            fail(
                "LAY027",
                found=f"{len(self.addresses)} addresses",
                required=f"{access.lanes} for {access.op}",
                help="give the byte address of every lane of the wave",
            )
        step = access.bytes_per_lane & -access.bytes_per_lane
        for lane, address in enumerate(self.addresses):
            if integer(address, "address") < 0 or address % step:
                fail(
                    "LAY027",
                    found=f"lane {lane} at {address}",
                    required=f"a multiple of {step} for {access.op}",
                    help="align every address to the width of the access",
                )

    @staticmethod
    def of(access: BankAccess, address: Callable[[int], int], name: str = "") -> WaveAccess:
        """The access whose lane t has ``address(t)``."""
        return WaveAccess(access, tuple(address(t) for t in range(access.lanes)), name)

    @property
    def label(self) -> str:
        """Name for messages."""
        return self.name or self.access.op

    def moved(self, to: Callable[[int], int]) -> WaveAccess:
        """The same access to a tile whose bytes are permuted by a swizzle or by padding."""
        return WaveAccess(self.access, tuple(map(to, self.addresses)), self.name)

    @property
    def cost(self) -> BankCost:
        """Bank cycles of the access."""
        return BankCost(self.access, access_cycles(self.access, self.addresses))


def instruction(architecture: str, op: str) -> BankAccess:
    """The row of an instruction (LAY026 when there is none); every sm_* is ``nvidia``."""
    family = "nvidia" if architecture.startswith("sm_") else architecture
    found = ACCESSES.get((family, op))
    if found is None:
        known = ", ".join(o for a, o in ACCESSES if a == family) or "no instruction of this architecture"
        fail(
            "LAY026",
            title="the bank model has no such instruction",
            found=f"{op} on {architecture}",
            required=known,
            help=f"name an instruction of {', '.join(sorted({a for a, _ in ACCESSES}))}",
        )
    return found
