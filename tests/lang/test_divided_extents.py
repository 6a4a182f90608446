"""Computed coordinates that lie inside at some launches: these are asked for where several tiles meet."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw


@tw.kernel
def rounded(w: tw.Tensor["K // 8"], s: tw.Tensor["K // 32"], y: tw.Tensor["K"]):
    k = tw.grid(y, 64)
    y[k] = w[k // 8] * s[k // 32]


@tw.kernel
def dividing(w: tw.Tensor["4 * G"], s: tw.Tensor["G"], y: tw.Tensor["32 * G"]):
    k = tw.grid(y, 64)
    y[k] = w[k // 8] * s[k // 32]


@tw.kernel
def pooled(x: tw.Tensor["H"], y: tw.Tensor["P"]):
    p = tw.grid(y, 16)
    y[p] = x[2 * p] + x[2 * p + 1]


def test_extents_that_do_not_divide_are_refused_at_launch() -> None:
    w, s, y = np.arange(8, dtype=np.float32), np.float32([1, 10]), np.zeros(64, np.float32)
    for kernel in (rounded, dividing):
        kernel(w, s, y)
        np.testing.assert_array_equal(y, np.repeat(w, 8) * np.repeat(s, 32))
    with pytest.raises(tw.TilewrightError, match=r"RUN008") as refused:
        rounded(w[:5], s[:1], y[:40])
    assert 'annotated "G" and "32*G"' in refused.value.diagnostics[0].help


def test_that_nothing_is_absent_is_asked_of_a_launch() -> None:
    x, y = np.arange(9, dtype=np.float32), np.zeros(4, np.float32)
    pooled(x, y)
    np.testing.assert_array_equal(y, x[:8:2] + x[1::2])
    with pytest.raises(tw.TilewrightError, match=r"RUN008") as refused:
        pooled(x, np.zeros(5, np.float32))
    (found,) = refused.value.diagnostics
    assert found.required == "P*2 <= H"
    assert ".fill(0.0)" in found.help
