"""PTX: texts that are not valid PTX, and faults found by executing kernels on the PTX machine."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_MEMORY = "PTX ISA 9.1, 5.1 State Spaces; 9.7.9 Data Movement"
_ORDER = "PTX ISA 9.1, 8 Memory Consistency Model"

CODES: tuple[Code, ...] = (
    Code(
        id="PTX001",
        title="the text is not PTX",
        why="PTX that is read in part would be checked in part.",
        bad="add.s32 %r1, %r2, ;",
        good="add.s32 %r1, %r2, 1;",
        source="PTX ISA 9.1, 4 Syntax",
    ),
    Code(
        id="PTX002",
        title="the PTX names something that is not declared",
        why="Without a declaration the type of a register, the place of a variable or the target of a jump is unknown.",
        bad=".reg .b32 %r<4>; mov.b32 %r4, 0;",
        good=".reg .b32 %r<5>; mov.b32 %r4, 0;",
        source="PTX ISA 9.1, 5 State Spaces, Types, and Variables",
    ),
    Code(
        id="PTX003",
        title="the PTX declares a name twice",
        why="A second declaration leaves open which one an instruction means.",
        bad="again: ret; again: ret;",
        good="again: ret; once_more: ret;",
        source="PTX ISA 9.1, 5.4 Variables",
    ),
    Code(
        id="PTX010",
        title="an access outside of memory",
        why="Beyond a tensor, a CTA's shared memory or the parameters lies what belongs to somebody else.",
        bad="ld.global.v4.b32 of the last 8 bytes of a tensor",
        good="ld.global.v2.b32 of the last 8 bytes of a tensor",
        source=_MEMORY,
    ),
    Code(
        id="PTX011",
        title="a misaligned access",
        why="An address must be a multiple of the bytes that an instruction accesses; hardware traps otherwise.",
        bad="ld.shared.v4.b32 at a multiple of 8",
        good="ld.shared.v2.b32 at a multiple of 8",
        source=_MEMORY,
    ),
    Code(
        id="PTX012",
        title="accesses to shared memory race",
        why="Threads, or a thread and an asynchronous operation, access the same bytes, one writes, and no barrier, "
        "mbarrier or proxy fence orders them: what is read depends on luck.",
        bad="st.shared.b32 [x], %r1; ld.shared.b32 %r2, [y];",
        good="st.shared.b32 [x], %r1; bar.sync 0; ld.shared.b32 %r2, [y];",
        source=_ORDER,
    ),
    Code(
        id="PTX013",
        title="shared memory is read before it is written",
        why="Shared memory starts undefined; mbarriers in it must be initialised.",
        bad="ld.shared.b32 of a slot that no thread has stored to",
        good="st.shared.b32; bar.sync 0; ld.shared.b32",
        source=_MEMORY,
    ),
    Code(
        id="PTX014",
        title="a register is read before it is written",
        why="The value of a register that nothing wrote differs from launch to launch.",
        bad="@%p1 mov.b32 %r1, 0; add.s32 %r2, %r1, 1;",
        good="mov.b32 %r1, 0; add.s32 %r2, %r1, 1;",
        source="PTX ISA 9.1, 5.1.1 Register State Space",
    ),
    Code(
        id="PTX015",
        title="the PTX machine lacks an instruction",
        why="What the machine can't execute it doesn't guess; docs/ptx.md lists what it models.",
        bad="tcgen05.mma",
        good="wgmma.mma_async",
        source="Tilewright PTX machine",
    ),
    Code(
        id="PTX016",
        title="the result depends on the schedule",
        why="The same launch gave other bytes when warps ran in another order or copies landed later.",
        bad="two CTAs that store different values to one element",
        good="red.global.add",
        source=_ORDER,
    ),
    Code(
        id="PTX017",
        title="threads wait for ever",
        why="Threads wait at a barrier or an mbarrier that nobody will complete.",
        bad="bar.sync 0 that only one warp reaches",
        good="bar.sync 0 that all warps reach",
        source=_ORDER,
    ),
    Code(
        id="PTX018",
        title="too many steps for the PTX machine",
        why="The machine executes every instruction in NumPy; a launch of hours is never what was meant.",
        bad="a loop of 2^31 iterations",
        good="smaller tensors",
        source="Tilewright PTX machine",
    ),
    Code(
        id="PTX019",
        title="an operation that the hardware would refuse",
        why="More arrivals than an mbarrier expects, a tensor copy without its map, a trap: the launch fails.",
        bad="mbarrier.init of count 1, two arrivals in a phase",
        good="mbarrier.init of count 2, two arrivals in a phase",
        source="PTX ISA 9.1, 9.7.13.15 mbarrier",
    ),
)
