"""Kernels with products that passers-by wrote: proved for all trip counts at once, and right at awkward extents."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownLambdaType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.product_cases import (
    F32,
    I8,
    Array,
    Arrays,
    Case,
    assert_agrees,
    assert_proved_for_all_trip_counts,
    by_name,
)


@tw.kernel
def row_times_matrix(x: tw.Tensor["K"], b: tw.Tensor["K", "N"], y: tw.Tensor["N"]):
    """A product of one row, which matrix instructions don't have."""
    n = tw.grid(y, 64)
    acc = tw.zeros((1, n), tw.f32)
    for k in tw.stream(b.shape[0], 64):
        acc += tw.dot(x[k][None, :], b[k, n])
    y[n] = acc.sum(0)


@tw.kernel
def matrix_times_column(a: tw.Tensor["M", "K"], x: tw.Tensor["K", 1], y: tw.Tensor["M", 1]):
    m = tw.grid(a.shape[0], 64)
    acc = tw.zeros((m, 1), tw.i32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], x[k, :])
    y[m, :] = acc.to(tw.f32)


@tw.kernel
def nibbles(
    a: tw.Tensor["M", "K", 2], w: tw.Tensor["N", "K"], s: tw.Tensor["N", "G"], c: tw.Tensor["M", "N"], *, per: int = 32
):
    """Two 4-bit weights in a byte, scaled by groups: a product in a stream whose bounds the stream around it gives."""
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for g in tw.stream(s.shape[1], None):
        part = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], per, start=g * per, until=(g + 1) * per):
            both = w[n, k].to(tw.i32)
            low, high = (both & 15) - 8, ((both >> 4) & 15) - 8
            part += tw.dot(a[m, k, 0], low.to(a.dtype).T)
            part += tw.dot(a[m, k, 1], high.to(a.dtype).T)
        acc += part * s[n, g][None, :]
    c[m, n] = acc


def _nibbles(a: Array, w: Array, s: Array) -> Arrays:
    whole = np.stack([(w & 15) - 8, ((w >> 4) & 15) - 8], -1)
    scales = np.repeat(s, 32, 1)[:, : w.shape[1], None]
    return {"c": np.einsum("mkj,nkj->mn", a, whole * scales)}


CASES = by_name(
    Case(
        row_times_matrix,
        {"x": "K", "b": "KN"},
        lambda x, b: {"y": x @ b},
        ({"K": 64, "N": 128}, {"K": 129, "N": 67}, {"K": 1, "N": 1}),
    ),
    Case(
        matrix_times_column,
        {"a": "MK", "x": "K1"},
        lambda a, x: {"y": a.astype(np.int64) @ x},
        ({"M": 64, "K": 64}, {"M": 67, "K": 129}, {"M": 1, "K": 1}),
        {"a": I8, "x": I8, "y": F32},
        tolerance=0,
    ),
    Case(
        nibbles,
        {"a": "MK2", "w": "NK", "s": "NG"},
        _nibbles,
        ({"M": 64, "N": 64, "K": 64, "G": 2}, {"M": 67, "N": 33, "K": 70, "G": 3}),
        {"w": I8, "s": F32},
    ),
)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy(name: str) -> None:
    assert_agrees(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_is_proved_for_all_trip_counts_at_once(name: str) -> None:
    assert_proved_for_all_trip_counts(CASES[name])
