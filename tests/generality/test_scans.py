"""Scans: NumPy, the simulator and the PTX machine agree."""

from __future__ import annotations

import numpy as np
import pytest

from support.indexed import facts_of
from support.ptx_driver import run_artifact
from support.scans import CASES, Arrays, Scanning


def drawn(case: Scanning, seed: int) -> tuple[Arrays, Arrays]:
    arrays = case.draw(np.random.default_rng(seed))
    return arrays, {n: np.asarray(a) for n, a in case.expected(arrays).items()}


def assert_agree(case: Scanning, arrays: Arrays, expected: Arrays) -> None:
    for name, want in expected.items():
        found = arrays[name].astype(want.dtype)
        np.testing.assert_allclose(found, want, case.within, case.within, err_msg=name)


@pytest.mark.parametrize("name", sorted(CASES))
def test_simulator_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 1)
    case.kernel(**arrays, **case.keywords)
    assert_agree(case, arrays, expected)


@pytest.mark.parametrize("name", sorted(CASES))
def test_ptx_machine_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 2)
    dtypes = {n: a.dtype.name for n, a in arrays.items()}
    artifact = case.kernel.compile(dtypes=dtypes, facts=facts_of(arrays), **case.keywords)
    driver = run_artifact(artifact, arrays, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert_agree(case, arrays, expected)
