"""Kernels for launches in which no stream has a step: the program without its streams, for these launches alone."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilewright as tw
from support import products as p
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.base.expr import TRUE, Expr, all_of, any_of, sym
from tilewright.compiler.empty_streams import rest_of
from tilewright.compiler.program import plan, traced
from tilewright.compiler.proofs.rewritten import certify_rest, certify_rewritten
from tilewright.diag import TilewrightError
from tilewright.tile import dialect as tile

NONE = sym("T").eq(0)


def rest(whole: tile.Kernel, extent: str = "T") -> tile.Kernel:
    found = rest_of(whole, extent)
    assert found is not None
    return found


def test_what_is_left_is_the_program_without_its_streams() -> None:
    whole = traced(p.request(p.attention))
    for predicate in (NONE, all_of([sym("S") > 3, NONE])):
        assert certify_rest(whole, rest(whole), predicate).detail == f"no stream has a step where {predicate}"


def test_the_variant_of_a_program_is_certified() -> None:
    variant = plan(p.request(EXAMPLES_BY_NAME["attention"].kernel)).variants[-1]
    assert variant.transport.sym_name.data.endswith("no_steps")
    (obligation,) = certify_rewritten([variant], variant.predicate)
    assert obligation.name == "rest"
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*may have steps"):
        certify_rewritten([variant], sym("T") <= 1)


@pytest.mark.parametrize(
    "predicate", [TRUE, sym("S").eq(0), sym("T") <= 1, sym("T").eq(1), any_of([NONE, sym("S").eq(0)])]
)
def test_streams_that_may_have_steps_are_seen(predicate: Expr) -> None:
    whole = traced(p.request(p.attention))
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*may have steps"):
        certify_rest(whole, rest(whole), predicate)


def without_stores(kernel: tile.Kernel) -> None:
    next(op for op in kernel.walk() if isinstance(op, tile.Store)).detach()


def begun_later(kernel: tile.Kernel) -> None:
    constant = next(op for op in kernel.walk() if isinstance(op, tile.Constant) and op.value.data == 0)
    constant.attributes["value"] = type(constant.value)(1.0)


def wider(kernel: tile.Kernel) -> None:
    kernel.attributes["grid"] = type(kernel.grid)([type(kernel.grid.data[0])(sym("S"))])


@pytest.mark.parametrize("change", [without_stores, begun_later, wider])
def test_another_program_is_seen(change: Callable[[tile.Kernel], None]) -> None:
    whole = traced(p.request(p.attention))
    made = rest(whole)
    change(made)
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*rest:"):
        certify_rest(whole, made, NONE)


def test_a_program_is_not_its_own_rest() -> None:
    made = rest(traced(p.request(p.attention)))
    with pytest.raises(TilewrightError, match="no streams"):
        certify_rest(made, made, NONE)


@tw.kernel
def scores(q: tw.Tensor["S", "D"], k: tw.Tensor["T", "D"], o: tw.Tensor["S", "T"], *, most: int = 64):
    s, d = tw.grid(q.shape[0], 64), tw.axis(q.shape[1], upto=most)
    for t in tw.stream(k.shape[0], 64):
        o[s, t] = tw.dot(q[s, d], k[t, d].T)


def one(kernel: tile.Kernel) -> None:
    """The zeros of a product become ones."""
    constant = next(op for op in kernel.walk() if isinstance(op, tile.Constant))
    constant.attributes["value"] = type(constant.value)(1)


def test_products_over_nothing_are_zeros() -> None:
    whole = traced(p.request(scores))
    made = rest(whole, "D")
    assert any(isinstance(op, tile.StreamLoop) for op in made.walk())
    assert certify_rest(whole, made, sym("D").eq(0)).name == "rest"
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*no streams that it is without"):
        certify_rest(whole, made, sym("T").eq(0))
    one(made)
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*no zeros"):
        certify_rest(whole, made, sym("D").eq(0))
