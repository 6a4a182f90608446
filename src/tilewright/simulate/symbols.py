"""Values of integer expressions for all threads and registers of an op at once.

A value that is the same for every thread is a Python int (or bool); others are arrays that broadcast to
``[threads, count]``: ``tid`` is a column, ``r`` a row. Every sub-expression is remembered until a symbol it depends on
is bound anew, so that a loop recomputes only what its counter changes; what depends on threads, registers and the
launch's arguments alone is remembered for all CTAs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.base.expr import Const, Expr, ExprError, Sym
from tilewright.base.expr.algebra import Algebra, combined
from tilewright.transport.dialect import REGISTER, THREAD

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = int | bool | Array


@dataclass(frozen=True, eq=False)
class RegisterNumbers:
    """Numbers of registers, the same for all threads: ``value`` as computed, ``registers`` of ``[count]``.

    ``low`` and ``high`` bound them; ``plain`` says that they are 0, 1, 2 and so on.
    """

    value: Value
    registers: Array
    low: int
    high: int
    plain: bool

    @staticmethod
    def of(value: Value, count: int) -> RegisterNumbers:
        """The registers of one expression of an op over ``count`` registers."""
        registers = np.broadcast_to(np.ravel(np.asarray(value, np.int64)), count)
        plain = bool((registers == np.arange(count)).all())
        low, high = (int(registers.min()), int(registers.max())) if count else (0, -1)
        return RegisterNumbers(value, registers, low, high, plain)


@dataclass
class LaunchNumbers:
    """Values that agents over equal threads of one launch compute once, over the symbols ``names``, which they bind
    alike."""

    names: frozenset[str]
    values: dict[tuple[Expr, int], Value] = field(default_factory=dict[tuple[Expr, int], "Value"])
    indices: dict[tuple[Expr, int], RegisterNumbers] = field(default_factory=dict[tuple[Expr, int], RegisterNumbers])

    @staticmethod
    def over(arguments: Mapping[str, int]) -> LaunchNumbers:
        """The cache for threads of a launch with these arguments."""
        return LaunchNumbers(frozenset((*arguments, THREAD, REGISTER)))


class Symbols:
    """The bindings of one group of threads, and what has been computed from them."""

    def __init__(self, threads: Array, shared: LaunchNumbers):
        self._values: dict[str, Value] = {THREAD: threads.astype(np.int64)[:, None]}
        self._shared = shared
        self._memo: dict[tuple[Expr, int], Value] = {}
        self._users: dict[str, set[tuple[Expr, int]]] = {}

    def bind(self, name: str, value: int) -> None:
        """Give ``name`` a value and forget what was computed from its old one."""
        if self._values.get(name) == value:
            return
        self._values[name] = value
        for key in self._users.pop(name, ()):
            self._memo.pop(key, None)

    def bind_elements(self, name: str, values: Array) -> None:
        """Give ``name`` a value for each thread and register, ``[threads, count]``."""
        self._values[name] = values
        for key in self._users.pop(name, ()):
            self._memo.pop(key, None)

    def bind_all(self, items: Iterable[tuple[str, int]]) -> None:
        """``bind`` for each pair."""
        for name, value in items:
            self.bind(name, value)

    @property
    def names(self) -> frozenset[str]:
        """The symbols that have a value."""
        return frozenset(self._values)

    @property
    def scalars(self) -> dict[str, int]:
        """The symbols that are the same for all threads."""
        return {name: int(value) for name, value in self._values.items() if not isinstance(value, np.ndarray)}

    def uniform(self, node: Expr) -> int:
        """The value of an expression that is the same for all threads."""
        value = self.of(node, 0)
        if isinstance(value, np.ndarray):
            raise ExprError(f"{node} must be the same for all threads")
        return int(value)

    def of(self, node: Expr, count: int) -> Value:
        """The value of ``node`` for an op over ``count`` registers."""
        if isinstance(node, Const):
            return node.value
        if isinstance(node, Sym) and node.name != REGISTER:
            try:
                return self._values[node.name]
            except KeyError:
                known = ", ".join(sorted(self._values))
                raise ExprError(f"symbol {node.name!r} has no value; known: {known}") from None
        symbols = node.symbols
        key = (node, count if REGISTER in symbols else 0)
        if symbols <= self._shared.names:
            known = self._shared.values.get(key)
            if known is None:
                known = self._shared.values[key] = self._compute(node, count)
            return known
        found = self._memo.get(key)
        if found is None:
            found = self._compute(node, count)
            self._memo[key] = found
            for name in symbols:
                self._users.setdefault(name, set()).add(key)
        return found

    def index(self, node: Expr, count: int) -> RegisterNumbers:
        """The registers that ``node`` names for an op over ``count`` registers."""
        value, key = self.of(node, count), (node, count)
        found = self._shared.indices.get(key)
        if found is None or found.value is not value:
            found = self._shared.indices[key] = RegisterNumbers.of(value, count)
        return found

    def _compute(self, node: Expr, count: int) -> Value:
        if isinstance(node, Sym):
            return np.arange(count, dtype=np.int64)[None, :]
        return combined(node, lambda part: self.of(part, count), _ALGEBRA)


def _truth(value: Any) -> Any:
    return bool(value) if isinstance(value, int) else value.astype(np.bool_)


def _negated(value: Any) -> Any:
    truth = _truth(value)
    return not truth if isinstance(truth, bool) else np.logical_not(truth)


def _divisor(node: Expr, value: Any) -> Any:
    if np.any(np.equal(value, 0)):
        raise ExprError(f"{node} divides by zero")
    return value


_ALGEBRA = Algebra(
    least=lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b),
    greatest=lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b),
    both=lambda a, b: _truth(a) & _truth(b),
    either=lambda a, b: _truth(a) | _truth(b),
    negated=_negated,
    divisor=_divisor,
)
"""Numbers that are the same for all threads stay Python's."""
