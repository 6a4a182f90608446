"""Stores through panels of several widths: what each width's map copies, side by side, is the tile, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proof, Proved, Refuted
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.hw.tensormap import Swizzle
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.epilogue_tiles import cut
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import TmaAttr
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(4)

RNG = np.random.default_rng(31)
PING_PONG = Candidate(1, ping_pong=2, stages=2, whole_stores=True)
SHARED = Candidate(2, stages=2)


def lowered(columns: int, candidate: Candidate = PING_PONG, dtype: str = "bf16") -> p.Lowered:
    found = p.lower(p.nt, candidate, dtype, bm=128, bn=columns)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def simulated(kernel: t.Kernel, rows: int, columns: int, dtype: type = ml_dtypes.bfloat16) -> None:
    """Runs the kernel on random operands with rows of whole 16-byte units, NaN behind them, and compares."""
    left, right = RNG.normal(size=(rows, 72)).astype(dtype), RNG.normal(size=(columns, 72)).astype(dtype)
    whole = np.full((rows, columns + 8), np.nan, dtype)
    out = whole[:, :columns]
    simulate.run(kernel, {"a": left, "b": right, "c": out}, seed=columns, grid_size=2)
    exact = left.astype(np.float64) @ right.astype(np.float64).T
    assert np.linalg.norm(out.astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact)
    assert np.isnan(whole[:, columns:].astype(np.float64)).all()


@pytest.mark.parametrize("columns", [8 * n for n in range(1, 33)])
def test_panels_lie_side_by_side(columns: int) -> None:
    panels = [(start, width) for width, starts in cut(columns).items() for start in starts]
    assert [start + width for start, width in panels] == [start for start, _ in panels[1:]] + [columns]
    assert all(start % width == 0 for start, width in panels)
    assert all(left[1] >= right[1] for left, right in pairwise(panels))


@pytest.mark.parametrize("columns", [8, 16, 24, 48, 80, 144, 176, 208])
@pytest.mark.parametrize("candidate", [PING_PONG, SHARED], ids=["ping-pong", "shared"])
def test_every_width_is_proved_and_simulated(columns: int, candidate: Candidate) -> None:
    found = lowered(columns, candidate)
    kernel = found.scheduled.kernel
    assert list(cut(columns)) == [m.numbers.box[0] for m in maps(kernel)]
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert check_descriptors(kernel).faults == ()
    simulated(kernel, 130, columns + columns // 16 * 8)


def test_protocols_of_several_widths_are_proved() -> None:
    for columns, candidate in ((208, SHARED), (80, PING_PONG), (24, PING_PONG)):
        for protocol in protocols_of(lowered(columns, candidate).scheduled.kernel):
            assert isinstance(check(protocol), Proved)


def test_elements_of_the_other_kind() -> None:
    simulated(lowered(176, dtype="f16").scheduled.kernel, 64, 184, np.float16)


def test_code_assembles_as_planned() -> None:
    kernel = lowered(120, SHARED).scheduled.kernel
    emitted = emit_kernel(kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(kernel, assembled.ptx) == ()


# -- one panel that is not the planned one ----------------------------------------------------------------------------
def maps(kernel: t.Kernel) -> list[a.TensorMap]:
    """The maps that stores go through."""
    stored = {op.map for op in kernel.walk() if isinstance(op, a.TmaStore)}
    return [op for op in kernel.walk() if isinstance(op, a.TensorMap) and op.map in stored]


def copy(kernel: t.Kernel, columns: int) -> a.TmaStore:
    """The first copy of a panel of so many columns."""
    copies = [op for op in kernel.walk() if isinstance(op, a.TmaStore)]
    return next(c for c in copies if c.map in {m.map for m in maps(kernel) if m.numbers.box[0] == columns})


def widened(kernel: t.Kernel) -> None:
    """The narrow panels' copies take twice the columns."""
    for op in maps(kernel):
        if op.numbers.box[0] == 16:
            op.attributes["descriptor"] = TmaAttr(replace(op.numbers, box=(32, 64), swizzle=Swizzle.B64))


def narrowed(kernel: t.Kernel) -> None:
    """A wide panel's copies take half of its columns."""
    for op in maps(kernel):
        if op.numbers.box[0] == 64:
            op.attributes["descriptor"] = TmaAttr(replace(op.numbers, box=(32, 64)))


def unswizzled(kernel: t.Kernel) -> None:
    for op in maps(kernel):
        if op.numbers.box[0] == 16:
            op.attributes["descriptor"] = TmaAttr(replace(op.numbers, swizzle=Swizzle.NONE))


def moved(columns: int) -> Callable[[t.Kernel], None]:
    """One panel is copied to where another lies."""

    def apply(kernel: t.Kernel) -> None:
        op = copy(kernel, columns)
        first, *rest = (c.expr for c in op.coords)
        op.attributes["coords"] = ArrayAttr([ExprAttr.of(c) for c in (first - 16, *rest)])

    return apply


def through_another(kernel: t.Kernel) -> None:
    """A narrow panel is copied through the wide panels' map."""
    copy(kernel, 16).operands[0] = copy(kernel, 64).map


MUTANTS: dict[str, Callable[[t.Kernel], None]] = {
    "wider": widened,
    "narrower": narrowed,
    "unswizzled": unswizzled,
    "wide panel elsewhere": moved(64),
    "narrow panel elsewhere": moved(16),
    "another's map": through_another,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_panel_that_is_not_as_planned_is_refuted(name: str) -> None:
    found = lowered(80)
    kernel = found.scheduled.kernel

    def answers() -> list[Proof[object]]:
        return [prove_stores(found.tile, kernel), prove_copies(found.tile, kernel)]

    assert all(isinstance(answer, Proved) for answer in answers())
    MUTANTS[name](kernel)
    assert any(isinstance(answer, Refuted) for answer in answers())
