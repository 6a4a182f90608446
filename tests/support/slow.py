"""Which of a sweep runs by default: one of each branch, the rest under ``-m slow``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
