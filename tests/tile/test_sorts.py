"""Sorts in Tile IR: an evaluator that asks NumPy agrees; text; what is refused."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from support.indexed import SHORT
from support.scans import Arrays, Scanning
from support.sorts import CASES
from support.tile_evaluator import evaluate
from tilewright.base.dtypes import DTYPES
from tilewright.diag import TilewrightError
from tilewright.lang.axes import whole
from tilewright.lang.signature import Signature
from tilewright.tile import dialect
from tilewright.tile.tracer import trace


def traced(case: Scanning, arrays: Arrays) -> ModuleOp:
    dtypes = {n: DTYPES[SHORT[a.dtype.name]] for n, a in arrays.items()}
    return trace(case.kernel, Signature.of(dtypes, keywords=dict(case.keywords)))


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"shifted"}))
def test_evaluator_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays = case.draw(np.random.default_rng(3))
    expected = {n: np.asarray(a) for n, a in case.expected(arrays).items()}
    evaluate(traced(case, arrays), arrays)
    for output, want in expected.items():
        found = arrays[output]
        np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64), err_msg=output)


@pytest.mark.parametrize("name", ["float32 ascending", "greatest of bfloat16"])
def test_text_round_trip(name: str) -> None:
    module = traced(CASES[name], CASES[name].draw(np.random.default_rng(0)))
    for op in module.walk():
        if isinstance(op, dialect.Sort):
            op.note_bit_order([2, 0, 1])
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(dialect.Tile)
    again = Parser(context, str(module)).parse_module()
    again.verify()
    assert str(again) == str(module)
    assert "network" in str(module)


def rank_0(dtype: Any) -> Any:
    return dialect.Constant(1, dtype).result


def of_8(dtype: Any) -> Any:
    return dialect.Broadcast(dialect.Expand(rank_0(dtype), [0]).result, [whole(8)]).result


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (lambda: dialect.Sort(of_8(tw.i8), 0), "i32 or i64"),
        (lambda: dialect.Sort(of_8(tw.i32), 0, 0), "the least 0"),
        (lambda: dialect.Bitcast(of_8(tw.i64), tw.f32), "keeps the width"),
        (lambda: dialect.Bitcast(of_8(tw.i32), tw.i32), "another dtype"),
        (lambda: dialect.Bitcast(of_8(tw.i8), tw.bool), "dtype of numbers"),
    ],
)
def test_verified(op: Callable[[], Any], message: str) -> None:
    with pytest.raises(VerifyException, match=message):
        op().verify()


def test_all_of_an_axis_is_sorted_not_selected() -> None:
    """Then the result is spread as what it was, which may be over threads."""

    @tw.kernel
    def all_of_it(x: tw.Tensor["M", 8], y: tw.Tensor["M", 8]):
        m = tw.grid(x.shape[0], 4)
        y[m, :] = tw.topk(x[m, :], 8, 1)[0]

    module = trace(all_of_it, Signature.of({"x": tw.f32, "y": tw.f32}))
    (found,) = [op for op in module.walk() if isinstance(op, dialect.Sort)]
    assert found.count is None


def refused(body: Callable[[Any], Any], dtype: Any = tw.f32) -> str:
    def kernel(x: tw.Tensor["M", 16], y: tw.Tensor["M"]):
        m = tw.grid(x.shape[0], 4)
        y[m] = body(x[m, :])

    with pytest.raises(TilewrightError) as error:
        trace(tw.kernel(kernel), Signature.of({"x": dtype, "y": tw.f32}))
    return str(error.value)


@pytest.mark.parametrize(
    ("k", "help"),
    [(0, "leave the call out"), (65, "sort the axis"), (True, "keyword parameter"), (2.0, "keyword parameter")],
)
def test_numbers_that_are_not_selected(k: Any, help: str) -> None:
    text = refused(lambda x: tw.topk(x, k, 1))
    assert "LNG042" in text
    assert f"found:    k = {k!r}" in text
    assert help in text.split("help: ")[1]


def test_numbers_that_are_no_bins() -> None:
    text = refused(lambda x: tw.histogram(x, 0).sum()[None], tw.i32)
    assert "LNG042" in text
    assert "required: a compile-time int of 1 to 32768" in text


def test_a_number_of_numpy_selects() -> None:
    def kernel(x: tw.Tensor["M", 16], y: tw.Tensor["M", 3]):
        m = tw.grid(x.shape[0], 4)
        y[m, :], _ = tw.topk(x[m, :], np.int64(3), 1)

    trace(tw.kernel(kernel), Signature.of({"x": tw.f32, "y": tw.f32}))


def test_keys_that_leave_no_place() -> None:
    assert "found:    a sort of i64" in refused(lambda x: tw.sort(x, 1), tw.i64)


def test_the_last_axis_is_sorted_by_default() -> None:
    @tw.kernel
    def both(x: tw.Tensor["M", 8], y: tw.Tensor["M", 8], top: tw.Tensor["M", 2], at: tw.Tensor["M", 2]):
        m, n = tw.grid(x.shape[0], 2), tw.axis(8)
        y[m, n] = tw.sort(x[m, n])
        top[m, :], at[m, :] = tw.topk(x[m, n], 2)

    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    y, top, at = np.empty_like(x), np.empty((3, 2), np.float32), np.empty((3, 2), np.int32)
    both(x, y, top, at)
    assert np.array_equal(y, np.sort(x))
    assert np.array_equal(at, np.argsort(-x)[:, :2])
    assert np.array_equal(top, np.take_along_axis(x, at, 1))
