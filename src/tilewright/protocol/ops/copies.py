"""Asynchronous copies: bulk and tensor copies (PTX ISA 9.1, 9.7.9.25), their descriptors, and cp.async."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.hw.target import InstructionSet
from tilewright.protocol.effects import (
    BULK,
    CP_ASYNC,
    Access,
    Commit,
    Effect,
    Engine,
    Fence,
    Grain,
    Mode,
    Order,
    Part,
    Proxy,
    Queue,
    Retire,
    Signal,
    Stage,
)
from tilewright.protocol.operands import Region, Slot
from tilewright.protocol.ops.base import GLOBAL, MEMORY, Brief, Op, located


def _descriptor(region: Region | None, until: Queue | Slot, stage: Stage = Stage.DONE) -> tuple[Effect, ...]:
    """The read of a copy's tensor map."""
    if region is None:
        return ()
    name = "a copy that uses the descriptor"
    return (Access(region, Mode.READ, Proxy.TENSORMAP, until, stage, name=name),)


@dataclass(frozen=True)
class TmaLoad(Op):
    """Asynchronous copy from global memory; completes ``dst.size`` transaction bytes on ``bar``.

    ``ctas`` (multicast) are the ranks that receive the bytes, each at the same offset and on its own barrier. The size
    is what the descriptor's box delivers, whatever was expected. ``tensor`` is false for cp.async.bulk. ``source`` are
    the bytes that are copied, where somebody writes them while the kernel runs.
    """

    dst: Region
    bar: Slot
    ctas: tuple[Expr, ...] = ()
    tensormap: Region | None = None
    tensor: bool = True
    source: Region | None = None

    needs = InstructionSet.TMA
    grain = Grain.ELECTED
    engine = Engine.LOADS
    spaces = located(dst=MEMORY, tensormap=GLOBAL, source=GLOBAL)
    peers = True
    swizzled = True

    @property
    def bulk(self) -> bool:
        return not self.tensor

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        moved = Access(self.dst, Mode.WRITE, Proxy.ASYNC, self.bar, ranks=self.ctas, name="a TMA load")
        landed = Signal(self.bar, lands=self.dst.size, ranks=self.ctas)
        return moved, *self._read(), *_descriptor(self.tensormap, self.bar), landed

    def _read(self) -> tuple[Effect, ...]:
        if self.source is None:
            return ()
        return (Access(self.source, Mode.READ, Proxy.ASYNC, self.bar, clipped=self.tensor, name="a TMA load"),)

    @property
    def brief(self) -> Brief:
        return "tma load ", self.dst, " -> ", self.bar


@dataclass(frozen=True)
class TmaStore(Op):
    """Asynchronous copy (or reduction) from shared to global memory, tracked by bulk groups.

    Reductions (cp.reduce.async.bulk) of the same bytes need no order among themselves. ``tensor`` is false for the
    forms without a descriptor. Of ``dst`` a tensor map leaves out what lies outside the buffer; without one that is
    an error (PTX ISA 9.1, 5.5.1, 9.7.9.25.4.1).
    """

    src: Region
    dst: Region | None = None
    tensormap: Region | None = None
    reduce: bool = False
    tensor: bool = True

    needs = InstructionSet.TMA
    grain = Grain.ELECTED
    engine = Engine.STORES
    spaces = located(src=MEMORY, dst=GLOBAL, tensormap=GLOBAL)
    swizzled = True

    @property
    def bulk(self) -> bool:
        return not self.tensor

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        read = Access(self.src, Mode.READ, Proxy.ASYNC, BULK, Stage.SOURCE, name="a TMA store")
        return read, *self._written(), *_descriptor(self.tensormap, BULK, Stage.SOURCE)

    def _written(self) -> tuple[Effect, ...]:
        if self.dst is None:
            return ()
        mode, name = (Mode.REDUCE, "a TMA reduction") if self.reduce else (Mode.WRITE, "a TMA store")
        return (Access(self.dst, mode, Proxy.ASYNC, BULK, clipped=self.tensor, name=name),)

    @property
    def brief(self) -> Brief:
        return "tma store ", self.src


@dataclass(frozen=True)
class DsmemCopy(Op):
    """Asynchronous copy from own shared memory to a peer's; completes on a barrier of the receiving CTA."""

    src: Region
    dst: Region
    bar: Slot

    needs = InstructionSet.TMA
    grain = Grain.ELECTED
    engine = Engine.STORES
    spaces = located(src=MEMORY, dst=MEMORY)
    peers = True

    @property
    def bulk(self) -> bool:
        return True

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        name = "a copy to a peer"
        return (
            Access(self.src, Mode.READ, Proxy.ASYNC, self.bar, name=name),
            Access(self.dst, Mode.WRITE, Proxy.ASYNC, self.bar, name=name),
            Signal(self.bar, lands=self.dst.size),
        )


@dataclass(frozen=True)
class TmaPrefetch(Op):
    """Brings a tensor box into L2; orders nothing."""

    needs = InstructionSet.TMA

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return ()


@dataclass(frozen=True)
class BulkCommit(Op):
    """Closes the executing thread's current bulk group."""

    needs = InstructionSet.TMA

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Commit(BULK),)


@dataclass(frozen=True)
class BulkWait(Op):
    """Waits until at most ``pending`` of the executing thread's bulk groups are open; ``read``: only their sources."""

    pending: int = 0
    read: bool = False

    needs = InstructionSet.TMA
    instruction = "cp.async.bulk.wait_group"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Retire(BULK, self.pending, Stage.SOURCE if self.read else Stage.DONE),)

    @property
    def brief(self) -> Brief:
        return (f"bulk wait{'.read' if self.read else ''} {self.pending}",)


# -- descriptors ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TensormapReplace(Op):
    """Rewrites a descriptor (generic proxy)."""

    map: Region

    needs = InstructionSet.TMA
    spaces = located(map=MEMORY | GLOBAL)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Access(self.map, Mode.REPLACE),)


@dataclass(frozen=True)
class TensormapRelease(Op):
    """fence.proxy.tensormap release (or cp_fenceproxy) after a descriptor was rewritten."""

    map: Region

    needs = InstructionSet.TMA
    instruction = "fence.proxy.tensormap"
    spaces = located(map=MEMORY | GLOBAL)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.TENSORMAP_RELEASE, region=self.map),)


@dataclass(frozen=True)
class TensormapAcquire(Op):
    """fence.proxy.tensormap acquire before a copy uses a rewritten descriptor."""

    map: Region

    needs = InstructionSet.TMA
    instruction = "fence.proxy.tensormap"
    spaces = located(map=GLOBAL)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Fence(Order.TENSORMAP_ACQUIRE, region=self.map),)


# -- cp.async ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CpAsync(Op):
    """Per-thread asynchronous copy into shared memory; each thread writes its own part of ``dst``."""

    dst: Region

    engine = Engine.LOADS
    spaces = located(dst=MEMORY)

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Access(self.dst, Mode.WRITE, until=CP_ASYNC, part=Part.THREAD, name="a cp.async"),)

    @property
    def brief(self) -> Brief:
        return "cp.async ", self.dst


@dataclass(frozen=True)
class CpAsyncCommit(Op):
    """Closes the executing thread's current cp.async group."""

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Commit(CP_ASYNC),)


@dataclass(frozen=True)
class CpAsyncWait(Op):
    """Waits until at most ``pending`` of the executing thread's cp.async groups are open."""

    pending: int = 0

    instruction = "cp.async.wait_group"

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return (Retire(CP_ASYNC, self.pending),)


@dataclass(frozen=True)
class CpAsyncArrive(Op):
    """Arrives on ``bar`` once the thread's earlier cp.async are done; without ``noinc`` it raises the count first."""

    bar: Slot
    noinc: bool = True

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        return Signal(self.bar, arrivals=1, after=CP_ASYNC, raises_count=not self.noinc), Commit(CP_ASYNC)
