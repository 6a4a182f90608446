"""The rule of loop state: a stream's body is recorded once, so only fragments carry values between iterations.

At a stream's entry the names of the frame that holds the ``for`` are remembered; at its end a name that was live then
and is bound to something else is refused, as are lists, dicts, sets, arrays and objects whose contents were exchanged,
and iterators that went on. What is reached in another way only (through a function, a module, a C object) is not seen.
"""

from __future__ import annotations

import dis
import inspect
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, cast

from tilewright.diag import Location, shown, type_shown
from tilewright.lang.recorder import OpenStream
from tilewright.lang.source_locations import refuse
from tilewright.lang.traced import Traced
from tilewright.lang.values import Fragment, Tile

_MISSING = object()
_PLAIN = (int, float, str, bool, bytes, type(None))
_DEPTH = 3  # containers inside containers are followed this far
_MOST_BYTES = 1 << 20  # of an array whose elements are compared


@dataclass(frozen=True)
class _Contents:
    """What a container held at entry; references keep the parts alive, so that ``is`` means what it says."""

    parts: tuple[tuple[object, object, object], ...]  # (key, value, contents of the value)


@dataclass(frozen=True)
class OpenLoop:
    """An open stream: its counter, and the names that were live when it was entered."""

    stream: OpenStream
    counter: str
    frame: FrameType
    target: str
    entry: Mapping[str, tuple[object, _Contents | None]]
    first_instruction: int
    line: int


def enter(stream: OpenStream, counter: str, frame: FrameType, is_dead: Callable[[object], bool]) -> OpenLoop:
    """Remember the frame's live names; values of streams that have ended are dead.

    Refuses (LNG011) whatever is not a plain ``for name in tw.stream(...)``: an enumerate or a generator in between
    would count in Python, once, or keep the names that matter in another frame.
    """
    target = _loop_variable(frame)
    if target is None:
        _refuse_iteration(frame)
    entry = {name: (value, _contents(value, _DEPTH)) for name, value in _names(frame).items() if not is_dead(value)}
    return OpenLoop(stream, counter, frame, target, entry, frame.f_lasti, frame.f_lineno)


def _loop_variable(frame: FrameType) -> str | None:
    """The name that the ``for`` at the frame's current instruction binds to each item."""
    if frame.f_code.co_flags & inspect.CO_GENERATOR:
        return None
    at_loop = False
    for instruction in dis.get_instructions(frame.f_code):
        if at_loop and instruction.opname.startswith("STORE_"):
            name: object = instruction.argval
            return cast("tuple[str, ...]", name)[0] if isinstance(name, tuple) else cast(str, name)
        if at_loop and instruction.opname != "CACHE":
            return None
        at_loop = at_loop or (instruction.offset == frame.f_lasti and instruction.opname.startswith("FOR_ITER"))
    return None


def _refuse_iteration(frame: FrameType) -> NoReturn:
    refuse(
        "LNG011",
        where=Location(frame.f_code.co_filename, frame.f_lineno),
        found="a stream that is iterated by something other than a plain `for`",
        required="for name in tw.stream(...):",
        help="take counters from the Range: k.start; call helper functions inside the loop's body",
    )


def check_rebinding(loop: OpenLoop, loop_value: object) -> None:
    """Refuse (LNG010) a name that was live at entry and means something else now."""
    now = _names(loop.frame)
    if now.get(loop.target) is not loop_value:
        _refuse_iteration(loop.frame)
    for name, (old, contents) in loop.entry.items():
        new = now.get(name, _MISSING)
        if new is _MISSING or new is loop_value:
            continue
        if not _same(old, new):
            _refuse(loop, name, old, f"{name}, {_describe(old)} before the stream, is {_describe(new)} after its body")
        if contents is not None and not _same_contents(contents, _contents(new, _DEPTH)):
            _refuse(loop, name, old, _exchanged(name, old))


def _names(frame: FrameType) -> dict[str, object]:
    """Local, free and used global names; not the iterator that a comprehension runs over."""
    used = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
    return {**used, **{name: value for name, value in frame.f_locals.items() if name.isidentifier()}}


def _same(old: object, new: object) -> bool:
    if old is new:
        return True
    return type(old) is type(new) and isinstance(old, _PLAIN) and old == new


def _contents(value: object, depth: int) -> _Contents | None:
    if depth == 0 or isinstance(value, (Traced, type, *_PLAIN)) or callable(value):
        return None
    items: list[tuple[object, object]]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        items = list(enumerate(cast("list[object]", value)))
    elif hasattr(value, "__next__") and not type(value).__module__.startswith("tilewright."):
        return _Contents(((None, _progress(value), None),))
    elif isinstance(value, (bytearray, memoryview, array)) or hasattr(value, "__array_interface__"):
        return _Contents(((None, _bytes(value), None),))
    elif isinstance(value, dict):
        items = list(cast("dict[object, object]", value).items())
    elif type(value).__module__.partition(".")[0] not in ("builtins", "tilewright") and hasattr(value, "__dict__"):
        items = list(cast("dict[object, object]", vars(value)).items())
    else:
        return None
    return _Contents(tuple((key, part, _contents(part, depth - 1)) for key, part in items))


def _progress(iterator: Any) -> str:
    """The position of an iterator or a generator, if it can be determined."""
    if inspect.isgenerator(iterator):
        frame = iterator.gi_frame
        parts = [] if frame is None else list(frame.f_locals.values())
        inner = (_progress(part) if hasattr(part, "__next__") else shown(part) for part in parts)
        return f"{'at its end' if frame is None else frame.f_lasti} {' '.join(inner)}"
    try:
        return repr(iterator.__reduce__()[1:])
    except Exception:  # of a class that can't be taken apart
        return ""


def _bytes(buffer: Any) -> bytes | None:
    """The contents of a buffer, unless it is too large to compare."""
    try:
        view = memoryview(buffer)
        return view.tobytes() if view.nbytes <= _MOST_BYTES else None
    except (TypeError, ValueError, BufferError):
        return None


def _same_contents(old: object, new: object) -> bool:
    if not isinstance(old, _Contents) or not isinstance(new, _Contents):
        return old is new
    return len(old.parts) == len(new.parts) and all(
        _same(key, other_key) and _same(part, other) and _same_contents(inside, other_inside)
        for (key, part, inside), (other_key, other, other_inside) in zip(old.parts, new.parts, strict=True)
    )


def _exchanged(name: str, value: object) -> str:
    if hasattr(value, "__next__"):
        return f"the iterator {name} goes on in the stream's body, which is recorded once"
    return f"the contents of {name} are exchanged in the stream's body"


def _refuse(loop: OpenLoop, name: str, old: object, found: str) -> NoReturn:
    new = _names(loop.frame).get(name)
    if isinstance(old, int | float) and isinstance(new, Tile):
        help = f"make {name} a fragment before the stream, tw.zeros((m, n), tw.f32), which the body writes by +="
    elif isinstance(old, Fragment):
        help = f"write the fragment: {name}.set(new) or {name} += new"
    elif isinstance(old, Traced):
        help = f"make {name} a fragment before the stream (tw.zeros, tw.full) and use {name}.set(new)"
    else:
        help = "the body is recorded once: use the loop's Range, or give the value inside the loop another name"
    refuse(
        "LNG010",
        where=_last_binding(loop, name),
        found=found,
        required="names that are live when a stream begins keep their values; only fragments carry state",
        help=help,
    )


def _last_binding(loop: OpenLoop, name: str) -> Location:
    """The last line of the loop's body that binds ``name``; the loop's own line if bytecode does not show it."""
    code = loop.frame.f_code
    line, found, end = loop.line, loop.line, None
    for instruction in dis.get_instructions(code):
        if instruction.starts_line is not None:
            line = _line_of(instruction, line)
        if instruction.offset == loop.first_instruction and instruction.opname == "FOR_ITER":
            end = cast(int, instruction.argval)
        inside = loop.first_instruction < instruction.offset and (end is None or instruction.offset < end)
        if inside and instruction.opname.startswith("STORE") and instruction.argval == name:
            found = line
    return Location(code.co_filename, found)


def _line_of(instruction: Any, line: int) -> int:
    starts = getattr(instruction, "line_number", instruction.starts_line)  # 3.13 made starts_line a bool
    return starts if isinstance(starts, int) and not isinstance(starts, bool) else line


def _describe(value: object) -> str:
    return type_shown(value) if isinstance(value, Traced) else repr(value)[:40]
