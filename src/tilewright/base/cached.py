"""Properties that are computed when first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """``functools.cached_property`` without the lock that it takes in Python 3.11, which costs more than most of these
    computations."""

    def __init__(self, compute: Callable[[Any], T]):
        self.compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, node: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, node: object, owner: type | None = None) -> T: ...
    def __get__(self, node: object | None, owner: type | None = None) -> cached_property[T] | T:
        if node is None:
            return self
        value = node.__dict__[self.name] = self.compute(node)
        return value
