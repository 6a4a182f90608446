"""Coordinates over an extent that is a quotient: absent where it is rounded down, and what to write instead."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

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


def test_extents_that_divide_are_offered() -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        rounded.compile()
    (found,) = refused.value.diagnostics
    assert found.code == "LNG035"
    assert 'annotate extents that divide: "G" and "32*G"' in found.help
    assert dividing.compile().kernels
