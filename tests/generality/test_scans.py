"""Scans: NumPy, the simulator and the PTX machine agree."""

from __future__ import annotations

import numpy as np
import pytest

from support.indexed import facts_of
from support.ptx_driver import run_artifact
from support.scans import CASES, Arrays, Scanning
from support.slow import rest_slow

pytestmark = pytest.mark.sample(3)


def drawn(case: Scanning, seed: int) -> tuple[Arrays, Arrays]:
    arrays = case.draw(np.random.default_rng(seed))
    return arrays, {n: np.asarray(a) for n, a in case.expected(arrays).items()}


def assert_agree(case: Scanning, arrays: Arrays, expected: Arrays) -> None:
    for name, want in expected.items():
        found = arrays[name].astype(want.dtype)
        np.testing.assert_allclose(found, want, case.within, case.within, err_msg=name)


QUICK = [
    *("sums of 7 x 1000 along 1", "sums of 3 x 33 along 1 exclusive", "sums of 5 x 1 along 1 reverse"),
    *("sums of 37 x 50 along 0 exclusive reverse", "sums of 64 x 16 along 0", "sums of 1 x 3 along 0 reverse"),
    *("every of float32", "every of bfloat16 reverse", "every of int8", "greatest_so_far"),
    *("long sums of 1", "long sums of 65 exclusive", "long sums of 1000", "linear of 7", "linear of 300 reverse"),
    *("of product along 0", "of product along 1 reverse", "down_columns", "one_row", "long_recurrence"),
    *("segmented_sums", "place_of_greatest", "least_before", "decayed_after", "shifted", "gathered_least"),
    *("until_loaded", "rank_in_bin", "offsets", "compacted", "selective_scan"),
]
"""Each way of walking, and each kernel, once; dtypes of one, two and four bytes."""
QUICK_PTX = [
    *("sums of 7 x 1000 along 1", "sums of 37 x 50 along 0 exclusive reverse", "every of bfloat16 reverse"),
    *("every of int8", "long sums of 65 exclusive", "linear of 300 reverse", "of product along 1 reverse"),
    *("down_columns", "segmented_sums", "place_of_greatest", "shifted", "until_loaded", "compacted", "selective_scan"),
]
"""Of these, kernels of each schedule and each function."""


@pytest.mark.parametrize("name", rest_slow(sorted(CASES), QUICK))
def test_simulator_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 1)
    case.kernel(**arrays, **case.keywords)
    assert_agree(case, arrays, expected)


@pytest.mark.parametrize("name", rest_slow(sorted(CASES), QUICK_PTX))
def test_ptx_machine_agrees_with_numpy(name: str) -> None:
    case = CASES[name]
    arrays, expected = drawn(case, 2)
    dtypes = {n: a.dtype.name for n, a in arrays.items()}
    artifact = case.kernel.compile(dtypes=dtypes, facts=facts_of(arrays), **case.keywords)
    driver = run_artifact(artifact, arrays, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert_agree(case, arrays, expected)
