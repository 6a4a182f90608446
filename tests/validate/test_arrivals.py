"""An arrival says that its thread has read what is there: no load of shared memory may stand behind it."""

from __future__ import annotations

import re

import pytest
from examples.grouped_matmul import grouped_matmul

from support.parsed import transport_kernel
from tilewright.artifact.schema import Artifact, Launch
from tilewright.validate.transport_to_ptx import compare

NEAR = 15
"""Lines before an arrival in which a load is looked for."""


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return grouped_matmul.compile(target="sm_90a", dtypes=dict.fromkeys("abc", "bf16"), bm=64, bn=64)


def compared(artifact: Artifact, lines: list[str] | None = None) -> tuple[str, ...]:
    step = launch(artifact)
    image = artifact.kernel(step.kernel)
    ptx = image.ptx if lines is None else "\n".join(lines)
    return tuple(map(str, compare(transport_kernel(image.transport_ir), ptx, step.args, step.grid[0], 1)))


def launch(artifact: Artifact) -> Launch:
    """The first one of a kernel whose programs come from a queue in shared memory."""
    return next(s for v in artifact.variants for s in v.steps if isinstance(s, Launch) and "matmul" in s.kernel)


def loads_before_arrivals(lines: list[str]) -> list[tuple[int, int]]:
    """Loads of shared memory whose result no line up to the end of the next arrival needs, and that end."""
    found: list[tuple[int, int]] = []
    for at in (i for i, line in enumerate(lines) if "mbarrier.arrive.shared" in line):
        end = next(i for i in range(at, at + 3) if "end inline" in lines[i])
        for load in range(at - 1, at - NEAR, -1):
            if re.search(r"bra|bar\.|^\s*@", lines[load]):
                break
            loaded = re.search(r"ld\.shared\.\w+\s+(%\w+)", lines[load])
            if loaded and not any(loaded[1] in line for line in lines[load + 1 : end]):
                found.append((load, end))
    return found


def test_loads_behind_the_arrival_that_gives_their_memory_away(artifact: Artifact) -> None:
    lines = artifact.kernel(launch(artifact).kernel).ptx.split("\n")
    assert compared(artifact) == ()
    pairs = loads_before_arrivals(lines)
    assert len(pairs) >= 3
    for load, end in pairs:
        moved = [*lines[:load], *lines[load + 1 : end + 1], lines[load], *lines[end + 1 :]]
        assert any("other contents of shared memory" in found for found in compared(artifact, moved)), lines[load]
