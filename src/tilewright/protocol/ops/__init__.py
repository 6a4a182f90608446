"""The operations of a protocol: what one thread, one warp or a whole role does to barriers and bytes.

Names are the hardware's. An op is a plain value; indices, parities and byte positions are integer expressions
(``base.expr``) over the loop counters and carried counters in scope, the trip symbols of the protocol, and ``cta``
(the rank of the executing CTA in its cluster or grid). Beside each class stand its effects (``protocol.effects``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.base.expr import Const as Const
from tilewright.base.expr import Expr
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
from tilewright.protocol.operands import CTA_RANK as CTA_RANK
from tilewright.protocol.operands import ZERO as ZERO
from tilewright.protocol.operands import FenceSpace as FenceSpace
from tilewright.protocol.operands import PipelineUse as PipelineUse
from tilewright.protocol.operands import Region as Region
from tilewright.protocol.operands import Scope as Scope
from tilewright.protocol.operands import Sem as Sem
from tilewright.protocol.operands import Slot as Slot
from tilewright.protocol.operands import StageRegion as StageRegion
from tilewright.protocol.operands import StageSlot as StageSlot
from tilewright.protocol.operands import Word as Word
from tilewright.protocol.ops.barriers import BarArrive as BarArrive
from tilewright.protocol.ops.barriers import BarSync as BarSync
from tilewright.protocol.ops.barriers import ClusterArrive as ClusterArrive
from tilewright.protocol.ops.barriers import ClusterWait as ClusterWait
from tilewright.protocol.ops.barriers import CtaSync as CtaSync
from tilewright.protocol.ops.barriers import WarpSync as WarpSync
from tilewright.protocol.ops.base import Brief as Brief
from tilewright.protocol.ops.base import Op as Op
from tilewright.protocol.ops.copies import BulkCommit as BulkCommit
from tilewright.protocol.ops.copies import BulkWait as BulkWait
from tilewright.protocol.ops.copies import CpAsync as CpAsync
from tilewright.protocol.ops.copies import CpAsyncArrive as CpAsyncArrive
from tilewright.protocol.ops.copies import CpAsyncCommit as CpAsyncCommit
from tilewright.protocol.ops.copies import CpAsyncWait as CpAsyncWait
from tilewright.protocol.ops.copies import DsmemCopy as DsmemCopy
from tilewright.protocol.ops.copies import TensormapAcquire as TensormapAcquire
from tilewright.protocol.ops.copies import TensormapRelease as TensormapRelease
from tilewright.protocol.ops.copies import TensormapReplace as TensormapReplace
from tilewright.protocol.ops.copies import TmaLoad as TmaLoad
from tilewright.protocol.ops.copies import TmaPrefetch as TmaPrefetch
from tilewright.protocol.ops.copies import TmaStore as TmaStore
from tilewright.protocol.ops.counters import AtomAdd as AtomAdd
from tilewright.protocol.ops.counters import FenceAcqRel as FenceAcqRel
from tilewright.protocol.ops.counters import FlagStore as FlagStore
from tilewright.protocol.ops.counters import SpinWait as SpinWait
from tilewright.protocol.ops.mbarrier import Arrive as Arrive
from tilewright.protocol.ops.mbarrier import ArriveExpectTx as ArriveExpectTx
from tilewright.protocol.ops.mbarrier import ExpectTx as ExpectTx
from tilewright.protocol.ops.mbarrier import FenceMbarrierInit as FenceMbarrierInit
from tilewright.protocol.ops.mbarrier import MbarrierInit as MbarrierInit
from tilewright.protocol.ops.mbarrier import MbarrierInval as MbarrierInval
from tilewright.protocol.ops.mbarrier import TestWait as TestWait
from tilewright.protocol.ops.mbarrier import Wait as Wait
from tilewright.protocol.ops.memory import FenceProxyAlias as FenceProxyAlias
from tilewright.protocol.ops.memory import FenceProxyAsync as FenceProxyAsync
from tilewright.protocol.ops.memory import Read as Read
from tilewright.protocol.ops.memory import Write as Write
from tilewright.protocol.ops.pipeline import ConsumerRelease as ConsumerRelease
from tilewright.protocol.ops.pipeline import ConsumerWait as ConsumerWait
from tilewright.protocol.ops.pipeline import PipelineOp as PipelineOp
from tilewright.protocol.ops.pipeline import ProducerAcquire as ProducerAcquire
from tilewright.protocol.ops.pipeline import ProducerCommit as ProducerCommit
from tilewright.protocol.ops.tcgen05 import Tcgen05Alloc as Tcgen05Alloc
from tilewright.protocol.ops.tcgen05 import Tcgen05Commit as Tcgen05Commit
from tilewright.protocol.ops.tcgen05 import Tcgen05Cp as Tcgen05Cp
from tilewright.protocol.ops.tcgen05 import Tcgen05Dealloc as Tcgen05Dealloc
from tilewright.protocol.ops.tcgen05 import Tcgen05FenceAfter as Tcgen05FenceAfter
from tilewright.protocol.ops.tcgen05 import Tcgen05FenceBefore as Tcgen05FenceBefore
from tilewright.protocol.ops.tcgen05 import Tcgen05Ld as Tcgen05Ld
from tilewright.protocol.ops.tcgen05 import Tcgen05Mma as Tcgen05Mma
from tilewright.protocol.ops.tcgen05 import Tcgen05Relinquish as Tcgen05Relinquish
from tilewright.protocol.ops.tcgen05 import Tcgen05St as Tcgen05St
from tilewright.protocol.ops.tcgen05 import Tcgen05WaitLd as Tcgen05WaitLd
from tilewright.protocol.ops.tcgen05 import Tcgen05WaitSt as Tcgen05WaitSt
from tilewright.protocol.ops.wgmma import Setmaxnreg as Setmaxnreg
from tilewright.protocol.ops.wgmma import Wgmma as Wgmma
from tilewright.protocol.ops.wgmma import WgmmaCommit as WgmmaCommit
from tilewright.protocol.ops.wgmma import WgmmaFence as WgmmaFence
from tilewright.protocol.ops.wgmma import WgmmaWait as WgmmaWait


@dataclass(frozen=True)
class Advance(Op):
    """Adds ``by`` to a carried counter: the (index, phase) state a pipeline keeps across loops."""

    counter: str
    by: Expr = Const(1)  # noqa: RUF009  (expressions are immutable)

    @cached_property
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
