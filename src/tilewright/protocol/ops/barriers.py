"""Barriers of threads (PTX ISA 9.1, 9.7.13)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.hw.target import InstructionSet
from tilewright.protocol.effects import BarrierScope, Effect, Grain, Sync
from tilewright.protocol.operands import ZERO
from tilewright.protocol.ops.base import Brief, Op


@dataclass(frozen=True)
class BarSync(Op):
    """Named barrier: arrives and waits for ``threads`` threads. ``aligned`` forms need one static ``site``."""

    id: Expr
    threads: int
    aligned: bool = False
    site: str = ""

    grain = Grain.WARPS
    instruction = "bar.sync"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Sync(BarrierScope.CTA, self.id, self.threads, aligned=self.aligned, site=self.site),)

    @property
    def brief(self) -> Brief:
        return "bar.sync ", self.id, f", {self.threads}"


@dataclass(frozen=True)
class BarArrive(Op):
    """Named barrier: arrives without waiting."""

    id: Expr
    threads: int

    grain = Grain.WARPS

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Sync(BarrierScope.CTA, self.id, self.threads, waits=False),)

    @property
    def brief(self) -> Brief:
        return "bar.arrive ", self.id, f", {self.threads}"


@dataclass(frozen=True)
class CtaSync(Op):
    """__syncthreads: named barrier 0 with every thread of the CTA."""

    grain = Grain.WARPS
    instruction = "bar.sync"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Sync(BarrierScope.CTA, ZERO),)


@dataclass(frozen=True)
class WarpSync(Op):
    """__syncwarp: joins the lanes of each executing warp."""

    grain = Grain.WARPS
    instruction = "bar.warp.sync"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Sync(BarrierScope.WARP),)


@dataclass(frozen=True)
class ClusterArrive(Op):
    """barrier.cluster.arrive; ``release`` is false for .relaxed."""

    release: bool = True

    needs = InstructionSet.TMA
    grain = Grain.WARPS

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Sync(BarrierScope.CLUSTER, waits=False, release=self.release),)


@dataclass(frozen=True)
class ClusterWait(Op):
    """barrier.cluster.wait (acquire): waits for every non-exited thread of the cluster."""

    needs = InstructionSet.TMA
    grain = Grain.WARPS
    instruction = "barrier.cluster"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Sync(BarrierScope.CLUSTER, arrives=False),)
