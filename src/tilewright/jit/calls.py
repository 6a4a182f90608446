"""Binds the arguments of a call to a kernel's parameters."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tilewright.base.number import is_on_gpu, number_of
from tilewright.diag import fail, shown, type_shown
from tilewright.jit.cached_binding import differs
from tilewright.lang.params import KernelFunction, ScalarParam
from tilewright.lang.traced import Traced


@dataclass(frozen=True)
class Call:
    """Arguments by kind: tensors and runtime scalars by name, compile-time keywords that differ from their defaults."""

    tensors: Mapping[str, object]
    scalars: Mapping[str, float | int]
    keywords: Mapping[str, Hashable]


def bind(function: KernelFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> Call:
    """Sort a call's arguments, with all its tensors; JIT001, at the caller's line, for too many, unknown or unfit."""
    given = by_name(function, args, kwargs)
    scalars = {p.name: _scalar(p, given.get(p.name, p.default)) for p in function.scalars}
    tensors = {t.name: given[t.name] for t in function.tensors}
    keywords: dict[str, Hashable] = {}
    for param in function.keywords:
        if param.name not in given:
            continue
        value = given[param.name]
        if not is_hashable(value):
            _refuse(f"{param.name} = {shown(value)}", "a hashable value")
        if differs(param, value):
            keywords[param.name] = value
    return Call(tensors, scalars, keywords)


def signature_of(function: KernelFunction) -> str:
    """The parameters as a call gives them: ``x, y, *, alpha, block``."""
    launched = [p.name for p in function.params if p in (*function.tensors, *function.scalars)]
    named = [p.name for p in function.keywords]
    return ", ".join([*launched, *(["*", *named] if named else [])])


def near_names(name: str, known: Iterable[str]) -> str:
    """Help for a name that nothing has: "did you mean bm?", or nothing."""
    near = difflib.get_close_matches(name, list(known), n=2, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""


def by_name(function: KernelFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """All arguments that were given, by the names of their parameters; JIT001 for too many or unknown ones, and for
    values of a kernel that is being traced."""
    positional = {p.name for p in (*function.tensors, *function.scalars)}
    order = [p.name for p in function.params if p.name in positional]
    if len(args) > len(order):
        _refuse(f"{len(args)} positional arguments", f"at most {len(order)}: {', '.join(order)}")
    given: dict[str, object] = dict(zip(order, args, strict=False))
    known = [p.name for p in function.params]
    for name, value in kwargs.items():
        if name not in known:
            _refuse(f"an argument {name}", signature_of(function), _help(function, name, known))
        if name in given:
            _refuse(f"two values for {name}", "one")
        given[name] = value
    for name, value in given.items():
        if isinstance(value, Traced):
            required = "tensors in memory: a kernel is not called in the body of a kernel"
            help = "make what both compute a plain function of tiles, and call that in both bodies"
            _refuse(f"{name}, {type_shown(value)} of a kernel that is being traced", required, help)
    return given


_WHEN_COMPILED = ("target", "dtypes", "static", "schedule", "facts", "debug")


_OF_SCHEDULE = {"num_warps": "warps=8", "num_stages": "stages=4", "warps": "warps=8", "stages": "stages=4"}
"""Launch arguments of other languages that belong to the schedule here."""


def _help(function: KernelFunction, name: str, known: Iterable[str]) -> str:
    if name in _WHEN_COMPILED:
        return f"{name} is an option of {function.name}.compile({name}=...); a call takes block sizes by their names"
    if name in _OF_SCHEDULE:
        return f"the schedule chooses; {function.name}.compile(schedule=tw.Schedule({_OF_SCHEDULE[name]})) pins it"
    return near_names(name, (*known, "stream", "budget"))


def _scalar(param: ScalarParam, value: object) -> float | int:
    """The Python number given for a runtime scalar."""
    required = f"a number of {param.dtype}"
    if value is None:
        _refuse(f"no value for {param.name}", required)
    number = number_of(value)
    if number is None:
        help = f"read it first: {param.name}.item(), which waits for the GPU" if is_on_gpu(value) else ""
        _refuse(f"{param.name} = {shown(value)} of type {type(value).__name__}", required, help)
    if param.dtype.is_float:
        try:
            float(number)
        except OverflowError:
            _refuse(f"{param.name} = {shown(number)}", required, "give float('inf') if you mean infinity")
        return number
    if not isinstance(number, int) or not param.dtype.integers[0] <= number <= param.dtype.integers[1]:
        _refuse(f"{param.name} = {shown(number)}", f"an integer of {param.dtype}")
    return number


def is_hashable(value: object) -> bool:
    """Whether the value can be part of a key."""
    try:
        hash(value)
    except Exception:  # of a stranger's class
        return False
    return True


def _refuse(found: str, required: str, help: str = "") -> NoReturn:
    fail("JIT001", found=found, required=required, help=help)
