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

from tilewright.transport import mbarriers, roles, tensor_copies, tensor_core, thread_copies
from tilewright.transport.mbarriers import (
    FenceMbarrierInit,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierInit,
    Mbarriers,
    MbarriersType,
    MbarrierWait,
    mbarriers_of,
)
from tilewright.transport.roles import (
    CTA_RANK,
    WARPGROUP,
    WARPGROUP_THREADS,
    Advance,
    ClusterArrive,
    ClusterWait,
    Counter,
    Elected,
    NamedBarrierArrive,
    NamedBarrierSync,
    Role,
    SetMaxRegisters,
    role_barrier,
    role_of,
    warpgroups_of,
)
from tilewright.transport.tensor_copies import (
    BulkCommit,
    BulkWait,
    FenceProxyAsync,
    LoadCoordinate,
    TensorMap,
    TensorMapType,
    TmaLoad,
    TmaStore,
)
from tilewright.transport.tensor_core import (
    LoadMatrix,
    MatrixAccess,
    StoreMatrix,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from tilewright.transport.thread_copies import (
    CopyOut,
    CpAsync,
    CpAsyncMbarrierArrive,
    LoadStore,
    ThreadCopies,
    ZeroFill,
)

OPS = [*roles.OPS, *mbarriers.OPS, *tensor_copies.OPS, *thread_copies.OPS, *tensor_core.OPS]
"""Registered by the ``Transport`` dialect."""
TYPES = [MbarriersType, TensorMapType]

__all__ = [
    "CTA_RANK",
    "OPS",
    "TYPES",
    "WARPGROUP",
    "WARPGROUP_THREADS",
    "Advance",
    "BulkCommit",
    "BulkWait",
    "ClusterArrive",
    "ClusterWait",
    "CopyOut",
    "Counter",
    "CpAsync",
    "CpAsyncMbarrierArrive",
    "Elected",
    "FenceMbarrierInit",
    "FenceProxyAsync",
    "LoadCoordinate",
    "LoadMatrix",
    "LoadStore",
    "MatrixAccess",
    "MbarrierArrive",
    "MbarrierArriveExpectTx",
    "MbarrierInit",
    "MbarrierWait",
    "Mbarriers",
    "MbarriersType",
    "NamedBarrierArrive",
    "NamedBarrierSync",
    "Role",
    "SetMaxRegisters",
    "StoreMatrix",
    "TensorMap",
    "TensorMapType",
    "ThreadCopies",
    "TmaLoad",
    "TmaStore",
    "Wgmma",
    "WgmmaCommit",
    "WgmmaFence",
    "WgmmaWait",
    "ZeroFill",
    "mbarriers_of",
    "role_barrier",
    "role_of",
    "warpgroups_of",
]
