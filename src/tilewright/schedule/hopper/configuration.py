"""What a candidate decides before a kernel is lowered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.schedule.hopper.clusters import Cluster, Share
from tilewright.schedule.hopper.operands import DotPlan
from tilewright.schedule.hopper.tile_pipelines import TilePipeline
from tilewright.tile import dialect as tile

if TYPE_CHECKING:
    from tilewright.schedule.hopper.shared_memory_epilogue import SharedMemoryEpilogue
    from tilewright.schedule.hopper.software_pipeline import SoftwarePipeline


@dataclass(frozen=True)
class ScheduleConfiguration:
    """The choices of one candidate schedule.

    ``warpgroups`` share a tile; ``ping_pong`` such sets alternate over a CTA's tiles. ``shares`` are each CTA's part of
    the tiles copied in a cluster. ``stores`` go through shared memory; with ``whole_stores`` tensor copies store for
    all extents (what that needs is asked at launch).
    """

    dots: tuple[DotPlan, ...]
    pipelines: tuple[TilePipeline, ...]
    warpgroups: int
    ping_pong: int = 1
    cluster: Cluster | None = None
    shares: Mapping[tile.Load, Share] = field(default_factory=dict[tile.Load, Share])
    stores: Mapping[tile.Store, SharedMemoryEpilogue] = field(default_factory=dict[tile.Store, "SharedMemoryEpilogue"])
    whole_stores: bool = False
    software_pipelines: Mapping[tile.Stream, SoftwarePipeline] = field(
        default_factory=dict[tile.Stream, "SoftwarePipeline"]
    )

    @property
    def consumers(self) -> int:
        """Consumer warpgroups of a CTA."""
        return self.warpgroups * self.ping_pong

    @property
    def copies_out(self) -> bool:
        """Some stores go by tensor copies."""
        return any(store.by_copies for store in self.stores.values())
