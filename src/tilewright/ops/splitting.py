"""Into how many parts decode cuts a sequence. Chosen from shapes, so that nobody waits for the lengths."""

from __future__ import annotations

from functools import cache

from tilewright.hw.target import SM90A

MAX_PARTS = 128
"""Of a sequence: the merge reads the states of all."""
_OF_A_PART = 3
"""Steps that a part costs besides its own: for its queries, its state and the merge."""


@cache
def steps_of_a_part(programs: int, steps: int, processors: int = SM90A.sm_count) -> int:
    """The steps of a part (``chunk`` of ``kernels.paged_decode``) where each of ``programs`` has up to ``steps``: of
    all numbers of parts the one whose rounds of CTAs need the fewest in all. At least 1."""

    def price(parts: int) -> int:
        chunk = -(-steps // parts)
        return -(-programs * -(-steps // chunk) // processors) * (chunk + _OF_A_PART)

    best = min(range(1, min(steps, MAX_PARTS) + 1), key=price, default=1)
    return max(1, -(-steps // best))
