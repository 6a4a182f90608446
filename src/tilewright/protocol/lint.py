"""Habits in a protocol that are legal and yet worth a word: warnings, never part of a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.diag import Diagnostic, Severity
from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol.edit import spots
from tilewright.protocol.effects import Await, Grain, Signal
from tilewright.protocol.model import By, Protocol, Role, Step


def lints(protocol: Protocol) -> Iterator[Diagnostic]:
    """Warnings MBR008 and MBR036."""
    for spot, step in spots(protocol):
        yield from _election(protocol.roles[spot.role], step)
    yield from _idle_barriers(protocol)


def _election(role: Role, step: Step) -> Iterator[Diagnostic]:
    if step.by is By.THREAD_ZERO:
        yield Diagnostic(
            "MBR008",
            where=step.where,
            found=f"{type(step.op).__name__} of {role.name} under threadIdx.x == 0",
            required="one thread picked by elect.sync, in a warp picked by a value that the whole warp shares",
            help="use elected(...): elect.sync behind a warp index that was broadcast",
            severity=Severity.WARNING,
        )
    elif step.by is By.ALL and role.threads > WARP_THREADS and step.op.grain in (Grain.ELECTED, Grain.ONE):
        yield Diagnostic(
            "MBR008",
            where=step.where,
            found=f"{type(step.op).__name__} by all {role.threads} threads of {role.name}",
            required="one elected thread: the op works for all of them",
            help="use elected(...)",
            severity=Severity.WARNING,
        )


def _idle_barriers(protocol: Protocol) -> Iterator[Diagnostic]:
    """Barriers on which no thread arrives, or on which none waits."""
    arrived: set[str] = set()
    waited: set[str] = set()
    for _, step in spots(protocol):
        waited |= {e.bar.barrier for e in step.op.of(Await)}
        arrived |= {e.bar.barrier for e in step.op.of(Signal) if e.arrivals}
    for barrier in protocol.barriers:
        lacks = [word for word, names in (("arrives at", arrived), ("waits for", waited)) if barrier.name not in names]
        if lacks:
            yield Diagnostic(
                "MBR036",
                found=f"nobody {' or '.join(lacks)} mbarrier {barrier.name}",
                required="arrivals and waits",
                help=f"drop {barrier.name}, or add what is missing",
                severity=Severity.WARNING,
            )
