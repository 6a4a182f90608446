"""What the proofs read of products by themselves: which products add to their fragment, which load an operand is."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from dataclasses import replace

import pytest

import tilewright as tw
from support import products as p
from support.products import request, traced
from tilewright.base.expr import FALSE
from tilewright.compiler.program import Planner
from tilewright.compiler.proofs.product_queries import added_in_place, loaded_operand
from tilewright.ops import kernels
from tilewright.schedule.hopper.operands import accumulation
from tilewright.tile import dialect as tile


@tw.kernel
def used_twice(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc, other = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        d = tw.dot(a[m, k], b[k, n])
        acc += d
        other += d
    c[m, n] = acc + other


@tw.kernel
def written_between(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc, other = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        d = tw.dot(a[m, k], b[k, n])
        other += 1.0
        acc += d
    c[m, n] = acc + other


@tw.kernel
def written_after(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc, other = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[k, n])
        other += 1.0
    c[m, n] = acc + other


@tw.kernel
def subtracted(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc -= tw.dot(a[m, k], b[k, n])
    c[m, n] = acc


@tw.kernel
def read_early(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        old = acc * 1.0
        acc.set(old * 2.0)
        acc.set(old + tw.dot(a[m, k], b[k, n]))
    c[m, n] = acc


def dots(kernel: tw.Kernel) -> list[tile.Dot]:
    return [op for op in traced(request(kernel)).walk() if isinstance(op, tile.Dot)]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (p.nn, [True]),
        (written_after, [True]),
        (p.chained, None),
        (p.attention, None),
        (p.gated, None),
        (used_twice, [False]),
        (written_between, [False]),
        (subtracted, [False]),
        (read_early, [False]),
    ],
    ids=lambda x: x.name if isinstance(x, tw.Kernel) else "",
)
def test_where_a_product_adds_to_its_fragment(kernel: tw.Kernel, expected: list[bool] | None) -> None:
    found = [added_in_place(dot) for dot in dots(kernel)]
    assert found == [accumulation(dot) is not None for dot in dots(kernel)]  # the schedule's own rule
    assert expected in (None, found)


@pytest.mark.parametrize(
    ("kernel", "a", "b"),
    [(p.nn, (0, 1), (0, 1)), (p.nt, (0, 1), (1, 0)), (p.tn, (1, 0), (0, 1)), (p.tt, (1, 0), (1, 0))],
)
def test_the_tensor_axes_of_an_operand(kernel: tw.Kernel, a: tuple[int, int], b: tuple[int, int]) -> None:
    (dot,) = dots(kernel)
    for operand, expected, name in ((dot.a, a, "a"), (dot.b, b, "b")):
        found = loaded_operand(operand)
        assert found is not None
        assert (tile.tensor_type(found[0].tensor).tensor_name.data, found[1]) == (name, expected)


def test_a_computed_operand_is_no_load() -> None:
    assert loaded_operand(dots(p.chained)[1].a) is None


def test_classes_that_static_extents_rule_out_are_not_planned() -> None:
    # They were, and compile refused itself: their kernels assume what no launch could be asked (CRT007).
    asked = replace(request(kernels.matmul), schedule=tw.Schedule(split_k=1))
    static = replace(asked, signature=replace(asked.signature, static=(("K", 64), ("M", 1024), ("N", 1024))))
    planned, some = (Planner(each).program().variants for each in (static, asked))
    assert FALSE not in {v.predicate for v in planned}
    assert 0 < len(planned) < len(some)
