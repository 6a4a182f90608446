"""How a call's arguments, as they are written, become what a launch takes: worked out once for each form of a call.

A form is how many arguments are positional and which are named, and which optional tensors are None. A call of a form
that was seen before binds nothing: it picks values by position.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tilewright.base.number import is_alike
from tilewright.lang.params import KernelFunction, KeywordParam

NO_KEYWORDS: dict[str, Hashable] = {}

Pick = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Tensors, then scalars, in the order of the signature, from the given values and the defaults behind them."""


@dataclass(frozen=True)
class CallForm:
    """Positions count the positional arguments, then the named ones in their order, then ``defaults``."""

    defaults: tuple[Any, ...]
    launched: tuple[tuple[str, int], ...]
    optional: tuple[int, ...]
    keywords: tuple[tuple[KeywordParam, int], ...]

    def compile_time(self, values: tuple[Any, ...]) -> dict[str, Hashable]:
        """The keywords that are not as their defaults."""
        if not self.keywords:
            return NO_KEYWORDS
        return {p.name: values[i] for p, i in self.keywords if differs(p, values[i])}

    def absent(self, values: tuple[Any, ...]) -> frozenset[str]:
        """The optional tensors that are None."""
        if not self.optional:
            return _NONE
        missing = {i for i in self.optional if values[i] is None}
        return frozenset(name for name, i in self.launched if i in missing) if missing else _NONE

    def pick(self, absent: frozenset[str]) -> Pick:
        """Selects the launched values from all arguments."""
        positions = tuple(i for name, i in self.launched if name not in absent)
        if len(positions) > 1:
            return itemgetter(*positions)
        return lambda values: tuple([values[i] for i in positions])


_NONE: frozenset[str] = frozenset()


def differs(param: KeywordParam, value: Any) -> bool:
    """Whether a keyword is part of a program's signature."""
    return value is not param.default and (param.required or param.auto or not is_alike(value, param.default))


def are_alike(keywords: Mapping[str, Hashable], others: Mapping[str, Hashable]) -> bool:
    """Whether two calls have the same keywords: of the same values, and the same types."""
    return keywords == others and (
        not keywords or all(is_alike(value, others[name]) for name, value in keywords.items())
    )


def form_of(function: KernelFunction, count: int, names: tuple[str, ...]) -> CallForm | None:
    """The form of calls with ``count`` positional arguments and these names; None for calls that leave out what must
    be given, or a result, and for those that are refused."""
    ordered = (*function.tensors, *function.scalars)
    wanted = {p.name for p in ordered}
    order = [p.name for p in function.params if p.name in wanted]
    given = [*order[:count], *names]
    if count > len(order) or len(set(given)) < len(given) or not set(given) <= {p.name for p in function.params}:
        return None
    places = {name: i for i, name in enumerate(given)}
    defaults: list[Any] = []
    for param in ordered:
        if param.name not in places:
            default = None if param in function.tensors else getattr(param, "default", None)
            if default is None and param.name not in function.optional:
                return None
            places[param.name] = len(given) + len(defaults)
            defaults.append(default)
    return CallForm(
        tuple(defaults),
        tuple((p.name, places[p.name]) for p in ordered),
        tuple(places[name] for name in function.optional),
        tuple((p, places[p.name]) for p in function.keywords if p.name in places),
    )
