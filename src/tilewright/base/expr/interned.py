"""Hash-consing: classes with one live object for each combination of fields."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, eq_default=False)
class Interned(type):
    """Metaclass that returns the live node with the same class and fields, and makes one where there is none.

    The fields are what the class annotates, or else its base. A metaclass is needed in any case, and thirteen
    dataclasses would be a tenth of the time that ``import tilewright`` takes.
    """

    _alive: ClassVar[dict[tuple[object, ...], weakref.ref[Any]]] = {}
    _swept_at: ClassVar[int] = 1 << 12
    _making: ClassVar[threading.Lock] = threading.Lock()

    if not TYPE_CHECKING:  # its fields tell a type checker what a class takes

        def __new__(mcs, name, bases, namespace):
            fields = tuple(namespace.get("__annotations__", ())) or (bases[0].__match_args__ if bases else ())
            return super().__new__(mcs, name, bases, {**namespace, "__match_args__": fields})

        def __call__(cls, *fields):
            key = (cls, *fields)
            known = Interned._alive.get(key)
            node = None if known is None else known()
            return cls._make(key) if node is None else node

    def _make(cls, key: tuple[object, ...]) -> Any:
        with Interned._making:
            alive = Interned._alive
            known = alive.get(key)
            node = None if known is None else known()
            if node is None:
                node = super().__call__(*key[1:])
                alive[key] = weakref.ref(node)
                if len(alive) > Interned._swept_at:
                    Interned._sweep()
            return node

    @staticmethod
    def _sweep() -> None:
        """Drop entries of dead nodes. Keys keep the children of their nodes alive, which are dropped by the next
        sweep."""
        alive = Interned._alive
        for key in [key for key, known in alive.items() if known() is None]:
            del alive[key]
        Interned._swept_at = max(1 << 12, 2 * len(alive))


@dataclass_transform(frozen_default=True, eq_default=False)
class InternedNumber(Interned):
    """The same for constants; enumerators and truth values become the int that they equal."""

    if not TYPE_CHECKING:

        def __call__(cls, value):
            return super().__call__(int(value))
