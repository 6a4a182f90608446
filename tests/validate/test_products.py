"""Sums of products as fingerprints: 0 times 0 adds nothing, 0 times what may be NaN does."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import DTYPES
from tilewright.validate.tile_to_transport.arithmetic import ElementFunctions
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, key

X, Y, Z = (key("element", name) for name in "xyz")
ONE = np.ones((1, 1), np.uint64)


def row(*elements: int) -> Fingerprints:
    return np.array([elements], np.uint64)


def summed(left: Fingerprints, right: Fingerprints, *, fast: bool = False, kind: str = "f32") -> int:
    return int(ElementFunctions(reals=fast).products(left, right, ONE, DTYPES[kind])[0, 0])


@pytest.mark.parametrize("kind", ["f32", "bf16", "i32"])
def test_what_is_zero_on_both_sides_adds_nothing(kind: str) -> None:
    assert summed(row(X, 0, 0), row(Y, 0, 0), kind=kind) == summed(row(X), row(Y), kind=kind)


@pytest.mark.parametrize(("left", "right"), [((X, 0), (Y, Z)), ((X, Z), (Y, 0))])
def test_zero_times_an_element_is_no_zero(left: tuple[int, int], right: tuple[int, int]) -> None:
    """One side is masked beyond the domain of what is contracted, the other brings what lies there: NaN, perhaps."""
    assert summed(row(*left), row(*right)) != summed(row(X), row(Y))


def test_zero_times_an_integer_is_zero() -> None:
    assert summed(row(X, 0), row(Y, Z), kind="i32") == summed(row(X), row(Y), kind="i32")


def test_the_same_of_one_step_by_fma() -> None:
    arithmetic = ElementFunctions(reals=False)
    zero, x, y = (np.array([n], np.uint64) for n in (0, X, Y))
    assert (arithmetic.fma(zero, zero, x) == x).all()
    assert (arithmetic.fma(zero, y, x) != x).all()
