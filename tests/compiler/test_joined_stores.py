"""Stores at ``e // 24, e % 24``, the digits of a number e: proved as stores at e, and as no others."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from support.lowered import lowered
from support.ptx_driver import run_artifact
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.proofs.stores import prove_stores


@tw.kernel
def in_order(x: tw.Tensor["K"], y: tw.Tensor["M", 24], *, bk=64):
    k = tw.grid(x, bk)
    y.reshape(-1)[k] = x[k]


@tw.kernel
def from_the_end(x: tw.Tensor["K"], y: tw.Tensor["M", 24], *, bk=64):
    k = tw.grid(x, bk)
    e = x.shape[0] - 1 - k.index
    y[e // 24, e % 24] = x[k]


@tw.kernel
def all_but_one(x: tw.Tensor["K"], y: tw.Tensor["M", 24], *, bk=64):
    k = tw.grid(x, bk)
    e = k.index + 1
    y[e // 24, e % 24] = x[k]


@tw.kernel
def every_other(x: tw.Tensor["K"], y: tw.Tensor["M", 24], *, bk=64):
    k = tw.grid(x, bk)
    e = 2 * k.index
    y[e // 24, e % 24] = x[k]


@tw.kernel
def three_axes(x: tw.Tensor["K"], y: tw.Tensor["M", 5, 24], *, bk=64):
    k = tw.grid(x, bk)
    y.reshape(-1)[k] = x[k]


FLAT = {k.__name__: k for k in (in_order, from_the_end, all_but_one, every_other)}


def _lowered(kernel: tw.Kernel):
    ((tiles, transport),) = lowered(kernel, {"x": "f32", "y": "f32"}).values()
    return tiles, transport


@pytest.mark.parametrize("kernel", [*FLAT.values(), three_axes], ids=lambda k: k.__name__)
def test_what_is_stored_is_what_is_promised(kernel: tw.Kernel) -> None:
    assert isinstance(prove_stores(*_lowered(kernel)), Proved)


@pytest.mark.parametrize(("promised", "done"), [("in_order", d) for d in ("all_but_one", "every_other")])
def test_other_elements_than_promised_are_not_proved(promised: str, done: str) -> None:
    assert not isinstance(prove_stores(_lowered(FLAT[promised])[0], _lowered(FLAT[done])[1]), Proved)


@tw.kernel
def in_pairs(x: tw.Tensor["K"], y: tw.Tensor["M", 24], *, bk=64):
    k = tw.grid(x, bk)
    e = k.index // 2
    y[e // 24, e % 24] = x[k]


@tw.kernel
def by_rows_of_20(x: tw.Tensor["K"], y: tw.Tensor["M", 24], *, bk=64):
    """Places 20 to 23 of a row are those of the next row's first."""
    k = tw.grid(x, bk)
    y[k.index // 20, k.index % 24] = x[k]


@pytest.mark.parametrize("kernel", [in_pairs, by_rows_of_20], ids=lambda k: k.__name__)
def test_elements_that_may_be_written_twice_are_refused(kernel: tw.Kernel) -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        kernel.compile(dtypes={"x": "f32", "y": "f32"})
    assert refused.value.diagnostics[0].code.startswith("ACC")


@tw.kernel
def a_row_further_too(x: tw.Tensor["K"], y: tw.Tensor["M", 24], *, bk=64):
    k = tw.grid(x, bk)
    y[k.index // 24, k.index % 24] = x[k]
    y[k.index // 24 + 1, k.index % 24] = x[k]


def test_a_counterexample_names_an_element_of_the_tensor() -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        a_row_further_too.compile(dtypes={"x": "f32", "y": "f32"})
    assert re.match(r"y\[\d+, \d+\] of \[\d+, 24\]", refused.value.diagnostics[0].found)


def test_a_missing_element_is_named_as_one_of_the_tensor() -> None:
    answer = prove_stores(_lowered(in_order)[0], _lowered(all_but_one)[1])
    assert isinstance(answer, Refuted)
    assert len(answer.witness.element) == 2
    assert answer.witness.extents[1] == 24


@pytest.mark.parametrize(("kernel", "shape"), [(in_order, (7, 24)), (from_the_end, (3, 24)), (three_axes, (2, 5, 24))])
def test_simulator_and_ptx_machine_store_them(kernel: tw.Kernel, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=np.prod(shape)).astype(np.float32)
    expected = (x[::-1] if kernel is from_the_end else x).reshape(shape)
    simulated, executed = np.zeros_like(expected), np.zeros_like(expected)
    kernel(x, simulated)
    np.testing.assert_array_equal(simulated, expected)
    run_artifact(kernel.compile(dtypes={"x": "f32", "y": "f32"}), {"x": x, "y": executed})
    np.testing.assert_array_equal(executed, expected)
