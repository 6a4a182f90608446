"""The asynchronous ops of the ``transport`` dialect: warp roles, mbarriers, tensor copies, wgmma, fences (sm_90a).

A kernel with roles is: declarations (shared buffers, tensor maps, mbarriers), the initialisation of its barriers by an
``elected`` thread, one ``barrier``, then its ``role`` ops. Inside a role

    ``tid``         counts from the role's first thread
    ``warpgroup``   is tid // 128, the same for all threads of a warp
    ``barrier``     joins the role's threads only

The CTAs of a kernel with a ``cluster`` may arrive on each other's barriers and copy into each other's shared memory;
``cluster_ctarank`` is the executing CTA's rank. Their start and end are ``cluster_arrive`` and ``cluster_wait``.

Ops say what the *lowered* kernel does: slots, parities, byte counts are written out as expressions over carried
counters, so that the checker, the simulator and the code generator read the same text. Names and meanings are the
hardware's (PTX ISA 9.1, 9.7.9.25 bulk copies, 9.7.13 barriers, 9.7.15 wgmma).
"""

from __future__ import annotations

from tilewright.transport.ops import mbarriers, roles, tensor_copies, tensor_core, thread_copies
from tilewright.transport.ops.mbarriers import FenceMbarrierInit as FenceMbarrierInit
from tilewright.transport.ops.mbarriers import MbarrierArrive as MbarrierArrive
from tilewright.transport.ops.mbarriers import MbarrierArriveExpectTx as MbarrierArriveExpectTx
from tilewright.transport.ops.mbarriers import MbarrierInit as MbarrierInit
from tilewright.transport.ops.mbarriers import Mbarriers as Mbarriers
from tilewright.transport.ops.mbarriers import MbarriersType as MbarriersType
from tilewright.transport.ops.mbarriers import MbarrierWait as MbarrierWait
from tilewright.transport.ops.mbarriers import mbarriers_of as mbarriers_of
from tilewright.transport.ops.roles import CTA_RANK as CTA_RANK
from tilewright.transport.ops.roles import WARPGROUP as WARPGROUP
from tilewright.transport.ops.roles import WARPGROUP_THREADS as WARPGROUP_THREADS
from tilewright.transport.ops.roles import Advance as Advance
from tilewright.transport.ops.roles import ClusterArrive as ClusterArrive
from tilewright.transport.ops.roles import ClusterWait as ClusterWait
from tilewright.transport.ops.roles import Counter as Counter
from tilewright.transport.ops.roles import Elected as Elected
from tilewright.transport.ops.roles import NamedBarrierArrive as NamedBarrierArrive
from tilewright.transport.ops.roles import NamedBarrierSync as NamedBarrierSync
from tilewright.transport.ops.roles import Role as Role
from tilewright.transport.ops.roles import SetMaxRegisters as SetMaxRegisters
from tilewright.transport.ops.roles import role_barrier as role_barrier
from tilewright.transport.ops.roles import role_of as role_of
from tilewright.transport.ops.roles import warpgroups_of as warpgroups_of
from tilewright.transport.ops.tensor_copies import BulkCommit as BulkCommit
from tilewright.transport.ops.tensor_copies import BulkWait as BulkWait
from tilewright.transport.ops.tensor_copies import FenceProxyAsync as FenceProxyAsync
from tilewright.transport.ops.tensor_copies import LoadCoordinate as LoadCoordinate
from tilewright.transport.ops.tensor_copies import TensorMap as TensorMap
from tilewright.transport.ops.tensor_copies import TensorMapType as TensorMapType
from tilewright.transport.ops.tensor_copies import TmaLoad as TmaLoad
from tilewright.transport.ops.tensor_copies import TmaStore as TmaStore
from tilewright.transport.ops.tensor_core import LoadMatrix as LoadMatrix
from tilewright.transport.ops.tensor_core import MatrixAccess as MatrixAccess
from tilewright.transport.ops.tensor_core import Mma as Mma
from tilewright.transport.ops.tensor_core import StoreMatrix as StoreMatrix
from tilewright.transport.ops.tensor_core import Wgmma as Wgmma
from tilewright.transport.ops.tensor_core import WgmmaCommit as WgmmaCommit
from tilewright.transport.ops.tensor_core import WgmmaFence as WgmmaFence
from tilewright.transport.ops.tensor_core import WgmmaWait as WgmmaWait
from tilewright.transport.ops.thread_copies import CopyOut as CopyOut
from tilewright.transport.ops.thread_copies import CpAsync as CpAsync
from tilewright.transport.ops.thread_copies import CpAsyncMbarrierArrive as CpAsyncMbarrierArrive
from tilewright.transport.ops.thread_copies import LoadStore as LoadStore
from tilewright.transport.ops.thread_copies import ThreadCopies as ThreadCopies
from tilewright.transport.ops.thread_copies import ZeroFill as ZeroFill

OPS = [*roles.OPS, *mbarriers.OPS, *tensor_copies.OPS, *thread_copies.OPS, *tensor_core.OPS]
"""Registered by the ``Transport`` dialect."""
TYPES = [MbarriersType, TensorMapType]
