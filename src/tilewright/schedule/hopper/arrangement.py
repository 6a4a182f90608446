"""What a candidate decides before a kernel is lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.schedule.hopper.clusters import Cluster, Share
from tilewright.schedule.hopper.operands import DotPlan
from tilewright.schedule.hopper.rings import Ring
from tilewright.tile import dialect as tile

if TYPE_CHECKING:
    from tilewright.schedule.hopper.epilogue import PanelStore
    from tilewright.schedule.hopper.rotate import Rotation


@dataclass(frozen=True)
class Arrangement:
    """Products and rings; ``warpgroups`` that share a tile, and how many such sets take ``turns`` at a CTA's tiles; the
    cluster with each CTA's share of the copied tiles; the stores that go through panels, and whether those by tensor
    copies are so for all extents (what that needs of them is asked at launch); the streams that are rotated."""

    dots: tuple[DotPlan, ...]
    rings: tuple[Ring, ...]
    warpgroups: int
    turns: int = 1
    cluster: Cluster | None = None
    shares: Mapping[tile.Load, Share] = field(default_factory=dict[tile.Load, Share])
    stores: Mapping[tile.Store, PanelStore] = field(default_factory=dict[tile.Store, "PanelStore"])
    whole_stores: bool = False
    rotations: Mapping[tile.Stream, Rotation] = field(default_factory=dict[tile.Stream, "Rotation"])

    @property
    def consumers(self) -> int:
        """Consumer warpgroups of a CTA."""
        return self.warpgroups * self.turns

    @property
    def copies_out(self) -> bool:
        """Some stores go by tensor copies."""
        return any(store.by_copies for store in self.stores.values())
