"""Kernels that random ones led to (``tools/random_kernels.py``), each against NumPy in the simulator."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from math import erf as erf_of

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.ptx_driver import run_artifact
from support.tile_evaluator import NUMPY
from tilewright.base.dtypes import DTYPES
from tilewright.compiler.requests import CallFacts, Observed, observe_facts

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(7)
erf = np.vectorize(erf_of)


@tw.kernel
def rows_from(x: tw.Tensor["N", "M"], y: tw.Tensor["M"], *, first: tw.i32, bm=tw.auto):
    m = tw.grid(y, bm)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[0], 32, start=first):
        total += x[n, m].sum(0)
    y[m] = total


@pytest.mark.parametrize(("rows", "first"), [(0, 1), (2, 40), (70, 3), (70, 69), (70, 70), (64, 64), (100, 0)])
def test_a_stream_that_begins_behind_its_end(rows: int, first: int) -> None:
    """No steps are whole there, and not less than none."""
    x = RNG.integers(-9, 9, (rows, 37)).astype(np.float32)
    y = np.full(37, np.nan, np.float32)
    rows_from(x, y, first=first)
    np.testing.assert_array_equal(y, x[first:].sum(0))


@tw.kernel
def short_product(a: tw.Tensor["B", 27, "M"], b: tw.Tensor["B", 27, "N"], c: tw.Tensor["B", "M", "N"], *, bk=tw.auto):
    i, m, n = tw.grid(c, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[i, k, m].T, b[i, k, n])
    c[i, m, n] = acc


def test_a_known_extent_below_one_step() -> None:
    """Whole steps are none, so that NVRTC drops their loop: the text must not have it either."""
    artifact = short_product.compile(dtypes={"a": "bf16", "b": "bf16"})
    assert "kernel_short_product" in artifact.kernels[-1].ptx
    a, b = (RNG.integers(-3, 4, (2, 27, n)).astype(ml_dtypes.bfloat16) for n in (70, 65))
    c = np.full((2, 70, 65), np.nan, np.float32)
    short_product(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32).transpose(0, 2, 1) @ b.astype(np.float32))


@tw.kernel
def scaled_by_its_sum(x: tw.Tensor["N"], y: tw.Tensor["N", "M"], *, upto: int = 40, bm=tw.auto):
    """Every thread has the whole of x, one writes each element."""
    n, m = tw.axis(x.shape[0], upto=upto), tw.axis(y.shape[1], upto=64)
    row = x[n]
    y[n, m] = tw.exp(m.index.to(tw.f32))[None, :] * row[:, None]
    x[n] = row / row.sum()


@tw.kernel
def one_number(x: tw.Tensor[()], y: tw.Tensor["N"]):
    n = tw.axis(y.shape[0], upto=40)
    value = x[()]
    y[n] = value * n.index
    x[()] = value + 1


@pytest.mark.parametrize("n", [1, 3, 28, 40])
def test_a_tensor_updated_in_place_that_every_thread_reads(n: int) -> None:
    """Nobody writes an element before all have read it: the simulator refuses the race."""
    before = RNG.integers(1, 9, n).astype(np.float32)
    x, y = before.copy(), np.full((n, 5), np.nan, np.float32)
    scaled_by_its_sum(x, y)
    np.testing.assert_allclose(x, before / before.sum(), rtol=1e-6)
    np.testing.assert_allclose(y, before[:, None] * np.exp(np.arange(5, dtype=np.float32)), rtol=1e-6)
    number, line = np.full((), 3.0, np.float32), np.full(n, np.nan, np.float32)
    one_number(number, line)
    np.testing.assert_array_equal(line, 3.0 * np.arange(n))
    assert number == 4


@tw.kernel
def turned(x: tw.Tensor["K", "N", "M"], y: tw.Tensor["M", "N", "K"], *, bm=12, bn=2):
    m, n = tw.grid((x.shape[2], x.shape[1]), (bm, bn))
    k = tw.axis(x.shape[0], upto=240)
    y[m, n, k] = x[k, n, m].transpose(2, 1, 0)


@pytest.mark.parametrize("bm", [5, 12])
@pytest.mark.parametrize("shape", [(3, 4, 24), (240, 3, 5), (17, 1, 61)])
def test_tiles_that_a_distribution_of_its_own_covers_in_part(bm: int, shape: tuple[int, int, int]) -> None:
    """A load in another distribution than the rest covers 16 rows of a tile of 12: those behind it are another's."""
    x = RNG.normal(size=shape).astype(np.float32)
    y = np.full(shape[::-1], np.nan, np.float32)
    turned(x, y, bm=bm)
    np.testing.assert_array_equal(y, x.transpose(2, 1, 0))


@tw.kernel
def one_or_none(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], z: tw.Tensor["M", "N"], *, bm=tw.auto):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=1)
    y[m], z[m, n] = x[m, n].sum(1), x[m, n] * 2


@pytest.mark.parametrize("columns", [0, 1])
def test_an_axis_of_at_most_one_element(columns: int) -> None:
    x = RNG.normal(size=(40, columns)).astype(np.float32)
    y, z = np.full(40, np.nan, np.float32), np.full((40, columns), np.nan, np.float32)
    one_or_none(x, y, z)
    np.testing.assert_array_equal(y, x.sum(1))
    np.testing.assert_array_equal(z, x * 2)


@tw.kernel(numerics="fast")
def quotients_before(x: tw.Tensor["N", 1, "N"], d: tw.Tensor["N", 1, "N"], y: tw.Tensor[1, "N"]):
    m, n = tw.grid((x.shape[1], x.shape[0]), (8, 2))
    total = tw.zeros((m, n), tw.f32)
    for s in tw.stream(x.shape[0], 32, until=n.stop):
        quotient = tw.erf(x[n, m, s].transpose(1, 2, 0)) / d[s, m, n].transpose(1, 0, 2)
        total += tw.where(n.index[None, None, :] >= s.index[None, :, None], quotient, 0.0).sum(1)
    y[m, n] = total


def test_registers_beyond_a_domain_are_not_undefined_to_the_assembler() -> None:
    """NVRTC takes for granted that nothing is computed with them, and gave NaN for elements beside them."""
    n = 45
    x, d = (RNG.normal(size=(n, 1, n)).astype(np.float32) for _ in range(2))
    d[d > 1] = np.inf
    x, y = np.asfortranarray(x), np.full((1, n), np.nan, np.float32)
    seen = {
        name: Observed(tw.f32, 0, a.shape, tuple(step // 4 for step in a.strides))
        for name, a in (("x", x), ("d", d), ("y", y))
    }
    artifact = quotients_before.compile(facts=observe_facts(seen))
    driver = run_artifact(artifact, {"x": x, "d": d, "y": y})
    assert not [fault for _, report in driver.reports for fault in report.faults]
    quotient = erf(x[:, 0].astype(np.float64)) / d[:, 0].T
    expected = np.where(np.tri(n, dtype=bool), quotient, 0).sum(1)
    np.testing.assert_allclose(y[0], expected, rtol=2e-5, atol=1e-6)


@tw.kernel
def copied(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (4, 4))
    y[m, n] = x[m, n]


@pytest.mark.parametrize("dtype", NUMPY.values(), ids=str)
def test_arrays_of_any_dtype_without_elements(dtype: np.dtype) -> None:
    x = np.zeros((0, 4), dtype)
    copied(x, x.copy())
    filled = np.ones((3, 4), dtype)
    y = np.zeros_like(filled)
    copied(filled, y)
    assert (y == filled).all()


@tw.kernel
def chosen_halves(
    x: tw.Tensor["N", "M", "K"], w: tw.Tensor["M"], p: tw.Tensor["N", "M", "K"], y: tw.Tensor["M", "N", "K"]
):
    m = tw.grid(y.shape[0], None)
    n, k = tw.axis(y.shape[1], upto=100), tw.axis(y.shape[2], upto=64)
    y[m, n, k] = tw.erf(tw.where(p[n, m, k], x[n, m, k], w[m]))


@tw.kernel
def least_of_eighths(x: tw.Tensor["N", "M"], w: tw.Tensor["M"], y: tw.Tensor["M"]):
    """Two elements of 8 bits a thread: half a word."""
    m = tw.axis(x.shape[1], upto=64)
    least = tw.full((m,), 0.0, tw.f32)
    for n in tw.stream(x.shape[0], 1):
        least.set(tw.minimum(least, (w[m][None, :] + x[n, m].to(tw.f32)).min(0)))
    y[m] = least


def observed(**arrays: np.ndarray) -> CallFacts:
    """CallFacts of these very arrays, wherever they lie."""
    kinds = {d: DTYPES[kind] for kind, d in NUMPY.items()}
    return observe_facts(
        {
            name: Observed(kinds[a.dtype], 0, a.shape, tuple(step // a.itemsize for step in a.strides))
            for name, a in arrays.items()
        }
    )


def test_what_is_packed_beside_elements_has_a_value() -> None:
    """Registers that no thread needs: NVRTC must not see them undefined."""
    x, w = RNG.integers(-3, 4, (24, 8, 3)).astype(np.float16), np.arange(8).astype(np.float16)
    p, y = RNG.integers(0, 2, (24, 8, 3)).astype(np.bool_), np.zeros((8, 24, 3), np.float16)
    artifact = chosen_halves.compile(
        dtypes=dict.fromkeys("xwy", "f16") | {"p": "bool"}, facts=observed(x=x, w=w, p=p, y=y)
    )
    driver = run_artifact(artifact, {"x": x, "w": w, "p": p, "y": y})
    assert not [fault for _, report in driver.reports for fault in report.faults]
    assert re.search(r"unsigned short raw\[\d+\] = {};", artifact.kernels[-1].source)
    expected = erf(np.where(p, x, w[:, None]).astype(np.float32)).transpose(1, 0, 2)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


def test_the_rest_of_a_word_has_a_value() -> None:
    x, w = RNG.integers(-3, 4, (8, 6)).astype(ml_dtypes.float8_e4m3fn), np.arange(6).astype(np.float32)
    y = np.full(6, np.nan, np.float32)
    artifact = least_of_eighths.compile(dtypes={"x": "e4m3"}, facts=observed(x=x, w=w, y=y))
    driver = run_artifact(artifact, {"x": x, "w": w, "y": y})
    np.testing.assert_array_equal(y, np.minimum((x.astype(np.float32) + w).min(0), 0))
    assert not [fault for _, report in driver.reports for fault in report.faults]


@tw.kernel
def over_one_column(x: tw.Tensor["K", 1], y: tw.Tensor[1]):
    """A column of one element beside the axis along which vectors lie: its stride is no multiple of anything."""
    m, k = tw.grid(x.shape[1], 16), tw.axis(x.shape[0], upto=64)
    y[m] = x[k, m].sum(0)


def test_vectors_beside_an_axis_of_one_element() -> None:
    x = RNG.integers(-9, 9, (8, 1)).astype(np.float32)
    y = np.full(1, np.nan, np.float32)
    run_artifact(over_one_column.compile(facts=observed(x=x, y=y)), {"x": x, "y": y})
    assert y == x.sum()


@tw.kernel
def batch_of_five(a: tw.Tensor["K", "M"], b: tw.Tensor[5, "K", "N"], c: tw.Tensor[5, "M", "N"]):
    """A persistent grid that has five times as many programs as tiles: the launch is asked about the tiles."""
    g, m, n = tw.grid(c, (None, 128, 40))
    k = tw.axis(a.shape[0], upto=288)
    c[g, m, n] = tw.dot(a[k, m].T, b[g, k, n])


@pytest.mark.slow
def test_programs_that_are_a_multiple_of_what_is_asked() -> None:
    a, b = (RNG.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((288, 27), (5, 288, 62)))
    c = np.full((5, 27, 62), np.nan, np.float32)
    facts = observed(a=a, b=b, c=c)
    run_artifact(batch_of_five.compile(dtypes={"a": "bf16", "b": "bf16"}, facts=facts), {"a": a, "b": b, "c": c})
    np.testing.assert_array_equal(c, a.astype(np.float32).T @ b.astype(np.float32))


@tw.kernel
def elements_from(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, first: tw.i32, last: tw.i32):
    m = tw.grid(y, 8)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], None, start=first, until=last):
        total += x[m, n]
    y[m] = total


@pytest.mark.parametrize("first", [0, 1, 4, 5, 2**31 - 1])
@pytest.mark.parametrize("last", [-3, 0, 4, 9])
def test_a_stream_of_single_elements_that_begins_behind_its_end(first: int, last: int) -> None:
    x = RNG.integers(-9, 9, (11, 5)).astype(np.float32)
    y = np.full(11, np.nan, np.float32)
    elements_from(x, y, first=first, last=last)
    np.testing.assert_array_equal(y, x[:, first : max(last, 0)].sum(1))


@tw.kernel
def a_number(y: tw.Tensor[()], *, f: tw.f32):
    y[()] = f


@tw.kernel
def added_number(y: tw.Tensor[()], *, f: tw.f32):
    tw.reduce_add(y, (), f)


@tw.kernel
def scattered_number(i: tw.Tensor["N"], y: tw.Tensor["V"], *, f: tw.f32):
    n = tw.grid(i, None)
    tw.reduce_add(y, i[n], f)


def test_a_scalar_is_stored_as_it_is() -> None:
    """An argument, and no operation of the body."""
    y = np.ones((), np.float32)
    a_number(y, f=2.5)
    assert y == 2.5
    added_number(y, f=2.5)
    assert y == 5
    sums = np.ones(3, np.float32)
    scattered_number(np.array([0, 1, 1, -1, 9], np.int32), sums, f=2.5)
    assert sums.tolist() == [3.5, 6, 1]


@tw.kernel
def index_written_again(x: tw.Tensor["M", "N"], table: tw.Tensor["V"], y: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=64)
    place = tw.full((m, n), 0, tw.i32)
    row = x[m, n]
    total = row.sum(1)
    place.set(row.to(tw.i32))
    found = table[place]
    place.set(place * 2 + 1)
    y[m, n] = found * total[:, None]
    z[m, n] = place


def test_a_gather_is_not_deferred_past_writes_of_its_index() -> None:
    """A load that waits for the map that reads it, after a reduction: its index changes in between."""
    x, table = RNG.integers(0, 20, (9, 50)).astype(np.float32), np.arange(100, dtype=np.float32)
    y, z = np.full_like(x, np.nan), np.full_like(x, np.nan)
    artifact = index_written_again.compile(facts=observed(x=x, table=table, y=y, z=z))
    run_artifact(artifact, {"x": x, "table": table, "y": y, "z": z})
    np.testing.assert_array_equal(y, x * x.sum(1, keepdims=True))
    np.testing.assert_array_equal(z, x * 2 + 1)


@tw.kernel
def index_and_operand(x: tw.Tensor["M", "N"], table: tw.Tensor["V"], y: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 2), tw.axis(x.shape[1], upto=4)
    place = tw.cumsum(x[m, n].to(tw.i32), 1)
    least = place.min(1)
    y[m, n] = tw.where(place > 3, least[:, None], place)
    z[m, n] = table[place] * least[:, None].to(tw.f32)


def test_an_index_is_an_operand_of_a_map_before() -> None:
    """The map that is stored does not make the loads that its operands are indices of."""
    x, table = RNG.integers(0, 3, (7, 3)).astype(np.float32), RNG.normal(size=8).astype(np.float32)
    y, z = np.full_like(x, np.nan), np.full_like(x, np.nan)
    artifact = index_and_operand.compile(facts=observed(x=x, table=table, y=y, z=z))
    run_artifact(artifact, {"x": x, "table": table, "y": y, "z": z})
    place = x.cumsum(1).astype(int)
    least = place.min(1, keepdims=True)
    np.testing.assert_array_equal(y, np.where(place > 3, least, place))
    np.testing.assert_array_equal(z, table[place] * least.astype(np.float32))


@tw.kernel
def before_each(x: tw.Tensor["M", "N"], low: tw.Tensor["M", "N"], high: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=8)
    low[m, n] = tw.cummin(x[m, n], 1, exclusive=True)
    high[m, n] = tw.cummax(x[m, n], 1, exclusive=True, reverse=True)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.bool_])
def test_extrema_of_nothing_are_the_least_and_the_greatest_of_the_dtype(dtype: type) -> None:
    """Running values of 8 bits are kept in 32."""
    least, greatest = (False, True) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = RNG.integers(0, 2 if dtype is np.bool_ else 100, (5, 7)).astype(dtype)
    low, high = np.zeros_like(x), np.zeros_like(x)
    before_each(x, low, high)
    np.testing.assert_array_equal(low[:, 0], greatest)
    np.testing.assert_array_equal(high[:, -1], least)
    np.testing.assert_array_equal(low[:, 1:], np.minimum.accumulate(x, 1)[:, :-1])
    np.testing.assert_array_equal(high[:, :-1], np.maximum.accumulate(x[:, ::-1], 1)[:, -2::-1])


@tw.kernel
def running_segments(
    x: tw.Tensor["M", "N"],
    low: tw.Tensor["M"],
    high: tw.Tensor["M"],
    y: tw.Tensor["M", "N"],
    z: tw.Tensor["M", "N"],
    w: tw.Tensor["N", "M"],
):
    m = tw.grid(x.shape[0], None)
    total = tw.full((), 0.0, tw.f32)
    for n in tw.stream(x.shape[1], 8, start=low[m], until=high[m]):
        y[m, n] = tw.cumsum(x[m, n], 0, carry=total)
        z[m, n] = x[m, n] * 2
        w[n, m] = -x[m, n]


def test_several_outputs_between_two_loaded_bounds() -> None:
    """Each is a question of its own: what the bounds of one define was a case more in the questions about the next."""
    x = RNG.integers(-9, 9, (7, 40)).astype(np.float32)
    low, high = (RNG.integers(-3, 45, 7).astype(np.int32) for _ in range(2))
    y, z, w = (np.full(shape, 7, np.float32) for shape in (x.shape, x.shape, x.T.shape))
    running_segments(x, low, high, y, z, w)
    n = np.arange(40)
    inside = (n >= np.clip(low, 0, 40)[:, None]) & (n < high[:, None])
    np.testing.assert_array_equal(y, np.where(inside, np.where(inside, x, 0).cumsum(1), 7))
    np.testing.assert_array_equal(z, np.where(inside, x * 2, 7))
    np.testing.assert_array_equal(w.T, np.where(inside, -x, 7))


@tw.kernel
def one_column(place: tw.Tensor["M"], table: tw.Tensor["V"], y: tw.Tensor["M", 1], z: tw.Tensor["M", "N"]):
    m, n = tw.grid(place, 1), tw.axis(z.shape[1], upto=8)
    found = table[place[m]]
    y[m, :] = found[:, None]
    z[m, n] = found + n.index.to(tw.f32)


@tw.kernel
def greatest_of_one(x: tw.Tensor["M", "N"], y: tw.Tensor["M", 1], place: tw.Tensor["M", 1]):
    m, n = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=1)
    best, where = tw.topk(x[m, n], 1, 1)
    y[m, :], place[m, :] = best, where.fill(-1)


def test_an_absent_element_stays_absent_without_its_axis() -> None:
    """An axis of one element is dropped by a maximum, whose result of nothing is the least number."""
    place, table = np.array([0, -1, 2, 9, 1], np.int32), np.array([-3, -2, -1], np.float32)
    y, z = np.full((5, 1), 7, np.float32), np.full((5, 4), 7, np.float32)
    one_column(place, table, y, z)
    assert y[:, 0].tolist() == [-3, 0, -1, 0, -2]
    assert z.tolist() == [[-3, -2, -1, 0], [0] * 4, [-1, 0, 1, 2], [0] * 4, [-2, -1, 0, 1]]


@pytest.mark.parametrize("columns", [0, 1])
def test_the_greatest_of_at_most_one(columns: int) -> None:
    y, place = np.full((5, 1), 7, np.int32), np.full((5, 1), 7, np.int32)
    greatest_of_one(np.full((5, columns), 3, np.int32), y, place)
    assert (y == 3 * columns).all()
    assert (place == columns - 1).all()


@tw.kernel
def extrema_of_rows(x: tw.Tensor["M", "N"], high: tw.Tensor["M"], low: tw.Tensor["M"]):
    m, n = tw.grid(high, 4), tw.axis(x.shape[1], upto=8)
    high[m], low[m] = x[m, n].max(1), x[m, n].min(1)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.bool_])
@pytest.mark.parametrize("columns", [0, 3])
def test_extrema_of_rows_without_elements(dtype: type, columns: int) -> None:
    """Reductions of 8 bits are carried in 32, whose least number has other low bits."""
    least, greatest = (False, True) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = RNG.integers(0, 2, (5, columns)).astype(dtype)
    high, low = np.full(5, least, dtype), np.full(5, greatest, dtype)
    extrema_of_rows(x, high, low)
    np.testing.assert_array_equal(high, x.max(1, initial=least))
    np.testing.assert_array_equal(low, x.min(1, initial=greatest))


@tw.kernel
def copied_from(x: tw.Tensor["M", "N"], first: tw.Tensor["M"], y: tw.Tensor["M", "N"]):
    m = tw.grid(x.shape[0], None)
    for n in tw.stream(x.shape[1], 32, start=first[m]):
        y[m, n] = x[m, n] + 1


def test_tiles_are_not_laid_from_a_boundary_before_a_loaded_start() -> None:
    """Rows begin anywhere: how far from a boundary is not known before the start is loaded."""
    x, first = RNG.integers(-9, 9, (7, 77)).astype(np.int32), RNG.integers(-3, 90, 7).astype(np.int32)
    y = np.full((7, 77), 7, np.int32)
    copied_from(x, first, y)
    np.testing.assert_array_equal(y, np.where(np.arange(77) >= first[:, None], x + 1, 7))


@tw.kernel(numerics="fast")
def softmax_of_columns(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=65536)
    row = x[m, n].to(tw.f32)
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@pytest.mark.slow
def test_a_tile_moves_without_matrices_where_no_roles_are() -> None:
    """Rows that lie as columns, of 16-bit elements: the plan of the tile's way was one of stmatrix, of which plain
    kernels have no protocol (CRT006)."""
    held = np.full((127, 130), np.nan, ml_dtypes.bfloat16)
    x, y = held[:, :128].T, np.full((128, 127), np.nan, ml_dtypes.bfloat16)
    x[...] = np.random.default_rng(0).normal(size=x.shape)
    strides = {"x": (1, 130), "y": (127, 1)}
    facts = observe_facts({n: Observed(DTYPES["bf16"], 0, (128, 127), s) for n, s in strides.items()})
    artifact = softmax_of_columns.compile(dtypes=dict.fromkeys("xy", "bf16"), facts=facts)
    assert artifact.kernels
    softmax_of_columns(x, y)
    exact = np.exp(x.astype(np.float64))
    exact /= exact.sum(1)[:, None]
    assert np.allclose(y.astype(np.float64), exact, rtol=2**-8, atol=1e-6)
