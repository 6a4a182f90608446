"""What was made for kinds of calls, found by the shape of one tensor: however many there are, a call is compared with
the latest one and with those of its own shape."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

MAX_SHAPES = 256
MAX_OF_SHAPE = 8
"""Of the shapes used longest ago, and of the kinds made longest ago, none are kept."""

T = TypeVar("T")


class Kinds(Generic[T]):
    """Entries of kinds of calls. Threads may use one at the same time: an entry that another replaces is made anew."""

    def __init__(self) -> None:
        self.latest: tuple[T, ...] = ()
        """The entry that served last, with which a call is compared first; one of the others, or none."""
        self._by_shape: dict[object, tuple[T, ...]] = {}

    def alike(self, tensor: Any) -> tuple[T, ...]:
        """Entries for tensors of the shape of this one."""
        try:
            return self._by_shape.get(tensor.shape, ())
        except Exception:  # no tensor, or a stranger's, whose shape is no key
            return ()

    def served(self, tensor: Any, entry: T) -> None:
        """Note that one of ``alike(tensor)`` was used."""
        self.latest = (entry,)
        shape = tensor.shape
        entries = self._by_shape.pop(shape, None)  # the last of a dict is the latest
        if entries is not None:
            self._by_shape[shape] = entries

    def add(self, tensor: Any, entry: T) -> None:
        """Keep what serves calls such as one with this tensor."""
        shape = tensor.shape
        entries = self._by_shape.pop(shape, ())
        if len(self._by_shape) >= MAX_SHAPES:
            oldest, *_ = self._by_shape  # all at once: other threads may add meanwhile
            self._by_shape.pop(oldest, None)
        self._by_shape[shape] = (entry, *entries[: MAX_OF_SHAPE - 1])
        self.latest = (entry,)

    def clear(self) -> None:
        """Forget all."""
        self.latest = ()
        self._by_shape.clear()
