"""Fingerprints of terms: a term is a 64-bit number, an array of terms an array of numbers.

Uninterpreted functions are mixed with a key of their own, and what associates and commutes is a sum in an image of the
numbers under a bijection of its own, so that terms which are equal under the written identities have equal
fingerprints. Two other terms have equal ones by accident only, of a chance of about 2**-64 for each pair
(random interpretation: Gulwani and Necula, POPL 2003).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Fingerprints: TypeAlias = npt.NDArray[np.uint64]
"""Fingerprints of several terms."""

_BITS = 1 << 64
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_HALF, _PART = np.uint64(32), np.uint64(29)
_INVERSES = pow(_FIRST, -1, _BITS), pow(_SECOND, -1, _BITS)


@lru_cache(maxsize=1 << 14)
def key(*names: object) -> int:
    """A number for a name, the same in every run; odd, so that it can be divided by."""
    return int.from_bytes(blake2b(repr(names).encode(), digest_size=8).digest(), "little") | 1


def word(value: int) -> np.uint64:
    """An integer modulo 2**64."""
    return np.uint64(value % _BITS)


def fingerprints(values: Any) -> Fingerprints:
    """Integers as their own fingerprints, at least one-dimensional as numpy computes modulo 2**64 on arrays alone."""
    if isinstance(values, int):
        return np.array([values % _BITS], np.uint64)
    return np.asarray(values).astype(np.uint64, copy=False)


def mix(x: Fingerprints, name: int) -> Fingerprints:
    """A bijection of 64-bit numbers, another for every ``name``."""
    y = x + np.uint64(name)
    y *= np.uint64(_FIRST)
    y ^= y >> _HALF
    y *= np.uint64(_SECOND)
    y ^= y >> _PART
    return y


def unmix(y: Fingerprints, name: int) -> Fingerprints:
    """The inverse of ``mix``."""
    x = y ^ (y >> _PART)
    x ^= y >> np.uint64(58)
    x *= np.uint64(_INVERSES[1])
    x ^= x >> _HALF
    x *= np.uint64(_INVERSES[0])
    x -= np.uint64(name)
    return x


def term(name: object, *args: Fingerprints) -> Fingerprints:
    """An uninterpreted function of ordered arguments."""
    total = args[0]
    for place, arg in enumerate(args[1:], 1):
        total = total + mix(arg, key("argument", place))
    return mix(total, key("function", name))


def unordered(name: object, a: Fingerprints, b: Fingerprints) -> Fingerprints:
    """A commutative function of two arguments without further properties."""
    return mix(mix(a, key("either")) + mix(b, key("either")), key("function", name))


@lru_cache(maxsize=64)
def _offset(name: object, identity: int) -> np.uint64:
    return mix(fingerprints(identity), key("group", name))[0]


class Group:
    """An operation that associates and commutes, with its identity: addition in the image of ``into``."""

    def __init__(self, name: str, identity: int, *, plain: bool = False):
        self.name, self.identity, self.plain = name, identity % _BITS, plain
        self._key = key("group", name)
        self._offset = np.uint64(0) if plain else _offset(name, self.identity)

    def into(self, x: Fingerprints) -> Fingerprints:
        """The image of terms; the identity's is 0."""
        return x if self.plain else mix(x, self._key) - self._offset

    def back(self, y: Fingerprints) -> Fingerprints:
        """Terms, of their images."""
        return y if self.plain else unmix(y + self._offset, self._key)

    def __call__(self, a: Fingerprints, b: Fingerprints) -> Fingerprints:
        return self.back(self.into(a) + self.into(b))


COUNTED = key("counted")
"""Of an element that a bin counts."""


def bins_of(count: int) -> Fingerprints:
    """What the counted elements are multiplied by in each bin, so that counts add up as the elements do."""
    return mix(fingerprints(np.arange(count)), key("bin")) | np.uint64(1)
