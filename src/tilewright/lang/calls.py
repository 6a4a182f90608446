"""Calls of the language's functions: the recorder of the trace that they belong to, and what they are given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import cast

from tilewright.diag import type_shown
from tilewright.lang.arithmetic import Operand
from tilewright.lang.operators import Operators, operand_of
from tilewright.lang.recorder import Recorder
from tilewright.lang.source_locations import refuse
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Range


def run_body(
    recorder: Recorder, fn: Callable[..., object], args: Sequence[object], kwargs: dict[str, object]
) -> object:
    """Call a kernel's function. Functions without a traced argument find the recorder in the frame of this call."""
    return fn(*args, **kwargs)


CALL_HELP = "call it in the body of a kernel, or in a function that a kernel calls"


def recorder_of(values: Iterable[object], help: str = CALL_HELP) -> Recorder:
    """The recorder of the first traced value, else that of the innermost trace on the stack."""
    for value in values:
        if isinstance(value, (Operators, Range, Tensor)):
            return value._recorder  # pyright: ignore[reportPrivateUsage] - proxies are this room's
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code is run_body.__code__:
            return cast(Recorder, frame.f_locals["recorder"])
        frame = frame.f_back
    refuse(
        "LNG030",
        found="a call outside of a kernel",
        required="a function decorated with @tw.kernel, being traced",
        help=help,
    )


def operands_of(*values: object) -> tuple[Recorder, list[Operand]]:
    """The recorder of the values, and what is recorded for each; refuses what is none."""
    rec = recorder_of(values)
    result = list[Operand]()
    for value in values:
        operand = operand_of(value)
        if operand is None:
            refuse(
                "LNG023",
                found=type_shown(value),
                required="a tile, fragment, scalar or number",
                help="load tensors by indexing them first",
            )
        result.append(operand)
    return rec, result
