"""Scans by functions of the user's: a running state is the word of the states that it combines, in their order.

Of the function nothing is known but that it is associative. So its applications are those of a group that does not
commute: pairs of numbers with (a, b) (c, d) = (a + c, b + 5**a d), of which two words are equal by accident only. A
state of several values has one ``a`` and a ``b`` for each other value; a state of one value is split into halves, and
words of it are told apart by 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.tile import dialect as tile
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, key, mix, unmix

_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


class StateFunction:
    """The function of a scan. ``outside`` names the scalars that it reads besides."""

    def __init__(self, scan: tile.Scan, outside: Mapping[SSAValue, str]):
        self.ops, self.results = scan.combining
        self.arguments, self.count = tuple(scan.body.block.args), scan.count
        self.outside = {v: name for v, name in outside.items() if any(v in op.operands for op in self.ops)}
        numbers = {v: str(i) for i, v in enumerate((*self.arguments, *(op.results[0] for op in self.ops)))}
        named = {**self.outside, **numbers}
        self._name = tuple((op.name, *(named.get(v) for v in op.operands), _said(op)) for op in self.ops)

    def applied(
        self, ops: Sequence[Operation], is_outside: Callable[[SSAValue, str], bool]
    ) -> tuple[list[SSAValue], list[SSAValue]] | None:
        """What the function is applied to and what it makes of that, where ``ops`` are its own on other operands."""
        found: dict[SSAValue, SSAValue] = {}
        for mine, theirs in zip(self.ops, ops, strict=True):
            if _said(mine) != _said(theirs) or len(mine.operands) != len(theirs.operands):
                return None
            for x, y in zip(mine.operands, theirs.operands, strict=True):
                if not is_outside(y, self.outside[x]) if x in self.outside else found.setdefault(x, y) != y:
                    return None
            found[mine.results[0]] = theirs.results[0]
        made = [found[v] for v in self.results if v in found and v not in self.arguments]
        if len(set(made)) < self.count or any(v not in found for v in self.arguments):
            return None
        return [found[v] for v in self.arguments], made

    # -- words --------------------------------------------------------------------------------------------------------
    def into(self, state: Sequence[Fingerprints]) -> list[Fingerprints]:
        """The pair, or more, of a state's values: all of them enter the first."""
        if self.count == 1:
            x = mix(state[0], self._key())
            return [x >> _HALF, x & _LOW]
        rest = list(state[1:])
        first = mix(state[0], self._key()) + self._of_rest(rest)
        return [first, *(mix(x, self._key(i)) + mix(first, self._key("tail", i)) for i, x in enumerate(rest))]

    def back(self, image: Sequence[Fingerprints]) -> list[Fingerprints]:
        """A state's values, of their image."""
        first, *others = image
        if self.count == 1:
            return [unmix((first << _HALF) | others[0], self._key())]
        rest = [unmix(x - mix(first, self._key("tail", i)), self._key(i)) for i, x in enumerate(others)]
        return [unmix(first - self._of_rest(rest), self._key()), *rest]

    def joined(self, before: Sequence[Fingerprints], after: Sequence[Fingerprints]) -> list[Fingerprints]:
        """The image of two words, one behind the other."""
        power = _power(before[0])
        rest = [b + power * d for b, d in zip(before[1:], after[1:], strict=True)]
        return [self._cut(x) for x in (before[0] + after[0], *rest)]

    def running(self, images: Sequence[Fingerprints], axis: int) -> list[Fingerprints]:
        """The images of all beginnings along an axis."""
        first = np.cumsum(images[0], axis, dtype=np.uint64)
        power = _power(first - images[0])
        return [self._cut(x) for x in (first, *(np.cumsum(b * power, axis, dtype=np.uint64) for b in images[1:]))]

    def __call__(self, *values: Fingerprints) -> list[Fingerprints]:
        """The function of two states."""
        return self.back(self.joined(self.into(values[: self.count]), self.into(values[self.count :])))

    def value(self, place: int) -> Callable[..., Fingerprints]:
        """One of its values alone."""
        return lambda *values: self(*values)[place]

    def _of_rest(self, rest: Sequence[Fingerprints]) -> Fingerprints:
        return np.asarray(sum(mix(x, self._key("head", i)) for i, x in enumerate(rest)))

    def _cut(self, x: Fingerprints) -> Fingerprints:
        return x & _LOW if self.count == 1 else x

    def _key(self, *what: object) -> int:
        return key("state", *self._name, *what)


def _said(op: Operation) -> tuple[object, ...]:
    """What an op is, but for its operands and its place."""
    held: dict[str, Attribute] = {**op.attributes, **op.properties}
    told = tuple(
        sorted((name, str(value)) for name, value in held.items() if name != "loc" or not isinstance(value, StringAttr))
    )
    return op.name, told, tuple(str(r.type) for r in op.results)


@lru_cache(maxsize=1)
def _tables() -> list[Fingerprints]:
    """5**(256**k n) by k and n."""
    return [np.array([pow(5, n << 8 * k, 1 << 64) for n in range(256)], np.uint64) for k in range(8)]


def _power(exponent: Fingerprints) -> Fingerprints:
    """5**x modulo 2**64, whose order is 2**62."""
    result = np.ones_like(exponent)
    for k, table in enumerate(_tables()):
        result = result * table[(exponent >> np.uint64(8 * k)) & np.uint64(255)]
    return result
