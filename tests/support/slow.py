"""Which of a sweep runs by default: one of each branch, the rest under ``-m slow``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

import pytest


def rest_slow(every: Iterable[Any], quick: Collection[Any] | int, *, several: bool = False) -> list[Any]:
    """Parameters of a test, of which those in ``quick``, or so many first ones, run by default; tuples of them where
    the test has ``several``.

    ``quick`` names what is there, so that a case renamed does not leave the default run unnoticed.
    """
    listed = list(every)
    kept = listed[:quick] if isinstance(quick, int) else list(quick)
    missing = [each for each in kept if each not in listed]
    assert not missing, f"{missing} not among the parameters"
    slow = pytest.mark.slow
    return [
        each if each in kept else pytest.param(*each, marks=slow) if several else pytest.param(each, marks=slow)
        for each in listed
    ]


def mark_unsampled(items: Iterable[pytest.Item]) -> None:
    """Marks ``slow`` what a mark ``sample(n)``, of a test or of its file, leaves out of the default run: of each test's
    cases all but ``n``, chosen so that they have many different parameters between them."""
    for _, cases in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        family = list(cases)
        mark = family[0].get_closest_marker("sample")
        if mark is None:
            continue
        quick = [item for item in family if item.get_closest_marker("slow") is None]
        sampled = sample([_parameters(item) for item in quick], *mark.args)
        for position, item in enumerate(quick):
            if position not in sampled:
                item.add_marker(pytest.mark.slow)


def sample(cases: Sequence[Collection[Any]], count: int) -> list[int]:
    """Positions of at most ``count`` cases, each the first of those with the most values that none before it has."""
    chosen: list[int] = []
    covered: set[Any] = set()
    while len(chosen) < min(count, len(cases)):
        left = (position for position in range(len(cases)) if position not in chosen)
        chosen.append(max(left, key=lambda position: len(set(cases[position]) - covered)))
        covered.update(cases[chosen[-1]])
    return chosen


def _parameters(item: pytest.Item) -> set[tuple[str, int]]:
    params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return {(name, id(value)) for name, value in params.items()}
