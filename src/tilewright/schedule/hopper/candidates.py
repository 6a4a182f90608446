"""The schedules tried for a kernel with matrix products, best first, and what each becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.base.expr import Expr
from tilewright.hw.target import Target
from tilewright.lang.schedule import Mode, Schedule
from tilewright.schedule.facts import Facts
from tilewright.schedule.hopper.lower import RoleLowering
from tilewright.schedule.hopper.memory import lay_out
from tilewright.schedule.hopper.operands import ROWS, Analysis
from tilewright.schedule.hopper.place import MAX_REGISTERS, Refused, fragment_words, place_around
from tilewright.schedule.hopper.rings import group
from tilewright.schedule.plan import Placement
from tilewright.schedule.relayout import separated
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as transport

MAX_STAGES = 5
"""More have bought nothing on H200: five steps of 64 are some 3 microseconds of copies in flight."""

SEVERAL_RINGS_STAGES = 2
"""Rings side by side multiply the states of a proof; two stages each keep it short, and cost attention nothing."""


@dataclass(frozen=True)
class Candidate:
    """One way to schedule: consumer warpgroups, whether tensor copies and matrix stores may be used."""

    warpgroups: int
    copies: bool = True
    matrix_stores: bool = True
    ordinary: bool = False
    stages: int | None = None

    def __str__(self) -> str:
        how = "tensor copies in rings where legal" if self.copies else "tiles staged by the threads themselves"
        if self.ordinary:
            how = "products by ordinary arithmetic"
        out = "stored by tensor copies where legal" if self.matrix_stores else "stored from registers"
        return f"{self.warpgroups} consumer warpgroups, {how}, {out}"


@dataclass(frozen=True)
class Scheduled:
    """A lowered kernel with its placement and a note on what was chosen."""

    kernel: transport.Kernel
    placement: Placement
    notes: tuple[str, ...]
    guards: tuple[Expr, ...] = ()
    """Predicates over sizes that the tensor maps need at launch."""


CANDIDATES = (
    Candidate(2),
    Candidate(1),
    Candidate(2, matrix_stores=False),
    Candidate(2, copies=False),
    Candidate(1, copies=False),
    Candidate(1, copies=False, matrix_stores=False),
    Candidate(2, copies=False, matrix_stores=False, ordinary=True),
    Candidate(1, copies=False, matrix_stores=False, ordinary=True),
)


def pinned(candidate: Candidate, pins: Schedule) -> Candidate | None:
    """The candidate with a person's pins in place; None if it is another one than he asked for."""
    if pins.consumers is not None and candidate.warpgroups != pins.consumers:
        return None
    return replace(candidate, stages=pins.stages)


def unknown_pins(pins: Schedule) -> str:
    """Pins that no schedule here can keep."""
    found = [
        f"{name}={value}"
        for name, value in (
            ("warps", pins.warps),
            ("cluster", pins.cluster if pins.cluster != (1, 1) else None),
            ("persistent", None if pins.persistent in (None, True) else pins.persistent),
            ("rows_per_cta", pins.rows_per_cta),
            ("vector", pins.vector),
            ("registers", pins.registers),
            ("mode", pins.mode if pins.mode not in (None, Mode.COOPERATIVE) else None),
        )
        if value is not None
    ]
    if pins.consumers not in (None, 1, 2):
        found.append(f"consumers={pins.consumers}")
    return ", ".join(found)


def has_products(kernel: tile.Kernel) -> bool:
    """Whether the kernel multiplies matrices."""
    return any(isinstance(op, tile.Dot) for op in kernel.walk())


def schedule(
    kernel: tile.Kernel, facts: Facts, target: Target, candidate: Candidate, assumptions: tuple[Expr, ...]
) -> Scheduled | Refused:
    """The kernel under one candidate, with as many stages as shared memory holds; or why it can't be."""
    kernel = separated(kernel)
    dots = Analysis(kernel, facts, candidate.warpgroups, candidate.copies, candidate.ordinary).dots()
    if isinstance(dots, str):
        return Refused(dots)
    if candidate.warpgroups > 1 and any(p.shape[0] <= ROWS * (candidate.warpgroups - 1) for p in dots):
        return Refused(f"no rows for {candidate.warpgroups} warpgroups")
    placement = place_around(kernel, dots, facts, candidate.warpgroups, assumptions, persistent=True)
    if isinstance(placement, Refused):
        return placement
    words = fragment_words(kernel, dots, placement)
    if words > MAX_REGISTERS:
        return Refused(f"accumulators take {words} registers of each thread")
    reason = ""
    streams = sum(isinstance(r.block.parent_op(), tile.Stream) for r in group(dots, 1))
    deepest = MAX_STAGES if streams == 1 else SEVERAL_RINGS_STAGES
    for stages in range(deepest, 0, -1) if candidate.stages is None else (candidate.stages,):
        rings = group(dots, stages)
        estimate = sum(r.stages * r.stage_bytes for r in rings)
        if estimate > target.shared_per_cta_bytes:
            reason = f"{stages} stages take {estimate} bytes of shared memory"
            continue
        lowering = RoleLowering(
            kernel, placement, facts, dots, rings, candidate.warpgroups, matrix_stores=candidate.matrix_stores
        )
        lowered = lowering.run()
        size = lay_out(lowered)
        if size <= target.shared_per_cta_bytes:
            depth = ", ".join(f"{r.name}: {r.stages} x {r.stage_bytes} bytes" for r in rings)
            notes = (f"rings {depth or 'none'}; {size} bytes of shared memory",)
            return Scheduled(lowered, placement, notes, tuple(dict.fromkeys(lowering.guards)))
        reason = f"{stages} stages take {size} bytes of shared memory"
        if not rings:
            break
    return Refused(reason)
