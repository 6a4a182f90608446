"""Evaluates a map of Transport IR on given integers, for proofs that try all orders of their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

Computed = Callable[[Operation, Mapping[SSAValue, int]], int | None]
"""The result of an op on given values; None for an op that a proof does not admit, because testing finitely many
integers would not decide it."""


def evaluated(made: t.Map, known: Mapping[BlockArgument, int], computed: Computed) -> int | None:
    """The map's only result; None where it has several, or uses an op that is not admitted."""
    values: dict[SSAValue, int] = {**known}
    for op in made.body.block.ops:
        match op:
            case tile.Select():
                values[op.result] = values[op.a] if values[op.cond] else values[op.b]
            case t.Yield():
                return values[op.values[0]] if len(op.values) == 1 else None
            case _:
                found = computed(op, values)
                if found is None:
                    return None
                values[op.results[0]] = found
    return None
