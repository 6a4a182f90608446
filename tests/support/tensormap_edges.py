"""Requests at the edge of every rule that the driver enforces: each keeps all other rules and is one step away from
keeping or breaking this one.

Random requests rarely come near an edge; a rule whose constant is off by one unit is wrong on half of its own edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.hw.rules.row import HardwareRule
from tilewright.hw.tensormap import ELEMENT_BITS, MAX_BOX_BYTES
from tilewright.legal.agreement import COLUMNS, Column, Flags, encode_rules, fields_of, truth

Table = NDArray[np.int64]
"""One row a request, columns as in ``COLUMNS``."""

_AT = {name: i for i, name in enumerate(COLUMNS)}
_STEPS = (1, 2, 4, 8, 16)
"""A request within this distance of a rule's edge in one field is near it; 16 is the unit of address and stride."""


@dataclass(frozen=True)
class RuleEdge:
    """Requests around one rule's edge: the same number on either side."""

    rule: HardwareRule
    kept: Table
    broken: Table


def columns_of(table: Table) -> dict[str, Column]:
    """The columns of a table of requests, by name."""
    return {name: np.ascontiguousarray(table[:, i]) for name, i in _AT.items()}


def draw(count: int, rng: np.random.Generator) -> Table:
    """Random requests with many fields at the ends of their ranges."""
    table = np.zeros((count, len(COLUMNS)), dtype=np.int64)

    def put(name: str, values: NDArray[np.int64]) -> None:
        table[:, _AT[name]] = values

    def pick(values: tuple[int, ...], weights: tuple[float, ...] | None = None) -> NDArray[np.int64]:
        p = None if weights is None else np.asarray(weights) / sum(weights)
        return rng.choice(np.asarray(values, dtype=np.int64), size=count, p=p)

    put("dtype", rng.integers(0, 13, count))
    put("rank", pick((1, 2, 3, 4, 5), (1, 2, 3, 3, 3)))
    put("addr_off", rng.integers(0, 32, count) * 16)
    put("desc_off", pick((0, 64)))
    put("interleave", pick((0, 1, 2), (6, 2, 2)))
    put("swizzle", rng.integers(0, 4, count))
    put("l2", rng.integers(0, 4, count))
    put("oob", rng.integers(0, 2, count))
    for i in range(5):
        scale = rng.integers(0, 33, count)
        extent = np.minimum(1 + rng.integers(0, 1 << 32, count) % (np.int64(1) << scale), 1 << 32)
        put(f"dim{i}", np.where(rng.random(count) < 0.3, pick((1, 2, 255, 256, 2**32 - 1, 2**32)), extent))
        step = np.where(rng.random(count) < 0.8, 1, pick((1, 2, 3, 5, 7, 8)))
        put(f"es{i}", step)
        size = np.minimum(1 + rng.integers(0, 256, count) % (np.int64(1) << rng.integers(0, 9, count)), 256)
        put(f"box{i}", np.where(rng.random(count) < 0.3, pick((1, 255, 256)), size))
        if i:
            units = rng.integers(0, 1 << 36, count) % (np.int64(1) << rng.integers(1, 37, count))
            put(f"stride{i}", np.where(rng.random(count) < 0.3, pick((0, 16, 32, 2**40 - 32, 2**40 - 16)), units * 16))
    bits = np.take(np.asarray(ELEMENT_BITS), table[:, _AT["dtype"]])
    row_units = rng.integers(1, 17, count)
    row = np.maximum(row_units * 128 // bits, 1)
    put("box0", np.where(rng.random(count) < 0.9, np.minimum(row, 256), table[:, _AT["box0"]]))
    return table


def near_full_boxes(count: int, rng: np.random.Generator, slack_bytes: int = 256) -> Table:
    """Requests without other faults whose box is within ``slack_bytes`` of the largest one, on either side."""
    others = [rule for rule in encode_rules(90) if rule.id != "TMA020"]
    found: list[Table] = []
    have = 0
    while have < count:
        table = draw(200_000, rng)
        axis = rng.integers(0, np.clip(table[:, _AT["rank"]], 1, 5))
        rows = np.arange(len(table))
        box, step = (np.array([_AT[f"{stem}{i}"] for i in range(5)])[axis] for stem in ("box", "es"))
        table[rows, box] = table[rows, step]  # one slice along the axis; then as many as fill the box
        slices = np.rint(MAX_BOX_BYTES / np.maximum(box_bytes(table), 1)).astype(np.int64)
        table[rows, box] = slices * table[rows, step] + rng.integers(0, table[rows, step])
        near = np.abs(box_bytes(table) - MAX_BOX_BYTES) <= slack_bytes
        table = table[near]
        found.append(table[np.logical_and.reduce(list(truth(others, fields_of(columns_of(table))).values()))])
        have += len(found[-1])
    return np.concatenate(found)[:count]


def box_bytes(table: Table) -> Column:
    """Bytes of each request's box as the driver counts them: extents over element strides, rounded down."""
    total = np.take(np.asarray(ELEMENT_BITS), np.clip(table[:, _AT["dtype"]], 0, 15)).astype(np.int64)
    for i in range(5):
        part = table[:, _AT[f"box{i}"]] // np.maximum(table[:, _AT[f"es{i}"]], 1)
        total = total * np.where(i < table[:, _AT["rank"]], part, 1)
    return total // 8


def edges(per_rule: int, rng: np.random.Generator, cc: int = 90) -> tuple[RuleEdge, ...]:
    """For every rule the driver enforces, ``per_rule`` requests that keep all rules and as many that break it alone,
    each of which changes its answer by one step of one field."""
    rules = encode_rules(cc)
    kept: dict[str, list[Table]] = {rule.id: [] for rule in rules}
    broken: dict[str, list[Table]] = {rule.id: [] for rule in rules}
    for _ in range(400):
        wanted = [rule for rule in rules if sum(map(len, broken[rule.id])) < per_rule]
        if not wanted:
            break
        base = draw(60_000, rng)
        base = base[_all(truth(rules, fields_of(columns_of(base))))]
        moved = base.copy()
        field = rng.integers(0, len(COLUMNS), len(base))
        step = rng.choice(np.asarray([s * sign for s in _STEPS for sign in (1, -1)]), len(base))
        moved[np.arange(len(base)), field] += step
        inside = moved[np.arange(len(base)), field] >= 0
        base, moved = base[inside], moved[inside]
        holds = truth(rules, fields_of(columns_of(moved)))
        faults = np.sum([~flag for flag in holds.values()], axis=0)
        for rule in wanted:
            alone = ~holds[rule.id] & (faults == 1)
            kept[rule.id].append(base[alone])
            broken[rule.id].append(moved[alone])
    return tuple(
        RuleEdge(rule, np.concatenate(kept[rule.id])[:per_rule], np.concatenate(broken[rule.id])[:per_rule])
        for rule in rules
    )


def _all(holds: dict[str, Flags]) -> Flags:
    return np.logical_and.reduce(list(holds.values()))
