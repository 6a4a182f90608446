"""Computed and loaded coordinates: NumPy, the simulator and the PTX machine agree, hostile indices included."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from support.indexed import Arrays, Indexed, facts_of
from support.indexed_more import CASES
from support.ptx_driver import run_artifact
from support.slow import rest_slow

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import hostile_indices

pytestmark = pytest.mark.sample(4)


def drawn(case: Indexed, seed: int) -> tuple[Arrays, Arrays]:
    arrays = case.draw(np.random.default_rng(seed))
    return arrays, {n: np.asarray(a) for n, a in case.expected(arrays).items()}


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


@pytest.mark.parametrize("seeds", rest_slow([range(1), range(1, 5)], 1), ids=["one", "more"])
@pytest.mark.parametrize("name", sorted(hostile_indices.INDEXED))
def test_hostile_indices_touch_nothing_outside(name: str, seeds: range) -> None:
    artifact = hostile_indices.compiled(name)
    assert [hostile_indices.judged(name, artifact, seed) for seed in seeds] == ["agree"] * len(seeds)
