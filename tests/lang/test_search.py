"""``tw.take`` and ``tw.searchsorted`` beside NumPy, in the simulator and on the PTX machine."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.lowered import lowered
from support.ptx_driver import run_artifact
from support.refusals import checked
from tilewright.codegen.assemble import assemble
from tilewright.compiler.build import emit_kernel
from tilewright.compiler.validated import validated

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(3)


# -- take -------------------------------------------------------------------------------------------------------------
@tw.kernel
def looked_up(code: tw.Tensor[16], q: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=4, bn=32):
    m, n = tw.grid(q, (bm, bn))
    y[m, n] = tw.take(code[tw.axis(16)], q[m, n]).fill(7)


@tw.kernel
def along_rows(x: tw.Tensor["M", "N"], i: tw.Tensor["M", 4], y: tw.Tensor["M", 4], *, bm=4):
    m = tw.grid(x.shape[0], bm)
    y[m, :] = tw.take(x[m, tw.axis(x.shape[1], upto=32)], i[m, :], 1)


@tw.kernel
def columns(x: tw.Tensor["M", "N"], i: tw.Tensor[4], y: tw.Tensor["M", 4], *, bm=4):
    m = tw.grid(x.shape[0], bm)
    y[m, :] = tw.take(x[m, tw.axis(x.shape[1], upto=32)], i[tw.axis(4)], -1)


@tw.kernel
def transposed(x: tw.Tensor["N", "M"], i: tw.Tensor[4, "M"], y: tw.Tensor[4, "M"], *, bm=4):
    m = tw.grid(x.shape[1], bm)
    y[:, m] = tw.take(x[tw.axis(x.shape[0], upto=32), m], i[:, m], 0)


DTYPES = [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8, np.int64, np.bool_]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_a_table_of_every_dtype(dtype: Any) -> None:
    code = RNG.integers(-9, 9, 16).astype(dtype)
    if np.dtype(dtype).kind == "f":
        code[:5] = np.float32([np.inf, -np.inf, np.nan, -0.0, 1e-40]).astype(dtype)
    if np.dtype(dtype) == ml_dtypes.float8_e5m2:
        code[:4] = np.float32([np.inf, -np.inf, np.nan, -0.0]).astype(dtype)
    q = RNG.integers(-3, 19, (9, 37)).astype(np.int32)
    q[0, :2] = -(2**31), 2**31 - 1
    y = np.empty(q.shape, dtype)
    looked_up(code, q, y)
    expected = np.where((q >= 0) & (q < 16), code[q.clip(0, 15)], np.asarray(7).astype(dtype))
    nan = np.isnan(expected.astype(np.float64))
    assert (np.isnan(y.astype(np.float64)) == nan).all()
    size = y.itemsize
    assert (y.view(f"u{size}")[~nan] == expected.view(f"u{size}")[~nan]).all()


@pytest.mark.parametrize("index", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("columns_", [1, 7, 32])
def test_rows_by_places_of_their_own_and_of_all(index: Any, columns_: int) -> None:
    x = RNG.normal(size=(10, columns_)).astype(np.float32)
    i = RNG.integers(-2, columns_ + 2, (10, 4)).astype(index)
    if index == np.int64:
        i[0, 0] = 2**32
    inside, place = (i >= 0) & (i < columns_), i.clip(0, columns_ - 1)
    y = np.empty((10, 4), np.float32)
    along_rows(x, i, y)
    assert (y == np.where(inside, np.take_along_axis(x, place, 1), 0)).all()
    columns(x, i[0], y)
    assert (y == np.where(inside[0], x[:, place[0]], 0)).all()
    y = np.empty((4, 10), np.float32)
    transposed(np.ascontiguousarray(x.T), np.ascontiguousarray(i.T), y)
    assert (y == np.where(inside, np.take_along_axis(x, place, 1), 0).T).all()


def test_what_is_absent_stays_absent() -> None:
    @tw.kernel
    def shifted(x: tw.Tensor[8], i: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=16):
        m = tw.grid(y, bm)
        y[m] = tw.take(x[tw.axis(8).index - 2], i[m]).fill(-1)
        z[m] = tw.take(x[tw.axis(8)], i[m - 1]).fill(-1)

    x, i = np.arange(8, dtype=np.float32), RNG.integers(-1, 9, 40).astype(np.int32)
    y, z = np.empty(40, np.float32), np.empty(40, np.float32)
    shifted(x, i, y, z)
    assert (y == np.where((i >= 2) & (i < 8), i - 2, -1)).all()
    before = np.concatenate([[-1], i[:-1]])
    assert (z == np.where((before >= 0) & (before < 8), before, -1)).all()


def test_places_count_from_the_tile_as_argmax_does() -> None:
    @tw.kernel
    def greatest(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "T"], *, bn=8):
        m, n = tw.grid(x, (4, bn))
        v = x[m, n]
        y[m, n] = v * 0 + tw.take(v, v.argmax(1)[:, None], 1)

    x = RNG.normal(size=(6, 21)).astype(np.float32)
    y = np.empty_like(x)
    greatest(x, y)
    expected = np.concatenate(
        [np.repeat(x[:, a : a + 8].max(1)[:, None], len(x[0, a : a + 8]), 1) for a in (0, 8, 16)], 1
    )
    assert (y == expected).all()


def test_the_ptx_of_take_is_validated_and_executed() -> None:
    for tiles, kernel in lowered(looked_up, {"code": "f32", "q": "i32", "y": "f32"}).values():
        emitted = emit_kernel(kernel)
        ptx = assemble(emitted.source, "sm_90a", emitted.entry).ptx
        assert not validated(tiles, kernel, ptx).refuted
    code, q = RNG.normal(size=16).astype(np.float32), RNG.integers(-3, 19, (9, 64)).astype(np.int32)
    y = np.empty(q.shape, np.float32)
    run_artifact(looked_up.compile(dtypes={"code": "f32", "q": "i32", "y": "f32"}), {"code": code, "q": q, "y": y})
    assert (y == np.where((q >= 0) & (q < 16), code[q.clip(0, 15)], 7)).all()


# -- searchsorted -----------------------------------------------------------------------------------------------------
def searching(extent: int | str) -> tw.Kernel:
    @tw.kernel
    def places(e: tw.Tensor[extent], v: tw.Tensor["M"], left: tw.Tensor["M"], right: tw.Tensor["M"], *, bm=64):
        m = tw.grid(v, bm)
        left[m], right[m] = tw.searchsorted(e, v[m]), tw.searchsorted(e, v[m], right=True)

    return places


@tw.kernel
def among_a_tile(e: tw.Tensor[37], v: tw.Tensor["M"], left: tw.Tensor["M"], right: tw.Tensor["M"], *, bm=64):
    m = tw.grid(v, bm)
    edges = e[tw.axis(37)]
    left[m], right[m] = tw.searchsorted(edges, v[m]), tw.searchsorted(edges, v[m], right=True)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.int64])
@pytest.mark.parametrize("extent", [1, 2, 37, "E", "tile"])
def test_places_in_a_tensor_and_in_a_tile(dtype: Any, extent: int | str) -> None:
    count = extent if isinstance(extent, int) else 37
    edges = np.sort(RNG.integers(-20, 20, count)).astype(dtype)
    values = RNG.integers(-22, 22, 100).astype(dtype)
    if np.dtype(dtype).kind != "i":
        edges[-1:], values[:4] = np.nan, np.float32([np.nan, np.inf, -np.inf, -0.0]).astype(dtype)
    kernel = among_a_tile if extent == "tile" else searching(extent)
    left, right = np.full((2, 100), -9, np.int32)
    kernel(edges, values, left, right)
    wide = np.float32 if np.dtype(dtype).kind != "i" else np.int64
    assert (left == np.searchsorted(edges.astype(wide), values.astype(wide))).all()
    assert (right == np.searchsorted(edges.astype(wide), values.astype(wide), "right")).all()


def test_places_in_nothing() -> None:
    left, right = np.full((2, 70), -9, np.int32)
    searching("E")(np.empty(0, np.float32), np.ones(70, np.float32), left, right)
    assert not left.any()
    assert not right.any()


@pytest.mark.parametrize("count", [1, 4, 100])
def test_places_in_tensors_of_any_extent_on_the_ptx_machine(count: int) -> None:
    edges = np.sort(RNG.normal(size=count)).astype(np.float32)
    values = RNG.normal(size=70).astype(np.float32)
    left, right = np.full((2, 70), -9, np.int32)
    artifact = searching("E").compile(dtypes={"e": "f32", "v": "f32", "left": "i32", "right": "i32"})
    run_artifact(artifact, {"e": edges, "v": values, "left": left, "right": right})
    assert (left == np.searchsorted(edges, values)).all()
    assert (right == np.searchsorted(edges, values, "right")).all()


def test_the_row_of_an_element_of_a_ragged_tensor() -> None:
    """Offsets name the segment of each element, also where segments are empty."""

    @tw.kernel
    def segments(offsets: tw.Tensor["G"], y: tw.Tensor["T"]):
        t = tw.grid(y, 32)
        y[t] = tw.searchsorted(offsets, t, right=True) - 1

    offsets, y = np.int32([0, 3, 3, 10, 40]), np.empty(50, np.int32)
    segments(offsets, y)
    assert (y == np.searchsorted(offsets, np.arange(50), "right") - 1).all()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (lambda x, v: tw.take(v, v), "LNG023"),
        (lambda x, v: tw.take(v[:, None] + v[None, :], v.to(tw.i32)[:, None] * 1, 2)[:, 0], "LNG025"),
        (lambda x, v: tw.take(x, v.to(tw.i32)), "LNG038"),
        (lambda x, v: tw.searchsorted(v[:, None], v).to(tw.f32), "LNG002"),
        (lambda x, v: tw.searchsorted(1.0, v).to(tw.f32), "LNG038"),
    ],
)
def test_refusals(body: Any, code: str) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(x, 16)
        y[m] = body(x, x[m])

    x = np.ones(8, np.float32)
    with pytest.raises(tw.TilewrightError) as caught:
        kernel(x, x.copy())
    checked(caught.value, code, None)


def test_chains_of_values_that_are_used_twice() -> None:
    """Each was asked for along every path: 2^60 of them."""

    @tw.kernel
    def doubled(x: tw.Tensor["M"], i: tw.Tensor["N"], y: tw.Tensor["M"]):
        m = tw.grid(y, 32)
        place = m.index
        for _ in range(60):
            place = (place + place) % 1024
        y[m] = x[place]

    x = np.arange(1024, dtype=np.float32)
    y = np.empty_like(x)
    doubled(x, np.zeros(1, np.int32), y)
    assert (y == 0).sum() == 1024
