"""CGN: what the emitted code's assemblers say."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

CODES: tuple[Code, ...] = (
    Code(
        "CGN001",
        "NVRTC refuses the emitted CUDA C++",
        "Emitted code always compiles; where it doesn't, the code generator is wrong, not the kernel.",
        source="NVRTC documentation, nvrtcCompileProgram",
    ),
    Code(
        "CGN002",
        "ptxas gave up what the schedule was chosen for",
        "Spilled registers, serialised wgmma (C7510) and an ignored setmaxnreg (C7508) make a kernel several times "
        "slower "
        "than its plan. The compiler falls back to the next schedule; a pinned one is refused.",
        bad="schedule=tw.Schedule(threads=32)   # for a row of 65536 elements",
        good="schedule=None   # let the compiler choose",
        source="ptxas -v; CUDA advisories C7508 and C7510",
    ),
)
