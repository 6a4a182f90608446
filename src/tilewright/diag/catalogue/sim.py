"""SIM: running a kernel on the CPU, and the faults that the simulator finds."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_ORACLE = "Transport IR semantics, checked by the simulator"
_BARRIERS = "PTX ISA, mbarrier and bar"
_MEMORY = "CUDA C++ Programming Guide, memory consistency and __syncthreads"

CODES: tuple[Code, ...] = (
    Code(
        id="SIM001",
        title="too much work to simulate",
        why="The simulator executes every thread of every program in NumPy, about a thousand times slower than a GPU; "
        "a run of hours is never what was meant.",
        bad="kernel(x, y) on two NumPy arrays of 16384 x 16384",
        good="kernel(x[:64], y[:64]), or kernel(x, y, budget=4e9)",
        source="Tilewright simulator",
    ),
    Code(
        id="SIM002",
        title="access outside a tensor",
        why="Beyond its extents a tensor's memory belongs to somebody else: reads return garbage, writes destroy.",
        bad="transport.load of x[r] with guard `r <= M`",
        good="transport.load of x[r] with guard `r < M`",
        source=_ORACLE,
    ),
    Code(
        id="SIM003",
        title="registers are read before they are written",
        why="Registers start with whatever the previous kernel left; the result changes from launch to launch.",
        bad="transport.fold into a buffer without start values",
        good="a map that writes the fold's start values first",
        source=_ORACLE,
    ),
    Code(
        id="SIM004",
        title="shared memory is read before it is written",
        why="Shared memory starts undefined; the result changes from launch to launch.",
        bad="shared_read of 32 partial sums where 8 warps wrote one each",
        good="shared_read with guard `r < 8`",
        source=_ORACLE,
    ),
    Code(
        id="SIM005",
        title="two threads race for an element of shared memory",
        why="Without a barrier between them the order of two accesses is open, and one of them writes.",
        bad="shared_write; shared_read",
        good="shared_write; barrier; shared_read",
        source=_MEMORY,
    ),
    Code(
        id="SIM006",
        title="a tensor does not fit the kernel",
        why="The kernel was built for tensors of a dtype, a rank and named dimensions; a name shared by two tensors is "
        "one extent.",
        bad="run(kernel, {'x': float32 of shape (4, 8), 'y': float32 of shape (4, 9)}) where both are [M, N]",
        good="run(kernel, {'x': float32 of shape (4, 8), 'y': float32 of shape (4, 8)})",
        source="Tilewright simulator",
    ),
    Code(
        id="SIM007",
        title="a runtime scalar is missing, unknown or of another kind",
        why="Every scalar argument of the kernel needs one value of its dtype.",
        bad="run(kernel, tensors, {'scale': 'half'})",
        good="run(kernel, tensors, {'scale': 0.5})",
        source="Tilewright simulator",
    ),
    Code(
        id="SIM008",
        title="the tensors are outside the class the kernel was built for",
        why="The kernel was specialised under facts about extents and strides; where they fail, addresses are wrong.",
        bad="a kernel that assumes N % 8 == 0 on tensors with N = 1001",
        good="the same kernel on tensors with N = 1008",
        source="Tilewright language rules, Specialisation",
    ),
    Code(
        id="SIM009",
        title="a vector access is not contiguous and aligned",
        why="One instruction moves consecutive elements from an address that is a multiple of its size; others fault "
        "or read other elements.",
        bad="4 x f32 at an address with remainder 8",
        good="2 x f32 at that address, or a guard that keeps the vector from starting there",
        source="PTX ISA, ld and st vector operands",
    ),
    Code(
        id="SIM010",
        title="two threads race for an element of a tensor",
        why="A plain store's element is written by one program and thread; nobody else may read it during the launch.",
        bad="two programs that store the same row",
        good="programs with disjoint rows, or reduce_add",
        source=_MEMORY,
    ),
    Code(
        id="SIM011",
        title="access outside a shared buffer",
        why="Beyond its end lies another buffer of the same CTA, silently overwritten.",
        bad="shared_write at offset tid*33 + 32 in a buffer of 32*32",
        good="shared_write at offset tid*33 + 32 in a buffer of 32*33",
        source=_ORACLE,
    ),
    Code(
        id="SIM012",
        title="register index outside a buffer",
        why="Register buffers have a fixed number of elements; an index beyond it would spill into another buffer.",
        bad="map over 8 registers that reads input register r + 1 of 8",
        good="map over 8 registers that reads input register r",
        source=_ORACLE,
    ),
    Code(
        id="SIM013",
        title="the module does not hold one kernel",
        why="The simulator runs one kernel at a time and does not guess which.",
        bad="run(module with two kernels, ...)",
        good="run(one transport.kernel, ...)",
        source="Tilewright simulator",
        help="pass one transport.kernel",
    ),
    Code(
        id="SIM014",
        title="the kernel hangs",
        why="Every agent waits for something that nobody left can bring about.",
        bad="two roles that each wait for the other's first arrival",
        good="a producer that waits for free slots with the parity that passes at first",
        source=_BARRIERS,
    ),
    Code(
        id="SIM015",
        title="a barrier is misused",
        why="An mbarrier counts what it was initialised for; other arrivals complete a phase too early or never.",
        bad="128 arrivals per phase at an mbarrier initialised with 1",
        good="one elected thread that arrives after a named barrier",
        source=_BARRIERS,
    ),
    Code(
        id="SIM016",
        title="registers of a wgmma in flight are touched",
        why="Until its group is waited for, the tensor core reads and writes the accumulator and a register operand A.",
        bad="wgmma; wgmma_commit; map over the accumulator",
        good="wgmma; wgmma_commit; wgmma_wait 0; map over the accumulator",
        source="PTX ISA, wgmma.wait_group",
    ),
    Code(
        id="SIM017",
        title="a fence is missing",
        why="Ordinary accesses, asynchronous copies and the tensor core reach memory on different paths; only a fence "
        "orders one path with another.",
        bad="shared_write; barrier; tma_store",
        good="shared_write; fence_proxy_async; barrier; tma_store",
        source="PTX ISA, memory consistency model, proxies",
    ),
    Code(
        id="SIM018",
        title="something is still in flight when the CTA ends",
        why="A CTA's shared memory belongs to somebody else after its end, and what still reads or writes it corrupts.",
        bad="tma_store; bulk_commit",
        good="tma_store; bulk_commit; bulk_wait 0",
        source="PTX ISA, cp.async.bulk.wait_group",
    ),
    Code(
        id="SIM019",
        title="an asynchronous operation does not fit its operands",
        why="A tensor map, a descriptor and the buffer they address must agree, or the hardware reads other bytes.",
        bad="a wgmma whose descriptor reaches beyond the tile it declares",
        good="stride_bytes of the tile's 8-row groups in the descriptor",
        source="PTX ISA, matrix descriptors; CUDA Driver API, cuTensorMapEncodeTiled",
    ),
    Code(
        id="SIM020",
        title="programs do not fill whole clusters",
        why="A cluster takes a block of programs, one for each of its CTAs; what is left over belongs to no CTA.",
        bad="5 rows of programs for clusters of 2 rows",
        good="programs over ceildiv(rows, 2) * 2 rows, with guarded stores",
        source="transport.programs",
    ),
    Code(
        id="SIM021",
        title="threads hold different integers where one is meant",
        why="A bound or coordinate that was loaded decides which branch all threads take. One of them reads it and "
        "gives it to the others: memory may be overwritten between two reads.",
        bad="bind to what each thread has loaded by itself",
        good="shared_write by thread 0; barrier; shared_read by all; bind",
        source="transport.bind",
    ),
    Code(
        id="SIM022",
        title="an index leads outside of its tensor",
        why="Elements that there are not are skipped: gathers find nothing there, scatters write nothing. A kernel "
        'with on_out_of_range="trap" says that its indices lie inside, or are -1.',
        bad="x[index[m]] with index = [3, 700] and 512 elements of x",
        good="index = [3, -1], where the second has no element",
        source="Tilewright language rules, Coordinates",
    ),
)
