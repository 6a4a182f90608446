"""Maps that proofs evaluate: only what a proof admits, and only a single result."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from xdsl.ir import Operation, SSAValue

from support.transport import mapped
from tilewright.base.dtypes import i32
from tilewright.compiler.proofs.evaluated_map import evaluated
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t


def admitted(op: Operation, values: Mapping[SSAValue, int]) -> int | None:
    match op:
        case tile.Constant():
            return int(op.value.data)
        case tile.Compare() if op.fn.data is CompareFn.EQ:
            return values[op.a] == values[op.b]
        case _:
            return None


def is_seven(results: int = 1, *, doubled: bool = False) -> t.Map:
    """2 for 7, else 5, ``results`` times; ``doubled`` computes twice its operand, which is used nowhere."""

    def body(x: SSAValue) -> tuple[list[Operation], list[SSAValue]]:
        seven, two, five = (tile.Constant(value, i32) for value in (7, 2, 5))
        same = tile.Compare(CompareFn.EQ, x, seven.result)
        found = tile.Select(same.result, two.result, five.result)
        twice = [tile.Binary(BinaryFn.ADD, x, x)] if doubled else []
        return [seven, two, five, same, *twice, found], [found.result] * results

    registers = [t.Registers(f"r{i}", i32, 1) for i in range(1 + results)]
    return mapped([registers[0].buffer], [r.buffer for r in registers[1:]], 1, body)


@pytest.mark.parametrize(("x", "result"), [(6, 5), (7, 2), (8, 5)])
def test_a_choice(x: int, result: int) -> None:
    made = is_seven()
    assert evaluated(made, {made.body.block.args[0]: x}, admitted) == result


@pytest.mark.parametrize("made", [is_seven(doubled=True), is_seven(2)])
def test_what_a_proof_does_not_admit(made: t.Map) -> None:
    assert evaluated(made, {made.body.block.args[0]: 7}, admitted) is None
