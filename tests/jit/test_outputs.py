"""Results that a call leaves out: which tensors may be, how they are allocated, and what is refused."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.fake_driver import FakeTensor
from tilewright.diag import TilewrightError
from tilewright.jit.outputs import uses_of

X = np.random.default_rng(0).standard_normal((6, 20), dtype=np.float32)


@tw.kernel
def both(x: tw.Tensor["M", "N"], top: tw.Tensor["M"], y: tw.Tensor["M", "N"], *, scale: tw.f32 = 2.0, bm=4):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    top[m] = x[m, n].max(1)
    y[m, n] = x[m, n] * scale


@tw.kernel
def column_sums(x: tw.Tensor["M", "N"], total: tw.Tensor["N"], *, bm=4):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    tw.reduce_add(total, n, x[m, n].sum(0))


@tw.kernel
def column_tops(x: tw.Tensor["M", "N"], top: tw.Tensor["N"], *, bm=4):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    tw.reduce_max(top, n, x[m, n].max(0))


@tw.kernel
def in_place(x: tw.Tensor["N"], *, bn=64):
    n = tw.grid(x, bn)
    x[n] += 1


@tw.kernel
def repeated(x: tw.Tensor["N"], y: tw.Tensor["P", "N"], *, bn=64):
    p, n = tw.grid(y, (None, bn))
    y[p, n] = x[n]


@tw.kernel
def sometimes(x: tw.Tensor["N"], y: tw.Tensor["N"], z: tw.Tensor["N"], *, twice: bool = False, bn=64):
    n = tw.grid(x, bn)
    y[n] = x[n]
    if twice:
        z[n] = x[n] * 2


def stored_elsewhere(tensor: Any, n: Any, value: Any) -> None:
    tensor[n] = value


@tw.kernel
def handed_on(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=64):
    n = tw.grid(x, bn)
    stored_elsewhere(value=x[n], tensor=y, n=n)


def largest(table: Any, m: Any, n: Any) -> Any:
    return table[m, n].max(1)


def top_and_sum(table: Any, total: Any, m: Any, n: Any) -> Any:
    tw.reduce_add(total, n, table[m, n].sum(0))
    return largest(table, m, n)


@tw.kernel
def through_two(x: tw.Tensor["M", "N"], total: tw.Tensor["N"], top: tw.Tensor["M"], *, bm=4):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    top[m] = top_and_sum(x, total, m, n)


@tw.kernel
def largest_of_itself(x: tw.Tensor["M", "N"], top: tw.Tensor["M"], *, bm=4):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    top[m] = largest(x, m, n)
    stored_elsewhere(top, m, largest(x, m, n) + top[m])


def kept(tensor: Any) -> Any:
    return tensor


@tw.kernel
def renamed(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=64):
    n = tw.grid(x, bn)
    kept(y)[n] = x[n]


@tw.kernel
def by_whoever(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=64):
    n = tw.grid(x, bn)
    for stored_elsewhere in (lambda tensor, n, value: None, globals()["stored_elsewhere"]):
        stored_elsewhere(y, n, x[n])


def stored_at_last(tensor: Any, n: Any, value: Any, times: int) -> None:
    if times:
        stored_at_last(tensor, n, value, times - 1)
    else:
        tensor[n] = value


@tw.kernel
def recursive(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=64):
    n = tw.grid(x, bn)
    stored_at_last(y, n, x[n], 3)


def test_several_results_are_a_tuple_in_the_order_of_the_signature() -> None:
    top, y = both(X, scale=3.0)
    np.testing.assert_array_equal(top, X.max(1))
    np.testing.assert_array_equal(y, X * 3)
    given = np.empty_like(X)
    np.testing.assert_array_equal(both(X, y=given), X.max(1))
    np.testing.assert_array_equal(given, X * 2)
    assert both(X, np.empty_like(top), given) is None


def test_functions_that_are_given_tensors_are_read() -> None:
    np.testing.assert_array_equal(handed_on(X[0]), X[0])
    total, top = through_two(X)
    np.testing.assert_allclose(total, X.sum(0), rtol=1e-5)
    np.testing.assert_array_equal(top, X.max(1))


def test_sums_begin_at_zero() -> None:
    np.testing.assert_allclose(column_sums(X), X.sum(0), rtol=1e-5)


def test_sums_into_a_view_begin_at_zero() -> None:
    @tw.kernel
    def by_lanes(x: tw.Tensor["M", "N"], lane: tw.Tensor["N"], total: tw.Tensor["4*N"], *, bm=4):
        m, n = tw.grid(x, (bm, 32))
        tw.reduce_add(total.reshape(lane.shape[0], 4), (n, lane[n]), x[m, n].sum(0))

    lane = np.arange(20, dtype=np.int32) % 5  # 4 is no lane
    total = by_lanes(X, lane).reshape(20, 4)
    np.testing.assert_allclose(total.sum(1), np.where(lane < 4, X.sum(0), 0), rtol=1e-5)


def test_what_extrema_begin_with_is_given() -> None:
    """Of them a call leaves out none: zero would be one of the elements."""
    with pytest.raises(TilewrightError, match="JIT001"):
        column_tops(X)
    top = np.full(X.shape[1], -np.inf, np.float32)
    assert column_tops(X, top) is None
    np.testing.assert_array_equal(top, X.max(0))


def test_results_are_row_major_and_of_the_first_dtype() -> None:
    top, y = both(X.astype(np.float16).T)
    assert (top.dtype, y.dtype, y.strides) == (np.float16, np.float16, (12, 2))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: in_place(), "JIT001"),  # read as well as written
        (lambda: repeated(X[0]), "JIT007"),  # no tensor has P
        (lambda: renamed(X[0]), "JIT001"),  # nothing shows that y is a result
        (lambda: by_whoever(X[0]), "JIT001"),  # a name of two functions
        (lambda: recursive(X[0]), "JIT001"),
        (lambda: largest_of_itself(X), "JIT001"),  # read as well, though stored in a function
        (lambda: both(FakeTensor(0x1000, (4, 4))), "JIT007"),  # of no library that we know
        (lambda: both([[1.0, 2.0]]), "JIT002"),  # of none
        (lambda: both(3.0), "JIT002"),
        (lambda: sometimes(X[0]), "JIT008"),  # z would come back as it was found
    ],
)
def test_refused(call: Any, code: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        call()
    assert caught.value.code == code


def test_tensors_of_another_rank_are_named_where_an_extent_is_unknown() -> None:
    with pytest.raises(TilewrightError) as caught:
        both(X[0])
    assert "was given (20,)" in str(caught.value)


def test_a_tensor_that_can_not_be_left_out_is_told_why() -> None:
    typed = "@tw.kernel\ndef typed(x: tw.Tensor['N'], y: tw.Tensor['N']):\n    n = tw.grid(x, 64)\n    y[n] = x[n]\n"
    scope: dict[str, Any] = {"tw": tw}
    exec(typed, scope)
    for call, why in (
        (lambda: scope["typed"](X[0]), "the source of typed"),
        (lambda: in_place(), "never read"),
        (lambda: renamed(X[0]), "by their own names"),
        (lambda: repeated(y=X), "tensors and runtime scalars"),
    ):
        with pytest.raises(TilewrightError, match="JIT001") as caught:
            call()
        assert why in caught.value.diagnostics[0].advice
    one = np.empty(20, np.float32)
    scope["typed"](X[0], one)
    np.testing.assert_array_equal(one, X[0])


def test_the_legal_twins() -> None:
    y = np.empty((3, 20), np.float32)
    repeated(X[0], y)
    np.testing.assert_array_equal(y, np.stack([X[0]] * 3))
    one = np.empty(20, np.float32)
    renamed(X[0], one)
    np.testing.assert_array_equal(one, X[0])
    recursive(2 * X[0], one)
    np.testing.assert_array_equal(one, 2 * X[0])
    sometimes(X[0], one, one.copy())


def test_a_store_that_the_source_does_not_show_is_refused() -> None:
    @tw.kernel
    def hidden(x: tw.Tensor["N"], y: tw.Tensor["N"], z: tw.Tensor["N"], *, bn=64):
        n = tw.grid(x, bn)
        y[n] = x[n]
        locals()["z"][n] = x[n]

    with pytest.raises(TilewrightError) as caught:
        hidden(X[0], X[1], X[2])
    assert caught.value.code == "JIT008"


@tw.kernel
def doubled_by_group(offsets: tw.Offsets["G + 1"], x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=32):
    _, m = tw.ragged_grid(offsets, x.shape[0], bm)
    y[m] = x[m] * 2


def test_offsets_of_a_ragged_grid_are_read() -> None:
    uses = uses_of(doubled_by_group.fn)
    assert uses is not None
    assert uses.read == {"offsets", "x"}
    assert uses.results == {"y"}
    assert "offsets" not in uses.unclear
