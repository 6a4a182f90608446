"""The judge of one tensor-map request: does the driver encode it, and may a copy through it run?

The two are separate questions. ``encodes`` is scored against the driver; ``runs`` against execution: the driver encodes
maps that copy the wrong bytes, and a few rows of the table record that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.base.verdict import Illegal, Legal, Legality, Unknown, Violation
from tilewright.hw.rules.row import REFUSES, Consequence, HardwareRule
from tilewright.hw.rules.tensormap_encode import RULES
from tilewright.hw.target import Target
from tilewright.hw.tensormap import (
    ELEMENT_BITS,
    IS_FLOAT,
    MAX_RANK,
    SWIZZLE_SPAN_BYTES,
    Direction,
    Interleave,
    L2Promotion,
    OobFill,
    Swizzle,
)
from tilewright.legal.predicates import RuleInstance, compile_predicates, found, instances

AXES = range(MAX_RANK)
FIELDS: tuple[str, ...] = (
    "tensor_data_type",
    "tensor_rank",
    "global_address",
    "descriptor_address",
    "interleave",
    "swizzle",
    "l2_promotion",
    "oob_fill",
    *(f"global_dim_{i}" for i in AXES),
    *(f"global_stride_{i}" for i in range(MAX_RANK - 1)),
    *(f"box_dim_{i}" for i in AXES),
    *(f"element_stride_{i}" for i in AXES),
    "direction",
    "shared_address",
    *(f"start_coordinate_{i}" for i in AXES),
    "element_bits",
    "is_float",
    "swizzle_span_bytes",
)
"""Every name a predicate may use, dimensions indexed, derived fields last."""


@dataclass(frozen=True)
class TensorMapRequest:
    """The arguments of ``cuTensorMapEncodeTiled``, and of one copy through the map.

    ``global_strides`` are bytes and have one entry less than ``global_dim`` (more are ignored, as the driver does).
    Enumerators may be plain ints, so that a bad one can be judged.
    """

    tensor_data_type: int
    tensor_rank: int
    global_address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = Interleave.NONE
    swizzle: int = Swizzle.NONE
    l2_promotion: int = L2Promotion.NONE
    oob_fill: int = OobFill.NONE
    descriptor_address: int = 0
    direction: int = Direction.LOAD
    shared_address: int = 0
    start_coordinates: tuple[int, ...] = ()

    def values(self) -> tuple[int, ...]:
        """The values of ``FIELDS``; entries beyond the rank are neutral ones that every rule admits."""
        rank = min(max(self.tensor_rank, 0), MAX_RANK)
        pad = (1,) * (MAX_RANK - rank)
        kind, swizzle = self.tensor_data_type, self.swizzle
        strides = self.global_strides[: max(rank - 1, 0)]
        starts = self.start_coordinates[:rank]
        known = 0 <= kind < len(ELEMENT_BITS)
        return (
            kind,
            self.tensor_rank,
            self.global_address,
            self.descriptor_address,
            self.interleave,
            swizzle,
            self.l2_promotion,
            self.oob_fill,
            *self.global_dim[:rank],
            *pad,
            *strides,
            *(0,) * (MAX_RANK - 1 - len(strides)),
            *self.box_dim[:rank],
            *pad,
            *self.element_strides[:rank],
            *pad,
            self.direction,
            self.shared_address,
            *starts,
            *(0,) * (MAX_RANK - len(starts)),
            ELEMENT_BITS[kind] if known else 0,
            IS_FLOAT[kind] if known else 0,
            SWIZZLE_SPAN_BYTES[swizzle] if 0 <= swizzle < len(SWIZZLE_SPAN_BYTES) else 128,
        )


@dataclass(frozen=True)
class TensorMapJudgement:
    """Two answers about one request, each ``Legal``, ``Illegal`` with its core, or ``Unknown``.

    ``encodes`` lists what the driver rejects, ``runs`` what is wrong to execute; ``advice`` holds broken rules that
    refuse nothing.
    """

    encodes: Legal[TensorMapRequest] | Illegal
    runs: Legal[TensorMapRequest] | Illegal | Unknown
    advice: tuple[Violation, ...] = ()

    @property
    def verdict(self) -> Legality[TensorMapRequest]:
        """Both answers in one: Legal is both; the core of an Illegal holds the faults of both."""
        core: tuple[Violation, ...] = ()
        for answer in (self.encodes, self.runs):
            if isinstance(answer, Illegal):
                core += answer.core
        return Illegal(core) if core else self.runs


@dataclass(frozen=True)
class Ruleset:
    """The rules in force for one architecture, compiled."""

    cc: int
    instances: tuple[RuleInstance, ...]
    check: Callable[..., tuple[Any, ...]]


@cache
def ruleset(cc: int) -> Ruleset:
    """The rules of tensor maps at compute capability ``cc`` (90 for 9.0), for judging single requests."""
    chosen = instances(in_force(cc))
    return Ruleset(cc, chosen, compile_predicates((i.predicate for i in chosen), FIELDS))


def in_force(cc: int) -> tuple[HardwareRule, ...]:
    """The rules in scope at compute capability ``cc``, in table order."""
    return tuple(rule for rule in RULES if rule.scope.holds(cc))


def cc_of(target: Target) -> int:
    """Compute capability as one number: 90 for 9.0."""
    major, minor = target.compute_capability
    return major * 10 + minor


def judge(request: TensorMapRequest, target: Target) -> TensorMapJudgement:
    """Both verdicts on one request, with every rule it breaks.

    Each rule is about the request alone, so the broken rules are independent faults, each a minimal reason for refusal.
    """
    rules = ruleset(cc_of(target))
    values = request.values()
    truth = rules.check(*values)
    if all(truth):
        legal = Legal(request)
        return TensorMapJudgement(legal, legal)
    return _explain(request, rules, values, truth)


def _explain(
    request: TensorMapRequest, rules: Ruleset, values: tuple[int, ...], truth: tuple[Any, ...]
) -> TensorMapJudgement:
    named = dict(zip(FIELDS, values, strict=True))
    broken = [i for i, holds in zip(rules.instances, truth, strict=True) if not holds]
    driver = _violations((i for i in broken if i.rule.consequence is Consequence.DRIVER_REJECTS), named)
    wrong = _violations((i for i in broken if i.rule.consequence in REFUSES), named)
    open_ = [i for i in broken if i.rule.consequence is Consequence.UNSETTLED]
    advice = _violations((i for i in broken if i.rule.consequence in (Consequence.ADVISORY, Consequence.SLOW)), named)
    legal = Legal(request)
    encodes = Illegal(driver) if driver else legal
    runs = Illegal(wrong) if wrong else _unsettled(open_, named) if open_ else legal
    return TensorMapJudgement(encodes, runs, advice)


def _unsettled(broken: list[RuleInstance], named: dict[str, int]) -> Unknown:
    first = broken[0]
    return Unknown(
        obligation="; ".join(f"{i.rule.id}: {i.rule.title}" for i in broken),
        reason=f"{found(first, named)}; {first.rule.source}",
        settle="execute the copy on the device and compare the bytes",
    )


def _violations(broken: Iterable[RuleInstance], named: dict[str, int]) -> tuple[Violation, ...]:
    return tuple(violation(instance, named) for instance in broken)


def violation(instance: RuleInstance, named: dict[str, int]) -> Violation:
    """The broken instance as a value: what was found, what is required, by which source."""
    rule = instance.rule
    place = f" ({instance.place})" if instance.place else ""
    return Violation(rule.id, found(instance, named) + place, rule.predicate, rule.source)
