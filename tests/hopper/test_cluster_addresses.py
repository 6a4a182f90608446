"""Shared addresses in a cluster: the CTA's rank stands above the offset in its window, and no matrix descriptor has it.

On an H200 products with a transposed right operand in several panels were wrong in every CTA but the first of a
cluster: the rank was added to the descriptor's leading byte offset, as 256 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support import products as p
from support.ptx_driver import run_artifact
from tilewright.artifact.schema import Artifact, Launch
from tilewright.transport.text import transport_kernel
from tilewright.validate.transport_to_ptx import compare

pytestmark = pytest.mark.sample(1)

MASK = re.compile(r"(and\.b32\s+%r\d+, %r\d+), 261120;")
"""What the compiler makes of two masks: 0x3FFFF, and that of the low 10 bits, which are cleared too."""
KERNELS = {"nn": p.nn, "tn": p.tn, "nt": p.nt}


@cache
def compiled(name: str) -> Artifact:
    schedule = tw.Schedule(cluster=(2, 1), stages=3)
    return KERNELS[name].compile(dtypes=dict.fromkeys("abc", "f16"), schedule=schedule, bm=128, bn=128)


def unmasked(ptx: str) -> str:
    """The text as it was: descriptors take the whole address."""
    edited, count = MASK.subn(r"\1, -1024;", ptx)
    assert count == 1
    return edited


def product(name: str, edit: Callable[[str], str] = lambda ptx: ptx) -> tuple[Any, Any, set[str]]:
    """A product of two clusters' tiles on the PTX machine, the exact one, and the codes of faults."""
    rng = np.random.default_rng(0)
    m, n, k = 256, 256, 128
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float16)
    operands = {"nn": (a, b), "tn": (np.ascontiguousarray(a.T), b), "nt": (a, np.ascontiguousarray(b.T))}
    left, right = operands[name]
    driver = run_artifact(compiled(name), {"a": left, "b": right, "c": c}, edit=edit)
    faults = {fault.code for _, report in driver.reports for fault in report.faults}
    return c, a.astype(np.float64) @ b.astype(np.float64), faults


@pytest.mark.parametrize("name", KERNELS)
def test_products_of_clusters_on_the_machine(name: str) -> None:
    found, exact, faults = product(name)
    assert not faults
    assert np.array_equal(found, exact.astype(np.float16))


def test_a_rank_in_a_descriptor_moves_panels() -> None:
    """As on the H200: the second CTA's second panels of 64 columns, and nothing else. The last of them lie where nobody
    has written."""
    found, exact, faults = product("nn", unmasked)
    assert "PTX013" in faults
    wrong = found != exact.astype(np.float16)
    assert wrong.any()
    assert set(np.argwhere(wrong)[:, 0] // 128) == {1}
    assert set(np.argwhere(wrong)[:, 1] % 128 // 64) == {1}


@pytest.mark.parametrize("name", KERNELS)
def test_validation_wants_the_address_without_the_rank(name: str) -> None:
    (image,) = compiled(name).kernels
    launch = compiled(name).variants[0].steps[-1]
    assert isinstance(launch, Launch)
    kernel = transport_kernel(image.transport_ir)
    assert not compare(kernel, image.ptx, launch.args, launch.grid[0])
    assert compare(kernel, unmasked(image.ptx), launch.args, launch.grid[0], 1)
