"""MBR: protocols of barriers, asynchronous copies and fences. 001-009 are mistakes of form, 010 up are refutations."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_PTX = "PTX ISA 9.1"

CODES: tuple[Code, ...] = (
    Code(
        id="MBR001",
        title="a name of the protocol is missing or declared twice",
        why="Roles, buffers, barriers and symbols are referred to by name.",
        bad='b.mbarrier("full"); b.mbarrier("full")',
        good='b.mbarrier("full"); b.mbarrier("empty")',
        source="Tilewright protocol model",
        help="declare each name once, before it is used",
    ),
    Code(
        id="MBR002",
        title="a size or count of the protocol is out of range",
        why="A barrier counts 1 to 2^20-1 arrivals; a region lies inside its buffer.",
        bad='b.mbarrier("full", count=0)',
        good='b.mbarrier("full", count=1)',
        source=f"{_PTX}, 9.7.13.15.9",
        help="sizes are bytes (columns in tensor memory), counts are arrivals of one phase",
    ),
    Code(
        id="MBR003",
        title="an op is executed by the wrong grain of threads",
        why="Collective ops are undefined unless all their threads execute them.",
        bad="role.one(Wgmma(...))",
        good="role.all(Wgmma(...)) in a role of 128 threads",
        source=f"{_PTX}, 9.7.13, 9.7.15, 9.7.16",
        help="let all threads of the role execute it, or give the role the threads that it needs; a role with wgmma "
        "begins at a multiple of 128 threads, so the roles before it have 128 each",
    ),
    Code(
        id="MBR004",
        title="a loop's counter or step is not valid",
        why="A counter names one value at a time and must reach the end.",
        bad="a loop k inside a loop k",
        good="a loop k inside a loop t",
        source="Tilewright protocol model",
        help="give nested loops counters of their own, and a positive step",
    ),
    Code(
        id="MBR005",
        title="an index uses a name that is not in scope",
        why="Slots, parities and bounds are expressions over counters, symbols and the CTA's rank.",
        bad="full[j % 4] where no loop j is open",
        good="full[k % 4] inside loop k",
        source="Tilewright protocol model",
        help="use loop counters where they are in scope, carried counters of the role, or declared symbols",
    ),
    Code(
        id="MBR006",
        title="an op refers to something undeclared",
        why="A pipeline, barrier, buffer or counter must be declared before an op can use it.",
        bad='Wait(Slot("fulll"), parity)',
        good='Wait(Slot("full"), parity)',
        source="Tilewright protocol model",
        help="declare it first: symbol, buffer, mbarrier or counter",
    ),
    Code(
        id="MBR007",
        title="protocol text cannot be read",
        why="The notation is Python syntax with the protocol's own words; anything else is not guessed at.",
        bad="with role(producer):",
        good='with role("producer", 32):',
        source="Tilewright protocol notation",
        help="tilewright.protocol.to_text writes a protocol made in Python in this notation",
    ),
    Code(
        id="MBR008",
        title="a copy or product is not issued by an elected thread",
        why=(
            "elect.sync picks one lane of a converged warp. threadIdx.x == 0 leaves the compiler unsure that the warp "
            "is whole again behind it, picks nobody in other warps, and an op issued by every thread happens once for "
            "each."
        ),
        bad="if (threadIdx.x == 0) tma_load(...)",
        good="if (warp == 0 && elect_one()) tma_load(...)",
        source=f"{_PTX}, 9.7.13.16 (elect.sync); CUTLASS cute::elect_one_sync",
    ),
    Code(
        id="MBR009",
        title="the protocol is neither proved nor refuted",
        why="A counter used as an index without bound, a count that differs between roles, or harm nobody could show.",
        bad="a slot index read from memory",
        good="a slot index i % slots",
        source="Tilewright checker",
    ),
    Code(
        id="MBR010",
        title="arrivals do not sum to the barrier's count",
        why="Arrivals of a phase sum to the barrier's initial count, never more.",
        bad="two arrives on a barrier initialised with 1",
        good="init count 2, or one arrive",
        source="PTX ISA 9.1, 9.7.13.15.13 (count is never larger than the pending count)",
        help="make the init count the number of arrivals per phase, or drop the surplus arrive",
    ),
    Code(
        id="MBR011",
        title="bytes expected differ from bytes that land",
        why="Bytes expected in a phase equal the bytes that land in it, and are expected before its last arrival.",
        bad="arrive.expect_tx 1024 and a box of 2048 bytes",
        good="arrive.expect_tx 2048",
        source="PTX ISA 9.1, 9.7.13.15.2, 9.7.9.25 (complete_tx)",
        help="expect what the descriptor's box delivers to this CTA, by arrive.expect_tx",
    ),
    Code(
        id="MBR012",
        title="a wait can never complete",
        why="Every wait can complete.",
        bad="a consumer that runs one iteration more than its producer",
        good="one trip count for both",
        source="PTX ISA 9.1, 9.7.13.15.16",
        help="make every role run the same number of phases; see the waits at the end of the timeline",
    ),
    Code(
        id="MBR013",
        title="a barrier can lap a waiter",
        why="A wait for phase k returns before phase k+1 completes (parity shows one bit of the phase).",
        bad="all warps wait, one arrives, no join",
        good="bar.sync before the arrive",
        source="PTX ISA 9.1, 9.7.13.15.16 (current or immediately preceding phase)",
        help=(
            "make the waiting threads' progress precede the arrive that lets the barrier go round: join them "
            "(bar.sync) before the arrive, or count each of them in mbarrier.init"
        ),
    ),
    Code(
        id="MBR014",
        title="a wait can pass on the phase before",
        why="Phase k-1 completes before the wait for phase k is tried, else the wait passes on the phase before.",
        bad="a barrier of one slot waited for with a pipeline's parity (k // S) % 2",
        good="parity k % 2",
        source="PTX ISA 9.1, 9.7.13.15.16",
        help="wait on every phase in turn, or order the skipped phases by another barrier",
    ),
    Code(
        id="MBR015",
        title="an arrival may fall into the phase before",
        why="An arrival on phase k comes after phase k-1 completed, in every schedule.",
        bad="arriving twice on a barrier without a wait between",
        good="a wait for the phase before",
        source="PTX ISA 9.1, 9.7.13.15 (phases)",
        help="wait for the previous phase, directly or through a barrier that does, before arriving again",
    ),
    Code(
        id="MBR016",
        title="bytes are read before they are there",
        why="A read comes after the write it reads is complete and visible.",
        bad="reading a stage without waiting for its full barrier",
        good="wait full, then read",
        source="PTX ISA 9.1, 8 (memory consistency), 9.7.13.15.16",
        help=(
            "wait on the barrier (or group) that tracks the write before this read; between CTAs of a grid, release "
            "it by a counter at scope gpu and acquire that"
        ),
    ),
    Code(
        id="MBR017",
        title="bytes are overwritten before their readers are done",
        why="A write comes after every reader of the old bytes is done.",
        bad="a copy into a stage without waiting for its empty barrier",
        good="wait empty, then copy",
        source="PTX ISA 9.1, 8 (memory consistency)",
        help="release the bytes only after the readers are joined, and wait for that release before this write",
    ),
    Code(
        id="MBR018",
        title="two writes of the same bytes are not ordered",
        why="Two writes of the same bytes are ordered.",
        bad="two copies into one stage without order",
        good="a wait between",
        source="PTX ISA 9.1, 8 (memory consistency)",
        help="order the two writes by a barrier",
    ),
    Code(
        id="MBR019",
        title="an asynchronous op reads generic writes without a proxy fence",
        why=(
            "A generic write that an asynchronous op reads is followed by fence.proxy.async in its threads, then a "
            "barrier."
        ),
        bad="st.shared; bar.sync; fence.proxy.async; TMA store",
        good="st.shared; fence.proxy.async; bar.sync; TMA store",
        source="PTX ISA 9.1, 9.7.9.25.2; 9.7.13.4",
        help="put fence.proxy.async after the writes, before the barrier that hands the bytes over",
    ),
    Code(
        id="MBR020",
        title="an asynchronous write overtakes generic accesses without a proxy fence",
        why="Between a generic access and an asynchronous write of the same bytes lies fence.proxy.async.",
        bad="ld.shared; arrive; TMA refill",
        good="ld.shared; fence.proxy.async; arrive; TMA refill",
        source="PTX ISA 9.1, 8.9 (proxy-preserved order); CUTLASS fence_view_async_shared before consumer_release",
        help=(
            "put fence.proxy.async after the last generic read, before the release (or after the wait, before the copy)"
        ),
    ),
    Code(
        id="MBR021",
        title="a barrier is used before its initialisation is visible",
        why="A barrier is initialised, and its initialisation visible, before any use.",
        bad="waiting on slot 4 of a barrier array initialised for 4 slots",
        good="initialise 5 slots",
        source="PTX ISA 9.1, 9.7.13.15.9",
        help="initialise every slot and let all threads pass a barrier after the init",
    ),
    Code(
        id="MBR022",
        title="a barrier's initialisation lacks its cluster fence",
        why="With a cluster, the initialising thread runs fence.mbarrier_init before the cluster barrier.",
        bad="init by one thread, fence.mbarrier_init by another",
        good="both by the same thread",
        source="PTX ISA 9.1, 9.7.13.4",
        help="put fence.mbarrier_init.release.cluster after the inits, in the same thread",
    ),
    Code(
        id="MBR023",
        title="data of a group is touched before the group was waited for",
        why="Data of an asynchronous group is touched or released only after its own threads waited for the group.",
        bad="wgmma; commit; read the accumulator",
        good="wgmma; commit; wait_group 0; read the accumulator",
        source="PTX ISA 9.1, 9.7.9.25.1, 9.7.15.7, 9.7.16.8",
        help="wait for the group before this access, and join the waiting thread with the others by a barrier",
    ),
    Code(
        id="MBR024",
        title="the kernel ends with asynchronous work in flight",
        why="Every asynchronous op is waited for before the kernel ends.",
        bad="a bulk store without wait_group before the end",
        good="wait_group 0",
        source="PTX ISA 9.1, 9.7.9.25.1, 9.7.15.7.3",
        help="drain before the end: wait for the last phase or group",
    ),
    Code(
        id="MBR025",
        title="a CTA may end before its peers are done with it",
        why=(
            "A CTA ends only after remote arrivals and accesses to it happened, and copies from or to its memory are "
            "done."
        ),
        bad="a remote arrive to a CTA that may have ended",
        good="a cluster barrier at the end",
        source="PTX ISA 9.1, 9.7.13.15; CUDA C++ Programming Guide, distributed shared memory",
        help="end with barrier.cluster.arrive and wait, or let the producer wait for all empty slots once more",
    ),
    Code(
        id="MBR026",
        title="a named barrier is used again too early",
        why="An arrival on a named barrier comes after its previous use completed; thread counts agree.",
        bad="bar.arrive 1 in a loop whose partner may lag",
        good="ids 1 and 2 in turn",
        source="PTX ISA 9.1, 9.7.13.1",
        help="alternate between two barrier ids, or add a sync that orders the two uses",
    ),
    Code(
        id="MBR027",
        title="an aligned barrier completes from two sites",
        why="An aligned barrier is completed from one static instruction.",
        bad="two roles complete one aligned bar.sync",
        good="barrier.sync without .aligned",
        source="PTX ISA 9.1, 9.7.13.1 (.aligned)",
        help="use barrier.sync without .aligned",
    ),
    Code(
        id="MBR028",
        title="the register pool does not hold what setmaxnreg asks",
        why="Setmaxnreg raises only what others gave up, and never above what the CTA was launched with.",
        bad="three warpgroups at 240 registers in a kernel launched with 168",
        good="24, 240 and 240",
        source="PTX ISA 9.1, 9.7.19.5",
        help="lower the counts until 128 threads x registers, summed over warpgroups, fit the launch",
    ),
    Code(
        id="MBR029",
        title="tensor memory is used outside its lifetime",
        why=(
            "Tensor memory is used between its allocation becoming visible and its release, and freed exactly once; "
            "its columns are free when it is allocated, and no allocation exceeds one before it."
        ),
        bad="tcgen05.dealloc while another role still loads",
        good="a barrier of all users before the dealloc",
        source="PTX ISA 9.1, 9.7.16.7",
        help="join every role that uses tensor memory with the allocating warp after the alloc and before the dealloc",
    ),
    Code(
        id="MBR030",
        title="tensor memory is handed over without tcgen05 fences",
        why="Tensor-memory accesses handed over by a barrier have before_thread_sync and after_thread_sync around it.",
        bad="wait; tcgen05.ld",
        good="wait; tcgen05.fence::after_thread_sync; tcgen05.ld",
        source="PTX ISA 9.1, 9.7.16.6.4",
        help="put tcgen05.fence::before_thread_sync before the arrive and ::after_thread_sync after the wait",
    ),
    Code(
        id="MBR031",
        title="wgmma uses registers without wgmma.fence",
        why="Wgmma.fence lies between register accesses and the wgmma that uses them.",
        bad="scale the accumulator; wgmma",
        good="scale the accumulator; wgmma.fence; wgmma",
        source="PTX ISA 9.1, 9.7.15.7.1",
        help="put wgmma.fence before the first wgmma after the registers were touched",
    ),
    Code(
        id="MBR033",
        title="a descriptor update is not ordered with its uses",
        why=(
            "A rewritten descriptor is released, acquired by the issuing thread, and not rewritten while copies use it."
        ),
        bad="tensormap.replace; TMA load",
        good="replace; release; acquire; TMA load",
        source="PTX ISA 9.1, 9.7.13.4, 9.7.13.16",
        help=(
            "fence.proxy.tensormap release after the rewrite, acquire before the copy; wait for copies before the "
            "rewrite"
        ),
    ),
    Code(
        id="MBR034",
        title="arrives and waits of the cluster barrier do not pair",
        why="Each thread of the cluster arrives once, then waits once, per cluster barrier.",
        bad="barrier.cluster.arrive twice",
        good="arrive, wait, arrive, wait",
        source="PTX ISA 9.1, 9.7.13.3",
        help="pair every cluster arrive with one wait, in all threads",
    ),
    Code(
        id="MBR035",
        title="an index lies outside its array",
        why="A slot index lies in its array, a region in its buffer, a CTA rank in the cluster.",
        bad="full[k] of a pipeline of 4 stages",
        good="full[k % 4]",
        source="Tilewright protocol model",
        help="take the index modulo the number of slots",
    ),
    Code(
        id="MBR036",
        title="a barrier is idle",
        why="A barrier that nobody arrives at, or nobody waits for, orders nothing; most often its other half is "
        "missing.",
        bad='b.mbarrier("empty") that the producer never waits for',
        good="every barrier with arrivals and waits",
        source="Tilewright protocol model",
    ),
    Code(
        id="MBR037",
        title="a peer is touched that may not run yet",
        why=(
            "A CTA's memory is touched by a peer only after one of its threads is known to run: CTAs of a cluster "
            "begin in any order."
        ),
        bad="st.shared::cluster as the kernel's first step",
        good="barrier.cluster.arrive; barrier.cluster.wait; st.shared::cluster",
        source="CUDA C++ Programming Guide, distributed shared memory (all CTAs have started executing)",
        help="put barrier.cluster.arrive and wait before the first remote access",
    ),
    Code(
        id="MBR038",
        title="more than the target has",
        why="Shared memory, tensor-memory columns, named barriers and threads are such as a CTA has.",
        bad="bar.sync 16, 64",
        good="bar.sync 15, 64",
        source=(
            "PTX ISA 9.1, 9.7.13.1 (named barriers 0 to 15), 9.7.16.7 (32 to 512 columns, a power of two); CUDA C++ "
            "Programming Guide, technical specifications"
        ),
        help="ask for less: fewer stages, another barrier, columns rounded up to a power of two",
    ),
    Code(
        id="MBR039",
        title="an operand that the instruction does not take",
        why=(
            "Waits and cp.async arrivals are on barriers of the executing CTA, a copy completes on a barrier of the "
            "CTA that receives it, operands lie in the state spaces and on the alignment that their instruction "
            "takes."
        ),
        bad="mbarrier.try_wait on a mapa address",
        good="arrive on the peer's barrier; the peer waits on it",
        source="PTX ISA 9.1, 9.7.13.15.8 (barriers of peers), 9.7.9.25.4.1 (bulk copies), 5.5.6 (swizzles)",
        help=(
            "wait in the CTA that owns the barrier; begin swizzled tiles at a multiple of 256, 512 or 1024 bytes "
            "(swizzle 32, 64, 128)"
        ),
    ),
    Code(
        id="MBR040",
        title="a CTA waits for one that may never begin",
        why=(
            "A CTA waits for what CTAs do that are known to have begun; of a grid only the resident ones surely run "
            "at once, and another one begins perhaps only when one has ended."
        ),
        bad="while (ld.acquire(flag[blockIdx.x - 1]) == 0);",
        good="t = atomicAdd(&next, 1); while (ld.acquire(done) < t);   // or a cooperative launch, with resident= said",
        source=(
            "CUDA C++ Programming Guide, thread hierarchy (blocks execute in any order) and cooperative groups (grid "
            "synchronisation)"
        ),
        help=(
            "wait for tickets drawn before one's own, let the last one to arrive do the work, or launch cooperatively"
            " no more CTAs than are resident and say so (resident=)"
        ),
    ),
    Code(
        id="MBR041",
        title="strong operations whose scopes leave each other out",
        why=(
            "Two operations on a word by different CTAs, one of which writes, have scopes that include each other's "
            "threads, or are in causality order: else they are a data race, and not even additions are atomic."
        ),
        bad="atom.add.acq_rel.cta [done], 1   // by several CTAs",
        good="atom.add.acq_rel.gpu [done], 1",
        source="PTX ISA 9.1, 8.5 (scope), 8.7 (morally strong operations), 8.7.1 (data-races), 8.10.3 (atomicity)",
        help="use scope gpu for every operation on a word that several CTAs touch",
    ),
    Code(
        id="MBR042",
        title="a counter is not zero when the next launch begins",
        why=(
            "A counter in global memory is filled with zeros before each launch, or left at zero by every run: global"
            " memory keeps its contents."
        ),
        bad='counter("done") that each CTA adds to, and nobody sets back',
        good='counter("done", reset=True), or the last CTA stores 0',
        source=(
            "Tilewright protocol model; CUDA C++ Programming Guide (global memory keeps its contents between launches)"
        ),
        help="let the launch fill it (reset=True), or let the last CTA store 0 once nobody reads it any more",
    ),
)
