"""The API's page, from signatures and docstrings: what ``tilewright`` exports, and the entry points of its rooms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

import tilewright
from tilewright.artifact import bundle, store
from tilewright.base.dtypes import DType
from tilewright.diag import configuration
from tilewright.jit import Kernel
from tilewright.ops import kernels
from tilewright.runtime import Program, load

SECTIONS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("Compiling and calling", (Kernel.__call__, Kernel.compile, Kernel.explain)),
    ("Bundles", (bundle.read, bundle.write_folder, bundle.to_bytes, bundle.from_bytes)),
    ("Launching without the compiler", (load, Program, Program.launch)),
    ("Stores and settings", (store.ArtifactStore, store.Shipped, configuration.Configuration, configuration.settings)),
)
CONSTRUCTED = (
    tilewright.Diagnostic,
    tilewright.Schedule,
    tilewright.TilewrightError,
    store.ArtifactStore,
    store.Shipped,
)
"""Classes that a user calls; the others' values come from functions."""


def page() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Python API\n"
    yield "What `import tilewright as tw` has, then the entry points of its rooms. Options and calls of a kernel are "
    yield "those of `tilewright.jit.Kernel`.\n"
    yield "## tilewright\n"
    exported = {name: getattr(tilewright, name) for name in tilewright.__all__}
    dtypes = [name for name, value in exported.items() if isinstance(value, DType)]
    yield f"Element types: {', '.join(f'`tw.{name}`' for name in dtypes)}.\n"
    for name, value in exported.items():
        if callable(value) and not isinstance(value, DType):
            yield from _entry(f"tw.{name}", value)
    for title, members in SECTIONS:
        yield f"## {title}\n"
        for member in members:
            yield from _entry(_name(member), member)
    yield "## tilewright.ops.kernels\n"
    yield _text(kernels) + "\n"
    for name, value in sorted(vars(kernels).items()):
        if callable(value):
            yield from _entry(f"ops.kernels.{name}", value)


def _entry(name: str, member: Any) -> Iterator[str]:
    yield f"### {name} {{ #{name.replace('.', '-')} }}\n"
    if not isinstance(member, type) or member in CONSTRUCTED:
        yield f"```text\n{name}{_signature(member)}\n```\n"
    yield _text(member) + "\n"
    if isinstance(member, type):
        yield from _members(member)


def _members(kind: type) -> Iterator[str]:
    """What it has of its own and of its bases in this package, a line each."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("tilewright")]
    found = {name: value for base in reversed(bases) for name, value in vars(base).items() if not name.startswith("_")}
    for name, value in sorted(found.items()):
        text = inspect.getdoc(value) if callable(value) or isinstance(value, property | cached_property) else None
        if text:
            yield f"- `.{name}{_signature(value, of_an_instance=True)}`: {' '.join(text.split())}".replace("``", "`")
    yield ""


class _Written:
    """An annotation as it is written, without quotes."""

    def __init__(self, text: object) -> None:
        self._text = str(text)

    def __repr__(self) -> str:
        return self._text


def _signature(member: Any, of_an_instance: bool = False) -> str:
    if isinstance(member, property | cached_property):
        return ""
    try:
        signature = inspect.signature(member)
    except (TypeError, ValueError):
        return ""
    parameters = [_written(p) for p in signature.parameters.values() if not (of_an_instance and p.name == "self")]
    returns = signature.return_annotation
    returned = _Written(returns) if isinstance(returns, str) else returns
    return str(signature.replace(parameters=parameters, return_annotation=returned))


def _written(parameter: inspect.Parameter) -> inspect.Parameter:
    annotation = parameter.annotation
    return parameter.replace(annotation=_Written(annotation)) if isinstance(annotation, str) else parameter


def _text(member: Callable[..., Any] | ModuleType) -> str:
    """The docstring; names between double back-ticks are Markdown's own code."""
    text = inspect.getdoc(member) or ""
    assert text, f"{member} has no docstring"
    return text.replace("``", "`")


def _name(member: Any) -> str:
    module = member.__module__.removeprefix("tilewright.")
    return f"{module}.{member.__qualname__}"
