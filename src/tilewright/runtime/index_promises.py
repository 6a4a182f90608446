"""What launches found broken of the promises that kernels rely on, reported by later calls.

A program's steps count broken promises in page-locked memory of the host, which outlives a call; where none is broken
they touch none of it. Nobody waits: a later call, of any program, reads what has arrived.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import NoReturn

from tilewright.diag import fail
from tilewright.runtime.driver import DriverLike

_WORD_BYTES = 4


class Failures:
    """The counts of one program on one device: ``device`` is their address there."""

    def __init__(self, kernel: str, promises: Sequence[str], driver: DriverLike, context: int) -> None:
        self.device, host = driver.allocate_kept(_WORD_BYTES * len(promises))
        self._words = (ctypes.c_uint32 * len(promises)).from_address(host)
        self._kernel, self._promises, self._driver, self._context = kernel, tuple(promises), driver, context
        self._reported = [0] * len(promises)
        EVERY.append(self)

    def wait(self) -> None:
        """Until everything that was queued has run, and its counts are here."""
        self._driver.synchronize(self._context)

    def report(self) -> None:
        """RUN023, once for what was found since the last time."""
        new: list[str] = []
        with _LOCK:
            for number, word in enumerate(self._words):
                if word != self._reported[number]:
                    self._reported[number] = word
                    new.append(self._promises[number])
        if new:
            refuse(self._kernel, new)


EVERY: list[Failures] = []
"""Every count of the process: a call of one kernel reports what an earlier one of another found."""
_LOCK = threading.Lock()


def refuse(kernel: str, promises: Sequence[str]) -> NoReturn:
    """RUN023 for promises that a launch of ``kernel`` found broken."""
    fail(
        "RUN023",
        found=f"{', '.join(promises)} of {kernel}: the launch stored nothing",
        required="integers for which it holds",
        help="correct the tensor, or add with tw.reduce_add; tw.check() right after a call tells which it was",
    )


def forget(failures: Failures) -> None:
    """Report it no more: the program is closed."""
    if failures in EVERY:
        EVERY.remove(failures)


def report() -> None:
    """RUN023 if a launch has been found out that was not reported yet; waits for nothing."""
    for failures in EVERY:  # none, for most processes
        failures.report()


def check() -> None:
    """RUN023 if a launch so far broke a promise; waits for the launches."""
    for failures in EVERY:
        failures.wait()
    report()
