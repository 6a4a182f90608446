"""Options of the form NAME=VALUE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
