"""Binds the arguments of a call to a kernel's parameters."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.diag import fail
from tilewright.lang.params import KernelFunction


@dataclass(frozen=True)
class Call:
    """Arguments by kind: tensors and runtime scalars by name, compile-time keywords that differ from their defaults."""

    tensors: Mapping[str, object]
    scalars: Mapping[str, float | int]
    keywords: Mapping[str, Hashable]


def bind(function: KernelFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> Call:
    """Sort a call's arguments; JIT001 for too many, missing or unknown ones."""
    positional = [p.name for p in (*function.tensors, *function.scalars)]
    order = [p.name for p in function.params if p.name in positional]
    if len(args) > len(order):
        fail("JIT001", where=function.where, found=f"{len(args)} positional arguments", required=", ".join(order))
    given: dict[str, object] = dict(zip(order, args, strict=False))
    known = {p.name for p in function.params}
    for name, value in kwargs.items():
        if name not in known:
            fail("JIT001", where=function.where, found=f"an argument {name}", required=", ".join(sorted(known)))
        if name in given:
            fail("JIT001", where=function.where, found=f"two values for {name}", required="one")
        given[name] = value
    scalars: dict[str, float | int] = {}
    for param in function.scalars:
        value = given.get(param.name, param.default)
        if value is None:
            fail(
                "JIT001",
                where=function.where,
                found=f"no value for {param.name}",
                required=f"a number of {param.dtype}",
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            fail(
                "JIT001", where=function.where, found=f"{param.name} = {value!r}", required=f"a number of {param.dtype}"
            )
        scalars[param.name] = value
    missing = [t.name for t in function.tensors if t.name not in given]
    if missing:
        fail("JIT001", where=function.where, found=f"no tensor {missing[0]}", required=", ".join(order))
    tensors = {t.name: given[t.name] for t in function.tensors}
    keywords: dict[str, Hashable] = {}
    for param in function.keywords:
        if param.name not in given:
            continue
        value = given[param.name]
        if not isinstance(value, Hashable):
            fail("JIT001", where=function.where, found=f"{param.name} = {value!r}", required="a hashable value")
        if value is not param.default and (param.required or param.auto or value != param.default):
            keywords[param.name] = value
    return Call(tensors, scalars, keywords)
