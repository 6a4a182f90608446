"""Ragged tensors: one map, whose copies touch the rows of one group and no other."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import DType, bf16, e4m3, f32
from tilewright.base.expr import expr, sym
from tilewright.base.verdict import Illegal, Legal
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Direction
from tilewright.legal.facts import Facts, index_symbol
from tilewright.legal.ragged import BOUND, LARGE, WRAP, ragged_plan
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import TensorMapPlan, TileAccess

START, END = sym("start"), sym("end")
BASE = 1 << 40


def rows_of(plan: TensorMapPlan, values: dict[str, int], pitch: int, size: int) -> list[tuple[int, int]]:
    """(row, column) of the tensor for every element of the tile inside the map, by 64-bit addresses."""
    dims = [int(d.evaluate(values)) for d in plan.dims]
    strides = [size, *(int(s.evaluate(values)) for s in plan.strides)]
    origin = [int(c.evaluate(values)) for c in plan.coordinates]
    found: list[tuple[int, int]] = []
    for box in plan.boxes:
        for local in np.ndindex(*plan.box):
            at = [o + s + int(x) for o, s, x in zip(origin, box.start, local, strict=True)]
            if all(0 <= x < d for x, d in zip(at, dims, strict=True)):
                address = (BASE + sum(x * s for x, s in zip(at, strides, strict=True))) % 2**64
                found.append(divmod((address - BASE) // size, pitch))
    return sorted(found)


@pytest.mark.parametrize("direction", [Direction.LOAD, Direction.STORE])
@pytest.mark.parametrize(("dtype", "columns"), [(bf16, 64), (f32, 96), (e4m3, 128)])
def test_a_tile_holds_rows_of_its_group_alone(dtype: DType, columns: int, direction: Direction) -> None:
    access = TileAccess(dtype, (sym("M"), columns), (columns, 1), BASE, (16, 32), direction)
    answer = ragged_plan(access, 0, START, END)
    assert isinstance(answer, Legal)
    plan = answer.fields
    assert plan.rank == 4
    for start, end in ((0, 16), (16, 16), (7, 40), (100, 101), (3, 20)):
        for first in range(0, max(end - start, 1), 16):
            values = {"start": start, "end": end, "$index0": first, "$index1": 32, "M": 200}
            assert plan.guard.evaluate(values)
            rows = range(start + first, min(end, start + first + 16))
            wanted = sorted((r, c) for r in rows for c in range(32, 64))
            assert rows_of(plan, values, columns, dtype.bytes) == wanted


def test_every_copy_is_legal() -> None:
    access = TileAccess(bf16, (sym("M"), 64), (64, 1), BASE, (128, 64), Direction.STORE)
    answer = ragged_plan(access, 0, START, END)
    assert isinstance(answer, Legal)
    plan = answer.fields
    values = {"start": 1000, "end": 1100, "$index0": 0, "$index1": 0, "M": 5000}
    request = TensorMapRequest(
        plan.data_type,
        plan.rank,
        BASE,
        tuple(int(d.evaluate(values)) for d in plan.dims),
        tuple(int(s.evaluate(values)) for s in plan.strides),
        plan.box,
        plan.element_strides,
        swizzle=plan.swizzle,
        direction=plan.direction,
        start_coordinates=tuple(int(c.evaluate(values)) for c in plan.coordinates),
    )
    assert isinstance(judge(request, SM90A).verdict, Legal)


def test_batches_and_pitches_may_be_symbols() -> None:
    access = TileAccess(bf16, (8, sym("M"), sym("K")), (sym("b"), sym("K"), 1), sym("p"), (None, 64, 64))
    facts = Facts(divisors={"K": 8, "b": 8, "p": 16})
    answer = ragged_plan(access, 1, START, END, facts)
    assert isinstance(answer, Legal)
    assert answer.fields.rank == 5
    values = {"K": 128, "b": 1 << 20, "M": 300, "p": BASE}
    assert answer.fields.guard.evaluate(values)


def test_the_added_dimensions_stand_behind_all_others() -> None:
    access = TileAccess(bf16, (8, sym("M"), sym("K")), (sym("b"), sym("K"), 1), sym("p"), (None, 64, 64))
    answer = ragged_plan(access, 1, START, END, Facts(divisors={"K": 8, "b": 8, "p": 16}))
    assert isinstance(answer, Legal)
    plan = answer.fields
    assert plan.ragged_axis == 1
    assert plan.coordinates[-2:] == (END, expr(BOUND))
    assert plan.coordinates[0] == index_symbol(2)
    assert plan.coordinates[2] == index_symbol(0)
    assert plan.dims[1:] == (expr(BOUND), expr(8), expr(LARGE), expr(LARGE))
    assert plan.strides == (sym("K") * 2, sym("b") * 2, sym("K") * 2, expr(2 * WRAP) - sym("K") * 2)
    assert plan.box == (64, 64, 1, 1, 1)


def test_what_a_ragged_map_cannot_do() -> None:
    four = TileAccess(bf16, (4, 4, 64, 64), (1 << 16, 1 << 13, 64, 1), BASE, (None, None, 64, 64))
    wide = ragged_plan(four, 2, START, END)
    assert isinstance(wide, Illegal)
    assert [v.rule for v in wide.core] == ["TMA061"]
    dense = ragged_plan(TileAccess(bf16, (64, 64), (64, 1), BASE, (64, 64)), 1, START, END)
    assert isinstance(dense, Illegal)
    assert [v.rule for v in dense.core] == ["TMA060"]
    odd = ragged_plan(TileAccess(bf16, (64, 61), (61, 1), BASE, (64, 64)), 0, START, END)
    assert isinstance(odd, Illegal)
    assert {v.rule for v in odd.core} == {"TMA012"}
