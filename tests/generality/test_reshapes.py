"""Axes that are split and merged: simulator and PTX machine agree with NumPy, registers stay where they are, and what
can't be split is refused."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import random
import re
from math import prod

import numpy as np
import pytest

import tilewright as tw
from support.agreement import ptx_machine_agrees, simulator_agrees
from support.reshapes import RESHAPES
from support.slow import rest_slow
from tilewright.jit.outputs import uses_of
from tilewright.transport.text import tile_kernel, transport_kernel
from tilewright.validate.tile_to_transport.compare import compare

pytestmark = pytest.mark.sample(4)

QUICK_PTX = ["quantise_groups", "rotate_pairs", "transposed_parts", "sums_by_blocks", "split_heads", "flags_in_parts"]


@pytest.mark.parametrize("name", RESHAPES)
def test_simulator_agrees_with_numpy(name: str) -> None:
    simulator_agrees(name, RESHAPES[name])


@pytest.mark.parametrize("name", rest_slow(list(RESHAPES), QUICK_PTX))
def test_ptx_machine_agrees_with_numpy(name: str) -> None:
    ptx_machine_agrees(RESHAPES[name])


@pytest.mark.parametrize("name", ["quantise_groups", "rotate_pairs", "gated", "quantise_views", "normalise_blocks"])
def test_parts_are_spread_as_parts_of_their_axis(name: str) -> None:
    case = RESHAPES[name]
    arrays, _ = case.arrays(case.shapes[-1])
    artifact = case.kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()})
    moves = {op for kernel in artifact.kernels for op in re.findall(r"transport\.(\w+)", kernel.transport_ir)}
    assert moves.isdisjoint({"exchange", "select", "shared_write", "shared_read"})


@pytest.mark.parametrize("seed", range(24))
def test_chains_of_reshapes_keep_the_order_of_elements(seed: int) -> None:
    rng = random.Random(seed)
    rows, columns = rng.choice([1, 2, 4, 8]), rng.choice([32, 64, 256])
    values = np.random.default_rng(seed).integers(-99, 99, (rows, columns)).astype(np.int32)
    steps, shape = list[tuple[str, tuple[int, ...]]](), (rows, columns)
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.4:
            axes = tuple(rng.sample(range(len(shape)), len(shape)))
            steps.append(("transpose", axes))
            shape = tuple(shape[a] for a in axes)
        else:
            inner = [rng.choice([2, 4, 8]) for _ in range(rng.randint(0, 2))]
            shape = rows * columns // prod(inner), *inner
            steps.append(("reshape", shape))

    @tw.kernel
    def chained(x: tw.Tensor[rows, columns], y: tw.Tensor[rows * columns]):
        m, n = tw.axis(rows), tw.axis(columns)
        tile = x[m, n]
        for how, to in steps:
            tile = getattr(tile, how)(*to)
        y[:] = tile.reshape(-1)

    expected = values
    for how, to in steps:
        expected = getattr(expected, how)(to)
    found = np.zeros(rows * columns, np.int32)
    chained(values, found)
    np.testing.assert_array_equal(found, expected.ravel())


@pytest.mark.parametrize("name", ["quantise_groups", "rotate_pairs", "gated", "transposed_parts"])
def test_the_lowered_kernel_stores_what_the_program_does(name: str) -> None:
    arrays, _ = RESHAPES[name].arrays(RESHAPES[name].shapes[-1])
    artifact = RESHAPES[name].kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()})
    for image in artifact.kernels:
        assert compare(tile_kernel(image.tile_ir), transport_kernel(image.transport_ir)) == ()


@tw.kernel
def _launch_extent(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x, (4, 64))
    y[m, n] = x[m, n].reshape(m, x.shape[1] // 32, 32).max(2)


@tw.kernel
def _threes(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x, (4, 48))
    y[m, n] = x[m, n].reshape(m, 16, 3).reshape(m, n)


@tw.kernel
def _other_count(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x, (4, 64))
    y[m, n] = x[m, n].reshape(m, 3, 16)


@tw.kernel
def _thirds(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x, (4, 64))
    a, b, _ = x[m, n].split(3, axis=1)
    y[m, n] = a + b


@tw.kernel
def _inner_symbol(x: tw.Tensor["B", "C"], y: tw.Tensor["B", "C"], *, groups: int = 4):
    b, g = tw.grid((x.shape[0], groups), (None, None))
    y[b, g] = x.reshape(x.shape[0], groups, x.shape[1] // groups)[b, g, 0]


@tw.kernel
def _merged_store(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    i = tw.grid(x.shape[0] * x.shape[1], 64)
    y.reshape(-1)[i] = x.reshape(-1)[i]


@tw.kernel
def _no_view(x: tw.Tensor["M", 100], y: tw.Tensor["M", 100]):
    y[0, 0] = x.reshape(x.shape[0], 3, 32)[0, 0, 0]


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (_launch_extent, "an extent that is known at launch: N // 32"),
        (_threes, "powers of 2 behind the first of the axes"),
        (_other_count, "as many elements as the tile has: 256"),
        (_thirds, "parts of equal extents"),
        (_inner_symbol, "numbers and dimensions behind the first of its parts, and not C // 4"),
        (_merged_store, "y stored to as M*N, where M x N is M*N"),
        (_no_view, "x of M x 100 as M x 3 x 32"),
    ],
)
def test_what_can_not_be_split_is_refused_where_it_is_written(kernel: tw.Kernel, said: str) -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        kernel.compile(dtypes={"x": "float32", "y": "float32"})
    assert refused.value.diagnostics[0].code == "LNG043"
    assert said in str(refused.value)
    assert refused.value.diagnostics[0].help


def test_a_tile_that_is_stored_reshaped_gets_help_to_restore_its_ranges() -> None:
    @tw.kernel
    def forgotten(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(x, (4, 64))
        y[m, n] = x[m, n].reshape(4, 2, 32)

    with pytest.raises(tw.TilewrightError, match=r"x\.reshape\(m, n\)"):
        forgotten.compile(dtypes={"x": "float32", "y": "float32"})


def test_a_place_of_an_axis_that_may_end_before_it_is_refused() -> None:
    @tw.kernel
    def third(x: tw.Tensor["M", "N"], y: tw.Tensor["M"]):
        m, n = tw.grid(x, (4, 64))
        y[m] = x[m, n][:, 3]

    with pytest.raises(tw.TilewrightError, match="numbers and slices that take an element along axes of known extent"):
        third.compile(dtypes={"x": "float32", "y": "float32"})


def test_a_launch_that_the_view_does_not_divide_is_refused() -> None:
    kernel = RESHAPES["quantise_views"].kernel
    with pytest.raises(tw.TilewrightError, match="N = 130"):
        kernel(np.zeros((2, 130), np.float32), np.zeros((2, 130), np.int8), np.zeros((2, 1), np.float32))


def test_results_that_are_stored_through_views_may_be_left_out() -> None:
    @tw.kernel
    def doubled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        xs, ys = x.reshape(x.shape[0], -1, 32), y.reshape(y.shape[0], -1, 32)
        m, g = tw.grid(xs.shape[:2], (2, 2))
        ys[m, g, :] = xs[m, g, :] * 2

    uses = uses_of(doubled.compiled.function.fn)
    assert uses is not None
    assert uses.results == {"y"}
    assert uses.read == {"x"}
    x = np.arange(96, dtype=np.float32).reshape(1, 96)
    np.testing.assert_array_equal(doubled(x), x * 2)
