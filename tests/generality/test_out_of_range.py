"""Indices that lead outside: named in the simulator, a trap in debug builds, skipped in others."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.indexed import SHORT, Arrays, facts_of
from support.ptx_driver import run_artifact
from tilewright.diag import TilewrightError

pytestmark = pytest.mark.sample(4)

RNG = np.random.default_rng(5)
LINES = Path(__file__).read_text().splitlines()


@tw.kernel(on_out_of_range="trap")
def gathered(index: tw.Tensor["T"], x: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
    m, n = tw.grid(y, (4, 64))
    y[m, n] = x[index[m], n]  # gathered


@tw.kernel(on_out_of_range="trap")
def scattered(index: tw.Unique["T"], y: tw.Tensor["T", "D"], x: tw.Tensor["V", "D"]):
    m, n = tw.grid(y, (4, 64))
    x[index[m], n] = y[m, n]  # scattered


@tw.kernel(on_out_of_range="trap")
def added(index: tw.Tensor["T"], y: tw.Tensor["T", "D"], x: tw.Tensor["V", "D"]):
    m, n = tw.grid(y, (4, 64))
    tw.reduce_add(x, (index[m], n), y[m, n])  # added


@tw.kernel(on_out_of_range="trap")
def along_rows(index: tw.Tensor["T"], x: tw.Tensor["T", "V"], y: tw.Tensor["T"]):
    m = tw.grid(y, 4)
    y[m] = x[m.index, index[m]]  # along_rows


@tw.kernel(on_out_of_range="trap")
def weighted(index: tw.Tensor["T"], x: tw.Tensor["V", "N", "K"], a: tw.Tensor["M", "K"], y: tw.Tensor["T", "M", "N"]):
    """A product with the matrix that an integer names."""
    g, m, n = tw.grid(y, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], x[index[g], n, k].T)  # weighted
    y[g, m, n] = acc


def arrays(kernel: Any, index: list[int], rows: int = 9, dtype: Any = np.int64) -> Arrays:
    """Arguments whose ``x`` has as many places as ``rows`` along what is indexed."""
    extents = {"T": len(index), "V": rows, "D": 70, "N": 64, "K": 64, "M": 64}
    made: Arrays = {}
    for p in kernel.tensors:
        made[p.name] = RNG.standard_normal([extents[str(d)] for d in p.dims]).astype(np.float32)
    return made | {"index": np.array(index, dtype)}


KERNELS = (gathered, scattered, added, along_rows, weighted)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("index", [9, -2, 2**40, -(2**63)])
def test_the_simulator_names_index_tensor_and_line(kernel: Any, index: int) -> None:
    kernel(**arrays(kernel, [3, -1, 0, 8, 7]))
    with pytest.raises(TilewrightError) as caught:
        kernel(**arrays(kernel, [3, -1, 0, index, 7]))
    (found,) = caught.value.diagnostics
    assert found.code == "SIM022"
    place = 1 if kernel is along_rows else 0
    assert found.found == f"index {index} leads outside of x, dimension {place} of extent 9"
    assert found.where is not None
    assert LINES[found.where.line - 1].endswith(f"# {kernel.name}")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_a_debug_build_traps_and_another_skips(kernel: Any) -> None:
    good, bad = arrays(kernel, [3, -1, 0, 8, 7]), arrays(kernel, [3, -1, 0, 9, 7])
    dtypes = {n: SHORT[a.dtype.name] for n, a in good.items()}
    for debug in (True, False):
        artifact = kernel.compile(dtypes=dtypes, facts=facts_of(good), debug=debug)
        for given, faults in ((good, set[str]()), (bad, {"PTX019"} if debug else set[str]())):
            driver = run_artifact(artifact, {n: a.copy() for n, a in given.items()}, schedules=1)
            assert {fault.code for _, report in driver.reports for fault in report.faults} == faults
        told = any("leads outside of x" in image.source for image in artifact.kernels)
        assert told is debug


@tw.kernel
def skipping(index: tw.Tensor["T"], x: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
    m, n = tw.grid(y, (4, 64))
    y[m, n] = x[index[m], n]


def test_by_default_the_element_is_absent() -> None:
    given = arrays(skipping, [3, 9, 2**40, -7, 7])
    skipping(**given)
    np.testing.assert_array_equal(given["y"][[0, 4]], given["x"][[3, 7]])
    assert not given["y"][1:4].any()


def test_rows_behind_the_domain_and_absent_indices_do_not_trap() -> None:
    """Of a tensor without elements every index that is read as 0 would."""

    @tw.kernel(on_out_of_range="trap")
    def shifted(index: tw.Tensor["T"], x: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
        m, n = tw.grid(y, (4, 64))
        y[m, n] = x[index[m.index - 2], n]

    for kernel in (gathered, shifted):
        given = arrays(kernel, [-1] * 5, rows=0)
        kernel(**given)
        assert not given["y"].any()
        with pytest.raises(TilewrightError, match="SIM022"):
            kernel(**arrays(kernel, [-1, 0, -1, -1, -1], rows=0))


def test_computed_coordinates_do_not_trap() -> None:
    @tw.kernel(on_out_of_range="trap")
    def differences(x: tw.Tensor["T"], y: tw.Tensor["T"]):
        t = tw.grid(y, 16)
        y[t] = x[t] - x[t.index - 3].fill(0.0)

    x, y = np.arange(40, dtype=np.float32), np.empty(40, np.float32)
    differences(x, y)
    assert y.tolist() == [0, 1, 2, *[3] * 37]


def test_another_word_is_refused() -> None:
    with pytest.raises(TilewrightError, match="LNG001"):

        @tw.kernel(on_out_of_range="clamp")
        def clamped(x: tw.Tensor["T"], y: tw.Tensor["T"]):
            t = tw.grid(y, 16)
            y[t] = x[t]


@tw.kernel(on_out_of_range="trap", sentinel=-100)
def with_sentinel(index: tw.Tensor["T"], x: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"]):
    m, n = tw.grid(y, (4, 64))
    y[m, n] = x[index[m], n]


def test_a_declared_sentinel_stands_for_nowhere_in_the_place_of_minus_1() -> None:
    given = arrays(with_sentinel, [3, -100, 0, 8, -100])
    with_sentinel(**given)
    np.testing.assert_array_equal(given["y"][[0, 2, 3]], given["x"][[3, 0, 8]])
    assert not given["y"][[1, 4]].any()
    for index in (-1, 9, -99, -(2**40)):
        with pytest.raises(tw.TilewrightError, match=f"index {index} leads outside of x"):
            with_sentinel(**arrays(with_sentinel, [3, -100, 0, index, 7]))


def test_a_debug_build_knows_the_sentinel() -> None:
    for index, faults in ((-100, set[str]()), (-1, {"PTX019"})):
        given = arrays(with_sentinel, [3, index, 0, 8, 7])
        dtypes = {n: SHORT[a.dtype.name] for n, a in given.items()}
        driver = run_artifact(
            with_sentinel.compile(dtypes=dtypes, facts=facts_of(given), debug=True), given, schedules=1
        )
        assert {fault.code for _, report in driver.reports for fault in report.faults} == faults


@pytest.mark.parametrize("sentinel", [0, 7, True, "x", -(2**63) - 1])
def test_a_sentinel_lies_outside_of_every_tensor(sentinel: Any) -> None:
    with pytest.raises(tw.TilewrightError, match="sentinel="):
        tw.kernel(sentinel=sentinel)(skipping.fn)
