"""The most turns between two places of a product, against paths enumerated one by one."""

from __future__ import annotations

import random

import pytest

from tilewright.verify.parametric.paths import FAR, Paths

Edges = dict[int, list[tuple[int, tuple[int, ...]]]]


def walks(start: int, goal: int, inside: set[int], edges: Edges, length: int) -> set[tuple[int, ...]]:
    """The turns of every walk from ``start`` to ``goal`` through ``inside``, of at most ``length`` edges."""
    found: set[tuple[int, ...]] = set()
    here = {(start, (0, 0))}
    for _ in range(length):
        here = {
            (x, (total[0] + turned[0], total[1] + turned[1]))
            for at, total in here
            for x, turned in edges[at]
            if x in inside or x == goal
        }
        found |= {total for at, total in here if at == goal}
        here = {(at, total) for at, total in here if at in inside}
    return found


@pytest.mark.parametrize("seed", range(300))
def test_longest_paths(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(2, 5)
    turning = rng.choice((0.0, 0.2, 0.6))
    edges: Edges = {
        at: [
            (x, (int(rng.random() < turning), int(rng.random() < turning))) for x in range(size) if rng.random() < 0.35
        ]
        for at in range(size)
    }
    start, goal = rng.randrange(size), rng.randrange(size)
    forward, backward = {start}, {goal}
    for _ in range(size):
        forward |= {x for at in forward for x, _ in edges[at]}
        backward |= {at for at in edges for x, _ in edges[at] if x in backward}
    inside = forward & backward - ({start} if seed % 2 else set())
    if goal not in forward:
        return
    paths = Paths.__new__(Paths)
    paths.j = 2
    answer = paths._longest(start, goal, inside, lambda at: edges[at])  # pyright: ignore[reportPrivateUsage]
    short, long = (walks(start, goal, inside, edges, length) for length in (2 * size, 6 * size))
    if answer == (FAR, FAR):
        assert max(map(sum, long)) > max(map(sum, short), default=0)
    else:
        assert answer == tuple(max((total[k] for total in long), default=0) for k in range(2))
