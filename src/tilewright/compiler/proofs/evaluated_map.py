"""The result of a map of Transport IR at given integers, for proofs that try all orders in which operands may stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

Computed = Callable[[Operation, Mapping[SSAValue, int]], int | None]
"""What an op that chooses nothing computes of the values before it; None for one that a proof does not admit, since
the integers that it tries would not decide it for all."""


def evaluated(made: t.Map, known: Mapping[BlockArgument, int], computed: Computed) -> int | None:
    """The map's only result; None where it has another number of them, or computes what is not admitted."""
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
