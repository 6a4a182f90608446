"""``ld.global.nc`` reads what nobody writes while the kernel runs (PTX ISA 9.1, 9.7.9.10)."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import pytest

import tilewright as tw
from support.parsed import transport_kernel
from tilewright.artifact.schema import Artifact, Launch
from tilewright.validate.transport_to_ptx import compare


@tw.kernel
def scaled(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x, 128)
    y[m] = x[m] * 2.0


@tw.kernel
def doubled(x: tw.Tensor["M"], y: tw.Tensor["M"]):
    m = tw.grid(x, 128)
    y[m] = y[m] * 2.0


PLAIN, EARLY = tw.Schedule(), tw.Schedule(dependent=True)
CASES = {
    "read": (scaled, PLAIN, False),
    "written, too": (doubled, PLAIN, True),
    "by the kernel before": (scaled, EARLY, True),
}


def compared(artifact: Artifact, load: str) -> str:
    launch = next(step for step in artifact.variants[-1].steps if isinstance(step, Launch))
    image = artifact.kernel(launch.kernel)
    changed = image.ptx.replace("ld.global.nc.", "ld.global.").replace("ld.global.", load)
    found = compare(transport_kernel(image.transport_ir), changed, launch.args, launch.grid[0], 1)
    return str(next(iter(found), ""))


@pytest.mark.parametrize("name", CASES)
def test_it_reads_nothing_that_is_written_meanwhile(name: str) -> None:
    kernel, schedule, refused = CASES[name]
    artifact = kernel.compile(dtypes=dict.fromkeys("xy", "f32"), schedule=schedule)
    assert not compared(artifact, "ld.global.")
    assert ("as if nobody wrote it meanwhile" in compared(artifact, "ld.global.nc.")) == refused
