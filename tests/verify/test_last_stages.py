"""Consumers that release a stage one step late, and the last one never: proved by the event graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tilewright.base.verdict import Proved, Unknown
from tilewright.protocol import ops
from tilewright.protocol.edit import replaced, spots
from tilewright.protocol.model import Protocol, Step
from tilewright.protocol.text import from_text
from tilewright.verify import check
from tilewright.verify.parametric import prove

_PRODUCER = """with role("producer", 32):
    elected(MbarrierInit("full"))
    elected(MbarrierInit("empty"))
    elected(FenceMbarrierInit())
    all(CtaSync())
    for k in range(0, n, 1):
        elected(Wait(Slot("empty", index=k % 2), (k // 2 + 1) % 2))
        elected(Arrive(Slot("full", index=k % 2)))
"""
_CONSUMER = """    all(CtaSync())
    for k in range(0, n, 1):
        elected(Wait(Slot("full", index=k % 2), (k // 2) % 2))
        if 0 < k:
            elected(Arrive(Slot("empty", index=(k + 1) % 2)))
"""
_LAST = """    if 0 < n:
        elected(Arrive(Slot("empty", index=(n + 1) % 2)))
"""


def released_late(consumers: int, releasing_last: int = 0) -> Protocol:
    """So many consumers, of which some release the last stage, too."""
    text = f'protocol("late")\nsymbol("n")\nmbarrier("full", 2, 1)\nmbarrier("empty", 2, {consumers})\n{_PRODUCER}'
    for i in range(consumers):
        text += f'with role("consumer{i}", 32):\n{_CONSUMER}' + _LAST * (i < releasing_last)
    return from_text(text)


@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_the_last_stage_need_not_be_released(consumers: int) -> None:
    """Behind the loop the number of arrivals depends on whether it was empty; nothing uses the barrier there."""
    assert isinstance(prove(released_late(consumers)), Proved)
    assert isinstance(prove(released_late(consumers, consumers)), Proved)


def test_consumers_that_differ_in_the_last_stage_leave_a_phase_incomplete() -> None:
    """Nobody waits for that phase, so nothing is wrong with it; the event graph leaves it to canonical runs."""
    answer = prove(released_late(2, 1))
    assert isinstance(answer, Unknown)
    assert "stays incomplete" in answer.reason
    assert isinstance(check(released_late(2, 1)), Proved)


def dropped(step: Step) -> tuple[Step, ...]:
    return ()


def twice(step: Step) -> tuple[Step, ...]:
    return step, step


def other_stage(step: Step) -> tuple[Step, ...]:
    assert isinstance(step.op, ops.Arrive)
    return (replace(step, op=replace(step.op, bar=replace(step.op.bar, index=(step.op.bar.index + 1) % 2))),)


@pytest.mark.parametrize("edit", [dropped, twice, other_stage], ids=lambda x: x.__name__)
@pytest.mark.parametrize("consumers", [1, 2])
def test_altered_arrivals_are_not_proved(consumers: int, edit: Callable[[Step], tuple[Step, ...]]) -> None:
    protocol = released_late(consumers)
    altered = [
        replaced(protocol, spot, *edit(step)) for spot, step in spots(protocol) if isinstance(step.op, ops.Arrive)
    ]
    assert len(altered) == 1 + consumers
    assert not any(isinstance(prove(p), Proved) for p in altered)
