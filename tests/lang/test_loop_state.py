"""The rules of loop state, each as a legal kernel and its nearest illegal twin at the user's line."""

# ruff: noqa: F821, UP037 - dimension names are strings; some bodies are wrong on purpose

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
from support.refusals import refused, traced
from support.tile_evaluator import evaluate


@tw.kernel
def carried(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
    m = tw.grid(y, b)
    top = tw.full(m, -tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], b):
        new = tw.maximum(top, x[m, n].max(1))
        top.set(new)
    y[m] = top


def test_fragments_carry_state() -> None:
    x = np.random.default_rng(0).normal(size=(9, 21)).astype(np.float32)
    y = np.zeros(9, np.float32)
    evaluate(traced(carried), {"x": x, "y": y})
    np.testing.assert_array_equal(y, x.max(1))


def test_rebinding_a_fragment() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        top = tw.full(m, -tw.inf, tw.f32)
        for n in tw.stream(x.shape[1], b):
            new = x[m, n].max(1)
            top = tw.maximum(top, new)  # <-
            new = new + 1
        y[m] = top

    assert "top.set(new)" in refused(bad, "LNG010").help


def test_rebinding_a_tile() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        scale = tw.exp(x[m, 0])
        for n in tw.stream(x.shape[1], b):
            total += x[m, n].sum(1) * scale
            scale = scale * 2  # <-
        y[m] = total

    assert "tw.zeros" in refused(bad, "LNG010").help


def test_rebinding_a_python_number() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        count = 0
        for n in tw.stream(x.shape[1], b):
            total += x[m, n].sum(1) * count
            count = count + 1  # <-
        y[m] = total

    refused(bad, "LNG010")


def test_rebinding_through_none() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        before = None
        for n in tw.stream(x.shape[1], b):
            if before is not None:
                total += before
            before = x[m, n].sum(1)  # <-
        y[m] = total

    refused(bad, "LNG010")


def test_rebinding_in_a_list_a_dict_and_an_object() -> None:
    class Box:
        def __init__(self, value: Any):
            self.value = value

    @tw.kernel
    def a_list(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        state = [x[m, 0]]
        for n in tw.stream(x.shape[1], b):  # <-
            state[0] = state[0] + x[m, n].sum(1)
        y[m] = state[0]

    @tw.kernel
    def a_dict(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        state = {"total": x[m, 0]}
        for n in tw.stream(x.shape[1], b):  # <-
            state["total"] = state["total"] + x[m, n].sum(1)
        y[m] = state["total"]

    @tw.kernel
    def an_object(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        state = Box(x[m, 0])
        for n in tw.stream(x.shape[1], b):  # <-
            state.value = state.value + x[m, n].sum(1)
        y[m] = state.value

    for kernel in (a_list, a_dict, an_object):
        refused(kernel, "LNG010")


def test_containers_of_fragments_are_fine() -> None:
    @tw.kernel
    def good(x: tw.Tensor["M", "N"], y: tw.Tensor["M", 2], *, b=8):
        m = tw.grid(x.shape[0], b)
        sums = [tw.zeros(m, tw.f32) for _ in range(2)]
        for n in tw.stream(x.shape[1], b):
            for power, total in enumerate(sums):
                total += x[m, n].sum(1) * (power + 1)
        y[m, 0] = sums[0]
        y[m, 1] = sums[1]

    x = np.ones((3, 10), np.float32)
    y = np.zeros((3, 2), np.float32)
    evaluate(traced(good), {"x": x, "y": y})
    np.testing.assert_array_equal(y, [[10, 20]] * 3)


def test_names_of_an_earlier_stream_are_free() -> None:
    @tw.kernel
    def good(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        for n in tw.stream(x.shape[1], b):
            v = x[m, n]
            total += v.sum(1)
        for n in tw.stream(x.shape[1], b):
            v = x[m, n] * 2
            total += v.sum(1)
        y[m] = total

    traced(good)


def test_rebinding_in_a_nested_stream() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        for n in tw.stream(x.shape[1], 4 * b):
            part = x[m, n].sum(1)
            for t in tw.stream(n.stop, b, start=n.start):
                part = part + x[m, t].sum(1)  # <-
            total += part
        y[m] = total

    refused(bad, "LNG010")


def test_rebinding_in_a_helper_and_through_nonlocal() -> None:
    def add_up(x: Any, m: Any, width: Any) -> Any:
        total = x[m, 0]
        for n in tw.stream(width, 8):
            total = total + x[m, n].sum(1)
        return total

    @tw.kernel
    def helper(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        y[m] = add_up(x, m, x.shape[1])

    @tw.kernel
    def nonlocal_name(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        total = x[m, 0]

        def add(part: Any) -> None:
            nonlocal total
            total = total + part

        for n in tw.stream(x.shape[1], 8):
            add(x[m, n].sum(1))
        y[m] = total

    for kernel in (helper, nonlocal_name):
        refused(kernel, "LNG010", marked=False)


def test_rebinding_the_loop_variable() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        for n in tw.stream(x.shape[1], b):  # <-
            total += x[m, n].sum(1)
            n = m
        y[m] = total

    refused(bad, "LNG011")


def test_enumerate_zip_generators_and_next() -> None:
    def each(stream: Any) -> Iterator[Any]:
        yield from stream

    @tw.kernel
    def counted(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        total = tw.zeros(m, tw.f32)
        for i, n in enumerate(tw.stream(x.shape[1], 8)):  # <-
            total += x[m, n].sum(1) * i
        y[m] = total

    @tw.kernel
    def zipped(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        total = tw.zeros(m, tw.f32)
        for pair in zip(tw.stream(x.shape[1], 8), (1, 2), strict=True):  # <-
            total += x[m, pair[0]].sum(1) * pair[1]
        y[m] = total

    @tw.kernel
    def called(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        n = next(iter(tw.stream(x.shape[1], 8)))  # <-
        y[m] = x[m, n].sum(1)

    @tw.kernel
    def generated(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 8)
        total = x[m, 0]
        for n in each(tw.stream(x.shape[1], 8)):
            total = total + x[m, n].sum(1)
        y[m] = total

    for kernel in (counted, called):
        refused(kernel, "LNG011")
    for kernel in (zipped, generated):
        refused(kernel, "LNG011", marked=False)


def test_break() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8, first: bool = True):
        m = tw.grid(y, b)
        total = tw.zeros(m, tw.f32)
        for n in tw.stream(x.shape[1], b):
            total += x[m, n].sum(1)
            if first:
                break  # <-
        y[m] = total

    refused(bad, "LNG011")
    traced(bad, keywords={"first": False})


def test_return() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, b=8):
        m = tw.grid(x.shape[0], b)
        for n in tw.stream(x.shape[1], b):
            y[m, n] = x[m, n]
            return  # <-

    refused(bad, "LNG011")


def test_a_value_of_the_body_after_the_stream() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        for n in tw.stream(x.shape[1], b):
            last = x[m, n].sum(1)
        y[m] = last  # <-

    diagnostic = refused(bad, "LNG012")
    assert diagnostic.labels
    assert diagnostic.labels[0].where.line == diagnostic.where.line - 1  # pyright: ignore[reportOptionalMemberAccess]


def test_a_fragment_or_place_of_the_body_after_the_stream() -> None:
    @tw.kernel
    def fragment(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        for n in tw.stream(x.shape[1], b):
            part = tw.zeros(m, tw.f32)
            part += x[m, n].sum(1)
        y[m] = part  # <-

    @tw.kernel
    def place(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        for n in tw.stream(x.shape[1], b):
            tw.print("{}", x[m, n])
        y[m] = x[m, n].sum(1)  # <-

    @tw.kernel
    def number(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        for n in tw.stream(x.shape[1], b):
            at = n.start
        y[m] = x[m, 0] + at  # <-

    @tw.kernel
    def appended(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        parts = [x[m, n].sum(1) for n in tw.stream(x.shape[1], b)]
        y[m] = parts[0]  # <-

    for kernel in (fragment, place, number, appended):
        refused(kernel, "LNG012")


def test_a_fragment_under_two_names() -> None:
    @tw.kernel
    def bad(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        top = tw.zeros(m, tw.f32)
        old = top
        top.set(x[m])  # <-
        y[m] = old

    @tw.kernel
    def good(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        top = tw.zeros(m, tw.f32)
        old = top.copy()
        top.set(x[m])
        y[m] = old + top

    assert "copy()" in refused(bad, "LNG013").help
    x, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    evaluate(traced(good), {"x": x, "y": y})
    np.testing.assert_array_equal(y, x)


def test_an_expression_reads_the_value_of_its_point() -> None:
    @tw.kernel
    def good(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=8):
        m = tw.grid(y, b)
        acc = tw.zeros(m, tw.f32)
        before = acc + x[m]
        acc += 5
        y[m] = before * 10 + acc

    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    evaluate(traced(good), {"x": x, "y": y})
    np.testing.assert_array_equal(y, [15, 15, 15])
