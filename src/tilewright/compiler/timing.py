"""How long the passes of a compilation take, for whoever asks.

    with watch() as stopwatch:
        build(plan(request))
    stopwatch.seconds          {"trace": 0.004, "schedule": 0.02, "prove": 0.01, "emit": 0.002, "assemble": 0.3}

Every pass is charged its own time only: a proof asked for by the schedule counts as ``prove``. Unwatched passes cost a
look at a context variable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Stopwatch:
    """Seconds by pass, in the order in which the passes first ended, by ``clock``."""

    clock: Callable[[], float] = time.perf_counter
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    _inner: list[float] = field(default_factory=list[float])  # time of the passes inside each open one

    @contextmanager
    def run(self, name: str) -> Generator[None]:
        """Charges the time spent inside to ``name``, except what inner passes are charged."""
        self._inner.append(0.0)
        begin = self.clock()
        try:
            yield
        finally:
            whole = self.clock() - begin
            own = whole - self._inner.pop()
            self.seconds[name] = self.seconds.get(name, 0.0) + own
            if self._inner:
                self._inner[-1] += whole


_watching: ContextVar[Stopwatch | None] = ContextVar("watching", default=None)


@contextmanager
def watch(clock: Callable[[], float] = time.perf_counter) -> Generator[Stopwatch]:
    """Times the passes that run inside, in this thread or task; ``time.thread_time`` leaves out other processes and the
    assembler's threads."""
    stopwatch = Stopwatch(clock)
    token = _watching.set(stopwatch)
    try:
        yield stopwatch
    finally:
        _watching.reset(token)


@contextmanager
def timed(name: str) -> Generator[None]:
    """Marks a pass; a ``with`` block or a decorator."""
    stopwatch = _watching.get()
    if stopwatch is None:
        yield
        return
    with stopwatch.run(name):
        yield
