"""Rule predicates made executable: one text, evaluated on integers or on whole columns.

A predicate is printed as Python over its fields, with ``&`` and ``|`` for the connectives, so that the same code object
answers for one request (ints) and for a corpus (numpy arrays, one entry a request).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tilewright.base.cached import cached_property
from tilewright.base.expr import (
    All,
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    sym,
)
from tilewright.base.verdict import Violation
from tilewright.hw.rules.row import HardwareRule, Per
from tilewright.hw.tensormap import ENUMERATORS, MAX_RANK

DIMENSION_FIELDS = ("global_dim", "box_dim", "element_stride", "start_coordinate")


@dataclass(frozen=True)
class RuleInstance:
    """One rule for one dimension or stride ``axis`` (-1: for the whole request)."""

    rule: HardwareRule
    axis: int
    predicate: Expr

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the fields in the predicate, sorted."""
        return tuple(sorted(self.predicate.symbols))

    def holds(self, values: tuple[int, ...]) -> bool:
        """Whether the predicate is true for these values of ``names``. Results are cached: plans mostly differ in few
        fields."""
        if values not in self._truths:
            self._truths[values] = bool(self.predicate.evaluate(dict(zip(self.names, values, strict=True))))
        return self._truths[values]

    @cached_property
    def _truths(self) -> dict[tuple[int, ...], bool]:
        """Cached results of ``holds`` by field values."""
        return {}

    @cached_property
    def place(self) -> str:
        """The dimension or stride, for messages; empty for the whole request."""
        match self.rule.per:
            case Per.REQUEST:
                return ""
            case Per.DIMENSION:
                return f"dimension {self.axis}"
            case Per.STRIDE:
                return f"stride of dimension {self.axis + 1}"


def instances(rules: Iterable[HardwareRule]) -> tuple[RuleInstance, ...]:
    """Every rule once for each dimension or stride it applies to, with indexed field names (``box_dim_2``). Callers
    fill fields beyond the rank with neutral values, for which these instances hold."""
    result: list[RuleInstance] = []
    for rule in rules:
        predicate = rule.holds_for(ENUMERATORS)
        match rule.per:
            case Per.REQUEST:
                result.append(RuleInstance(rule, -1, predicate))
            case Per.DIMENSION:
                for i in range(MAX_RANK):
                    names = {name: sym(f"{name}_{i}") for name in DIMENSION_FIELDS}
                    result.append(RuleInstance(rule, i, predicate.substitute(names)))
            case Per.STRIDE:
                for i in range(MAX_RANK - 1):
                    names = {"global_stride": sym(f"global_stride_{i}"), "global_dim": sym(f"global_dim_{i + 1}")}
                    result.append(RuleInstance(rule, i, predicate.substitute(names)))
    return tuple(result)


def source_of(node: Expr) -> str:
    """``node`` as Python source that is valid for ints and for numpy arrays."""
    match node:
        case Const(value):
            return str(int(value)) if value >= 0 else f"({int(value)})"
        case Sym(name):
            return name
        case Sum(offset, terms):
            parts = [f"{source_of(t)}*{c}" if c != 1 else source_of(t) for t, c in terms]
            return "(" + " + ".join([*parts, *([str(offset)] if offset else [])]).replace("+ -", "- ") + ")"
        case Product(factors):
            return "(" + "*".join(map(source_of, factors)) + ")"
        case FloorDiv(a, b):
            return f"({source_of(a)} // {source_of(b)})"
        case Mod(a, b):
            return f"({source_of(a)} % {source_of(b)})"
        case Min(args):
            return reduce(lambda a, b: f"minimum({a}, {b})", map(source_of, args))
        case Max(args):
            return reduce(lambda a, b: f"maximum({a}, {b})", map(source_of, args))
        case Compare(op, a, b):
            return f"({source_of(a)} {op} {source_of(b)})"
        case All(args):
            return "(" + " & ".join(map(source_of, args)) + ")"
        case Any_(args):
            return "(" + " | ".join(map(source_of, args)) + ")"
        case Not(arg):
            return f"({source_of(arg)} == 0)"
        case _:
            raise TypeError(f"no rule predicate is written with {type(node).__name__}")


def compile_predicates(
    predicates: Iterable[Expr],
    fields: Iterable[str],
    *,
    minimum: Callable[[Any, Any], Any] = min,
    maximum: Callable[[Any, Any], Any] = max,
) -> Callable[..., tuple[Any, ...]]:
    """A function of ``fields``, in order, that returns the truth of every predicate.

    The text comes from the rule tables alone, never from a user. ``minimum`` and ``maximum`` are the built-ins for
    ints and numpy's for arrays.
    """
    body = ", ".join(map(source_of, predicates))
    text = f"lambda {', '.join(fields)}: ({body},)"
    return eval(compile(text, "<rules>", "eval"), {"minimum": minimum, "maximum": maximum})


def found(instance: RuleInstance, values: Mapping[str, int]) -> str:
    """The values a failing instance was judged on: ``global_stride_0 = 8200``."""
    return ", ".join([f"{name} = {values[name]}" for name in instance.names])


def broken(
    rules: Iterable[HardwareRule], fields: Mapping[str, int], cc: int, names: Mapping[str, int]
) -> tuple[Violation, ...]:
    """Every rule in scope at compute capability ``cc`` that ``fields`` break; ``names`` are the topic's enumerators."""
    core: list[Violation] = []
    for rule in rules:
        predicate = rule.holds_for(names)
        if rule.scope.holds(cc) and not predicate.evaluate(fields):
            values = ", ".join(f"{name} = {int(fields[name])}" for name in sorted(predicate.symbols))
            core.append(Violation(rule.id, values, rule.predicate, rule.source))
    return tuple(core)
