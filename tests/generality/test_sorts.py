"""Sorts: NumPy's stable sort, the simulator and the PTX machine agree to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from support.indexed import facts_of
from support.ptx_driver import run_artifact
from support.scans import Arrays, Scanning
from support.slow import rest_slow
from support.sorts import CASES

pytestmark = pytest.mark.sample(2)


def drawn(case: Scanning, seed: int) -> tuple[Arrays, Arrays]:
    arrays = case.draw(np.random.default_rng(seed))
    return arrays, {n: np.asarray(a) for n, a in case.expected(arrays).items()}


def assert_equal(arrays: Arrays, expected: Arrays) -> None:
    """Signs of zeros too."""
    for name, want in expected.items():
        found = arrays[name]
        np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64), err_msg=name)
        if found.dtype.kind not in "ib":
            zero = want == 0
            assert np.array_equal(np.signbit(found[zero]), np.signbit(want[zero])), name


QUICK = [
    *("float32 ascending", "bfloat16 descending", "int8 descending", "bool ascending", "down columns of 31"),
    *("down columns of 1", "rows across warps", "greatest of float32", "least", "one", "fewer than asked for"),
    *("in_a_stream", "shifted", "gate"),
]
"""Each order, axis and kernel once, floats and integers; one sort across warps."""
QUICK_PTX = [
    *("bfloat16 descending", "int8 descending", "down columns of 31", "greatest of float32", "in_a_stream", "gate"),
]


@pytest.mark.parametrize("name", sorted(CASES))
def test_simulator_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 1)
    case.kernel(**arrays, **case.keywords)
    assert_equal(arrays, expected)


@pytest.mark.parametrize("name", rest_slow(sorted(CASES), QUICK_PTX))
def test_ptx_machine_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 2)
    dtypes = {n: a.dtype.name for n, a in arrays.items()}
    artifact = case.kernel.compile(dtypes=dtypes, facts=facts_of(arrays), **case.keywords)
    driver = run_artifact(artifact, arrays, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert_equal(arrays, expected)
