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
        "CTAs with one or two consumer warpgroups, which share a tile or run ping-pong, in clusters or alone.",
        bad='schedule=tw.Schedule(mode="plain")',
        good='schedule=tw.Schedule(mode="pingpong", cluster=(2, 1))',
        source="tilewright.schedule.hopper.candidates",
    ),
)
