"""Numbers that a caller hands in, whatever library they come from."""

from __future__ import annotations

from collections.abc import Hashable
from math import copysign
from typing import Any, cast


def number_of(value: object) -> int | float | None:
    """The Python number that ``value`` is: an int, a float, a NumPy scalar, an array or tensor of rank 0; None for
    anything else, for a bool or a masked element, and for a tensor on a GPU, which can't be read without waiting."""
    if type(value) is int or type(value) is float:
        return value
    try:
        if not isinstance(value, int | float) or hasattr(value, "item"):
            value = _item(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return int(value) if isinstance(value, int) else float(value)
    except Exception:  # of a class that is not ours
        return None


def kind_of(value: object) -> Hashable:
    """What values that equal each other may differ in: ``1``, ``1.0`` and ``True`` are of other types, zeros of other
    signs; of tuples that of each element."""
    if isinstance(value, tuple):
        return (type(cast(object, value)), *map(kind_of, cast("tuple[object, ...]", value)))
    return (type(value), copysign(1, value)) if isinstance(value, float) else type(value)


def is_alike(value: object, other: object) -> bool:
    """Whether they are the same object, or equal and of the same kind, so that one may stand for the other."""
    return value is other or (kind_of(value) == kind_of(other) and value == other)


def _item(value: Any) -> object:
    """The element of an array with exactly one element and no axes."""
    if getattr(value, "shape", None) != () or is_on_gpu(value) or hasattr(value, "mask"):
        return None
    return value.item()


def is_on_gpu(value: Any) -> bool:
    """Whether the value declares itself a tensor on a GPU."""
    try:
        return bool(getattr(value, "is_cuda", False))
    except Exception:  # of a class that is not ours
        return False
