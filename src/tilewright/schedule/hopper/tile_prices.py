"""Estimated times of tiles of products, by a model of few parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.base.expr import Const, Expr, Sym, maximum, minimum
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.lang.axes import Span
from tilewright.schedule.facts import CallFacts
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, element, source_of, tensor_name

LINE_BYTES, SECTOR_BYTES = 128, 32
"""Units of the L2 cache. Rows that begin inside of a sector touch one more for every line: tiles that share nothing
take 1.3 to 1.7 times as long a step, pairs of 128 x 256 1.03 times. Rows that begin with a sector inside of a line cost
at most a tenth."""

HIDING_ROWS = 256
"""Rows of a tile whose products take longer than the copies of any panel."""


@dataclass(frozen=True)
class Price:
    """Nanoseconds of a step of 128 bytes of K, of what a tile takes beside its steps, and of what a launch takes beside
    its tiles, beyond that of the shortest; of a step ``across`` sectors where it differs much; and the ``least`` that a
    tile takes, where an epilogue is hidden behind steps of which there may be too few.

    By least squares over the 660 shapes of benchmarks/product_choices.py and of a run with more ways (H200); within 4 %
    of the times of large tiles, 10 % of those of one wave.
    """

    step: int
    tile: int
    launch: int = 0
    across: int | None = None
    least: int = 0

    def steps(self, count: Expr, sectors: Expr) -> Expr:
        """The time of ``count`` steps; ``sectors`` is 1 where rows begin inside of a sector."""
        more = 0 if self.across is None else self.across - self.step
        return count * (sectors * more + self.step)

    def copying(self, panel: int, shape: tuple[int, ...]) -> Price:
        """That of a tile of such rows and columns which copies whole panels of the right operand's rows. Most of what
        it copies in vain is seen, but with many rows (H200, A B: 128 x 208 takes 1.08 times as long as of A B^T, 192 x
        160 1.10, 256 x 160 1.01, whole panels .98 to 1.00)."""
        rows, columns = shape
        more = 1 + (0.75 * (-columns % panel) / (rows + columns) if rows < HIDING_ROWS else 0)
        across = None if self.across is None else round(self.across * more)
        return replace(self, step=round(self.step * more), across=across)

    def between(self, other: Price, part: float) -> Price:
        """The interpolated price of a tile between two others: ``part`` of the way from this one."""

        def mixed(own: int, its: int) -> int:
            return round(own + (its - own) * part)

        across = None if self.across is None or other.across is None else mixed(self.across, other.across)
        return Price(
            mixed(self.step, other.step), mixed(self.tile, other.tile), mixed(self.launch, other.launch), across
        )

    def time(self, waves: Expr, count: Expr, sectors: Expr) -> Expr:
        """The time of a launch of ``waves`` waves of tiles."""
        tile = self.steps(count, sectors) + self.tile
        return waves * (maximum(tile, self.least) if self.least else tile) + self.launch


def straddles(kernel: tile.Kernel, facts: CallFacts, unit: int) -> Expr:
    """1 if rows of an operand begin inside of such a unit of the cache, else 0; 0 where tensor copies can't read one as
    it lies."""
    found: list[Expr] = []
    for value in (v for dot in kernel.walk() if isinstance(dot, tile.Dot) for v in (dot.a, dot.b)):
        load = source_of(value)[0].owner
        if not isinstance(load, tile.Load):
            continue
        own, bytes_ = facts.of(tensor_name(load)), element(value).bytes
        if own.unit_axis is None or own.align_bytes < MAX_VECTOR_BYTES:
            return Const(0)
        pitches = [axis for axis, c in enumerate(coords_of(load)) if isinstance(c, Span) and axis != own.unit_axis]
        found += [minimum(Sym(f"{tensor_name(load)}.stride{axis}") * bytes_ % unit, 1) for axis in pitches]
    return maximum(*dict.fromkeys(found)) if len(found) > 1 else found[0] if found else Const(0)


def panel_columns(kernel: tile.Kernel, facts: CallFacts) -> int:
    """Columns of the right operands that are copied together, where their rows run along the result's; else 1."""
    found = 1
    for dot in (op for op in kernel.walk() if isinstance(op, tile.Dot)):
        load = source_of(dot.b)[0].owner
        if not isinstance(load, tile.Load):
            continue
        unit = facts.of(tensor_name(load)).unit_axis
        along = None if unit is None else coords_of(load)[unit]
        if isinstance(along, Span) and along.size == tile.tile_type(dot.result).shape[1]:
            found = max(found, LINE_BYTES // element(dot.b).bytes)
    return found
