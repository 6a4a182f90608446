"""A kernel beside its NumPy reference: in the simulator, and what is compiled of it on the PTX machine."""

from __future__ import annotations

import numpy as np

from support.arrangement import ARRANGEMENTS
from support.generality import Case, agrees
from support.indexed import facts_of
from support.ptx_driver import run_artifact
from tilewright.jit import Kernel


def simulator_agrees(name: str, case: Case) -> None:
    """On all shapes, each plain and in one other arrangement."""
    kernel = Kernel(case.kernel)
    for i, shape in enumerate(case.shapes):
        agrees(case, shape, "plain", kernel)
        agrees(case, shape, ARRANGEMENTS[1 + (i + len(name)) % (len(ARRANGEMENTS) - 1)], kernel)


def ptx_machine_agrees(case: Case) -> None:
    """On the last shape, without faults."""
    arrays, expected = case.arrays(case.shapes[-1])
    artifact = case.kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    driver = run_artifact(artifact, arrays, case.scalars, schedules=2)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    for result, value in expected.items():
        np.testing.assert_allclose(arrays[result], value, rtol=case.tolerance, atol=case.tolerance, err_msg=result)
