"""The rules a protocol must keep, the codes under which a breach is reported, and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Policy(Enum):
    """How letter-true the proxy rules are read.

    STRICT: a generic read needs a proxy fence before an asynchronous write of the same bytes; a generic write that an
    asynchronous op reads is fenced by the writer. LENIENT: the first is a warning, and the reader's side may fence.
    """

    STRICT = "strict"
    LENIENT = "lenient"


@dataclass(frozen=True)
class RuleText:
    """What a rule says, where it comes from, and how to mend a breach of it."""

    code: str
    obligation: str
    rule: str
    source: str
    help: str


_M = "PTX ISA 9.1"


class Rule(Enum):
    """One obligation each; the value says it in words."""

    COUNT = RuleText(
        "MBR010",
        "arrival counts",
        "arrivals of a phase sum to the barrier's initial count, never more",
        f"{_M}, 9.7.13.15.13 (count is never larger than the pending count)",
        "make the init count the number of arrivals per phase, or drop the surplus arrive",
    )
    BYTES = RuleText(
        "MBR011",
        "transaction bytes",
        "bytes expected in a phase equal the bytes that land in it, and are expected before its last arrival",
        f"{_M}, 9.7.13.15.2, 9.7.9.25 (complete_tx)",
        "expect what the descriptor's box delivers to this CTA, by arrive.expect_tx",
    )
    DEADLOCK = RuleText(
        "MBR012",
        "deadlock freedom",
        "every wait can complete",
        f"{_M}, 9.7.13.15.16",
        "make every role run the same number of phases; see the waits at the end of the timeline",
    )
    LAPPING = RuleText(
        "MBR013",
        "no lapping",
        "a wait for phase k returns before phase k+1 completes (parity shows one bit of the phase)",
        f"{_M}, 9.7.13.15.16 (current or immediately preceding phase)",
        "make the waiting threads' progress precede the arrive that lets the barrier go round: join them (bar.sync) "
        "before the arrive, or count each of them in mbarrier.init",
    )
    EARLY = RuleText(
        "MBR014",
        "phase order at waits",
        "phase k-1 completes before the wait for phase k is tried, else the wait passes on the phase before",
        f"{_M}, 9.7.13.15.16",
        "wait on every phase in turn, or order the skipped phases by another barrier",
    )
    RECYCLE = RuleText(
        "MBR015",
        "barrier recycling",
        "an arrival on phase k comes after phase k-1 completed, in every schedule",
        f"{_M}, 9.7.13.15 (phases)",
        "wait for the previous phase, directly or through a barrier that does, before arriving again",
    )
    READ_EARLY = RuleText(
        "MBR016",
        "bytes are there before they are read",
        "a read comes after the write it reads is complete and visible",
        f"{_M}, 8 (memory consistency), 9.7.13.15.16",
        "wait on the barrier (or group) that tracks the write before this read; between CTAs of a grid, release it by "
        "a counter at scope gpu and acquire that",
    )
    OVERWRITE = RuleText(
        "MBR017",
        "bytes are read before they are overwritten",
        "a write comes after every reader of the old bytes is done",
        f"{_M}, 8 (memory consistency)",
        "release the bytes only after the readers are joined, and wait for that release before this write",
    )
    WRITE_WRITE = RuleText(
        "MBR018",
        "writes are ordered",
        "two writes of the same bytes are ordered",
        f"{_M}, 8 (memory consistency)",
        "order the two writes by a barrier",
    )
    FENCE_RAW = RuleText(
        "MBR019",
        "proxy fence after generic writes",
        "a generic write that an asynchronous op reads is followed by fence.proxy.async in its threads, then a barrier",
        f"{_M}, 9.7.9.25.2; 9.7.13.4",
        "put fence.proxy.async after the writes, before the barrier that hands the bytes over",
    )
    FENCE_WAR = RuleText(
        "MBR020",
        "proxy fence before asynchronous overwrites",
        "between a generic access and an asynchronous write of the same bytes lies fence.proxy.async",
        f"{_M}, 8.9 (proxy-preserved order); CUTLASS fence_view_async_shared before consumer_release",
        "put fence.proxy.async after the last generic read, before the release (or after the wait, before the copy)",
    )
    INIT = RuleText(
        "MBR021",
        "barrier initialisation",
        "a barrier is initialised, and its initialisation visible, before any use",
        f"{_M}, 9.7.13.15.9",
        "initialise every slot and let all threads pass a barrier after the init",
    )
    INIT_FENCE = RuleText(
        "MBR022",
        "initialisation fence",
        "with a cluster, the initialising thread runs fence.mbarrier_init before the cluster barrier",
        f"{_M}, 9.7.13.4",
        "put fence.mbarrier_init.release.cluster after the inits, in the same thread",
    )
    GROUP = RuleText(
        "MBR023",
        "groups are waited for",
        "data of an asynchronous group is touched or released only after its own threads waited for the group",
        f"{_M}, 9.7.9.25.1, 9.7.15.7, 9.7.16.8",
        "wait for the group before this access, and join the waiting thread with the others by a barrier",
    )
    EXIT = RuleText(
        "MBR024",
        "nothing in flight at exit",
        "every asynchronous op is waited for before the kernel ends",
        f"{_M}, 9.7.9.25.1, 9.7.15.7.3",
        "drain before the end: wait for the last phase or group",
    )
    CLUSTER_EXIT = RuleText(
        "MBR025",
        "peers outlive remote accesses",
        "a CTA ends only after remote arrivals and accesses to it happened, and copies from or to its memory are done",
        f"{_M}, 9.7.13.15; CUDA C++ Programming Guide, distributed shared memory",
        "end with barrier.cluster.arrive and wait, or let the producer wait for all empty slots once more",
    )
    PEER_START = RuleText(
        "MBR037",
        "peers run before remote accesses",
        "a CTA's memory is touched by a peer only after one of its threads is known to run",
        "CUDA C++ Programming Guide, distributed shared memory (all CTAs have started executing)",
        "put barrier.cluster.arrive and wait before the first remote access",
    )
    BAR_RECYCLE = RuleText(
        "MBR026",
        "named barrier recycling",
        "an arrival on a named barrier comes after its previous use completed; thread counts agree",
        f"{_M}, 9.7.13.1",
        "alternate between two barrier ids, or add a sync that orders the two uses",
    )
    BAR_SITE = RuleText(
        "MBR027",
        "aligned barriers have one site",
        "an aligned barrier is completed from one static instruction",
        f"{_M}, 9.7.13.1 (.aligned)",
        "use barrier.sync without .aligned",
    )
    REGISTERS = RuleText(
        "MBR028",
        "register pool",
        "setmaxnreg raises only what others gave up, and never above what the CTA was launched with",
        f"{_M}, 9.7.19.5",
        "lower the counts until 128 threads x registers, summed over warpgroups, fit the launch",
    )
    TMEM = RuleText(
        "MBR029",
        "tensor memory lifetime",
        "tensor memory is used between its allocation becoming visible and its release, and freed exactly once; its "
        "columns are free when it is allocated, and no allocation exceeds one before it",
        f"{_M}, 9.7.16.7",
        "join every role that uses tensor memory with the allocating warp after the alloc and before the dealloc",
    )
    TCGEN_FENCE = RuleText(
        "MBR030",
        "tcgen05 thread-sync fences",
        "tensor-memory accesses handed over by a barrier have before_thread_sync and after_thread_sync around it",
        f"{_M}, 9.7.16.6.4",
        "put tcgen05.fence::before_thread_sync before the arrive and ::after_thread_sync after the wait",
    )
    WGMMA_REGISTERS = RuleText(
        "MBR031",
        "wgmma registers",
        "wgmma.fence lies between register accesses and the wgmma that uses them",
        f"{_M}, 9.7.15.7.1",
        "put wgmma.fence before the first wgmma after the registers were touched",
    )
    TENSORMAP = RuleText(
        "MBR033",
        "descriptor updates",
        "a rewritten descriptor is released, acquired by the issuing thread, and not rewritten while copies use it",
        f"{_M}, 9.7.13.4, 9.7.13.16",
        "fence.proxy.tensormap release after the rewrite, acquire before the copy; wait for copies before the rewrite",
    )
    CLUSTER_BARRIER = RuleText(
        "MBR034",
        "cluster barrier use",
        "each thread of the cluster arrives once, then waits once, per cluster barrier",
        f"{_M}, 9.7.13.3",
        "pair every cluster arrive with one wait, in all threads",
    )
    SLOT_RANGE = RuleText(
        "MBR035",
        "indices in range",
        "a slot index lies in its array, a region in its buffer, a CTA rank in the cluster",
        "Tilewright protocol model",
        "take the index modulo the number of slots",
    )

    LIMITS = RuleText(
        "MBR038",
        "limits of the target",
        "shared memory, tensor-memory columns, named barriers and threads are such as a CTA has",
        f"{_M}, 9.7.13.1 (named barriers 0 to 15), 9.7.16.7 (32 to 512 columns, a power of two); "
        "CUDA C++ Programming Guide, technical specifications",
        "ask for less: fewer stages, another barrier, columns rounded up to a power of two",
    )
    OPERANDS = RuleText(
        "MBR039",
        "operands that instructions take",
        "waits and cp.async arrivals are on barriers of the executing CTA, a copy completes on a barrier of the CTA "
        "that receives it, operands lie in the state spaces and on the alignment that their instruction takes",
        f"{_M}, 9.7.13.15.8 (barriers of peers), 9.7.9.25.4.1 (bulk copies), 5.5.6 (swizzles)",
        "wait in the CTA that owns the barrier; begin swizzled tiles at a multiple of 256, 512 or 1024 bytes (swizzle "
        "32, 64, 128)",
    )

    RESIDENT = RuleText(
        "MBR040",
        "waits for CTAs that have begun",
        "a CTA waits for what CTAs do that are known to have begun; of a grid only the resident ones surely run at "
        "once",
        "CUDA C++ Programming Guide, thread hierarchy (blocks execute in any order) and cooperative groups (grid "
        "synchronisation)",
        "wait for tickets drawn before one's own, let the last one to arrive do the work, or launch cooperatively no "
        "more CTAs than are resident and say so (resident=)",
    )
    STRONG = RuleText(
        "MBR041",
        "scopes of strong operations",
        "two operations on a word by different CTAs, one of which writes, have scopes that include each other's "
        "threads, or are in causality order",
        f"{_M}, 8.5 (scope), 8.7 (morally strong operations), 8.7.1 (data-races), 8.10.3 (atomicity)",
        "use scope gpu for every operation on a word that several CTAs touch",
    )
    RESET = RuleText(
        "MBR042",
        "counters are zero for the next launch",
        "a counter in global memory is filled with zeros before each launch, or left at zero by every run",
        "Tilewright protocol model; CUDA C++ Programming Guide (global memory keeps its contents between launches)",
        "let the launch fill it (reset=True), or let the last CTA store 0 once nobody reads it any more",
    )

    @property
    def code(self) -> str:
        """Diagnostic code."""
        return self.value.code


ASSUMPTIONS: tuple[tuple[str, str], ...] = (
    (
        "wgmma-whole-group",
        "a wgmma group is one operation of its warpgroup: when any of its threads returns from wgmma.wait_group, all "
        "four warps' reads of the group are done (CUTLASS releases a stage by one thread of the warpgroup on it)",
    ),
    (
        "tma-completion-fence",
        "bytes whose completion was observed on an mbarrier are visible to all reads without a fence "
        "(PTX ISA 9.1, 9.7.9.25.2)",
    ),
    (
        "relaxed-remote-release",
        "a remote arrive of .cta scope, or a relaxed one, orders asynchronous accesses, not generic ones "
        "(CUTLASS empty barriers)",
    ),
    (
        "asynchronous-arrivals-release-nothing",
        "the arrive of tcgen05.commit or cp.async.mbarrier.arrive publishes no generic access of its thread: of "
        "arrivals PTX ISA 9.1, 9.7.13.15.16, names those of mbarrier.arrive with release, and for "
        "cp.async.mbarrier.arrive the cp.async before it; where it is silent nothing is assumed",
    ),
    (
        "store-wait-covers-descriptor",
        "cp.async.bulk.wait_group, with or without .read, waits until the stores have read their tensor map, which may "
        "then be rewritten (PTX ISA 9.1, 9.7.9.27.2.2); that of a load is read when its bytes have landed",
    ),
    ("distinct-buffers", "buffers of one space overlap only as their declared offsets say"),
    ("data-independent-control", "control depends on counters, trip symbols, the CTA's rank and drawn tickets alone"),
    (
        "counters-of-one-launch",
        "while a grid runs nobody else touches its counters and buffers; a counter said to be reset is filled with "
        "zeros before each launch, any other was zero before the first",
    ),
    (
        "begun-ctas-go-on",
        "a CTA that has begun runs on until it ends, and a load in a loop returns the last value in the end (CUDA C++ "
        "Programming Guide, forward progress)",
    ),
)
"""What is taken for granted of the hardware and of the protocol, by name."""
