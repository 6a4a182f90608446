"""Source locations of the user: the frame, line and name that a recorded operation or a refusal belongs to."""

from __future__ import annotations

import difflib
import dis
import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

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
    """The source location of a frame, with its column."""
    return _place(frame.f_code, frame.f_lasti, frame.f_lineno)


def _place(code: CodeType, instruction: int, line: int) -> Location:
    column = 0
    for index, (begins, _, start, _) in enumerate(code.co_positions()):
        if index == instruction // 2:
            column = start + 1 if start is not None and begins == line else 0
            break
    return Location(code.co_filename, line, column)


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
    ) from None


_JUMPS_OF_JUNCTIONS = ("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP")


def truth_asked_by(frame: FrameType) -> str:
    """The construct that asks for a truth value at the frame's current instruction: a keyword, or the name of a called
    builtin."""
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


def names_unpacked_by(frame: FrameType) -> int:
    """To how many names the frame's current instruction unpacks a value; 0 where it does something else."""
    at = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)
    return int(at.arg or 0) if at is not None and at.opname == "UNPACK_SEQUENCE" else 0


def _called(frame: FrameType) -> str:
    text = location(frame).text
    return next((name for name in ("max", "min", "bool", "any", "all", "sorted", "sum") if f"{name}(" in text), "")


def names_of(frame: FrameType, value: object) -> list[str]:
    """The frame's local names that are bound to this very object."""
    return [name for name, bound in frame.f_locals.items() if bound is value]


@contextmanager
def within_stack(where: Location) -> Generator[None]:
    """Refuses (LNG033) what exceeds Python's stack: a helper of the kernel at ``where`` that calls itself without end,
    or an expression so deep that walking it does; and (LNG023) integers too long to be written down."""
    try:
        yield
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        step = _users_step(error)
        refuse(
            "LNG023",
            where=where if step is None else _place(step.tb_frame.f_code, step.tb_lasti, step.tb_lineno),
            found=f"an integer of more than {sys.get_int_max_str_digits()} digits",
            required="integers that can be written down; those of a tile's coordinates fit 64 bits",
            help="compute such numbers outside of the kernel, and pass what is left of them",
        )
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


_CALL = re.compile(r"(?:(?P<owner>\w+)\.)?(?P<name>\w+)\(\) (?P<what>(?:missing|takes|got) .*)")
_OPERANDS = re.compile(r"unsupported operand type\(s\) for (?P<operator>\S+): (?P<what>.*)")
_VALUES = ("Tile", "Fragment", "Scalar", "Range", "Tensor")
_USE = re.compile(rf"'(?:{'|'.join(_VALUES)})' object .*")
AS_MANY_NAMES = "as many names as values: tw.grid gives one for each block, x.shape one for each dimension"
_UNPACKING = re.compile(r"(?:not enough|too many) values to unpack .*")


@contextmanager
def explaining(absent: Sequence[str], known: Callable[[str, str], object]) -> Generator[None]:
    """Refuses at the user's line what Python says of uses of the language: None where the tensors ``absent`` are left
    out (LNG037), operands that are no values and statements that these have no part in (LNG023), as many names as
    there are no values (LNG041), calls that do not fit (LNG041) a function that ``known`` finds by the name of its
    class, or "", and its own."""
    try:
        yield
    except (TypeError, AttributeError, ValueError) as error:
        step = _users_step(error)
        if step is None:
            raise
        frame, message = step.tb_frame, str(error)
        where = _place(frame.f_code, step.tb_lasti, step.tb_lineno)
        if step.tb_next is None and _UNPACKING.fullmatch(message):
            refuse("LNG041", where=where, found=message, required=AS_MANY_NAMES, help="count the names on the left")
        if isinstance(error, ValueError):
            raise
        if absent and "NoneType" in message:
            _refuse_absent(absent, where)
        operands, call = _OPERANDS.fullmatch(message), _CALL.fullmatch(message)
        if operands is not None and any(f"'{name}'" in message for name in _VALUES):
            _refuse_operands(operands, where)
        if step.tb_next is None and _USE.fullmatch(message):
            required = "operations of the language"
            refuse("LNG023", where=where, found=message, required=required, help="docs/language.md lists them")
        function = known(call["owner"] or "", call["name"]) if call is not None else None
        if call is None or function is None or step.tb_next is not None:
            raise
        if not call["owner"] and frame.f_globals.get(call["name"], function) is not function:
            raise  # a helper of the user's that is called like one of ours
        _refuse_call(call, function, where)


def _users_step(error: BaseException) -> TracebackType | None:
    """The innermost step of an error's traceback that is the user's."""
    step, found = error.__traceback__, None
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            found = step
        step = step.tb_next
    return found


def _refuse_absent(names: Sequence[str], where: Location) -> NoReturn:
    refuse(
        "LNG037",
        where=where,
        found=f"None, since {' and '.join(names)} is left out",
        required="a branch for calls without it",
        help=f"write it: `if {names[0]} is not None: ...`",
    )


def _refuse_operands(operands: re.Match[str], where: Location) -> NoReturn:
    refuse(
        "LNG023",
        where=where,
        found=f"{operands['operator']} of {operands['what']}",
        required="tiles, fragments, scalars or numbers",
        help="write a // b and a % b"
        if operands["operator"] == "divmod()"
        else "load tensors by indexing them first; numbers of Python and NumPy are values by themselves",
    )


_NAMED_OTHERWISE = {"keepdim": "keepdims", "dim": "axis", "mask": "no mask", "dtype": ".to(dtype) of the result"}


def _refuse_call(call: re.Match[str], function: Any, where: Location) -> NoReturn:
    of = f"{'tw' if call['owner'] is None else 'x'}.{call['name'].rstrip('_')}"
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]
    ours = next((o for theirs, o in _NAMED_OTHERWISE.items() if f"argument '{theirs}'" in call["what"]), None)
    given = re.search(r"unexpected keyword argument '(\w+)'", call["what"])
    near = difflib.get_close_matches(given[1], [p.name for p in parameters], 1) if given is not None else []
    summary = " ".join((function.__doc__ or "").split("\n\n")[0].split())
    refuse(
        "LNG041",
        where=where,
        found=f"{of}() {call['what']}",
        required=f"{of}({', '.join(str(p) for p in parameters if p.name != 'self')})",
        help=f"here it is {ours}" if ours is not None else f"did you mean {near[0]}?" if near else summary,
    )
