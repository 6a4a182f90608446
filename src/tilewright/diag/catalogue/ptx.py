"""PTX: texts that are no PTX, and kernels that misbehave when the PTX machine executes them."""

from __future__ import annotations

from tilewright.diag.catalogue.entry import Code

CODES: tuple[Code, ...] = (
    Code(
        id="PTX001",
        title="the text is not PTX",
        why="A text that is read in part would be judged in part.",
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
)
