"""LIM: limits of a launch."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

_GUIDE = "CUDA Programming Guide, 5.1"


def _code(id: str, title: str, why: str, bad: str, good: str) -> Code:
    return Code(id, title, why, bad, good, _GUIDE)


CODES: tuple[Code, ...] = (
    _code("LIM001", "CTA wants more than 227 KiB of shared memory", "The launch fails.", "232,449 bytes", "232,448"),
    _code("LIM002", "CTA has more than 1024 threads", "The launch fails.", "1025 threads", "1024 threads"),
    _code(
        "LIM003",
        "registers of a CTA exceed the register file",
        "Registers are allocated in eights for each thread of every warp.",
        "384 threads with 169 registers",
        "384 threads with 168 registers",
    ),
    _code("LIM004", "more than 255 registers a thread", "An instruction names a register with 8 bits.", "256", "255"),
    _code("LIM005", "cluster of more than 8 CTAs", "Larger ones are not portable.", "9 CTAs", "8 CTAs"),
    _code(
        "LIM006",
        "setmaxnreg count is not a multiple of 8 between 24 and 256",
        "The immediate counts registers in eights.",
        "236",
        "232",
    ),
    _code(
        "LIM007",
        "warpgroups ask for more registers than the CTA was given",
        "An increase waits until the pool has the registers; if no one gives them back, it waits for ever.",
        "24 + 240 + 241 with 168 at entry",
        "24 + 240 + 240 with 168 at entry",
    ),
)
