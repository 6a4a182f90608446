"""Clusters: which CTAs share a copied tile, the part that each of them fetches, and who must have read it.

The CTAs of a cluster work at neighbouring programs along the grid's last two axes. A tile that does not depend on one
of these axes is the same for all CTAs along it: each fetches an equal part of its rows and multicasts it to all::

    cluster (2, 1):   rank 0   A0, upper half of B  ->  both        a slot is free when the consumers of both CTAs
                      rank 1   A1, lower half of B  ->  both        have read it: they arrive at both empty barriers
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tilewright.base.expr import Const, Expr, Sym, ceildiv, simplify
from tilewright.lang.axes import Span
from tilewright.legal.tma import TensorMapPlan
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import coords_of
from tilewright.transport.asynchronous import CTA_RANK

RANK = Sym(CTA_RANK)


@dataclass(frozen=True)
class Share:
    """How a CTA takes part in fetching one tile: ``map`` of a part, ``parts`` in all, the ``place`` of its own, and the
    ranks that receive it (none: the tile is its own). ``alike``: the cluster's axes along which the tile is the same.
    """

    map: TensorMapPlan
    parts: int
    place: Expr
    receivers: tuple[Expr, ...]
    alike: tuple[bool, bool]

    @property
    def rows(self) -> int:
        """Rows from one part to the next."""
        return self.map.box[1] if self.parts > 1 else 0

    @property
    def bytes(self) -> int:
        """Bytes of shared memory from one part to the next."""
        return self.rows * self.map.shared.row_bytes


@dataclass(frozen=True)
class Cluster:
    """``rows`` by ``columns`` CTAs along the last two axes of a grid of ``axes`` axes."""

    rows: int
    columns: int
    axes: int

    @property
    def size(self) -> int:
        """The number of CTAs."""
        return self.rows * self.columns

    @property
    def shape(self) -> tuple[int, int]:
        """CTAs along the last two axes."""
        return self.rows, self.columns

    @property
    def names(self) -> tuple[str, str]:
        """The programs' coordinates along the last two axes."""
        return program_index(self.axes - 2), program_index(self.axes - 1)

    def varies(self, symbols: Iterable[str]) -> bool:
        """Whether an expression of ``symbols`` differs between the CTAs of a cluster."""
        return any(n > 1 and name in symbols for name, n in zip(self.names, self.shape, strict=True))

    def extents(self, grid: Sequence[Expr]) -> list[Expr]:
        """The grid in whole clusters; programs beyond it have nothing to load and nothing to store."""
        shape = (*(1 for _ in grid[2:]), *self.shape)[-len(grid) :]
        return [e if n == 1 else ceildiv(e, n) * n for e, n in zip(grid, shape, strict=True)]

    def share(self, load: tile.Load, plan: TensorMapPlan) -> Share | None:
        """The CTA's share of a tile; None where it can't be cut into equal parts of whole swizzle periods."""
        symbols = origins(load)
        alike = tuple(n > 1 and name not in symbols for name, n in zip(self.names, self.shape, strict=True))
        counts = [n if same else 1 for n, same in zip(self.shape, alike, strict=True)]
        parts = prod(counts)
        row, column = RANK // self.columns, RANK % self.columns
        if parts == 1:
            return Share(plan, 1, Const(0), (), (False, False))
        if len(plan.tile_axes) != 2 or plan.box[1] % parts:
            return None
        part = replace(plan, box=(plan.box[0], plan.box[1] // parts, *plan.box[2:]))
        if part.box[1] * plan.shared.row_bytes % plan.shared.align_bytes:
            return None
        place = (row if alike[0] else Const(0)) * counts[1] + (column if alike[1] else Const(0))
        receivers = [
            (Const(i) if alike[0] else row) * self.columns + (Const(j) if alike[1] else column)
            for i, j in product(*map(range, counts))
        ]
        return Share(part, parts, self._plain(place), tuple(map(self._plain, receivers)), (alike[0], alike[1]))

    def others(self, shares: Iterable[Share]) -> tuple[Expr, ...]:
        """Ranks of the other CTAs that fetch parts of the same tiles, for tiles that share a stage."""
        row, column = RANK // self.columns, RANK % self.columns
        steps = dict.fromkeys(
            step
            for share in shares
            for step in product(*(range(n if same else 1) for n, same in zip(self.shape, share.alike, strict=True)))
            if any(step)
        )
        return tuple(self._plain((row + i) % self.rows * self.columns + (column + j) % self.columns) for i, j in steps)

    def _plain(self, rank: Expr) -> Expr:
        return simplify(rank, {CTA_RANK: (0, self.size - 1)})


def origins(load: tile.Load) -> set[str]:
    """The symbols that a loaded tile's coordinates depend on."""
    found: set[str] = set()
    for coord in coords_of(load):
        found |= coord.origin.symbols if isinstance(coord, Span) else coord.symbols
    return found
