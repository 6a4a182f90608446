"""Options of the form NAME=VALUE."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import NoneType
from typing import TypeVar

from tilewright.diag import fail

T = TypeVar("T")


def by_name(option: str, texts: Sequence[str], read: Callable[[str], T]) -> dict[str, T]:
    """Values by name; CMD002 for text that is not NAME=VALUE, a value that can't be read, or a name given twice."""
    values: dict[str, T] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.isidentifier() and equals and value) or name in values:
            fail("CMD002", found=f"{option} {text}", required=f"{option} NAME=VALUE, once a name")
        try:
            values[name] = read(value)
        except ValueError:
            fail("CMD002", found=f"{option} {text}", required=f"a value that {read.__name__} reads")
    return values


def keyword_value(name: str, text: str, default: object) -> object:
    """What ``--set name=text`` gives: a number, True, False, None or a tuple, or else the text itself. Where the
    default is a text, that is what is meant; CMD002 for a text where it is a number, a bool or a tuple."""
    if isinstance(default, str) and text != "None":
        return text
    for read in (ast.literal_eval, *([float] if isinstance(default, float) else [])):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value: object = read(text)
            if _is_read(value):
                return value
    if default is not None and _is_read(default):
        fail(
            "CMD002",
            found=f"--set {name}={text}",
            required=f"a {type(default).__name__} such as the default, {default!r}",
            help=f"did you mean {text.capitalize()}?" if text.capitalize() in ("True", "False") else "",
        )
    return text


def _is_read(value: object) -> bool:
    return isinstance(value, int | float | tuple | NoneType)
