"""Instructions that all lanes of a warp run together, in PTX in which some lanes do not run them."""

from __future__ import annotations

import re

import pytest

from support.compiled_examples import compiled

LAST = r"^\s*shfl\.sync\.bfly\.b32\s+\S+, %r\d+, \S+, \S+, \S+;(?![\s\S]*shfl\.sync\.bfly)"
"""The last exchange of a row's sum, of which thread 0 alone stores what it gets."""
STORE = r"^\s*st\.global\.u16\s+\[%rd\d+\], %rs\d+;(?![\s\S]*st\.global)"
"""What thread 0 alone comes to."""
UNUSED = "shfl.sync.bfly.b32 x, x, 1, 31, -1;"
TID = "{ .reg .pred q; .reg .b32 x; mov.u32 x, %tid.x; "

MISTAKES = {
    "a read of lanes that a guard keeps out": (LAST, f"{TID} setp.eq.u32 q, x, 0; @q FOUND }}"),
    "a read of lanes that branch": (LAST, f"{TID} setp.ne.u32 q, x, 0; @q bra OTHERS; }}\nFOUND\nOTHERS:"),
    "a read by every second lane": (LAST, f"{TID} and.b32 x, x, 1; setp.eq.u32 q, x, 0; @q FOUND }}"),
    "a word that nothing reads": (STORE, f"{TID} {UNUSED} }}\nFOUND"),
    "an election": (STORE, f"{TID} elect.sync _|q, -1; }}\nFOUND"),
    "half a warp": (LAST, f"FOUND\n{TID} shfl.sync.bfly.b32 x, x, 1, 31, 0xffff; }}\n"),
    "33 threads": (LAST, f"FOUND\n{TID} setp.lt.u32 q, x, 33; @q {UNUSED} }}\n"),
}


def changed(pattern: str, text: str) -> list[str]:
    """What is said of the sums of rows with a text in place of what a pattern finds."""
    kernel = compiled("row_sum")["row_sum_1"]
    (found,) = re.finditer(pattern, kernel.ptx, re.MULTILINE)
    new = text.replace("FOUND", found[0].strip())
    return kernel.differences(f"{kernel.ptx[: found.start()]}{new}\n{kernel.ptx[found.end() :]}", 1)


@pytest.mark.parametrize(("pattern", "text"), MISTAKES.values(), ids=MISTAKES)
def test_an_exchange_that_some_lanes_do_not_run_is_undecided(pattern: str, text: str) -> None:
    """A lane gets nothing of one that does not run it, or waits for it (PTX ISA 9.1, shfl.sync, elect.sync)."""
    assert changed(pattern, text)


@pytest.mark.parametrize(
    "text",
    [
        f"FOUND\n{TID} {UNUSED} }}\n",
        f"FOUND\n{TID} elect.sync _|q, -1; }}\n",
        f"FOUND\n{TID} setp.lt.u32 q, x, 32; @q {UNUSED} }}\n",
        f"FOUND\n{TID} mov.u32 x, %ctaid.x; setp.lt.u32 q, x, 7; @q {UNUSED} }}\n",
        f"FOUND\n{TID} shfl.sync.idx.b32 x, x, 0, 31, -1; setp.lt.u32 q, x, 64; @q {UNUSED} }}\n",
    ],
)
def test_an_exchange_that_whole_warps_run_changes_nothing(text: str) -> None:
    assert changed(LAST, text) == []
