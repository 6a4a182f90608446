"""Integers of every width and sign: NumPy, the evaluator of Tile IR, the simulator and the PTX machine agree."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportPrivateUsage=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.indexed import facts_of
from support.integers import BYTES, CASES, WIDTHS, OfIntegers, drawn
from support.ptx_driver import run_artifact
from support.pytorch import torch_or_skip
from support.slow import rest_slow
from support.tile_evaluator import evaluate
from tilewright.base.dtypes import dtype_named
from tilewright.lang.signature import Signature
from tilewright.tile.tracer import trace

pytestmark = pytest.mark.sample(2)

EVERY = [(name, dtype) for name in CASES for dtype in WIDTHS]
QUICK = [(name, np.uint8 if k % 2 else np.uint32) for k, name in enumerate(CASES)]


def judged(case: OfIntegers, dtype: Any, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    arrays = case.draw(np.random.default_rng(seed), dtype)
    return arrays, {name: np.asarray(found) for name, found in case.expected(arrays).items()}


def assert_agree(case: OfIntegers, arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, want in expected.items():
        np.testing.assert_allclose(arrays[name], want, case.within, case.within, err_msg=name)


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_simulator_agrees_with_numpy(name: str, dtype: Any) -> None:
    arrays, expected = judged(CASES[name], dtype, 1)
    CASES[name].kernel(**arrays)
    assert_agree(CASES[name], arrays, expected)


@pytest.mark.parametrize(("name", "dtype"), EVERY)
def test_the_trace_computes_what_numpy_does(name: str, dtype: Any) -> None:
    arrays, expected = judged(CASES[name], dtype, 3)
    dtypes = {n: found for n, a in arrays.items() if (found := dtype_named(a.dtype.name)) is not None}
    evaluate(trace(CASES[name].kernel.compiled.function, Signature.of(dtypes)), arrays)
    assert_agree(CASES[name], arrays, expected)


@pytest.mark.parametrize(("name", "dtype"), rest_slow(EVERY, QUICK, several=True))
def test_ptx_machine_agrees_with_numpy(name: str, dtype: Any) -> None:
    in_machine(CASES[name], dtype)


@pytest.mark.parametrize("name", BYTES)
def test_bytes_as_people_write_them(name: str) -> None:
    arrays, expected = judged(BYTES[name], np.uint8, 1)
    BYTES[name].kernel(**arrays)
    assert_agree(BYTES[name], arrays, expected)
    in_machine(BYTES[name], np.uint8)


def in_machine(case: OfIntegers, dtype: Any) -> None:
    arrays, expected = judged(case, dtype, 2)
    artifact = case.kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    driver = run_artifact(artifact, arrays, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert_agree(case, arrays, expected)


@tw.kernel
def product(x: tw.Tensor["M"], z: tw.Tensor["M"], y: tw.Tensor["M"], less: tw.Tensor["M"]):
    m = tw.grid(x, 64)
    y[m] = x[m] * z[m]
    less[m] = x[m] < z[m]


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32]


@pytest.mark.parametrize(("left", "right"), list(itertools.product(INTEGERS, repeat=2)))
def test_two_dtypes_meet_in_numpys(left: Any, right: Any) -> None:
    rng = np.random.default_rng(4)
    x, z = drawn(rng, left, 90), drawn(rng, right, 90)[::-1].copy()
    y, less = np.zeros(90, np.promote_types(left, right)), np.zeros(90, np.bool_)
    product(x, z, y, less)
    np.testing.assert_array_equal(y, x * z)
    np.testing.assert_array_equal(less, x.astype(y.dtype) < z.astype(y.dtype))


@tw.kernel
def scaled(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, c: tw.u32):
    m = tw.grid(x, 64)
    y[m] = x[m] * c + c // 3
    z[m] = tw.minimum(c, 2**31) + m.index.to(tw.i64)


@pytest.mark.parametrize("c", [0, 5, 2**31, 2**32 - 1])
def test_a_scalar_without_a_sign_is_an_integer(c: int) -> None:
    x = drawn(np.random.default_rng(2), np.uint32, 100)
    want = {"y": x * np.uint32(c) + np.uint32(c // 3), "z": np.arange(100) + min(c, 2**31)}
    given = {"x": x, "y": np.zeros_like(x), "z": np.zeros(100, np.int64)}
    compiled = scaled.compile(dtypes={n: a.dtype.name for n, a in given.items()}, facts=facts_of(given))
    for machine in (False, True):
        arrays = {n: a.copy() for n, a in given.items()}
        if machine:
            run_artifact(compiled, arrays, {"c": c})
        else:
            scaled(**arrays, c=c)
        for name, found in want.items():
            np.testing.assert_array_equal(arrays[name], found)


@pytest.mark.parametrize("c", [-1, 2**32])
def test_a_scalar_that_u32_has_not_is_refused(c: int) -> None:
    x = np.zeros(4, np.uint32)
    with pytest.raises(tw.TilewrightError, match="u32"):
        scaled(x, x.copy(), np.zeros(4, np.int64), c=c)


def test_a_number_that_a_dtype_has_not_is_refused() -> None:
    @tw.kernel
    def below(x: tw.Tensor["M"], y: tw.Tensor["M"], *, by: int):
        m = tw.grid(x, 64)
        y[m] = x[m] * by

    x = np.arange(4, dtype=np.uint8)
    y = np.zeros_like(x)
    below(x, y, by=255)  # the legal twin
    assert y.tolist() == [0, 255, 254, 253]
    for by in (-1, 256):
        with pytest.raises(tw.TilewrightError, match="LNG023"):
            below(x, y, by=by)


@tw.kernel
def scores(pages: tw.Tensor["P"], q: tw.Tensor["M", 64], k: tw.Tensor["N", 16, 64], y: tw.Tensor["M", "T"]):
    m, t = tw.grid(y, (64, 64))
    y[m, t] = tw.dot(q[m], k[pages[t.index // 16], t.index % 16].T)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint32])
def test_tables_of_narrow_integers_name_pages(dtype: Any) -> None:
    """-1 of i8 is no page, also where the pool has more than 255 of them."""
    rng = np.random.default_rng(3)
    pages = np.array([3, -1, 100, 120]).astype(dtype)
    q, k = rng.standard_normal((70, 64)).astype(np.float16), rng.standard_normal((300, 16, 64)).astype(np.float16)
    inside = (pages >= 0) & (pages < 300)
    rows = np.where(inside[:, None, None], k[np.where(inside, pages, 0)], 0).reshape(64, 64)
    arrays = {"pages": pages, "q": q, "k": k, "y": np.zeros((70, 64), np.float32)}
    artifact = scores.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    driver = run_artifact(artifact, arrays)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_allclose(arrays["y"], q.astype(np.float64) @ rows.T.astype(np.float64), 1e-3, 1e-3)


def test_tensors_of_pytorch() -> None:
    torch = torch_or_skip()

    @tw.kernel
    def widened(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(x, 64)
        y[m] = x[m].to(tw.u32) * 16777216

    x = torch.arange(256, dtype=torch.uint8)
    y = torch.zeros(256, dtype=torch.uint32)
    widened(x, y)
    assert y.numpy().tolist() == [n << 24 for n in range(256)]


@tw.kernel
def reached(i: tw.Tensor["M"], j: tw.Tensor["M"], x: tw.Tensor["V"], y: tw.Tensor["M", 6]):
    m = tw.grid(y.shape[0], 16)
    y[m, 0] = x[tw.minimum(i[m], 7)]
    y[m, 1] = x[i[m] // 3]
    y[m, 2] = x[i[m] % 5]
    y[m, 3] = x[i[m] * 2 + 1]
    y[m, 4] = x[tw.maximum(i[m], j[m])]
    y[m, 5] = x[i[m] - j[m]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int8])
def test_coordinates_that_are_computed_from_loaded_ones(dtype: Any) -> None:
    """They wrap as tiles do, before they are coordinates."""
    rng = np.random.default_rng(8)
    info = np.iinfo(dtype)
    i, j = (rng.choice([0, 1, 2, 5, 9, 30, info.min, info.max, info.max - 1], 60).astype(dtype) for _ in range(2))
    x = np.arange(1, 25, dtype=np.float32)
    places = [np.minimum(i, 7), i // 3, i % 5, i * dtype(2) + dtype(1), np.maximum(i, j), i - j]
    wide = np.stack(places, 1).astype(np.int64)
    inside = (wide >= 0) & (wide < len(x))
    want = np.where(inside, x[np.where(inside, wide, 0)], 0)
    for machine in (False, True):
        arrays = {"i": i, "j": j, "x": x, "y": np.zeros((60, 6), np.float32)}
        if machine:
            artifact = reached.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
            assert [str(f) for _, r in run_artifact(artifact, arrays).reports for f in r.faults] == []
        else:
            reached(**arrays)
        np.testing.assert_array_equal(arrays["y"], want)
