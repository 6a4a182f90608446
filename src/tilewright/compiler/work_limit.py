"""A limit of CPU time for work on untrusted input."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_AGAIN = 0.5
"""Seconds after which work that has not ended is interrupted again."""
_AT_ONCE = 1e-6


class OutOfTime(BaseException):
    """The work took too long. Derives from BaseException, so that handlers of exceptions do not catch it."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` returns; ``OutOfTime`` where it takes longer than so many seconds of the processor (without those
    of the system). It is raised again and again: where exceptions are ignored (``__del__``) one is lost.

    Only signals interrupt Python, and only its main thread: elsewhere nothing ends the work, and what a library is
    asked for is finished first. A limit within another one's work leaves that what it had left, and ends no later.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()

    def ends(*_: object) -> None:
        raise OutOfTime

    begin = os.times().user
    left, again = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    before = signal.signal(signal.SIGVTALRM, ends)
    signal.setitimer(signal.ITIMER_VIRTUAL, min(seconds, left) if left else seconds, _AGAIN)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_VIRTUAL, max(left - (os.times().user - begin), _AT_ONCE), again)
