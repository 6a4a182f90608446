"""What is kept of kinds of calls: found by shape, and no more than a bound of them."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.runtime import kinds
from tilewright.runtime.kinds import Kinds


class Shaped:
    """A tensor, as far as it is looked at."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape


class Strange:
    """Without a shape that is a key."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("none")


def test_entries_are_found_by_shape_the_latest_first() -> None:
    known = Kinds[str]()
    assert known.latest == known.alike(Shaped(3)) == ()
    known.add(Shaped(3), "a")
    known.add(Shaped(4), "b")
    known.add(Shaped(3), "c")
    assert known.latest == ("c",)
    assert known.alike(Shaped(3)) == ("c", "a")
    known.served(Shaped(4), "b")
    assert known.latest == ("b",)
    for tensor in (None, 3, Strange(), Shaped([])):  # type: ignore[arg-type]
        assert known.alike(tensor) == ()
    known.clear()
    assert known.latest == known.alike(Shaped(4)) == ()


def test_what_was_used_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MAX_SHAPES", 3)
    known = Kinds[int]()
    for rows in range(3):
        known.add(Shaped(rows), rows)
    known.served(Shaped(0), 0)
    known.add(Shaped(3), 3)
    assert [known.alike(Shaped(rows)) for rows in range(4)] == [(0,), (), (2,), (3,)]
    known.add(Shaped(0), 4)  # of a shape that is there
    assert [known.alike(Shaped(rows)) for rows in range(4)] == [(4, 0), (), (2,), (3,)]
    for entry in range(20):
        known.add(Shaped(0), entry)
    assert known.alike(Shaped(0)) == tuple(range(19, 11, -1))
