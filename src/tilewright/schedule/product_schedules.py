"""The interface between the compiler and the folders that schedule matrix products, one per family of targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.expr import Expr
from tilewright.hw.target import Target
from tilewright.hw.tensormap import Swizzle
from tilewright.lang.schedule import Schedule
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper import candidates, extents, operands
from tilewright.schedule.hopper.accumulator_placement import Refused as Refused
from tilewright.schedule.hopper.candidate import Candidate as Candidate
from tilewright.schedule.hopper.candidates import Attempt as Attempt
from tilewright.schedule.hopper.candidates import Scheduled as Scheduled
from tilewright.schedule.hopper.operands import Analysis as Analysis
from tilewright.schedule.hopper.operands import ThreadCopiedOperand as ThreadCopiedOperand
from tilewright.schedule.hopper.product_variant import ProductVariant as ProductVariant
from tilewright.tile import dialect as tile

Retrace: TypeAlias = Callable[[Mapping[str, int]], tile.Kernel]
"""The program at other extents."""


@dataclass(frozen=True)
class ProductSchedules:
    """The schedules of one folder."""

    variants: Callable[[Sequence[str], Retrace, Target, CallFacts], list[ProductVariant]]
    other_widths: Callable[[Sequence[str], Retrace, Target, CallFacts], list[ProductVariant]]
    attempts: Callable[[Target, Sequence[Mapping[str, int]], Retrace, Schedule, Sequence[Candidate]], Iterator[Attempt]]
    unknown_pins: Callable[[Schedule], str]
    pinned: Callable[[Candidate, Schedule], Candidate | None]
    schedule: Callable[[tile.Kernel, CallFacts, Target, Candidate, tuple[Expr, ...]], Scheduled | Refused]
    operands: Callable[[tile.Kernel, CallFacts, int], Analysis]
    """Where the products of a kernel find their operands, for a number of warpgroups."""
    rows: int
    columns: int
    """Granules of a product's tile."""
    swizzles: tuple[Swizzle, ...]
    """Of operands in shared memory, best first."""


FOLDERS = {
    "hopper": ProductSchedules(
        extents.product_variants,
        extents.other_widths,
        candidates.attempts,
        candidates.unknown_pins,
        candidates.pinned,
        candidates.schedule,
        Analysis,
        operands.ROWS,
        operands.COLUMNS,
        operands.SWIZZLES,
    )
}


def schedules_of(target: Target) -> ProductSchedules:
    """The schedules that the target's row names."""
    return FOLDERS[target.product_schedules]
