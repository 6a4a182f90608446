"""Random numbers by counters: Random123's known answers, in the simulator and on the PTX machine."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.indexed import facts_of
from support.lowered import lowered
from support.ptx_driver import run_artifact
from support.randoms import KNOWN, philox, uniform
from tilewright.diag import TilewrightError
from tilewright.lang.signature import Signature
from tilewright.tile.tracer import trace
from tilewright.validate.tile_to_transport.compare import compare

pytestmark = pytest.mark.sample(1)


@tw.kernel
def words(counter: tw.Tensor["N", 4], seed: tw.Tensor["N"], y: tw.Tensor["N", 4], *, bn=32):
    n = tw.grid(seed.shape[0], bn)
    found = tw.philox(seed[n], *(counter[n, i] for i in range(4)))
    for i in range(4):
        y[n, i] = found[i]


@tw.kernel
def uniforms(y: tw.Tensor["M", "N"], *, seed=0, first=0, bm=2):
    m, n = tw.grid(y.shape[0], bm), tw.axis(y.shape[1], upto=64)
    y[m, n] = tw.rand(seed, (m.index.to(tw.i64)[:, None] << 31) + n.index + first)


def arguments() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The known answers' counters and keys, then others."""
    rng = np.random.default_rng(0)
    drawn = [(rng.integers(0, 2**32, 4).tolist(), rng.integers(0, 2**32, 2).tolist()) for _ in range(40)]
    counters, keys = zip(*[k[:2] for k in KNOWN], *drawn, strict=True)
    counter = np.array(counters, np.uint32).view(np.int32)
    seed = np.array([low | high << 32 for low, high in keys], np.uint64).view(np.int64)
    expected = [philox(c, k) for c, k in zip(counters, keys, strict=True)]
    arrays = {"counter": counter, "seed": seed, "y": np.full(counter.shape, 7, np.int32)}
    return arrays, np.array(expected, np.uint32)


def test_known_answers_of_the_reference() -> None:
    for counter, key, answer in KNOWN:
        assert tuple(philox(counter, key)) == answer


def test_known_answers_in_the_simulator() -> None:
    arrays, expected = arguments()
    words(**arrays)
    assert np.array_equal(arrays["y"].view(np.uint32), expected)


def test_known_answers_on_the_ptx_machine() -> None:
    arrays, expected = arguments()
    dtypes = {n: a.dtype.name for n, a in arrays.items()}
    driver = run_artifact(words.compile(dtypes=dtypes, facts=facts_of(arrays)), arrays, schedules=1)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert np.array_equal(arrays["y"].view(np.uint32), expected)


@pytest.mark.parametrize(("seed", "first"), [(0, 0), (-1, -5), (0x123456789ABCDEF0, 2**62)])
def test_uniform_numbers_of_places(seed: int, first: int) -> None:
    """Of i64 places beyond 32 bits, negative ones too."""
    y = np.full((3, 50), 7, np.float32)
    uniforms(y, seed=seed, first=first)
    expected = [[uniform(seed, (m << 31) + n + first) for n in range(50)] for m in range(3)]
    assert np.array_equal(y, np.array(expected, np.float32))
    assert ((y >= 0) & (y < 1)).all()


def test_equal_to_tile_ir() -> None:
    for source, kernel in lowered(words, {"counter": "i32", "seed": "i64", "y": "i32"}).values():
        assert compare(source, kernel) == ()


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda n: tw.rand(1.5, n), "a seed that is float"),
        (lambda n: tw.rand(0, n.index.to(tw.f32)), "an index that is f32"),
        (lambda _: tw.philox(0, 1), "numbers alone"),
    ],
)
def test_refused(made: Callable[[Any], Any], found: str) -> None:
    @tw.kernel
    def kernel(y: tw.Tensor["N"]):
        n = tw.grid(y.shape[0], 32)
        y[n] = made(n)

    with pytest.raises(TilewrightError, match=found):
        trace(kernel, Signature.of({"y": tw.f32}))
