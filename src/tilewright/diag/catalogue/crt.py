"""CRT: programs without a certificate, except for their accesses (ACC). No certificate, no code."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_REPORT = "this is a defect of Tilewright, please report it with the kernel; another schedule= may avoid it"

CODES: tuple[Code, ...] = (  # CRT001 and CRT002 were of accesses, and are ACC001 to ACC005 now
    Code(
        "CRT003",
        "a step reads a workspace that no earlier step fills as it must",
        "A kernel reads a workspace that no earlier step fills, or fills in part, or that is laid out otherwise than "
        "it assumes; or what was cut into parts, or had its operands swapped, is not the program that was written. The "
        "program is not emitted. This is a defect of the compiler.",
        source="the order, whole, inside and bound obligations, tilewright.compiler.proofs.steps; split and swapped, "
        "tilewright.compiler.proofs.rewritten",
        help=_REPORT,
    ),
    Code(
        "CRT004",
        "a kernel without its whole certificate",
        "Every access has its guards, every stored tensor its cover, every tensor map and wgmma its map and "
        "descriptor, every barrier its protocol rules. Something is missing, so the kernel is not emitted. This is a "
        "defect of the compiler.",
        source="tilewright.compiler.proofs.obligations",
        help=_REPORT,
    ),
    Code(
        "CRT005",
        "an element of shared memory that may be read and is not written",
        "Threads leave elements in shared memory for each other: partial sums, tiles that change their distribution. "
        "One that is read was not written before, or is not shown to be. The kernel is not emitted. This is a defect "
        "of the compiler.",
        source="tilewright.compiler.proofs.shared_memory",
        help=_REPORT,
    ),
    Code(
        "CRT006",
        "threads that do not wait for each other",
        "Threads of a kernel leave elements in shared memory for each other. Between two accesses of different threads "
        "to one element, one of which writes, all of them must wait at a barrier, in the next iteration of a loop too. "
        "Here they need not, or are not shown to. The kernel is not emitted. This is a defect of the compiler.",
        source="tilewright.compiler.proofs.obligations (protocols); PTX ISA 9.1, 8.10 (memory consistency)",
        help=_REPORT,
    ),
    Code(
        "CRT007",
        "a launch recipe that its kernels do not ask for",
        "Grid, cluster, threads, shared memory, parameters, tensor maps, workspaces and steps follow from the kernels' "
        "texts. They were derived a second time, and a field differs, or is not shown to be equal. The program is not "
        "emitted. This is a defect of the compiler, or the bundle was changed.",
        source="tilewright.validate.launch_recipe",
        help=_REPORT,
    ),
    Code(
        "CRT008",
        "an offset that is not shown to fit, or a vector to be aligned",
        "Vectors begin at multiples of their bytes, and offsets are formed in 32 bits where all of them fit. Both must "
        "follow from what the kernel assumes of its arguments, which is asked of every launch. The kernel is not "
        "emitted. This is a defect of the compiler.",
        source="tilewright.compiler.proofs.offsets",
        help=_REPORT,
    ),
    Code(
        "CRT009",
        "a loaded bound that threads may see differently",
        "A bound or a coordinate that was loaded becomes a symbol that loops and branches go by: all threads must hold "
        "the same, even where the tensor it came from is overwritten meanwhile. The kernel is not emitted. This is a "
        "defect of the compiler.",
        source="tilewright.compiler.proofs.uniform",
        help=_REPORT,
    ),
    Code(
        "CRT010",
        "a store that a broken promise does not hold back",
        "A kernel that relies on what is in its tensors (tw.Unique) stores nothing where the steps before it find that "
        "it does not hold: every store stands behind their flags. The kernel is not emitted. This is a defect of the "
        "compiler.",
        source="tilewright.compiler.proofs.promise_gate",
        help=_REPORT,
    ),
)
