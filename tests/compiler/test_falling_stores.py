"""Stores at coordinates that fall while programs are counted up: proved, and no others with them."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import pytest

import tilewright as tw
from support.lowered import lowered
from tilewright.base.verdict import Proved
from tilewright.compiler.proofs.stores import prove_stores


@tw.kernel
def flipped(x: tw.Tensor["N"], y: tw.Tensor["N"]):
    n = tw.grid(x, 32)
    y[x.shape[0] - 1 - n] = x[n]


@tw.kernel
def moved(x: tw.Tensor["N"], y: tw.Tensor["N"]):
    n = tw.grid(x, 32)
    y[x.shape[0] - 2 - n] = x[n]


@tw.kernel
def straight(x: tw.Tensor["N"], y: tw.Tensor["N"]):
    n = tw.grid(x, 32)
    y[n] = x[n]


@tw.kernel
def stretched(x: tw.Tensor["N"], y: tw.Tensor["N"]):
    n = tw.grid(x, 32)
    y[x.shape[0] - 1 - 2 * n] = x[n]


KERNELS = {k.__name__: k for k in (flipped, moved, straight, stretched)}


def _lowered(name: str):
    ((tiles, kernel),) = lowered(KERNELS[name], {"x": "f32", "y": "f32"}).values()
    return tiles, kernel


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_stored_is_what_is_promised(name: str) -> None:
    assert isinstance(prove_stores(*_lowered(name)), Proved)


@pytest.mark.parametrize(
    ("promised", "done"), [(a, b) for a in KERNELS for b in KERNELS if a != b and {a, b} != {"flipped", "straight"}]
)
def test_other_elements_than_promised_are_found(promised: str, done: str) -> None:
    assert not isinstance(prove_stores(_lowered(promised)[0], _lowered(done)[1]), Proved)


@tw.kernel
def folded(x: tw.Tensor["N"], y: tw.Tensor["N"]):
    n = tw.grid(x, 32)
    y[x.shape[0] - 1 - n.index // 2] = x[n]


def test_two_elements_at_one_place_are_refused() -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        folded.compile(dtypes={"x": "f32", "y": "f32"})
    assert refused.value.diagnostics[0].code.startswith("ACC")
