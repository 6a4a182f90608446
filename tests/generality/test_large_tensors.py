"""Tensors of more than 2^31 elements at loaded coordinates: rows far behind are found, others not touched."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.indexed import Arrays, facts_of
from support.ptx_driver import run_artifact

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


def arguments(kernel: tw.Kernel, index: list[int]) -> tuple[Arrays, Arrays]:
    """Arrays for a kernel, and what its results are; of zeros that are written nowhere no memory is taken."""
    rng, at = np.random.default_rng(0), np.array(index, np.int64)
    inside = (at >= 0) & (at < ROWS)
    table = np.zeros((ROWS, LENGTH), np.int8)
    rows = rng.integers(1, 99, (len(at), WIDTH)).astype(np.int8)
    if kernel is taken:
        table[at[inside], LENGTH - 64 : LENGTH - 64 + WIDTH] = rows[inside]
        stale = np.full_like(rows, 77)
        return {"index": at, "table": table, "y": stale}, {"y": np.where(inside[:, None], rows, 0)}
    found = np.zeros((ROWS, 64), np.int8)
    found[at[inside], 7 : 7 + WIDTH] = rows[inside]
    return {"index": at, "x": rows, "table": table}, {"table": found}


def agree(arrays: Arrays, wanted: Arrays) -> bool:
    """Whether the results are as wanted where something could be written, and around."""
    written = all((arrays[name][:, : w.shape[1]] == w).all() for name, w in wanted.items())
    behind = "y" in wanted or not any(arrays["table"][row, 64 : 1 << 16].any() for row in range(ROWS))
    return written and behind


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [taken, put], ids=lambda k: k.__name__)
def test_rows_behind_two_to_the_31(kernel: tw.Kernel) -> None:
    arrays, wanted = arguments(kernel, HOSTILE)
    kernel(**arrays)
    assert agree(arrays, wanted)
    given, wanted = arguments(kernel, HOSTILE)
    artifact = kernel.compile(dtypes={n: a.dtype.name for n, a in given.items()}, facts=facts_of(given))
    reports = run_artifact(artifact, given).reports
    assert not [str(fault) for _, report in reports for fault in report.faults]
    assert agree(given, wanted)


@pytest.mark.slow
def test_a_row_far_behind_that_is_named_twice_is_stored_nowhere() -> None:
    arrays, _ = arguments(put, [16, 2, 16])
    with pytest.raises(tw.TilewrightError, match="RUN023"):
        put(**arrays)
    assert not arrays["table"][:, :64].any()
