"""Computed and loaded coordinates: NumPy, the simulator and the PTX machine agree, hostile indices included."""

from __future__ import annotations

import numpy as np
import pytest

from support.indexed import CASES, Arrays, Indexed
from support.ptx_driver import run_artifact
from tilewright.base.dtypes import DTYPES
from tilewright.schedule.facts import Facts, Observed, observe_facts

SHORT = {"float32": "f32", "int32": "i32", "int64": "i64"}


def drawn(case: Indexed, seed: int) -> tuple[Arrays, Arrays]:
    arrays = case.draw(np.random.default_rng(seed))
    return arrays, {n: np.asarray(a) for n, a in case.expected(arrays).items()}


def facts_of(arrays: Arrays) -> Facts:
    """Of tensors that begin at multiples of 16 bytes."""
    seen = {
        n: Observed(DTYPES[SHORT[a.dtype.name]], 0, a.shape, tuple(s // a.itemsize for s in a.strides))
        for n, a in arrays.items()
    }
    return observe_facts(seen)


def assert_agree(case: Indexed, arrays: Arrays, expected: Arrays) -> None:
    for name, want in expected.items():
        np.testing.assert_allclose(arrays[name], want, case.within, case.within, err_msg=name)


@pytest.mark.parametrize("name", sorted(CASES))
def test_simulator_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 1)
    case.kernel(**arrays)
    assert_agree(case, arrays, expected)


@pytest.mark.parametrize("name", sorted(CASES))
def test_ptx_machine_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 2)
    artifact = case.kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    driver = run_artifact(artifact, arrays, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert_agree(case, arrays, expected)
