"""MN-major operands whose width is no multiple of a swizzle's span: the last panel is copied whole, not read whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr

import tilewright as tw
from support import products as p
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a

WIDTHS = (72, 160, 200, 224)


def lowered(kernel: tw.Kernel, **keywords: Any) -> p.Lowered:
    found = p.lower(kernel, Candidate(1, stages=2), **keywords)
    assert not isinstance(found, Refused), found.reason
    return found


def copies(found: p.Lowered, columns: int) -> list[a.TmaLoad]:
    """The copies of the right operand: through the map whose boxes have ``columns`` columns and 64 rows of k."""
    return [
        op
        for op in found.scheduled.kernel.walk()
        if isinstance(op, a.TmaLoad) and op.map.owner.hint.data.startswith("b_map")  # pyright: ignore
        and op.box_bytes.data == columns * 64 * 2
    ]  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_the_last_panel_is_copied_whole(width: int) -> None:
    """Boxes of a whole span, 128 bytes, however little of the last one is multiplied."""
    found = lowered(p.nn, bn=width)
    boxes = copies(found, 64)
    assert len({str(op.coords.data[0]) for op in boxes}) == -(-width // 64)
    wgmma = next(op for op in found.scheduled.kernel.walk() if isinstance(op, a.Wgmma))
    assert wgmma.n.data == width
    assert f"{-(-width // 64) * 64} x 64, B128" in str(wgmma.b_operand)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)


@pytest.mark.parametrize(("kernel", "keywords"), [(p.nt, {"bk": 96}), (p.tt, {"bn": 72, "bk": 96})])
def test_steps_of_k_are_never_padded(kernel: tw.Kernel, keywords: dict[str, int]) -> None:
    """Columns of k beyond the tile's would be multiplied: rows of 96 elements are three panels of 64 bytes."""
    found = lowered(kernel, **keywords)
    operands = {str(op.b_operand) for op in found.scheduled.kernel.walk() if isinstance(op, a.Wgmma)}
    assert all("x 96, B64" in operand for operand in operands)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)


@pytest.mark.parametrize("width", [72, 224])
def test_a_panel_elsewhere_is_refused(width: int) -> None:
    """Of the last panel, too: another column, another place in shared memory, or another copy instead of it."""
    found = lowered(p.nn, bn=width)
    last = copies(found, 64)[-1]
    for name, wrong in (
        ("coords", type(last.coords)([ExprAttr(last.coords.data[0].expr + 8), *last.coords.data[1:]])),
        ("offset", ExprAttr(last.offset.expr + 1024)),
    ):
        held = last.attributes[name]
        last.attributes[name] = wrong
        answer = prove_copies(found.tile, found.scheduled.kernel)
        assert isinstance(answer, Refuted), (name, answer)
        last.attributes[name] = held
    wgmma = next(op for op in found.scheduled.kernel.walk() if isinstance(op, a.Wgmma))
    wgmma.attributes["b_offset"] = ExprAttr(wgmma.b_offset.expr + 32)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)
    wgmma.attributes["n"] = IntAttr(width - 8)
    assert not isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)


@pytest.mark.parametrize(("width", "columns"), [(72, 300), (224, 232)])
def test_what_is_copied_beyond_the_tile_reaches_no_result(width: int, columns: int) -> None:
    """The columns beyond a tile are those of the next one, here of NaN; beyond the tensor they are zeros."""
    rng = np.random.default_rng(width)
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 100), (100, columns)))
    y[:, width:] = np.nan
    z = np.zeros((70, columns), np.float32)
    p.nn(x, y, z, bn=width)
    exact = x.astype(np.float64) @ y[:, :width].astype(np.float64)
    assert np.abs(z[:, :width] - exact).max() < 1e-4
    assert np.isnan(z[:, width:]).all()
