"""Where the user is: the frame, line and name that a recorded operation or a refusal belongs to."""

from __future__ import annotations

import dis
import os
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import NoReturn

from tilewright.diag import Diagnostic, Label, Location, TilewrightError

_LANG = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_LANG) + os.sep
_OURS = (_LANG + os.sep, os.path.join(os.path.dirname(_LANG), "tile") + os.sep)


def user_frame() -> FrameType:
    """The innermost frame that runs neither this room's nor the tracer's code."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - the documented way to a caller
    while frame.f_code.co_filename.startswith(_OURS):
        outer = frame.f_back
        if outer is None:
            return frame
        frame = outer
    return frame


def location(frame: FrameType) -> Location:
    """The place a frame stands at, with its column."""
    code = frame.f_code
    column = 0
    for index, (line, _, start, _) in enumerate(code.co_positions()):
        if index == frame.f_lasti // 2:
            column = start + 1 if start is not None and line == frame.f_lineno else 0
            break
    return Location(code.co_filename, frame.f_lineno, column)


def here() -> Location:
    """The user's place now."""
    return location(user_frame())


def refuse(
    code: str,
    *,
    title: str = "",
    found: str = "",
    required: str = "",
    help: str = "",
    where: Location | None = None,
    labels: tuple[Label, ...] = (),
) -> NoReturn:
    """Raise one diagnostic at ``where``, by default the user's place now."""
    raise TilewrightError(
        (
            Diagnostic(
                code, title=title, where=where or here(), found=found, required=required, help=help, labels=labels
            ),
        )
    )


_JUMPS_OF_JUNCTIONS = ("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP")


def truth_asked_by(frame: FrameType) -> str:
    """What asks for a truth value at the frame's current instruction: a keyword, or the name of a called builtin."""
    instructions = list(dis.get_instructions(frame.f_code))
    at = next((i for i, ins in enumerate(instructions) if ins.offset == frame.f_lasti), None)
    if at is None:
        return ""
    for instruction in instructions[at : at + 4]:  # TO_BOOL, COPY and caches stand before the jump on newer Pythons
        name = instruction.opname
        if name in _JUMPS_OF_JUNCTIONS or name == "COPY":
            return "and / or"
        if name == "UNARY_NOT":
            return "not"
        if name in ("CONTAINS_OP", "COMPARE_OP"):
            return "in" if name == "CONTAINS_OP" else "a chained comparison"
        if name.startswith("POP_JUMP"):
            text = location(frame).text
            return "while" if text.startswith("while") else "assert" if text.startswith("assert") else "if"
        if name.startswith(("CALL", "PRECALL")):
            return _called(frame)
    return ""


def _called(frame: FrameType) -> str:
    text = location(frame).text
    return next((name for name in ("max", "min", "bool", "any", "all", "sorted", "sum") if f"{name}(" in text), "")


def names_of(frame: FrameType, value: object) -> list[str]:
    """The frame's local names that are bound to this very object."""
    return [name for name, bound in frame.f_locals.items() if bound is value]


@contextmanager
def within_stack(where: Location) -> Generator[None]:
    """Refuses (LNG033) what exceeds Python's stack: a helper of the kernel at ``where`` that calls itself without end,
    or an expression so deep that walking it does."""
    try:
        yield
    except RecursionError as error:
        calls: Counter[CodeType] = Counter()
        step = error.__traceback__
        while step is not None:
            calls[step.tb_frame.f_code] += not step.tb_frame.f_code.co_filename.startswith(_PACKAGE)
            step = step.tb_next
        code, times = calls.most_common(1)[0] if calls else (None, 0)
        if code is not None and times > 9:
            where, found = Location(code.co_filename, code.co_firstlineno), f"{times} calls of {code.co_name} at once"
        else:
            found = "an expression that is nested deeper than Python's stack"
    else:
        return
    refuse(
        "LNG033",
        where=where,
        found=found,
        required="helpers that return, and integer expressions of less than a hundred levels",
        help="walk with tw.stream what is walked by recursion; compute in tiles what is long",
    )


@contextmanager
def using_absent(names: Sequence[str]) -> Generator[None]:
    """Refuses (LNG037) what Python says of None where the kernel's tensors ``names`` are left out."""
    try:
        yield
    except (TypeError, AttributeError) as error:
        if not names or "NoneType" not in str(error):
            raise
        step = error.__traceback__
        frames: list[tuple[FrameType, int]] = []
        while step is not None:
            if not step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
                frames.append((step.tb_frame, step.tb_lineno))
            step = step.tb_next
        if not frames:
            raise
        where = Location(frames[-1][0].f_code.co_filename, frames[-1][1])
    else:
        return
    refuse(
        "LNG037",
        where=where,
        found=f"None, since {' and '.join(names)} is left out",
        required="a branch for calls without it",
        help=f"write it: `if {names[0]} is not None: ...`",
    )
