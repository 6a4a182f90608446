"""The operations of a protocol: what one thread, one warp or a whole role does to barriers and bytes.

Names are the hardware's. An op is a plain value; indices, parities and byte positions are integer expressions
(``base.expr``) over the loop counters and carried counters in scope, the trip symbols of the protocol, and ``cta``
(the rank of the executing CTA in its cluster).

Sources: PTX ISA 9.1, sections 9.7.9.25 (bulk copies), 9.7.13 (barriers), 9.7.15 (wgmma), 9.7.16 (tcgen05).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tilewright.base.expr import Const, Expr

ZERO: Expr = Const(0)
CTA_RANK = "cta"
"""The symbol that stands for the executing CTA's rank in its cluster."""


class Scope(Enum):
    """Scope of an arrive or a wait: who may rely on the order it makes."""

    CTA = "cta"
    CLUSTER = "cluster"
    GPU = "gpu"


class FenceSpace(Enum):
    """The state space whose accesses a proxy fence orders."""

    ALL = "all"
    SHARED = "shared"
    GLOBAL = "global"


@dataclass(frozen=True)
class Region:
    """Bytes ``begin .. begin + size`` of a buffer, of the CTA of rank ``cta`` (None: the executing one).

    Tensor memory counts columns instead of bytes.
    """

    buffer: str
    begin: Expr
    size: int
    cta: Expr | None = None


@dataclass(frozen=True)
class Slot:
    """One mbarrier of an array, of the CTA of rank ``cta`` (None: the executing one)."""

    barrier: str
    index: Expr = ZERO
    cta: Expr | None = None


# -- mbarriers --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MbarrierInit:
    """Initialises the first ``slots`` barriers of an array (None: all) with the array's arrival count."""

    barrier: str
    slots: int | None = None


@dataclass(frozen=True)
class MbarrierInval:
    """Ends the life of all barriers of an array."""

    barrier: str


@dataclass(frozen=True)
class Arrive:
    """Arrives ``count`` times on the current phase, per executing thread."""

    bar: Slot
    count: int = 1
    scope: Scope = Scope.CTA
    release: bool = True


@dataclass(frozen=True)
class ArriveExpectTx:
    """Adds ``bytes`` to the current phase's expected transactions and arrives once."""

    bar: Slot
    bytes: int
    scope: Scope = Scope.CTA


@dataclass(frozen=True)
class ExpectTx:
    """Adds ``bytes`` to the current phase's expected transactions; not an arrival."""

    bar: Slot
    bytes: int


@dataclass(frozen=True)
class Wait:
    """Blocks until the phase of this parity has completed (a loop around try_wait.parity).

    ``peeked``: skipped by threads whose last ``TestWait`` of this barrier returned true; the two are one wait.
    """

    bar: Slot
    parity: Expr
    scope: Scope = Scope.CTA
    acquire: bool = True
    peeked: bool = False


@dataclass(frozen=True)
class TestWait:
    """One test_wait or try_wait, whatever it returns; a later ``Wait`` that is ``peeked`` looks at the answer."""

    __test__ = False  # not a test, for pytest

    bar: Slot
    parity: Expr
    scope: Scope = Scope.CTA
    acquire: bool = True


# -- bulk and tensor copies -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TmaLoad:
    """Asynchronous copy from global memory; completes ``dst.size`` transaction bytes on ``bar``.

    ``ctas`` (multicast) are the ranks that receive the bytes, each at the same offset and on its own barrier. The size
    is what the descriptor's box delivers, whatever was expected. ``tensor`` is false for cp.async.bulk.
    """

    dst: Region
    bar: Slot
    ctas: tuple[Expr, ...] = ()
    tensormap: Region | None = None
    tensor: bool = True


@dataclass(frozen=True)
class TmaStore:
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


@dataclass(frozen=True)
class DsmemCopy:
    """Asynchronous copy from own shared memory to a peer's; completes on a barrier of the receiving CTA."""

    src: Region
    dst: Region
    bar: Slot


@dataclass(frozen=True)
class TmaPrefetch:
    """Brings a tensor box into L2; orders nothing."""


@dataclass(frozen=True)
class BulkCommit:
    """Closes the executing thread's current bulk group."""


@dataclass(frozen=True)
class BulkWait:
    """Waits until at most ``pending`` of the executing thread's bulk groups are open; ``read``: only their sources."""

    pending: int = 0
    read: bool = False


# -- cp.async ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CpAsync:
    """Per-thread asynchronous copy into shared memory; each thread writes its own part of ``dst``."""

    dst: Region


@dataclass(frozen=True)
class CpAsyncCommit:
    """Closes the executing thread's current cp.async group."""


@dataclass(frozen=True)
class CpAsyncWait:
    """Waits until at most ``pending`` of the executing thread's cp.async groups are open."""

    pending: int = 0


@dataclass(frozen=True)
class CpAsyncArrive:
    """Arrives on ``bar`` once the thread's earlier cp.async are done; without ``noinc`` it raises the count first."""

    bar: Slot
    noinc: bool = True


# -- generic accesses and fences --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Read:
    """Reads a region through the generic proxy. ``private``: each thread reads only what it wrote itself."""

    region: Region
    private: bool = False


@dataclass(frozen=True)
class Write:
    """Writes a region through the generic proxy. ``private`` as in ``Read``."""

    region: Region
    private: bool = False


@dataclass(frozen=True)
class FenceProxyAsync:
    """fence.proxy.async: orders the thread's generic accesses with asynchronous ones, of one state space or all."""

    space: FenceSpace = FenceSpace.ALL


@dataclass(frozen=True)
class FenceProxyAlias:
    """fence.proxy.alias: for memory with several virtual addresses; no buffer here has two, so it orders nothing."""


@dataclass(frozen=True)
class FenceMbarrierInit:
    """fence.mbarrier_init.release.cluster by the thread that initialised."""


@dataclass(frozen=True)
class TensormapReplace:
    """Rewrites a descriptor (generic proxy)."""

    map: Region


@dataclass(frozen=True)
class TensormapRelease:
    """fence.proxy.tensormap release (or cp_fenceproxy) after a descriptor was rewritten."""

    map: Region


@dataclass(frozen=True)
class TensormapAcquire:
    """fence.proxy.tensormap acquire before a copy uses a rewritten descriptor."""

    map: Region


# -- wgmma ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class WgmmaFence:
    """wgmma.fence: orders register accesses before the following wgmma."""


@dataclass(frozen=True)
class Wgmma:
    """Asynchronous warpgroup matrix multiply: reads ``operands``, reads and writes ``accumulator`` (registers).

    ``reads`` are the bytes that it takes of each operand where that is not all of the region; only its price asks.
    """

    accumulator: Region
    operands: tuple[Region, ...]
    reads: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class WgmmaCommit:
    """Closes the warpgroup's current wgmma group."""


@dataclass(frozen=True)
class WgmmaWait:
    """Waits until at most ``pending`` wgmma groups are open."""

    pending: int = 0


# -- barriers of threads ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class BarSync:
    """Named barrier: arrives and waits for ``threads`` threads. ``aligned`` forms need one static ``site``."""

    id: Expr
    threads: int
    aligned: bool = False
    site: str = ""


@dataclass(frozen=True)
class BarArrive:
    """Named barrier: arrives without waiting."""

    id: Expr
    threads: int


@dataclass(frozen=True)
class CtaSync:
    """__syncthreads: named barrier 0 with every thread of the CTA."""


@dataclass(frozen=True)
class WarpSync:
    """__syncwarp: joins the lanes of each executing warp."""


@dataclass(frozen=True)
class ClusterArrive:
    """barrier.cluster.arrive; ``release`` is false for .relaxed."""

    release: bool = True


@dataclass(frozen=True)
class ClusterWait:
    """barrier.cluster.wait (acquire): waits for every non-exited thread of the cluster."""


@dataclass(frozen=True)
class Setmaxnreg:
    """Sets the registers per thread of the warpgroup; an increase waits until the CTA's pool holds enough."""

    registers: int


# -- tcgen05 ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Tcgen05Alloc:
    """Allocates the tensor-memory buffer ``buffer``; its address is a plain write to shared memory, at ``address``.

    With ``cta_group`` 2 both CTAs of a pair (ranks 2i and 2i + 1) allocate together.
    """

    buffer: str
    address: Region | None = None
    cta_group: int = 1


@dataclass(frozen=True)
class Tcgen05Dealloc:
    """Frees the tensor-memory buffer; with ``cta_group`` 2 that of both CTAs of the pair, as soon as one does so."""

    buffer: str
    cta_group: int = 1


@dataclass(frozen=True)
class Tcgen05Relinquish:
    """Gives up the CTA's right to allocate again."""


@dataclass(frozen=True)
class Tcgen05Mma:
    """Asynchronous matrix multiply by one thread: reads ``operands``, reads and writes ``accumulator`` (TMEM).

    With ``cta_group`` 2 the regions are meant in both CTAs of the pair.
    """

    accumulator: Region
    operands: tuple[Region, ...]
    cta_group: int = 1


@dataclass(frozen=True)
class Tcgen05Cp:
    """Asynchronous copy from shared to tensor memory, in order with the thread's mma."""

    dst: Region
    src: Region


@dataclass(frozen=True)
class Tcgen05Commit:
    """One arrival on ``bar`` (on each rank of ``ctas``) when the thread's earlier mma and cp are complete."""

    bar: Slot
    ctas: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Tcgen05Ld:
    """Asynchronous load from tensor memory to registers."""

    region: Region


@dataclass(frozen=True)
class Tcgen05St:
    """Asynchronous store from registers to tensor memory."""

    region: Region


@dataclass(frozen=True)
class Tcgen05WaitLd:
    """tcgen05.wait::ld: the thread's tensor-memory loads are done."""


@dataclass(frozen=True)
class Tcgen05WaitSt:
    """tcgen05.wait::st: the thread's tensor-memory stores are done."""


@dataclass(frozen=True)
class Tcgen05FenceBefore:
    """tcgen05.fence::before_thread_sync."""


@dataclass(frozen=True)
class Tcgen05FenceAfter:
    """tcgen05.fence::after_thread_sync."""


# -- counters ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Advance:
    """Adds ``by`` to a carried counter: the (index, phase) state a pipeline keeps across loops."""

    counter: str
    by: Expr = Const(1)  # noqa: RUF009  (expressions are immutable)


Op = (
    MbarrierInit
    | MbarrierInval
    | Arrive
    | ArriveExpectTx
    | ExpectTx
    | Wait
    | TestWait
    | TmaLoad
    | TmaStore
    | DsmemCopy
    | TmaPrefetch
    | BulkCommit
    | BulkWait
    | CpAsync
    | CpAsyncCommit
    | CpAsyncWait
    | CpAsyncArrive
    | Read
    | Write
    | FenceProxyAsync
    | FenceProxyAlias
    | FenceMbarrierInit
    | TensormapReplace
    | TensormapRelease
    | TensormapAcquire
    | WgmmaFence
    | Wgmma
    | WgmmaCommit
    | WgmmaWait
    | BarSync
    | BarArrive
    | CtaSync
    | WarpSync
    | ClusterArrive
    | ClusterWait
    | Setmaxnreg
    | Tcgen05Alloc
    | Tcgen05Dealloc
    | Tcgen05Relinquish
    | Tcgen05Mma
    | Tcgen05Cp
    | Tcgen05Commit
    | Tcgen05Ld
    | Tcgen05St
    | Tcgen05WaitLd
    | Tcgen05WaitSt
    | Tcgen05FenceBefore
    | Tcgen05FenceAfter
    | Advance
)

SYNC_OPS = (
    MbarrierInit,
    Arrive,
    ArriveExpectTx,
    ExpectTx,
    Wait,
    BulkCommit,
    BulkWait,
    CpAsyncCommit,
    CpAsyncWait,
    CpAsyncArrive,
    FenceProxyAsync,
    FenceMbarrierInit,
    TensormapRelease,
    TensormapAcquire,
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait,
    BarSync,
    BarArrive,
    CtaSync,
    WarpSync,
    ClusterArrive,
    ClusterWait,
    Tcgen05Commit,
    Tcgen05WaitLd,
    Tcgen05WaitSt,
    Tcgen05FenceBefore,
    Tcgen05FenceAfter,
)
"""Ops that exist only to order others: what a mutation may drop and synthesis may add."""
