"""Tensors of more than 2^31 elements at loaded coordinates: rows far behind are found, others not touched."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.indexed import facts_of
from support.ptx_driver import run_artifact

ROWS, LENGTH, WIDTH = 17, (1 << 27) + 3, 48
"""Rows from 16 on begin behind element 2^31."""
HOSTILE = [16, 3, -1, 17, 1 << 32, (1 << 32) + 16, -(1 << 63), (1 << 63) - 1, 15, 1 << 31]


@tw.kernel
def taken(index: tw.Tensor["T"], table: tw.Tensor["V", "L"], y: tw.Tensor["T", "D"]):
    t, d = tw.grid(y, (4, 16))
    y[t, d] = table[index[t], table.shape[1] - 64 + d.index]


@pytest.mark.slow
def test_rows_behind_two_to_the_31() -> None:
    rng, index = np.random.default_rng(0), np.array(HOSTILE, np.int64)
    inside = (index >= 0) & (index < ROWS)
    rows = rng.integers(1, 99, (len(index), WIDTH)).astype(np.int8)
    table = np.zeros((ROWS, LENGTH), np.int8)  # of which what nobody touches takes no memory
    table[index[inside], LENGTH - 64 : LENGTH - 64 + WIDTH] = rows[inside]
    wanted = np.where(inside[:, None], rows, 0)
    arrays = {"index": index, "table": table, "y": np.full_like(rows, 77)}
    taken(**arrays)
    assert (arrays["y"] == wanted).all()
    arrays["y"][:] = 77
    artifact = taken.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    reports = run_artifact(artifact, arrays).reports
    assert not [str(fault) for _, report in reports for fault in report.faults]
    assert (arrays["y"] == wanted).all()
