"""CRT: a compiled kernel that its certificate does not cover. No certificate, no code."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

CODES: tuple[Code, ...] = (
    Code(
        "CRT001",
        "the lowered kernel is wrong",
        "The checker found, and replayed, arguments for which the lowered kernel writes an element twice or not at "
        "all, or "
        "touches memory outside a tensor. The kernel is not emitted. This is a defect of the compiler, or two "
        "programs of "
        "the kernel store to the same place.",
        bad="y[m] = x[m, n].sum(1)   # with n on the grid: every program of a row writes y[m]",
        good="tw.reduce_add(y, (m,), x[m, n].sum(1))",
        source="the cover and guards obligations, tilewright.contract.access",
    ),
    Code(
        "CRT002",
        "the lowered kernel could not be proved right",
        "The checker neither proved the obligation nor found a counterexample, so the kernel is not emitted.",
        source="the cover and guards obligations, tilewright.contract.access",
    ),
    Code(
        "CRT003",
        "the steps of a program do not hand their data on",
        "A kernel reads a workspace that no earlier step fills, or fills in part, or that is laid out otherwise than "
        "it assumes. The program is not emitted. This is a defect of the compiler.",
        source="the order, whole, inside and bound obligations, tilewright.compiler.steps",
    ),
    Code(
        "CRT004",
        "a kernel without its whole certificate",
        "Every access has its guards, every stored tensor its cover, every tensor map and wgmma its map and "
        "descriptor, every barrier its protocol rules. Something is missing, so the kernel is not emitted. This is a "
        "defect of the compiler.",
        source="tilewright.compiler.obligations",
    ),
)
