"""Stores by rows: tiles whose rows no tensor copy can store, through panels that threads copy out."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.expr import TRUE, Const, sym
from tilewright.base.verdict import Proof, Proved, Refuted
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.requests import assumptions_of
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.schedule.conflicts import shared_uses
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.candidates import schedule
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(37)
PING_PONG = Candidate(1, ping_pong=2, stages=2)
SHARED = Candidate(2, stages=2)


@tw.kernel
def both(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], d: tw.Tensor["M", "N"], *, bm=64, bn=64
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    d[m, n] = acc * 2.0
    c[m, n] = acc


def lowered(
    columns: int, align: int, candidate: Candidate = PING_PONG, rows: int = 128, kernel: tw.Kernel = p.nt
) -> p.Lowered:
    """The kernel with operands that tensor copies bring, and a first output whose rows begin at so many bytes."""
    asked = p.request(kernel, bm=rows, bn=columns)
    names = [tensor.name for tensor in kernel.tensors]
    facts = CallFacts(tuple((name, TensorFacts(1, align if name == "c" else 16)) for name in names))
    asked = replace(asked, facts=facts)
    found = traced(asked)
    answer = schedule(found, facts, SM90A, candidate, assumptions_of(found, facts))
    assert not isinstance(answer, Refused), answer.reason
    answer.kernel.verify()
    return p.Lowered(found, asked, answer)


def padded(rows: int, columns: int, pitch: int) -> np.ndarray:
    """Random rows so many elements apart, NaN behind them."""
    whole = np.full((rows, pitch), np.nan, ml_dtypes.bfloat16)
    whole[:, :columns] = RNG.normal(size=(rows, columns)).astype(ml_dtypes.bfloat16)
    return whole[:, :columns]


def simulated(kernel: t.Kernel, rows: int, columns: int, align: int, seed: int = 0) -> None:
    """Runs the kernel on outputs whose rows begin at multiples of ``align`` bytes and no more, and compares."""
    left, right = padded(rows, 72, 72), padded(columns, 72, 72)
    out = padded(rows, columns, (-(-columns * 2 // align) | 1) * align // 2)
    simulate.run(kernel, {"a": left, "b": right, "c": out}, seed=seed, grid_size=2)
    exact = left.astype(np.float64) @ right.astype(np.float64).T
    assert np.linalg.norm(out.astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact)
    beside = out.base[:, columns:] if out.base is not None else np.full(1, np.nan)
    assert np.isnan(beside.astype(np.float64)).all()


@pytest.mark.parametrize("columns", [8, 40, 208])
@pytest.mark.parametrize("align", [2, 4, 8, 16])
@pytest.mark.parametrize("candidate", [PING_PONG, SHARED], ids=["ping-pong", "shared"])
def test_every_alignment_is_proved_and_simulated(columns: int, align: int, candidate: Candidate) -> None:
    found = lowered(columns, align, candidate)
    kernel = found.scheduled.kernel
    copies = [op for op in kernel.walk() if isinstance(op, a.CopyOut)]
    assert max(op.copy_bytes for op in copies) == min(align, columns)
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert all(use.degree == 1 for use in shared_uses(kernel, "sm_90a"))
    simulated(kernel, 130, columns + columns // 2 + 1, align)


@pytest.mark.parametrize(("columns", "candidate"), [(208, PING_PONG), (48, PING_PONG), (64, SHARED)])
def test_protocols_are_proved(columns: int, candidate: Candidate) -> None:
    for align in (2, 16):
        for protocol in protocols_of(lowered(columns, align, candidate).scheduled.kernel):
            assert isinstance(check(protocol), Proved)


def test_tiles_narrower_than_what_covers_them() -> None:
    kernel = lowered(20, 2, Candidate(1), rows=40).scheduled.kernel
    assert any(isinstance(op, a.CopyOut) for op in kernel.walk())
    simulated(kernel, 90, 45, 2)


@pytest.mark.parametrize("columns", [64, 80])
def test_outputs_by_copies_and_by_rows_share_their_panels(columns: int) -> None:
    found = lowered(columns, 2, Candidate(1, stages=2), 64, both)
    kernel = found.scheduled.kernel
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    for protocol in protocols_of(kernel):
        assert isinstance(check(protocol), Proved)
    for seed, n in enumerate((160, 161)):
        left, right, odd, even = padded(130, 72, 72), padded(n, 72, 72), padded(130, n, 171), padded(130, n, 168)
        simulate.run(kernel, {"a": left, "b": right, "c": odd, "d": even}, seed=seed, grid_size=2)
        exact = left.astype(np.float64) @ right.astype(np.float64).T
        assert np.linalg.norm(odd.astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact)
        assert np.linalg.norm(even.astype(np.float64) - 2 * exact) < 12e-3 * np.linalg.norm(exact)


@pytest.mark.slow
def test_the_widest_ping_pong_tiles_assemble_without_spills() -> None:
    """Accumulators take 208 of 240 registers; the copies' addresses must not wait beside them."""
    kernel = lowered(208, 2, Candidate(1, ping_pong=2)).scheduled.kernel
    emitted = emit_kernel(kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(kernel, assembled.ptx) == ()


def test_an_access_moves_no_odd_number_of_bytes() -> None:
    kernel = lowered(64, 8).scheduled.kernel
    op = next(op for op in kernel.walk() if isinstance(op, a.CopyOut))
    three = a.CopyOut(
        op.tensor,
        op.shared,
        coords=[c.expr for c in op.coords],
        axis=1,
        stop=sym("N"),
        guard=TRUE,
        offset=Const(0),
        vector=3,
        count=1,
        base=Const(0),
        bytes=6,
    )
    with pytest.raises(VerifyException, match="6 bytes"):
        three.verify_()


# -- what is not as planned -------------------------------------------------------------------------------------------
def first(kernel: t.Kernel, kind: type[t.TransportOp]) -> t.TransportOp:
    return next(op for op in kernel.walk() if isinstance(op, kind))


def moved(kind: type[t.TransportOp], name: str, by: int) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        op = first(kernel, kind)
        op.attributes[name] = ExprAttr.of(op.attributes[name].expr + by)

    return apply


def stored_elsewhere(by: tuple[int, int]) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        op = first(kernel, a.CopyOut)
        op.attributes["coords"] = ArrayAttr([ExprAttr.of(c.expr + x) for c, x in zip(op.coords, by, strict=True)])

    return apply


def exchanged(kernel: t.Kernel) -> None:
    """Threads store their neighbours' columns."""
    op = first(kernel, a.CopyOut)
    coords = [c.expr.substitute({t.THREAD: sym(t.THREAD) + 1}) for c in op.coords]
    op.attributes["coords"] = ArrayAttr([ExprAttr.of(c) for c in coords])


def unguarded(kernel: t.Kernel) -> None:
    first(kernel, a.CopyOut).attributes["guard"] = ExprAttr.of(TRUE)


MUTANTS: dict[str, Callable[[t.Kernel], None]] = {
    "read elsewhere": moved(a.CopyOut, "offset", 2),
    "another row": moved(a.CopyOut, "offset", 128),
    "written elsewhere": moved(a.StoreMatrix, "offset", 16),
    "another panel": moved(a.CopyOut, "base", 8192),
    "columns beside": stored_elsewhere((0, 64)),
    "rows below": stored_elsewhere((64, 0)),
    "neighbours": exchanged,
    "rows beyond": unguarded,
    "columns beyond": moved(a.CopyOut, "stop", 1),
    "left out": lambda kernel: first(kernel, a.CopyOut).detach(),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_not_as_planned_is_refuted(name: str) -> None:
    found = lowered(208, 2, SHARED)
    kernel = found.scheduled.kernel
    MUTANTS[name](kernel)
    answers: list[Proof[object]] = [prove_stores(found.tile, kernel), prove_copies(found.tile, kernel)]
    assert any(isinstance(answer, Refuted) for answer in answers)


@pytest.mark.parametrize(("columns", "which"), [(64, 0), (64, 1), (128, 0), (128, 1)])
def test_every_meeting_is_needed(columns: int, which: int) -> None:
    """An odd number of panels has one meeting more than panels, an even number as many."""
    kernel = lowered(columns, 2, Candidate(1, stages=2), 64).scheduled.kernel
    meetings = [op for op in kernel.walk() if isinstance(op, a.NamedBarrierSync)]
    assert len(meetings) == 2
    meetings[which].detach()
    assert any(isinstance(check(protocol), Refuted) for protocol in protocols_of(kernel))

    def runs(seed: int) -> bool:
        try:
            simulated(kernel, 192, 192, 2, seed)
        except (TilewrightError, AssertionError):
            return False
        return True

    assert not all(runs(seed) for seed in range(8))
