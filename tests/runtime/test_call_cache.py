"""The cache of calls: entries are found by shape, and their number is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.runtime import call_cache
from tilewright.runtime.call_cache import CallCache


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
    cache = CallCache[str]()
    assert cache.latest == cache.of_shape(Shaped(3)) == ()
    cache.add(Shaped(3), "a")
    cache.add(Shaped(4), "b")
    cache.add(Shaped(3), "c")
    assert cache.latest == ("c",)
    assert cache.of_shape(Shaped(3)) == ("c", "a")
    cache.touch(Shaped(4), "b")
    assert cache.latest == ("b",)
    for tensor in (None, 3, Strange(), Shaped([])):  # type: ignore[arg-type]
        assert cache.of_shape(tensor) == ()
    cache.clear()
    assert cache.latest == cache.of_shape(Shaped(4)) == ()


def test_the_least_recently_used_shape_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "MAX_SHAPES", 3)
    cache = CallCache[int]()
    for rows in range(3):
        cache.add(Shaped(rows), rows)
    cache.touch(Shaped(0), 0)
    cache.add(Shaped(3), 3)
    assert [cache.of_shape(Shaped(rows)) for rows in range(4)] == [(0,), (), (2,), (3,)]
    cache.add(Shaped(0), 4)  # of a shape that is there
    assert [cache.of_shape(Shaped(rows)) for rows in range(4)] == [(4, 0), (), (2,), (3,)]
    for entry in range(20):
        cache.add(Shaped(0), entry)
    assert cache.of_shape(Shaped(0)) == tuple(range(19, 11, -1))
