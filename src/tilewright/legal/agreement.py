"""The rules against a driver's labels: whole columns at once, from the same predicates that judge one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.hw.rules.row import Consequence, HardwareRule
from tilewright.hw.tensormap import ELEMENT_BITS, IS_FLOAT, MAX_RANK, SWIZZLE_SPAN_BYTES
from tilewright.legal.predicates import compile_predicates, instances
from tilewright.legal.tensormap import FIELDS, in_force

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]

COLUMNS: tuple[str, ...] = (
    *("dtype", "rank", "addr_off", "desc_off", "interleave", "swizzle", "l2", "oob"),
    *(f"dim{i}" for i in range(5)),
    *(f"stride{i}" for i in range(1, 5)),
    *(f"box{i}" for i in range(5)),
    *(f"es{i}" for i in range(5)),
)
"""Columns of a corpus, in file order; a label column ``result`` follows (0: accepted)."""


def fields_of(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Columns of a corpus as the fields rules speak of, neutral beyond the rank."""
    rank, kind, swizzle = columns["rank"], columns["dtype"], columns["swizzle"]
    zero, one = np.zeros_like(rank), np.ones_like(rank)
    fields: dict[str, Column] = {
        "tensor_data_type": kind,
        "tensor_rank": rank,
        "global_address": columns["addr_off"],
        "descriptor_address": columns["desc_off"],
        "interleave": columns["interleave"],
        "swizzle": swizzle,
        "l2_promotion": columns["l2"],
        "oob_fill": columns["oob"],
        "direction": zero,
        "shared_address": zero,
        "element_bits": _look_up((*ELEMENT_BITS, 0), kind),
        "is_float": _look_up((*IS_FLOAT, 0), kind),
        "swizzle_span_bytes": _look_up((*SWIZZLE_SPAN_BYTES, 128), swizzle),
    }
    for i in range(MAX_RANK):
        used = i < rank
        fields[f"global_dim_{i}"] = np.where(used, columns[f"dim{i}"], one)
        fields[f"box_dim_{i}"] = np.where(used, columns[f"box{i}"], one)
        fields[f"element_stride_{i}"] = np.where(used, columns[f"es{i}"], one)
        fields[f"start_coordinate_{i}"] = zero
        if i:
            fields[f"global_stride_{i - 1}"] = np.where(used, columns[f"stride{i}"], zero)
    return fields


def _look_up(table: tuple[int, ...], index: Column) -> Column:
    return np.take(np.asarray(table, dtype=np.int64), index, mode="clip")


def encode_rules(cc: int) -> tuple[HardwareRule, ...]:
    """The rules the driver enforces at compute capability ``cc``."""
    return tuple(rule for rule in in_force(cc) if rule.consequence is Consequence.DRIVER_REJECTS)


def truth(rules: Iterable[HardwareRule], fields: Mapping[str, Column]) -> dict[str, Flags]:
    """For every rule, by id, whether each request satisfies it in every dimension."""
    chosen = instances(rules)
    check = compile_predicates((i.predicate for i in chosen), FIELDS, minimum=np.minimum, maximum=np.maximum)
    answers: tuple[Flags, ...] = check(*(fields[name] for name in FIELDS))
    result: dict[str, Flags] = {}
    for instance, holds in zip(chosen, answers, strict=True):
        known = result.get(instance.rule.id)
        result[instance.rule.id] = holds if known is None else known & holds
    return result


@dataclass(frozen=True)
class DriverAgreement:
    """How the rules and a driver agree: counts, and the rows where they don't."""

    rows: int
    false_legal: NDArray[np.int64]
    """Rows the rules admit and the driver rejected."""
    false_illegal: NDArray[np.int64]
    """Rows the rules refuse and the driver accepted."""
    holds: dict[str, Flags]

    @property
    def agreement(self) -> float:
        """Share of rows on which rules and driver agree; 1 without rows."""
        return 1 - (len(self.false_legal) + len(self.false_illegal)) / max(self.rows, 1)

    def broken(self, row: int) -> tuple[str, ...]:
        """Ids of the rules that refuse ``row``."""
        return tuple(id for id, holds in self.holds.items() if not holds[row])


def compare(
    columns: Mapping[str, Column], accepted: Flags, cc: int = 90, without: frozenset[str] = frozenset()
) -> DriverAgreement:
    """Judge every row by the rules the driver enforces, but those in ``without``; compare with its labels."""
    rules = [rule for rule in encode_rules(cc) if rule.id not in without]
    holds = truth(rules, fields_of(columns))
    legal = np.logical_and.reduce(list(holds.values()))
    return DriverAgreement(
        len(accepted),
        np.nonzero(legal & ~accepted)[0],
        np.nonzero(~legal & accepted)[0],
        holds,
    )
