"""Which cases of a sampled test run by default."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from support.slow import mark_unsampled, sample

SIZES, LAYOUTS = (1, 64, 65), ("nn", "nt", "tn")


class Item:
    """What ``mark_unsampled`` asks of a case: its name, marks and parameters."""

    def __init__(self, name: str, params: dict[str, Any], *marks: pytest.Mark) -> None:
        self.nodeid, self.marks, self.callspec = name, list(marks), SimpleNamespace(params=params)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def test_chosen_cases_have_different_parameters() -> None:
    cases = list(product(SIZES, LAYOUTS))
    assert [cases[at] for at in sample(cases, 3)] == [(1, "nn"), (64, "nt"), (65, "tn")]


def test_no_more_cases_than_there_are() -> None:
    assert sorted(sample(list(product(SIZES, LAYOUTS)), 20)) == list(range(9))
    assert sample([()], 2) == [0]


def test_the_others_are_slow() -> None:
    two = pytest.mark.sample(2).mark
    sampled = [Item(f"t[{m}-{layout}]", {"m": m, "layout": layout}, two) for m, layout in product(SIZES, LAYOUTS)]
    others = [Item(f"u[{m}]", {"m": m}) for m in SIZES]
    mark_unsampled([*sampled, *others])  # type: ignore[arg-type]
    quick = [item.nodeid for item in [*sampled, *others] if item.get_closest_marker("slow") is None]
    assert quick == ["t[1-nn]", "t[64-nt]", "u[1]", "u[64]", "u[65]"]


def test_cases_that_are_slow_anyway_are_not_chosen() -> None:
    one, slow = pytest.mark.sample(1).mark, pytest.mark.slow.mark
    items = [Item("t[1]", {"m": 1}, one, slow), Item("t[64]", {"m": 64}, one)]
    mark_unsampled(items)  # type: ignore[arg-type]
    assert items[1].get_closest_marker("slow") is None
