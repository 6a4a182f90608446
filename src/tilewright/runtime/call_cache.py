"""A cache of what serves repeated calls, keyed by the shape of one tensor: however many entries there are, a call is
compared with the latest one and with those of its own shape."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

MAX_SHAPES = 256
MAX_OF_SHAPE = 8
"""Beyond these, the shape used longest ago and the entry of a shape that was added first are evicted."""

T = TypeVar("T")


class CallCache(Generic[T]):
    """Entries by shape, the least recently used shape evicted first. Safe to use from several threads: an entry that is
    lost to a concurrent update is made anew."""

    def __init__(self) -> None:
        self.latest: tuple[T, ...] = ()
        """The entry used last, with which a call is compared first; one of the others, or none."""
        self._by_shape: dict[object, tuple[T, ...]] = {}

    def of_shape(self, tensor: Any) -> tuple[T, ...]:
        """Entries for tensors of the shape of this one, the newest first."""
        try:
            return self._by_shape.get(tensor.shape, ())
        except Exception:  # no tensor, or a stranger's, whose shape is no key
            return ()

    def touch(self, tensor: Any, entry: T) -> None:
        """Note that one of ``of_shape(tensor)`` was used."""
        self.latest = (entry,)
        shape = tensor.shape
        entries = self._by_shape.pop(shape, None)  # the last of a dict is the latest
        if entries is not None:
            self._by_shape[shape] = entries

    def add(self, tensor: Any, entry: T) -> None:
        """Add an entry for tensors of the shape of this one."""
        shape = tensor.shape
        entries = self._by_shape.pop(shape, ())
        if len(self._by_shape) >= MAX_SHAPES:
            oldest, *_ = self._by_shape  # all at once: other threads may add meanwhile
            self._by_shape.pop(oldest, None)
        self._by_shape[shape] = (entry, *entries[: MAX_OF_SHAPE - 1])
        self.latest = (entry,)

    def clear(self) -> None:
        """Evict all entries."""
        self.latest = ()
        self._by_shape.clear()
