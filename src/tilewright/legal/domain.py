"""Legality over families of shapes: for which sizes, strides and addresses is one descriptor legal?

Rules are predicates, so the legal part of a domain is exactly the domain's constraint and their conjunction. Predicates
that the domain implies are dropped; one that contradicts it makes the part empty; the rest describes the largest legal
sub-domain, and each rule that is left is a reason why the complement is illegal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilewright.base.expr import (
    FALSE,
    TRUE,
    Compare,
    Const,
    Expr,
    ExprLike,
    Sym,
    all_of,
    expr,
    parse,
)
from tilewright.base.verdict import Violation
from tilewright.hw.target import SM90A, Target
from tilewright.hw.tensormap import MAX_RANK, DataType, Direction, Interleave, L2Promotion, OobFill, Swizzle
from tilewright.legal.facts import Facts
from tilewright.legal.symbolic import decide_rules

Bound = tuple[int | None, int | None]


@dataclass(frozen=True)
class ShapeDomain:
    """A set of shapes: ``facts`` as the judge uses them, ``constraint`` as one predicate."""

    facts: Facts
    constraint: Expr

    @staticmethod
    def of(*constraints: str | Expr) -> ShapeDomain:
        """The domain of all integers that satisfy ``constraints``, given as expressions or their text.

        Bounds (``M >= 1``), divisibility (``K % 8 == 0``) and values (``s == 1``) of single symbols are used in every
        proof; other predicates only where a rule asks for exactly them.
        """
        predicates = [parse(c) if isinstance(c, str) else c for c in constraints]
        facts = Facts()
        for predicate in predicates:
            facts = _learn(facts, predicate)
        return ShapeDomain(facts, all_of(predicates))


def _learn(facts: Facts, predicate: Expr) -> Facts:
    match predicate:
        case Compare("==", Sym(name), Const(value)):
            return replace(facts, equal={**facts.equal, name: value})
        case Compare("<=" | "<", low, high):
            strict = int(predicate.op == "<")
            if isinstance(high, Sym) and isinstance(low, Const):
                return _bounded(facts, high.name, low.value + strict, None)
            if isinstance(low, Sym) and isinstance(high, Const):
                return _bounded(facts, low.name, None, high.value - strict)
            return facts.assume(predicate)
        case _:
            return facts.assume(predicate)


def _bounded(facts: Facts, name: str, low: int | None, high: int | None) -> Facts:
    known_low, known_high = facts.bounds.get(name, (None, None))
    lows = [x for x in (low, known_low) if x is not None]
    highs = [x for x in (high, known_high) if x is not None]
    bound: Bound = (max(lows) if lows else None, min(highs) if highs else None)
    return replace(facts, bounds={**facts.bounds, name: bound})


@dataclass(frozen=True)
class SymbolicMap:
    """The arguments of ``cuTensorMapEncodeTiled`` with expressions for what varies; ``strides`` in bytes."""

    data_type: DataType
    address: ExprLike
    dims: tuple[ExprLike, ...]
    strides: tuple[ExprLike, ...]
    box: tuple[ExprLike, ...]
    element_strides: tuple[ExprLike, ...] = ()
    interleave: Interleave = Interleave.NONE
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.NONE
    oob_fill: OobFill = OobFill.NONE
    direction: Direction = Direction.LOAD

    def fields(self) -> dict[str, Expr]:
        """The fields rules speak of; dimensions beyond the rank are neutral, the map and the tile are aligned."""
        rank = len(self.dims)
        steps = self.element_strides or (1,) * rank
        fields: dict[str, Expr] = {
            "tensor_data_type": Const(int(self.data_type)),
            "tensor_rank": Const(rank),
            "global_address": expr(self.address),
            "descriptor_address": Const(0),
            "interleave": Const(int(self.interleave)),
            "swizzle": Const(int(self.swizzle)),
            "l2_promotion": Const(int(self.l2_promotion)),
            "oob_fill": Const(int(self.oob_fill)),
            "direction": Const(int(self.direction)),
            "shared_address": Const(0),
        }
        for i in range(MAX_RANK):
            used = i < rank
            fields[f"global_dim_{i}"] = expr(self.dims[i]) if used else Const(1)
            fields[f"box_dim_{i}"] = expr(self.box[i]) if used else Const(1)
            fields[f"element_stride_{i}"] = expr(steps[i]) if used else Const(1)
            fields[f"start_coordinate_{i}"] = Const(0)
            if i:
                fields[f"global_stride_{i - 1}"] = expr(self.strides[i - 1]) if used else Const(0)
        return fields


@dataclass(frozen=True)
class DomainVerdict:
    """The part of a domain on which a map is legal; what is merely undocumented is not in it.

    ``legal`` is what must hold besides the domain's own constraint: ``TRUE`` for all of it, ``FALSE`` for nothing.
    ``reasons`` are the rules that exclude the rest, with what each asks.
    """

    domain: ShapeDomain
    legal: Expr
    reasons: tuple[Violation, ...] = field(default=())

    @property
    def everywhere(self) -> bool:
        """Legal for the whole domain."""
        return self.legal == TRUE

    @property
    def nowhere(self) -> bool:
        """Proved legal for no shape of the domain."""
        return self.legal == FALSE


def judge_domain(map: SymbolicMap, domain: ShapeDomain, target: Target = SM90A) -> DomainVerdict:
    """Decide ``map`` for every shape of ``domain`` at once."""
    decision = decide_rules(map.fields(), domain.facts, target)
    legal = all_of((decision.guard, *(u.residual for u in decision.unmet)))
    return DomainVerdict(domain, legal, tuple(u.violation for u in (*decision.unmet, *decision.sizes)))
