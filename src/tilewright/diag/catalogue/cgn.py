"""CGN: errors of the assembler and of the emitted code."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_REPORT = "this is a defect of Tilewright, please report it with the kernel; another schedule= may avoid it"

CODES: tuple[Code, ...] = (
    Code(
        "CGN001",
        "NVRTC refuses the emitted CUDA C++",
        "Emitted code always compiles; where it doesn't, the code generator is wrong, not the kernel.",
        source="NVRTC documentation, nvrtcCompileProgram",
        help=_REPORT,
    ),
    Code(
        "CGN002",
        "ptxas spills registers, serialises wgmma or ignores setmaxnreg",
        "Spilled registers, serialised wgmma (C7510) and an ignored setmaxnreg (C7508) make a kernel several times "
        "slower than its plan. The compiler falls back to the next schedule, and leaves out a class of arguments for "
        "which none is left (RUN021); what is pinned is refused.",
        bad="schedule=tw.Schedule(warps=1)   # for a row of 65536 elements",
        good="schedule=None   # let the compiler choose",
        source="ptxas -v; CUDA advisories C7508 and C7510",
    ),
    Code(
        "CGN003",
        "the tiles that go through shared memory do not fit it",
        "Tiles that are transposed, and partial results of warps, are exchanged through shared memory, of which a CTA "
        "has a fixed amount.",
        bad="m, n = tw.grid(x, (512, 256)); y[n, m] = x[m, n].T   # f32: 512 KB",
        good="m, n = tw.grid(x, (64, 64)); y[n, m] = x[m, n].T",
        source="CUDA C++ Programming Guide, Compute Capabilities; hw.target",
    ),
    Code(
        "CGN004",
        "the PTX does not synchronise as the Transport IR says",
        "The proofs are about the IR. In the PTX that is assembled every role holds the IR's barriers, copies, "
        "products and fences, each once and in its order; where a compiler moved, lost or repeated one, the next "
        "schedule is taken.",
        source="codegen.sync_check; PTX ISA, Control Flow InstructionSet",
        help=_REPORT,
    ),
    Code(
        "CGN005",
        "a launch that was executed does something else than was proved",
        "The proofs are about the IR. PTX that is not shown to do what the IR says is executed beside it on drawn "
        "arguments; where an element differs, the code generator or NVRTC is wrong, not the kernel. Steps that check "
        "promises are executed on integers that keep them and break them; where one goes unseen, they are wrong.",
        source="compiler.differential, compiler.index_promise_tests; docs/validation.md",
        help=_REPORT,
    ),
)
