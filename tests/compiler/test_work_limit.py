"""Work that takes too long is ended, whatever it catches on its way."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest

from tilewright.compiler.work_limit import OutOfTime, within


def endless() -> None:
    """Work that takes every exception for one of its own."""
    while True:
        try:
            sum(range(1000))
        except Exception:
            continue


def test_endless_work_is_ended() -> None:
    begin = time.process_time()
    with pytest.raises(OutOfTime):
        within(0.05, endless)
    assert time.process_time() - begin < 5


def compute(seconds: float) -> None:
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        sum(range(10_000))


class Busy:
    """What is ignored is raised while it goes."""

    def __del__(self) -> None:
        compute(0.3)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_work_is_ended_where_the_first_interruption_is_ignored() -> None:
    def work() -> None:
        busy = Busy()
        del busy
        compute(10)

    begin = time.process_time()
    with pytest.raises(OutOfTime):
        within(0.05, work)
    assert time.process_time() - begin < 5


def test_work_in_time_is_done_and_nothing_ends_what_follows() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    assert within(0.05, lambda: 7) == 7
    begin = time.process_time()
    while time.process_time() - begin < 0.1:
        pass
    assert signal.getsignal(signal.SIGVTALRM) == before


def test_an_inner_limit_ends_its_own_work_alone() -> None:
    def work() -> str:
        with pytest.raises(OutOfTime):
            within(0.05, endless)
        return "on"

    assert within(60, work) == "on"


def test_an_outer_limit_holds_behind_an_inner_one() -> None:
    begin = time.process_time()
    with pytest.raises(OutOfTime):
        within(0.2, lambda: (within(60, lambda: 7), compute(10)))
    assert time.process_time() - begin < 5


def test_an_outer_limit_ends_inner_work() -> None:
    """However the work takes the end of the inner one."""

    def work() -> None:
        with contextlib.suppress(OutOfTime):
            within(60, endless)
        compute(10)

    begin = time.process_time()
    with pytest.raises(OutOfTime):
        within(0.05, work)
    assert time.process_time() - begin < 5


def test_time_of_an_inner_limit_is_that_of_the_outer_one() -> None:
    begin = time.process_time()
    with pytest.raises(OutOfTime):
        within(1, lambda: [within(60, lambda: compute(0.2)) for _ in range(50)])
    assert time.process_time() - begin < 5


def test_an_error_of_the_work_stays_one() -> None:
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)


def test_nothing_interrupts_another_thread() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(within(0.001, lambda: sum(range(1_000_000)))))
    thread.start()
    thread.join()
    assert found == [499_999_500_000]
