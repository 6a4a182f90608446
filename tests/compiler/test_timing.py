"""Every pass is charged its own time."""

from __future__ import annotations

import pytest

from tilewright.compiler.timing import timed, watch


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


def test_time_of_inner_passes_is_theirs(clock: list[float]) -> None:
    @timed("prove")
    def prove() -> None:
        clock[0] += 2.0

    with watch(lambda: clock[0]) as stopwatch, timed("schedule"):
        clock[0] += 1.0
        prove()
        prove()
        clock[0] += 4.0
    assert stopwatch.seconds == {"prove": 4.0, "schedule": 5.0}


def test_a_pass_that_raises_is_charged(clock: list[float]) -> None:
    @timed("prove")
    def fails() -> None:
        clock[0] += 3.0
        raise ValueError("no")

    with watch(lambda: clock[0]) as stopwatch:
        with pytest.raises(ValueError, match="no"), timed("schedule"):
            fails()
        with timed("schedule"):
            clock[0] += 1.0
    assert stopwatch.seconds == {"prove": 3.0, "schedule": 1.0}


def test_nothing_is_kept_when_nobody_watches(clock: list[float]) -> None:
    with watch(lambda: clock[0]) as stopwatch:
        pass
    with timed("trace"):
        clock[0] += 1.0
    assert stopwatch.seconds == {}


def test_the_inner_watch_hears(clock: list[float]) -> None:
    with watch(lambda: clock[0]) as outer:
        with watch(lambda: clock[0]) as inner, timed("trace"):
            clock[0] += 1.0
        with timed("emit"):
            clock[0] += 2.0
    assert (inner.seconds, outer.seconds) == ({"trace": 1.0}, {"emit": 2.0})
