"""Every sync op of compiled kernels, dropped or shifted, is missed: refuted by the right name, or known as unneeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from protocols import gemm

from drop_syncs import MOST_UNNEEDED, Mutant, mutants, one_of_each, verdict
from support import products
from tilewright.protocol import Protocol
from tilewright.protocol import ops as o
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport.protocol import protocols_of


def matmul() -> Protocol:
    return _lowered(products.nt)


def attention() -> Protocol:
    """Two tiles at most: the carry-over from one to the next without its full search."""
    p = _lowered(products.attention, causal=False)
    return replace(
        p, symbols=tuple(replace(s, most=2) if s.name.removeprefix("$") == "programs" else s for s in p.symbols)
    )


def _lowered(kernel: products.tw.Kernel, **keywords: object) -> Protocol:
    found = products.lower(kernel, Candidate(1, stages=2), **keywords)
    assert isinstance(found, products.Lowered)
    return protocols_of(found.scheduled.kernel)[0]


def missed(found: list[Mutant]) -> int:
    """How many mutants are refuted; the others are few and explained."""
    answers = {str(m): verdict(m) for m in found}
    assert set(answers.values()) <= {"refuted", "unneeded"}, answers
    unneeded = [m for m, answer in answers.items() if answer == "unneeded"]
    assert len(unneeded) <= MOST_UNNEEDED, unneeded
    return len(answers) - len(unneeded)


def test_every_sync_op_of_a_matmul_is_missed() -> None:
    assert missed(list(mutants(matmul()))) >= 25


@pytest.mark.slow
@pytest.mark.parametrize(("make", "least"), [(attention, 20)], ids=["attention"])
def test_one_of_each_sync_op_is_missed(make: Callable[[], Protocol], least: int) -> None:
    assert missed(one_of_each(mutants(make()))) >= least


def test_order_barriers_of_ping_pong_are_missed() -> None:
    """Here they are not a speed device: each warpgroup skips the other's phases, so only the turns keep it in step."""
    turns = [m for m in mutants(gemm.pingpong(2)) if isinstance(m.step.op, o.BarSync | o.BarArrive)]
    order = [m for m in turns if m.step.op.threads == 256]  # pyright: ignore[reportAttributeAccessIssue]
    assert len(order) == missed(order) == 5
