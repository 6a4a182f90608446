"""What an op does, as data: its effects, in the order in which they happen.

Every op of ``protocol.ops`` lists its effects beside its class. The provers, the op constraints, prices, the timed run
and the repair interpret the list; none of them asks which op it is. The model checker (``verify.model_checker``) is the
judge of the provers, so it has its own operational semantics and does not read this table.

    effect                     what it does
    Access                     reads or writes bytes: at once, until a group of a queue is done, or until a phase is
    Signal                     arrivals, expected bytes or landed bytes for the current phase of an mbarrier
    Await                      waits for, or tests, a phase of an mbarrier
    Commit, Retire             closes the open group of a queue; waits until at most ``pending`` of its groups are open
    Sync                       arrives on and waits for a barrier of threads
    Fence                      orders accesses of two kinds
    Strong                     adds to, sets, or waits for a word of a counter in global memory
    MemoryFence                makes release and acquire patterns of relaxed operations on words
    BarrierLife, TensorLife    begins or ends the life of mbarriers, of tensor memory
    Relinquish, Pool, Count    the right to allocate, registers per thread, carried counters

An effect that may block is the first one of its op, so that an op either has not begun or does not block.

Sources: PTX ISA 9.1, sections 8.5 to 8.9 (strong operations), 9.7.9.25 (bulk copies), 9.7.13 (barriers), 9.7.15
(wgmma), 9.7.16 (tcgen05).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.protocol.operands import FenceSpace, Region, Scope, Sem, Slot, Word


class Mode(Enum):
    """The kind of access to the bytes."""

    READ = "read"
    WRITE = "write"
    REDUCE = "reduce"
    """Adds to them: reductions of the same bytes need no order among themselves."""
    REPLACE = "replace"
    """Rewrites a tensor map: copies must acquire it before they use it."""


class Proxy(Enum):
    """The path by which an access reaches memory (PTX ISA 9.1, 8.3)."""

    GENERIC = "generic"
    """Loads and stores of threads, and cp.async."""
    ASYNC = "async"
    """TMA, wgmma, tcgen05.mma and tcgen05.cp."""
    TENSORMAP = "tensormap"
    """The read of a descriptor by a copy."""
    TENSOR = "tensor"
    """tcgen05.ld, tcgen05.st and the allocation of tensor memory."""


class Part(Enum):
    """The share of the bytes that each executing thread accesses."""

    WHOLE = "whole"
    """All of them, or any."""
    SHARED = "shared"
    """The threads of the role share one access among them; which thread has which part is not known."""
    THREAD = "thread"
    """Each thread its own part, the same one at every private access."""
    WARP = "warp"
    """Each warp its own lanes of tensor memory (PTX ISA 9.1, 9.7.16.8.1)."""
    ONE = "one"
    """One thread of the role accesses all of them on behalf of all."""


class Order(Enum):
    """The accesses that a fence orders."""

    ASYNC_PROXY = "generic accesses with asynchronous ones"
    ALIAS = "accesses by several virtual addresses: nothing, since no buffer has two"
    MBARRIER_INIT = "the initialisation of mbarriers with their use by peers"
    WGMMA = "register accesses with the following wgmma"
    TENSOR_BEFORE = "tensor-memory accesses with a following synchronisation of threads"
    TENSOR_AFTER = "a synchronisation of threads with the following tensor-memory accesses"
    TENSORMAP_RELEASE = "the rewrite of a tensor map with its acquire"
    TENSORMAP_ACQUIRE = "a released tensor map with the following copies"


class Release(Enum):
    """What a signal publishes of its threads' earlier accesses, besides that they have happened."""

    MEMORY = "memory"
    """Their accesses to memory."""
    TENSOR = "tensor"
    """Their accesses to tensor memory that a before-fence covers."""
    NOTHING = "nothing"


class Stage(Enum):
    """Progress of a group's ops: their sources have been read, or they are complete."""

    SOURCE = "source"
    DONE = "done"


class Grain(Enum):
    """The threads that must execute an op together."""

    THREADS = "any threads"
    ELECTED = "one thread for all others"
    """Any thread may, but one works for all: more than one of a role is a lint."""
    ONE = "one thread"
    WARPS = "all lanes of whole warps"
    WARPGROUPS = "all threads of whole warpgroups"
    WARPGROUP = "all threads of one warpgroup"


class Engine(Enum):
    """The unit of an SM that an op occupies."""

    NONE = "none"
    LOADS = "loads"
    STORES = "stores"
    PRODUCTS = "products"


@dataclass(frozen=True, eq=False)
class Queue:
    """Asynchronous ops that complete in groups, in the order of their commits.

    Groups are each thread's own, or the warpgroup's (``collective``: a group is done when every warp has issued its
    part). Accesses of one ``in_order`` queue by one thread are ordered among themselves; with ``tensor_memory`` they
    reach tensor memory alone. ``needs`` is the fence that the ops need behind register accesses. ``stages`` are those
    that can be waited for. ``words`` says what it means to end with open groups.
    """

    name: str
    words: str
    collective: bool = False
    in_order: bool = False
    tensor_memory: bool = False
    needs: Order | None = None
    stages: tuple[Stage, ...] = (Stage.DONE,)

    def __reduce__(self) -> str:
        """Copied and pickled as the row of this module that it is."""
        return next(name for name, value in globals().items() if value is self)


BULK = Queue("bulk", "bulk stores that were not waited for", stages=(Stage.SOURCE, Stage.DONE))
CP_ASYNC = Queue("cp.async", "cp.async that were not waited for")
WGMMA = Queue("wgmma", "wgmma groups that were not waited for", collective=True, needs=Order.WGMMA)
TENSOR = Queue("mma", "tcgen05.mma whose completion nobody waited for", in_order=True)
TENSOR_LOADS = Queue("ld", "tcgen05.ld that were not waited for", tensor_memory=True)
TENSOR_STORES = Queue("st", "tcgen05.st that were not waited for", tensor_memory=True)
QUEUES = (BULK, CP_ASYNC, WGMMA, TENSOR, TENSOR_LOADS, TENSOR_STORES)


@dataclass(frozen=True)
class Access:
    """Reads or writes ``region``.

    The access is over with the instruction (``until`` None), when a group of a queue has come to ``stage``, or with a
    phase of an mbarrier. ``ranks`` are the CTAs in which the bytes lie at the same place, each on its own barrier; with
    ``pair`` they lie in both CTAs of the pair. Of a ``clipped`` region what lies outside the buffer is left out.
    ``bytes`` is how much of the region is moved, where that is not all of it; prices alone ask.
    """

    region: Region
    mode: Mode
    proxy: Proxy = Proxy.GENERIC
    until: Queue | Slot | None = None
    stage: Stage = Stage.DONE
    part: Part = Part.WHOLE
    ranks: tuple[Expr, ...] = ()
    pair: bool = False
    clipped: bool = False
    name: str = field(default="a generic access", compare=False)
    bytes: int | None = field(default=None, compare=False)

    @cached_property
    def writes(self) -> bool:
        """Whether the bytes change."""
        return self.mode is not Mode.READ

    @cached_property
    def queue(self) -> Queue | None:
        """The queue whose groups tell when the access is over."""
        return self.until if isinstance(self.until, Queue) else None

    @cached_property
    def generic(self) -> bool:
        """Whether threads access the bytes themselves, through the generic proxy: the access is over with the op."""
        return self.until is None and self.proxy is Proxy.GENERIC

    @cached_property
    def frees(self) -> bool:
        """Whether it is the end of the bytes' life."""
        return self.until is None and self.proxy is Proxy.TENSOR


@dataclass(frozen=True)
class Signal:
    """What reaches the current phase of ``bar``, per executing thread: arrivals, expected bytes, bytes that landed.

    ``after``: it happens when the thread's earlier ops of that queue are done. ``raises_count``: the count of the phase
    is raised first, so that the arrival leaves it as it was. ``scope`` is that of the release.
    """

    bar: Slot
    arrivals: int = 0
    expects: int = 0
    lands: int = 0
    release: Release = Release.NOTHING
    scope: Scope = Scope.CTA
    after: Queue | None = None
    raises_count: bool = False
    ranks: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Await:
    """Blocks until the phase of this parity is complete, or tests it once.

    ``peeked``: skipped by threads whose last test of the barrier returned true.
    """

    bar: Slot
    parity: Expr
    scope: Scope = Scope.CTA
    acquire: bool = True
    blocks: bool = True
    peeked: bool = False


@dataclass(frozen=True)
class Commit:
    """Closes the open group of a queue."""

    queue: Queue


@dataclass(frozen=True)
class Retire:
    """Blocks until at most ``pending`` groups of a queue have yet to come to ``stage``."""

    queue: Queue
    pending: int = 0
    stage: Stage = Stage.DONE


class BarrierScope(Enum):
    """The threads that a thread barrier synchronises."""

    CTA = "cta"
    """A named barrier of the CTA."""
    WARP = "warp"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class Sync:
    """Arrives on a barrier of threads, waits for it, or both.

    ``number`` and ``threads`` are those of a named barrier; without ``threads`` it counts all threads of the CTA. An
    ``aligned`` one must be completed from one ``site`` (that of the role if empty).
    """

    scope: BarrierScope
    number: Expr | None = None
    threads: int | None = None
    arrives: bool = True
    waits: bool = True
    release: bool = True
    aligned: bool = False
    site: str = ""


@dataclass(frozen=True)
class Fence:
    """Orders accesses before and behind it: of a state space, or to one tensor map."""

    order: Order
    space: FenceSpace = FenceSpace.ALL
    region: Region | None = None


class Counting(Enum):
    """The effect of a strong operation on a word."""

    ADD = "add"
    SET = "set"
    AT_LEAST = "wait until it is at least"


@dataclass(frozen=True)
class Strong:
    """A strong operation on a word: adds ``value``, sets it, or waits until the word is at least that.

    What was there before an addition is the value of ``ticket``, where it has one.
    """

    word: Word
    does: Counting
    value: Expr
    sem: Sem
    scope: Scope
    ticket: str = ""

    @cached_property
    def reads(self) -> bool:
        """Whether what it reads may be acquired: red and st return nothing (PTX ISA 9.1, 8.8)."""
        return self.does is Counting.AT_LEAST or self.ticket != ""

    @cached_property
    def writes(self) -> bool:
        """Whether the word changes."""
        return self.does is not Counting.AT_LEAST


@dataclass(frozen=True)
class MemoryFence:
    """fence.acq_rel of a scope."""

    scope: Scope


@dataclass(frozen=True)
class BarrierLife:
    """Begins or ends the life of mbarriers of an array: of the first ``slots``, or of all."""

    barrier: str
    begins: bool
    slots: int | None = None


@dataclass(frozen=True)
class TensorLife:
    """Allocates or frees a buffer of tensor memory, once for the role; with ``pair`` in both CTAs of the pair."""

    buffer: str
    begins: bool
    pair: bool = False


@dataclass(frozen=True)
class Relinquish:
    """Gives up the CTA's right to allocate tensor memory."""


@dataclass(frozen=True)
class Pool:
    """Sets the registers per thread of the role; an increase waits until the CTA's pool holds enough."""

    registers: int


@dataclass(frozen=True)
class Count:
    """Adds to a carried counter."""

    counter: str
    by: Expr


Effect: TypeAlias = (
    Access
    | Signal
    | Await
    | Commit
    | Retire
    | Sync
    | Fence
    | Strong
    | MemoryFence
    | BarrierLife
    | TensorLife
    | Relinquish
    | Pool
    | Count
)
