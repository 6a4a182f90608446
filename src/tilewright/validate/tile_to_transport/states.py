"""Scans by functions of the user's: a running state is the word of the states that it combines, in their order.

Of the function nothing is known but that it is associative. So its applications are those of a group that does not
commute: pairs of numbers with (a, b) (c, d) = (a + c, b + 5**a d), of which two words are equal by accident only. A
state of several values has one ``a`` and a ``b`` for each other value; a state of one value is split into halves, and
words of it are told apart by 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.base.dtypes import f32
from tilewright.lang.enums import BinaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import tile_type
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, key, mix, unmix

_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


@dataclass(frozen=True)
class Step:
    """An op of a function: its kind, what it says, its operands and its result."""

    kind: type[Operation]
    said: tuple[object, ...]
    operands: tuple[SSAValue, ...]
    result: SSAValue


class StateFunction:
    """The function of a scan. ``outside`` names the scalars that it reads besides. In arithmetic of ``reals`` a product
    and a sum may be one op."""

    def __init__(self, scan: tile.Scan, outside: Mapping[SSAValue, str], *, reals: bool = False):
        self.ops, self.results = scan.combining
        self.arguments, self.count = tuple(scan.body.block.args), scan.count
        self.outside = {v: name for v, name in outside.items() if any(v in op.operands for op in self.ops)}
        numbers = {v: str(i) for i, v in enumerate((*self.arguments, *(op.results[0] for op in self.ops)))}
        named = {**self.outside, **numbers}
        self._name = tuple((op.name, *(named.get(v) for v in op.operands), _said(op)) for op in self.ops)
        steps = [Step(type(op), _said(op), tuple(op.operands), op.results[0]) for op in self.ops]
        self.forms = [steps, self._contracted(steps)] if reals else [steps]
        """The ops by which it may be applied."""

    def _contracted(self, steps: Sequence[Step]) -> list[Step]:
        """Each product of f32 that only a sum reads is a multiply-add with it."""
        reads = [v for step in steps for v in step.operands] + list(self.results)
        products: dict[SSAValue, Operation] = {op.results[0]: op for op in self.ops if _is_f32(op, BinaryFn.MUL)}
        found: list[Step] = []
        for step in steps:
            inner = next((v for v in step.operands if v in products and reads.count(v) == 1), None)
            if inner is not None and _is_f32(step.result.owner, BinaryFn.ADD):
                (other,) = (v for v in step.operands if v is not inner)
                found = [each for each in found if each.result is not inner]
                step = Step(t.Fma, (), (*products[inner].operands, other), step.result)
            found.append(step)
        return found

    def applied(
        self, ops: Sequence[Operation], is_outside: Callable[[SSAValue, str], bool]
    ) -> tuple[list[SSAValue], list[SSAValue]] | None:
        """What the function is applied to and what it makes of that, where the last ``ops`` are its own on other
        operands."""
        forms = (steps for steps in self.forms if len(steps) <= len(ops))
        matched = (self._matched(steps, ops[-len(steps) :], is_outside) for steps in forms)
        return next((found for found in matched if found is not None), None)

    def _matched(
        self, steps: Sequence[Step], ops: Sequence[Operation], is_outside: Callable[[SSAValue, str], bool]
    ) -> tuple[list[SSAValue], list[SSAValue]] | None:
        found: dict[SSAValue, SSAValue] = {}
        for mine, theirs in zip(steps, ops, strict=True):
            if mine.kind is not type(theirs) or len(mine.operands) != len(theirs.operands):
                return None
            for x, y in zip(mine.operands, theirs.operands, strict=True):
                if not is_outside(y, self.outside[x]) if x in self.outside else found.setdefault(x, y) != y:
                    return None
            found[mine.result] = theirs.results[0]
        if any(step.said != _said(op) for step, op in zip(steps, ops, strict=True) if step.kind is not t.Fma):
            return None
        made = [found[v] for v in self.results if v in found and v not in self.arguments]
        if len(set(made)) < self.count or any(v not in found for v in self.arguments):
            return None
        return [found[v] for v in self.arguments], made

    # -- words --------------------------------------------------------------------------------------------------------
    def into(self, state: Sequence[Fingerprints]) -> list[Fingerprints]:
        """The pair, or more, of a state's values: all of them enter the first."""
        if self.count == 1:
            x = mix(state[0], self.key())
            return [x >> _HALF, x & _LOW]
        rest = list(state[1:])
        first = mix(state[0], self.key()) + self._of_rest(rest)
        return [first, *(mix(x, self.key(i)) + mix(first, self.key("tail", i)) for i, x in enumerate(rest))]

    def back(self, image: Sequence[Fingerprints]) -> list[Fingerprints]:
        """A state's values, of their image."""
        first, *others = image
        if self.count == 1:
            return [unmix((first << _HALF) | others[0], self.key())]
        rest = [unmix(x - mix(first, self.key("tail", i)), self.key(i)) for i, x in enumerate(others)]
        return [unmix(first - self._of_rest(rest), self.key()), *rest]

    def joined(self, before: Sequence[Fingerprints], after: Sequence[Fingerprints]) -> list[Fingerprints]:
        """The image of two words, one behind the other."""
        power = _power(before[0])
        rest = [b + power * d for b, d in zip(before[1:], after[1:], strict=True)]
        return [self.cut(x) for x in (before[0] + after[0], *rest)]

    def running(self, images: Sequence[Fingerprints], axis: int) -> list[Fingerprints]:
        """The images of all beginnings along an axis."""
        first = np.cumsum(images[0], axis, dtype=np.uint64)
        power = _power(first - images[0])
        return [self.cut(x) for x in (first, *(np.cumsum(b * power, axis, dtype=np.uint64) for b in images[1:]))]

    def matrix(self, image: Sequence[Fingerprints]) -> tuple[Fingerprints, ...]:
        """The first row of the matrix (5**a, b; 0, 1) of a word, by which words are multiplied, too."""
        return (_power(image[0]), *image[1:])

    def __call__(self, *values: Fingerprints) -> list[Fingerprints]:
        """The function of two states."""
        return self.back(self.joined(self.into(values[: self.count]), self.into(values[self.count :])))

    def _of_rest(self, rest: Sequence[Fingerprints]) -> Fingerprints:
        return np.asarray(sum(mix(x, self.key("head", i)) for i, x in enumerate(rest)))

    def cut(self, x: Fingerprints) -> Fingerprints:
        """The bits of a number by which words are told apart."""
        return x & _LOW if self.count == 1 else x

    def key(self, *what: object) -> int:
        """A key of this function's own."""
        return key("state", *self._name, *what)


def _is_f32(op: object, fn: BinaryFn) -> bool:
    return isinstance(op, tile.Binary) and op.fn.data is fn and tile_type(op.a).element == f32


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
