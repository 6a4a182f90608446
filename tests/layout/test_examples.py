"""examples/layouts.md runs as written, and its pictures are what the code draws."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tilewright.hw.target.sm_80 import MMA_ACCUMULATOR
from tilewright.hw.target.sm_90a import WGMMA_ACCUMULATOR
from tilewright.layout.banks import WaveAccess, instruction
from tilewright.layout.cute import CuteLayout
from tilewright.layout.library.fragments import mma_accumulator
from tilewright.layout.library.swizzle_algebra import swizzled
from tilewright.layout.swizzle import CuteSwizzle
from tilewright.viz.grid import Drawable
from tilewright.viz.layout_picture import layout_svg

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURES: dict[str, Drawable] = {
    "swizzle.svg": swizzled(CuteSwizzle(3, 0, 3), CuteLayout((8, 8), (8, 1))),
    "accumulator.svg": mma_accumulator(16, 8),
    "banks.svg": WaveAccess.of(instruction("sm_90a", "ld.shared.b128"), lambda t: 128 * t),
}


def test_the_walk_through() -> None:
    failed, run = doctest.testfile(str(EXAMPLES / "layouts.md"), module_relative=False)
    assert run > 30
    assert failed == 0


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_pictures_are_current(name: str) -> None:
    assert (EXAMPLES / "pictures" / name).read_text() == layout_svg(PICTURES[name])


def test_the_first_rows_of_the_wgmma_atom_are_the_mma_atom() -> None:
    assert WGMMA_ACCUMULATOR.lane == MMA_ACCUMULATOR.lane
    assert WGMMA_ACCUMULATOR.register == MMA_ACCUMULATOR.register
