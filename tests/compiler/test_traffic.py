"""Bytes that a program moves beside those it needs, counted from its text and by the simulator."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import f32
from tilewright.compiler.program import plan
from tilewright.compiler.requests import Request
from tilewright.compiler.specialisation import default_facts
from tilewright.compiler.traffic import LaunchTraffic, traffic
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.simulate import run


@tw.kernel
def doubled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (8, 32))
    y[m, n] = x[m, n] * 2.0


@tw.kernel
def biased(x: tw.Tensor["M", "N"], w: tw.Tensor["N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (8, 32))
    y[m, n] = x[m, n] + w[n]


@tw.kernel
def twice(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m = tw.grid(x.shape[0], 4)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], 32):
        total += x[m, n].sum(1)
    for n in tw.stream(x.shape[1], 32):
        y[m, n] = x[m, n] - total[:, None]


@tw.kernel
def shifted(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (None, 32))
    y[m, n] = x[m, n] + x[0, n]


@tw.kernel
def picked(i: tw.Tensor["M"], x: tw.Tensor["V", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (8, 32))
    y[m, n] = x[i[m], n]


def planned(kernel: tw.Kernel, **dtypes: str):
    function = kernel.compiled.function
    names = {x.name: f32 for x in function.tensors}
    return plan(Request(function, Signature.of(names), default_facts(function), SM90A, Schedule())).variants[-1]


def counted(kernel: tw.Kernel) -> LaunchTraffic:
    found = traffic(planned(kernel).tile)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kernel", "moved", "needed"),
    [
        (doubled, lambda m, n: 8 * m * n, lambda m, n: 8 * m * n),
        (biased, lambda m, n: 8 * m * n + 4 * n * -(-m // 8), lambda m, n: 8 * m * n + 4 * n),
        (twice, lambda m, n: 12 * m * n, lambda m, n: 8 * m * n),
        (shifted, lambda m, n: 12 * m * n, lambda m, n: 8 * m * n),
    ],
)
@pytest.mark.parametrize("shape", [(16, 64), (13, 70), (1, 1)])
def test_bytes_are_those_that_the_simulator_counts(kernel: tw.Kernel, moved, needed, shape: tuple[int, int]) -> None:
    m, n = shape
    symbols = {"M": m, "N": n}
    found = counted(kernel)
    assert found.moved.evaluate(symbols) == moved(m, n)
    assert found.needed.evaluate(symbols) == needed(m, n)
    arrays = {x.name: np.ones(shape[-len(x.dims) :], np.float32) for x in kernel.compiled.function.tensors}
    lowered = planned(kernel).transport
    aligned = {name: _padded(array) for name, array in arrays.items()}
    by_threads = run(lowered, aligned).bytes_moved
    if kernel in (doubled, twice):
        assert by_threads == moved(m, n)
    else:  # threads load alike what several of them use
        assert by_threads > moved(m, n)


def _padded(array: np.ndarray) -> np.ndarray:
    """The same with rows at multiples of 16 bytes."""
    pitch = -(-array.shape[-1] // 4) * 4
    block = np.zeros(array.size // array.shape[-1] * pitch + 4, np.float32)
    begin = -block.__array_interface__["data"][0] % 16 // 4
    padded = block[begin : begin + array.size // array.shape[-1] * pitch].reshape(*array.shape[:-1], pitch)
    return padded[..., : array.shape[-1]]


def test_loaded_coordinates_are_not_counted() -> None:
    function = picked.compiled.function
    names = {"i": tw.i32, "x": f32, "y": f32}
    request = Request(function, Signature.of(names), default_facts(function), SM90A, Schedule())
    assert traffic(plan(request).variants[-1].tile) is None


def test_the_plan_states_it() -> None:
    assert "moves 8*M*N bytes, each element of its tensors once" in doubled.explain()
    assert "1 kernel(s)" in doubled.explain()
