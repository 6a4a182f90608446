"""SCH: a kernel with matrix products for which no schedule was found."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

CODES: tuple[Code, ...] = (
    Code(
        "SCH001",
        "no schedule for this kernel",
        "Every candidate schedule was refused: its accumulators or tiles don't fit, it could not be proved, or ptxas "
        "spilled or serialised it. The reasons of all candidates are listed; the first is the one that was hoped for.",
        bad="bm=512, bn=512   # 262,144 accumulators in f32: 1 MB of registers",
        good="bm=128, bn=256   # 128 registers a thread",
        source="the register file and shared memory of one SM, hw.target",
    ),
    Code(
        "SCH002",
        "a pin that no schedule of this kernel can keep",
        "A pinned decision is kept or refused, never dropped in silence. Kernels with matrix products run persistent "
        "CTAs with one or two consumer warpgroups, which share a tile or take turns, in clusters or alone.",
        bad='schedule=tw.Schedule(mode="plain")',
        good='schedule=tw.Schedule(mode="pingpong", cluster=(2, 1))',
        source="tilewright.schedule.hopper.candidates",
    ),
    Code(
        "SCH003",
        "a matrix product in a kernel with loaded bounds",
        "The warps that copy operands and those that multiply run the same number of steps. A number that is loaded "
        "has to reach them all, which no schedule of products does yet.",
        bad="for k in tw.stream(K, 64, until=lengths[b]): acc += tw.dot(a[m, k], b[n, k].T)",
        good="the sum of products written out, (a[m, k][:, None] * b[n, k][None]).sum(2), or bounds from extents",
        source="tilewright.compiler.program",
    ),
)
