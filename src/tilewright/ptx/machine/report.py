"""Faults that an execution found: with the instruction, the thread, the address."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.diag import Diagnostic, Location, TilewrightError
from tilewright.ptx.syntax import Instruction

MOST = 16
"""Faults that one execution keeps."""


@dataclass(frozen=True)
class MachineFault:
    """One finding. ``code`` is PTX010 and up; ``cta`` and ``thread`` are linear; ``world`` the schedule, from 0."""

    code: str
    instruction: Instruction
    cta: int
    thread: int
    world: int
    detail: str

    def __str__(self) -> str:
        at = f"line {self.instruction.line}, {self.instruction.name}"
        return f"{self.code} {at}: thread {self.thread} of CTA {self.cta}, schedule {self.world}: {self.detail}"


@dataclass
class MachineReport:
    """``faults`` found, at most ``MOST``; ``steps`` segments executed.

    ``differing`` are the tensors whose bytes depend on the schedule; ``executed`` instructions, by index, with which
    an executed segment began.
    """

    faults: list[MachineFault] = field(default_factory=list[MachineFault])
    steps: int = 0
    differing: tuple[str, ...] = ()
    executed: set[int] = field(default_factory=set[int])

    def __bool__(self) -> bool:
        return not self.faults and not self.differing

    def require(self, entry: str) -> None:
        """Raise ``TilewrightError`` with every fault."""
        found = [
            Diagnostic(f.code, where=Location(f"<ptx {entry}>", f.instruction.line), found=str(f)) for f in self.faults
        ]
        if self.differing:
            found.append(
                Diagnostic("PTX016", found=", ".join(self.differing), required="the same bytes in all schedules")
            )
        if found:
            raise TilewrightError(tuple(found))


class Stop(Exception):
    """The execution can't go on: a deadlock, an instruction that the machine lacks, too many faults or steps."""
