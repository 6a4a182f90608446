"""Rules decided on symbolic fields: which follow from the facts, which are left for the launch, which fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tilewright.base.expr import FALSE, TRUE, Const, Expr, all_of
from tilewright.base.verdict import Violation
from tilewright.hw.rules.row import REFUSES, Consequence
from tilewright.hw.target import Target
from tilewright.hw.tensormap import ELEMENT_BITS, IS_FLOAT, MAX_RANK, SWIZZLE_SPAN_BYTES
from tilewright.legal.facts import Facts
from tilewright.legal.predicates import RuleInstance, instances
from tilewright.legal.tensormap import cc_of, in_force


@dataclass(frozen=True)
class ResidualRule:
    """A rule that does not follow from the facts: ``residual`` is what would have to hold (``FALSE``: nothing can)."""

    instance: RuleInstance
    residual: Expr
    violation: Violation


@cache
def _decisive(cc: int) -> tuple[RuleInstance, ...]:
    """Instances whose breach refuses a descriptor, or leaves its meaning open."""
    wanted = REFUSES | {Consequence.DRIVER_REJECTS, Consequence.UNSETTLED}
    return instances(rule for rule in in_force(cc) if rule.consequence in wanted)


@dataclass(frozen=True)
class DecidedRules:
    """Every rule decided: ``guard`` is the conjunction of what ``sizes`` leave open, ``unmet`` are the other rules that
    do not follow."""

    guard: Expr
    unmet: tuple[ResidualRule, ...]
    sizes: tuple[ResidualRule, ...]


def decide_rules(fields: Mapping[str, Expr], facts: Facts, target: Target) -> DecidedRules:
    """Decide every rule on ``fields`` under ``facts``."""
    environment = {**fields, **_derived(fields)}
    known = {name: node.value for name, node in environment.items() if isinstance(node, Const)}
    sizes: list[ResidualRule] = []
    unmet: list[ResidualRule] = []
    for instance in _decisive(cc_of(target)):
        if instance.predicate.symbols <= known.keys():
            residual = TRUE if instance.holds(tuple(known[name] for name in instance.names)) else FALSE
        else:
            residual = facts.residual(instance.predicate.substitute(environment))
        if residual == TRUE:
            continue
        entry = ResidualRule(instance, residual, _violation(instance, environment, residual))
        open_size = residual != FALSE and instance.rule.of_sizes
        (sizes if open_size else unmet).append(entry)
    return DecidedRules(all_of(u.residual for u in sizes), tuple(unmet), tuple(sizes))


def _derived(fields: Mapping[str, Expr]) -> dict[str, Expr]:
    """Fields that follow from the enumerators, which are constants of a plan."""
    kind, swizzle = fields["tensor_data_type"].constant, fields["swizzle"].constant
    assert kind is not None, "a plan fixes its data type"
    assert swizzle is not None, "a plan fixes its swizzle"
    return {
        "element_bits": Const(ELEMENT_BITS[kind]),
        "is_float": Const(IS_FLOAT[kind]),
        "swizzle_span_bytes": Const(SWIZZLE_SPAN_BYTES[swizzle]),
    }


def _violation(instance: RuleInstance, environment: Mapping[str, Expr], residual: Expr) -> Violation:
    rule, rank = instance.rule, environment["tensor_rank"].constant
    names = [name for name in sorted(instance.predicate.symbols) if rank is None or _of_a_dimension(name, int(rank))]
    found = ", ".join(f"{name} = {environment[name]}" for name in names)
    place = f" ({instance.place})" if instance.place else ""
    doubt = "" if residual == FALSE else f"; {residual} is not known"
    return Violation(rule.id, found + place + doubt, rule.predicate, rule.source)


def _of_a_dimension(name: str, rank: int) -> bool:
    """Whether a field belongs to the whole map or to a dimension within its rank; the others are padding."""
    stem, _, number = name.rpartition("_")
    return not number.isdigit() or int(number) < rank - (stem == "global_stride") or rank > MAX_RANK
