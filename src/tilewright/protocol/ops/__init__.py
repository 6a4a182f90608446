"""The operations of a protocol: what one thread, one warp or a whole role does to barriers and bytes.

Names are the hardware's. An op is a plain value; indices, parities and byte positions are integer expressions
(``base.expr``) over the loop counters and carried counters in scope, the trip symbols of the protocol, and ``cta``
(the rank of the executing CTA in its cluster or grid). Beside each class stand its effects (``protocol.effects``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.expr import Const, Expr
from tilewright.base.once import once
from tilewright.protocol.effects import (
    Await,
    BarrierLife,
    Commit,
    Count,
    Effect,
    Fence,
    MemoryFence,
    Order,
    Retire,
    Signal,
    Strong,
    Sync,
)
from tilewright.protocol.operands import (
    CTA_RANK,
    ZERO,
    FenceSpace,
    PipelineUse,
    Region,
    Scope,
    Sem,
    Slot,
    StageRegion,
    StageSlot,
    Word,
)
from tilewright.protocol.ops.barriers import BarArrive, BarSync, ClusterArrive, ClusterWait, CtaSync, WarpSync
from tilewright.protocol.ops.base import Brief, Op
from tilewright.protocol.ops.copies import (
    BulkCommit,
    BulkWait,
    CpAsync,
    CpAsyncArrive,
    CpAsyncCommit,
    CpAsyncWait,
    DsmemCopy,
    TensormapAcquire,
    TensormapRelease,
    TensormapReplace,
    TmaLoad,
    TmaPrefetch,
    TmaStore,
)
from tilewright.protocol.ops.counters import AtomAdd, FenceAcqRel, FlagStore, SpinWait
from tilewright.protocol.ops.mbarrier import (
    Arrive,
    ArriveExpectTx,
    ExpectTx,
    FenceMbarrierInit,
    MbarrierInit,
    MbarrierInval,
    TestWait,
    Wait,
)
from tilewright.protocol.ops.memory import FenceProxyAlias, FenceProxyAsync, Read, Write
from tilewright.protocol.ops.pipeline import (
    ConsumerRelease,
    ConsumerWait,
    PipelineOp,
    ProducerAcquire,
    ProducerCommit,
)
from tilewright.protocol.ops.tcgen05 import (
    Tcgen05Alloc,
    Tcgen05Commit,
    Tcgen05Cp,
    Tcgen05Dealloc,
    Tcgen05FenceAfter,
    Tcgen05FenceBefore,
    Tcgen05Ld,
    Tcgen05Mma,
    Tcgen05Relinquish,
    Tcgen05St,
    Tcgen05WaitLd,
    Tcgen05WaitSt,
)
from tilewright.protocol.ops.wgmma import Setmaxnreg, Wgmma, WgmmaCommit, WgmmaFence, WgmmaWait


@dataclass(frozen=True)
class Advance(Op):
    """Adds ``by`` to a carried counter: the (index, phase) state a pipeline keeps across loops."""

    counter: str
    by: Expr = Const(1)  # noqa: RUF009  (expressions are immutable)

    @once
    def effects(self) -> tuple[Effect, ...]:
        return (Count(self.counter, self.by),)


ALL: tuple[type[Op], ...] = tuple(kind for kind in Op.__subclasses__() if kind is not PipelineOp)
"""Every op with effects, in the order of the modules."""

OF_PIPELINES: tuple[type[PipelineOp], ...] = tuple(PipelineOp.__subclasses__())
"""The ops on uses of pipelines."""


def only_orders(op: Op) -> bool:
    """Whether the op exists only to order others: what a mutation may drop and synthesis may add."""
    return bool(op.effects) and all(map(_orders, op.effects))


def _orders(effect: Effect) -> bool:
    match effect:
        case Signal():
            return not effect.lands
        case Await():
            return effect.blocks
        case Fence():
            return effect.order is not Order.ALIAS
        case BarrierLife():
            return effect.begins
        case Strong():
            return not effect.writes
        case Commit() | Retire() | Sync() | MemoryFence():
            return True
        case _:
            return False


__all__ = [
    "ALL",
    "CTA_RANK",
    "OF_PIPELINES",
    "ZERO",
    "Advance",
    "Arrive",
    "ArriveExpectTx",
    "AtomAdd",
    "BarArrive",
    "BarSync",
    "Brief",
    "BulkCommit",
    "BulkWait",
    "ClusterArrive",
    "ClusterWait",
    "Const",
    "ConsumerRelease",
    "ConsumerWait",
    "CpAsync",
    "CpAsyncArrive",
    "CpAsyncCommit",
    "CpAsyncWait",
    "CtaSync",
    "DsmemCopy",
    "ExpectTx",
    "FenceAcqRel",
    "FenceMbarrierInit",
    "FenceProxyAlias",
    "FenceProxyAsync",
    "FenceSpace",
    "FlagStore",
    "MbarrierInit",
    "MbarrierInval",
    "Op",
    "PipelineOp",
    "PipelineUse",
    "ProducerAcquire",
    "ProducerCommit",
    "Read",
    "Region",
    "Scope",
    "Sem",
    "Setmaxnreg",
    "Slot",
    "SpinWait",
    "StageRegion",
    "StageSlot",
    "Tcgen05Alloc",
    "Tcgen05Commit",
    "Tcgen05Cp",
    "Tcgen05Dealloc",
    "Tcgen05FenceAfter",
    "Tcgen05FenceBefore",
    "Tcgen05Ld",
    "Tcgen05Mma",
    "Tcgen05Relinquish",
    "Tcgen05St",
    "Tcgen05WaitLd",
    "Tcgen05WaitSt",
    "TensormapAcquire",
    "TensormapRelease",
    "TensormapReplace",
    "TestWait",
    "TmaLoad",
    "TmaPrefetch",
    "TmaStore",
    "Wait",
    "WarpSync",
    "Wgmma",
    "WgmmaCommit",
    "WgmmaFence",
    "WgmmaWait",
    "Word",
    "Write",
    "only_orders",
]
