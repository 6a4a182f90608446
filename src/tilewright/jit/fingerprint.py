"""What a kernel's code depends on, as text: the key of the store without tracing.

The code objects of the function and of every function it names, with the plain values it reads from globals and
closures. A kernel that reads anything else (an object, a table) has no fingerprint and is keyed by its traced IR.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

from tilewright.base.dtypes import DType


@cache
def compiler_identity() -> str:
    """Changes with every edit of the package: names, sizes and times of its sources."""
    root = Path(__file__).parent.parent
    files = sorted(root.rglob("*.py"))
    stats = ((f, f.stat()) for f in files)
    return "\n".join(f"{f.relative_to(root)} {s.st_size} {s.st_mtime_ns}" for f, s in stats)


_PLAIN = (int, float, str, bytes, bool, type(None), DType)


def fingerprint(fn: Callable[..., object]) -> str | None:
    """Text that changes whenever a trace of ``fn`` could; None if it can't be told."""
    parts: list[str] = []
    return "\n".join(parts) if _function(fn, parts, set()) else None


def _function(fn: object, parts: list[str], seen: set[int]) -> bool:
    if not isinstance(fn, types.FunctionType):
        return False
    if id(fn) in seen:
        return True
    seen.add(id(fn))
    parts.append(f"def {fn.__qualname__}")
    _code(fn.__code__, parts)
    defaults = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    cells = [c.cell_contents for c in fn.__closure__ or ()]
    names = {n for code in _codes(fn.__code__) for n in code.co_names}
    found = [fn.__globals__[n] for n in sorted(names) if n in fn.__globals__]
    return all(_value(v, parts, seen) for v in (*defaults, *cells, *found))


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *(d for c in inner for d in _codes(c))]


def _code(code: types.CodeType, parts: list[str]) -> None:
    for part in _codes(code):
        constants = [c for c in part.co_consts if not isinstance(c, types.CodeType)]
        parts.append(f"{part.co_code.hex()} {constants!r} {part.co_names!r} {part.co_varnames!r}")


def _value(value: object, parts: list[str], seen: set[int]) -> bool:
    if isinstance(value, _PLAIN):
        parts.append(repr(value))
        return True
    if isinstance(value, tuple | list):
        return all(_value(v, parts, seen) for v in cast("tuple[object, ...] | list[object]", value))
    if isinstance(value, types.ModuleType):
        parts.append(value.__name__)
        return value.__name__.split(".")[0] in ("tilewright", "math")
    if type(value).__module__.split(".")[0] == "tilewright":
        parts.append(repr(value))
        return True
    if getattr(value, "__module__", "").split(".")[0] == "tilewright":
        parts.append(f"{value.__module__}.{getattr(value, '__qualname__', '')}")
        return True
    return _function(value, parts, seen)
