"""What a kernel's code depends on, as text: the key of the store without tracing.

The code objects of the function and of every function it names, with the plain values it reads from globals, closures
and keywords. That is all a trace can read only if the code reads nothing by other ways: names that are none of the
language's, of ``math`` or of Python's pure builtins (``globals``, ``getattr``, ``__dict__``, a method of an object),
imports and writes to globals or attributes leave a kernel without a fingerprint. It is keyed by its traced IR.
"""

from __future__ import annotations

import dis
import os
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import cast

from tilewright.artifact.store import digest
from tilewright.base.dtypes import DType
from tilewright.lang.params import Auto
from tilewright.lang.schedule import Schedule
from tilewright.lang.tensors import Tensor
from tilewright.lang.values import Fragment, Range, Scalar, Tile

_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


@cache
def compiler_identity() -> str:
    """Digest of the package's sources: changes with every edit, and is the same wherever they are installed."""
    held = ((folder, name) for folder, _, names in os.walk(_PACKAGE) for name in names if name.endswith(".py"))
    files = sorted(os.path.join(folder, name) for folder, name in held)
    named = ((f[len(_PACKAGE) :].replace(os.sep, "/"), Path(f).read_bytes()) for f in files)
    return digest(part for file in named for part in file)


_PLAIN = (int, float, str, bytes, bool, type(None), DType, Auto, Schedule)
_MODULES = ("tilewright", "math")
_PURE = """
    AssertionError NotImplementedError TypeError ValueError abs all any bool bytes chr dict divmod enumerate filter
    float int isinstance len list map max min ord pow print range reversed round slice sorted str sum tuple zip
"""
_BUILTINS = frozenset(_PURE.split())
"""Builtins whose results depend on their arguments alone."""
_REACHES_OUT = frozenset(
    dis.opmap[name]
    for name in ("IMPORT_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "LOAD_BUILD_CLASS")
)
_FORMATS = frozenset(("format", "format_map"))
"""Methods of ``str`` that read any attribute of their arguments."""


@cache
def _attributes() -> frozenset[str]:
    """Public attributes of traced values and of Python's plain ones."""
    kinds = (Tile, Fragment, Tensor, Range, Scalar, DType, Schedule, int, float, str, bytes, list, dict, tuple)
    return _public(*(dir(kind) for kind in kinds)) - _FORMATS


def _public(*names: Iterable[str]) -> frozenset[str]:
    return frozenset(n for some in names for n in some if not n.startswith("_"))


def fingerprint(fn: Callable[..., object], keywords: Mapping[str, object] | None = None) -> str | None:
    """Text that changes whenever a trace of ``fn`` with these keywords could; None if that cannot be determined."""
    reader = _Fingerprinter()
    try:
        told = reader.function(fn) and reader.values(keywords or {})
    except (RecursionError, ValueError):  # a list in itself; an empty cell, an integer of too many digits
        return None
    return "\n".join(reader.parts) if told else None


def fingerprint_of(value: object) -> str | None:
    """The same for one value that a trace may read."""
    return fingerprint(_nothing, {"": value})


def _nothing() -> None:
    """Reads nothing."""


class _Fingerprinter:
    """Collects the text; each method returns whether it is complete. A function is included once, then referred to by
    its number."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._seen: dict[types.FunctionType, int] = {}

    def values(self, named: Mapping[str, object]) -> bool:
        for name, value in named.items():
            self.parts.append(f"{name} =")
            if not self._value(value):
                return False
        return True

    def function(self, fn: object) -> bool:
        if not isinstance(fn, types.FunctionType):
            return False
        if fn in self._seen:
            self.parts.append(f"function {self._seen[fn]}")
            return True
        self._seen[fn] = len(self._seen)
        found = self._found(fn)
        if found is None:
            return False
        defaults = dict(enumerate(fn.__defaults__ or ()))
        cells = zip(fn.__code__.co_freevars, (c.cell_contents for c in fn.__closure__ or ()), strict=True)
        whole = {f"default {n}": v for n, v in defaults.items()} | dict(fn.__kwdefaults__ or {})
        return self.values(whole) and self.values(dict(cells)) and self.values(found)

    def _found(self, fn: types.FunctionType) -> dict[str, object] | None:
        """The globals that a function reads, its code told; None if it may read by other ways. Of a function of this
        package, whose text the compiler's identity covers, the name tells the same under every version of Python."""
        if _is_ours(fn):
            self.parts.append(_name_of(fn))
            return {}
        names, attributes = _names(fn.__code__)
        found = {n: fn.__globals__[n] for n in sorted(names) if n in fn.__globals__}
        modules = [v for v in found.values() if isinstance(v, types.ModuleType) and v.__name__ in _MODULES]
        pure = _attributes() | _public(*(_exported(m) for m in modules))
        if not names <= _BUILTINS | found.keys() or not attributes <= pure or not self._code(fn.__code__):
            return None
        return found

    def _code(self, code: types.CodeType) -> bool:
        for part in _codes(code):
            if not _REACHES_OUT.isdisjoint(part.co_code[::2]):
                return False
            constants = [c for c in part.co_consts if not isinstance(c, types.CodeType)]
            shape = (part.co_flags, part.co_argcount, part.co_kwonlyargcount, part.co_exceptiontable.hex())
            names = (part.co_names, part.co_varnames, part.co_cellvars, part.co_freevars)
            self.parts.append(f"{part.co_code.hex()} {constants!r} {shape!r} {names!r}")
        return True

    def _value(self, value: object) -> bool:
        if type(value) in _PLAIN:
            self.parts.append(f"{type(value).__name__} {value!r}")
            return True
        if type(value) in (tuple, list):
            items = cast("tuple[object, ...] | list[object]", value)
            self.parts.append(f"{type(value).__name__} of {len(items)}")
            return all(self._value(v) for v in items)
        if isinstance(value, types.ModuleType):
            self.parts.append(value.__name__)
            return value.__name__ in _MODULES
        if isinstance(value, types.FunctionType) and _is_ours(value):
            self.parts.append(_name_of(value))
            return True
        return self.function(value)


def _is_ours(fn: types.FunctionType) -> bool:
    return fn.__code__.co_filename.startswith(_PACKAGE)


def _name_of(fn: types.FunctionType) -> str:
    return f"{fn.__module__}.{fn.__qualname__} {fn.__code__.co_firstlineno}"


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *(d for c in inner for d in _codes(c))]


@cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a code object looks up among globals and builtins, and its other names: attributes."""
    named = [i for part in _codes(code) for i in dis.get_instructions(part) if i.opcode in dis.hasname]
    looked_up = ("LOAD_GLOBAL", "LOAD_NAME")
    globals_ = frozenset(i.argval for i in named if i.opname in looked_up)
    return globals_, frozenset(i.argval for i in named if i.opname not in looked_up)


def _exported(module: types.ModuleType) -> Iterable[str]:
    return getattr(module, "__all__", dir(module))
