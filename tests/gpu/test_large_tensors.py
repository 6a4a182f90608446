"""Tensors of more than 2^31 elements on a real device, at hostile indices: gathered, stored to, added to."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

ROWS, LENGTH, WIDTH = 17, (1 << 27) + 3, 48
"""Rows from 16 on begin behind element 2^31."""
HOSTILE = [16, 3, -1, 17, 1 << 32, (1 << 32) + 16, -(1 << 63), (1 << 63) - 1, 15, 1 << 31]


@tw.kernel
def taken(index: tw.Tensor["T"], table: tw.Tensor["V", "L"], y: tw.Tensor["T", "D"]):
    t, d = tw.grid(y, (4, 16))
    y[t, d] = table[index[t], table.shape[1] - 64 + d.index]


@tw.kernel
def put(index: tw.Unique["T"], x: tw.Tensor["T", "D"], table: tw.Tensor["V", "L"]):
    t, d = tw.grid(x, (4, 16))
    table[index[t], d + 7] = x[t, d]


@tw.kernel
def added(index: tw.Tensor["T"], x: tw.Tensor["T", "D"], table: tw.Tensor["V", "L"]):
    t, d = tw.grid(x, (4, 16))
    tw.reduce_add(table, (index[t], d + 7), x[t, d])


def drawn(index: list[int], dtype: Any) -> tuple[Any, Any, Any, Any]:
    """An index, rows for it, which of them lie in the table, and a table of zeros."""
    at = torch.tensor(index, device="cuda")
    rows = torch.randint(1, 99, (len(index), WIDTH), device="cuda").to(dtype)
    return at, rows, (at >= 0) & (at < ROWS), torch.zeros(ROWS, LENGTH, device="cuda", dtype=dtype)


def test_rows_are_found() -> None:
    index, rows, inside, table = drawn(HOSTILE, torch.int8)
    table[index[inside], LENGTH - 64 : LENGTH - 64 + WIDTH] = rows[inside]
    y = torch.full_like(rows, 77)
    taken(index, table, y)
    assert torch.equal(y, torch.where(inside[:, None], rows, 0))


@pytest.mark.parametrize("kernel", [put, added], ids=lambda k: k.__name__)
def test_rows_are_written_and_nothing_else(kernel: tw.Kernel) -> None:
    index, rows, inside, table = drawn([*HOSTILE, *([16, 16] if kernel is added else [])], torch.float32)
    kernel(index, rows, table)
    tw.check()
    wanted = torch.zeros(ROWS, WIDTH, device="cuda").index_add_(0, index[inside], rows[inside])
    assert torch.equal(table[:, 7 : 7 + WIDTH], wanted)
    assert sum(int(row.count_nonzero()) for row in table) == int(wanted.count_nonzero())


def test_a_row_that_is_named_twice_is_stored_nowhere() -> None:
    index, rows, _, table = drawn([16, 2, 16], torch.float32)
    put(index, rows, table)
    with pytest.raises(tw.TilewrightError, match="RUN023"):
        tw.check()
    assert not any(int(row.count_nonzero()) for row in table)
