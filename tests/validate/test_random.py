"""The PTX of kernels drawn at random (``tools/random_kernels.py``) against their Transport IR, and mistakes in it."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from random_programs import judge  # noqa: E402
from random_programs.families import drawn  # noqa: E402
from random_programs.text import source  # noqa: E402
from support.parsed import transport_kernel  # noqa: E402
from tilewright.artifact.schema import Launch  # noqa: E402
from tilewright.validate.transport_to_ptx import compare  # noqa: E402

pytestmark = pytest.mark.sample(1)

KERNELS = (
    ("maps", 3), ("maps", 6), ("maps", 47), ("rows", 1), ("rows", 4), ("streams", 2),
    ("products", 2), ("products", 20), ("sums", 4),
)  # fmt: skip
"""Families and seeds of kernels whose PTX is decided."""
MISTAKES = {
    "a bound of 8 bits": ("maps", 47, r"min\.s32(\s+%r\d+, %r\d+), 127;", r"min.s32\1, 126;"),
    "the other half": ("rows", 4, r"bfi\.b64(\s+%rd\d+), (%rd\d+), (%rd\d+), 32, 32", r"bfi.b64\1, \3, \2, 32, 32"),
    "another number": ("streams", 2, r"(selp\.f32\s+%f\d+), 0f3F800000, 0f00000000", r"\1, 0f3F810000, 0f00000000"),
    "a division turned round": ("products", 2, r"div\.u32(\s+%r\d+), (%r\d+), (%r\d+);", r"div.u32\1, \3, \2;"),
    "an integer less": ("streams", 2, r"setp\.lt\.s32(\s+%p\d+, %r\d+), 1;", r"setp.lt.s32\1, 2;"),
}  # fmt: skip


@cache
def compiled(family: str, seed: int, folder: Path) -> judge.Artifact:
    """A kernel drawn from its seed, compiled for the arguments drawn with it."""
    kernel = drawn(seed, family)
    path = folder / f"{family}_{seed}.py"
    path.write_text(source(kernel))
    return judge.compiled(kernel, path, judge.places(kernel, seed))


def differences(artifact: judge.Artifact, pattern: str = "", to: str = "") -> list[str]:
    """What the validator says, with one place of some kernel's PTX replaced."""
    launches = [s for v in artifact.variants for s in v.steps if isinstance(s, Launch)]
    found: list[str] = []
    replaced = 0
    for launch in launches:
        image = artifact.kernel(launch.kernel)
        ptx, count = re.subn(pattern, to, image.ptx, count=1) if pattern else (image.ptx, 0)
        replaced += count
        found += map(str, compare(transport_kernel(image.transport_ir), ptx, launch.args, launch.grid[0], 1))
    assert replaced or not pattern, pattern
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize(("family", "seed"), KERNELS)
def test_the_ptx_does_what_the_ir_says(family: str, seed: int, folder: Path) -> None:
    assert differences(compiled(family, seed, folder)) == []


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found(what: str, folder: Path) -> None:
    family, seed, pattern, to = MISTAKES[what]
    assert differences(compiled(family, seed, folder), pattern, to)
