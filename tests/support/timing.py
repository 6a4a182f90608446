"""How long a call takes, on a machine that does other work beside."""

from __future__ import annotations

import time
from collections.abc import Callable


def quickest(call: Callable[[], object], bound_s: float, rounds: int = 40) -> float:
    """Processor seconds of the quickest of up to ``rounds`` calls; the first within ``bound_s`` is enough.

    What else runs takes a call's time on the clock, and through caches and shared cores its processor time as well,
    but not in every call. What is too slow by itself is so in all of them.
    """
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
        if best < bound_s:
            break
    return best
