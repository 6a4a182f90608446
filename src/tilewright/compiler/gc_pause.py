"""Python's cycle collector rests while a kernel is compiled.

A compilation allocates hundreds of thousands of small objects and drops few; each of the collector's full passes walks
all of them and everything that xDSL keeps alive, in vain. Without them the passes of softmax take 0.21 s instead of
0.38 s in a process that has compiled before.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Generator[None]:
    """A ``with`` block or a decorator. On leaving, the collector is as it was; several threads may be inside."""
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            gc.enable()
