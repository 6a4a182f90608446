"""Generic accesses of threads, and proxy fences."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.hw.target import InstructionSet
from tilewright.protocol.effects import Access, Effect, Fence, Mode, Order, Part
from tilewright.protocol.operands import FenceSpace, Region
from tilewright.protocol.ops.base import GLOBAL, MEMORY, REGISTERS, Brief, Op, located


@dataclass(frozen=True)
class Read(Op):
    """Reads a region through the generic proxy. ``private``: each thread reads only what it wrote itself."""

    region: Region
    private: bool = False

    spaces = located(region=MEMORY | GLOBAL | REGISTERS)
    peers = True

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Access(self.region, Mode.READ, part=Part.THREAD if self.private else Part.WHOLE),)

    @property
    def brief(self) -> Brief:
        return "read ", self.region


@dataclass(frozen=True)
class Write(Op):
    """Writes a region through the generic proxy. ``private`` as in ``Read``."""

    region: Region
    private: bool = False

    spaces = located(region=MEMORY | GLOBAL | REGISTERS)
    peers = True

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Access(self.region, Mode.WRITE, part=Part.THREAD if self.private else Part.SHARED),)

    @property
    def brief(self) -> Brief:
        return "write ", self.region


@dataclass(frozen=True)
class FenceProxyAsync(Op):
    """fence.proxy.async: orders the thread's generic accesses with asynchronous ones, of one state space or all."""

    space: FenceSpace = FenceSpace.ALL

    needs = InstructionSet.TMA
    instruction = "fence.proxy.async"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.ASYNC_PROXY, self.space),)


@dataclass(frozen=True)
class FenceProxyAlias(Op):
    """fence.proxy.alias: for memory with several virtual addresses; no buffer here has two, so it orders nothing."""

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.ALIAS),)
