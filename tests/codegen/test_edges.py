"""Vectors at the edge of a domain: what is loaded element by element, and what waits for what."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import re

import pytest

from support.transport import M, R, kernel, tensor
from tilewright.base.dtypes import bf16
from tilewright.base.expr import Expr, Sym, all_of
from tilewright.codegen.cuda import emit_kernel
from tilewright.transport import dialect as t

TID = Sym(t.THREAD)
ELEMENTS, WIDTH = 32, 8
COLUMN = TID * ELEMENTS + R


def text(guard: Expr, count: int = ELEMENTS, column: Expr = COLUMN) -> str:
    """A load and a store of ``count`` elements in vectors of eight."""

    def build(x, y):
        buffer = t.Registers("v", bf16, count)
        return [
            buffer,
            t.Load(x, buffer.buffer, [column], guard, vector=WIDTH, axis=0),
            t.Store(y, buffer.buffer, [column], guard, vector=WIDTH, axis=0),
        ]

    return emit_kernel(kernel({name: tensor(name, [M], bf16) for name in "xy"}, build)).source


def elements_loops(source: str) -> int:
    """Vectors that are moved element by element somewhere."""
    return len(re.findall(r"for \(int e = 0", source))


def test_vectors_that_are_inside_or_not_are_not_taken_apart() -> None:
    inside = text(TID < M // ELEMENTS)
    assert elements_loops(inside) == 0
    assert "= 0u" in inside  # a load of nothing is zero


def test_vectors_at_the_end_of_a_row_are() -> None:
    assert elements_loops(text(COLUMN < M)) == 2


@pytest.mark.parametrize("guard", [COLUMN < M, all_of([COLUMN >= 3, COLUMN < M])])
def test_only_vectors_that_reach_into_the_row_are_taken_apart(guard: Expr) -> None:
    """Nothing of a vector is inside where neither its first nor its last element passes one of the tests."""
    source = text(guard)
    for loop in re.finditer(r"for \(int e = 0", source):
        head = source[: loop.start()].splitlines()
        tests = [line for line in head[-7:] if "if (" in line and "||" in line]
        assert tests, source[loop.start() - 600 : loop.end()]


def test_elements_at_an_edge_are_in_flight_before_the_first_is_packed() -> None:
    source = text(COLUMN < M)
    load, put = source.index("raw[e] = at["), source.index("put16(v_v[")
    assert load < put
    assert "for (int p = 0" in source[load:put]


def test_loads_are_in_flight_before_the_first_is_looked_at() -> None:
    """Of up to 32 registers; of longer rows each vector is mended at once, lest addresses fill the registers."""
    for count, together in ((64, True), (72, False)):
        source = text(TID * count + R < M, count, TID * count + R)
        load, mend = source.index("reinterpret_cast<const uint4*>"), source.index("for (int e = 0")
        between = source[load:mend]
        assert ("for (int v = 0" in between) is together
