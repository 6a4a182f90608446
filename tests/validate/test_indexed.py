"""Kernels at computed and loaded coordinates: what is compared, and that mistakes planted in them are seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from support.indexed import CASES
from support.lowered import lowered
from tilewright.base.expr import Const, Sym
from tilewright.tile import dialect as tile
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import dialect as t
from tilewright.transport.base import exprs
from tilewright.validate.lowering.compare import compare

UNDECIDED = {"segment_max"}
"""A stream between two loaded bounds."""


def both(name: str) -> tuple[tile.Kernel, t.Kernel]:
    short = {"float32": "f32", "int32": "i32", "int64": "i64"}
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(0))
    found = lowered(case.kernel, {n: short[a.dtype.name] for n, a in arrays.items()})
    return list(found.values())[-1]


@pytest.mark.parametrize("name", sorted(CASES.keys() - UNDECIDED))
def test_values_are_equal(name: str) -> None:
    assert compare(*both(name)) == ()


def indexed(kernel: t.Kernel) -> list[t.Load | t.Store | t.ReduceAdd]:
    return [op for op in kernel.walk() if isinstance(op, t.Load | t.Store | t.ReduceAdd) and op.within is not None]


def beside(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        first, *rest = (c.expr for c in op.coords)
        op.attributes["coords"] = exprs([first + 1, *rest])


def always_the_first(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        op.attributes["index_registers"] = exprs([Const(0)] * len(op.indices))


def without_domain(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        op.attributes["guard"] = ExprAttr(Sym(t.THREAD) >= 0)


def narrower(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        op.attributes["guard"] = ExprAttr(Sym(t.THREAD) < 7)
        op.attributes["within"] = ExprAttr(Sym(t.THREAD) < 7)


@pytest.mark.parametrize("change", [beside, always_the_first, without_domain, narrower])
def test_other_elements_are_seen(change: Callable[[t.Kernel], None]) -> None:
    source, made = both("embedding")
    change(made)
    assert compare(source, made)


def test_another_bound_is_seen() -> None:
    source, made = both("mean_of_lengths")
    for op in made.walk():
        if isinstance(op, t.For):
            op.attributes["end"] = ExprAttr(op.end.expr + 1)
    assert compare(source, made)
