"""Suggestions for a misspelt name in a user's file, as Python makes them for uncaught errors."""

from __future__ import annotations

import builtins
import difflib
import inspect
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import FrameType

_UNEXPECTED = re.compile(
    r"(?:.*\.)?(?P<owner>\w+)\.(?P<name>\w+)\(\) got an unexpected keyword argument '(?P<given>\w+)'"
)


def meant(error: BaseException) -> str:
    """Help for a misspelt attribute, name or keyword of a method: "did you mean pipeline?", or ""."""
    try:
        return _near(*_asked(error))
    except Exception:  # a user's __dir__ or __getattr__
        return ""


def _asked(error: BaseException) -> tuple[str, Iterable[str]]:
    """The name that was not found, and the names that exist."""
    frame = _innermost(error)
    match error:
        case AttributeError():
            return error.name or "", () if error.obj is None else dir(error.obj)
        case NameError() if frame is not None:
            return error.name or "", {*frame.f_locals, *frame.f_globals, *dir(builtins)}
        case TypeError() if frame is not None:
            found = _UNEXPECTED.match(str(error))
            return (found["given"], _parameters(found, frame)) if found is not None else ("", ())
        case _:
            return "", ()


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], n=2, cutoff=0.7)
    return f"did you mean {' or '.join(near)}?" if near else ""


def _innermost(error: BaseException) -> FrameType | None:
    step, frame = error.__traceback__, None
    while step is not None:
        step, frame = step.tb_next, step.tb_frame
    return frame


def _parameters(found: re.Match[str], frame: FrameType) -> Iterable[str]:
    """Parameters of a method, looked up on the classes of the frame's variables."""
    values: Mapping[str, object] = {**frame.f_globals, **frame.f_locals}
    for kind in (value if isinstance(value, type) else type(value) for value in values.values()):
        if kind.__name__ == found["owner"]:
            with suppress(AttributeError, TypeError, ValueError):
                return inspect.signature(getattr(kind, found["name"])).parameters
    return ()
