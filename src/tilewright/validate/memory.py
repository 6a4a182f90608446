"""Loads and stores, element by element, the same for both sides.

Every tensor, and shared memory as a whole, has an element size; an access of several elements is one of each. What a
load gives is an atom of the place and of what stands for the memory's contents there and then.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import ElementAccess, LoopBody, Needs
from tilewright.validate.values import Value, Values

SHARED = "shared"


class Memory:
    """Makes accesses; ``element_bytes`` by tensor, and of ``shared``."""

    def __init__(self, values: Values, element_bytes: Mapping[str, int]):
        self.values, self.terms, self.cases = values, values.terms, values.cases
        self.element_bytes = element_bytes

    def load(
        self,
        region: LoopBody,
        holds: Condition,
        tensor: str,
        offset: Value,
        size: int,
        state: Value | None,
        where: str,
        order: int,
        needs: Needs,
    ) -> Value:
        """``size`` bytes at ``offset``, little-endian, as a word of as many bits; notes the accesses."""
        parts: list[tuple[Condition, Value]] = []
        for condition, base in self.values.parts(offset):
            here = self.cases.both(holds, condition)
            total = self.terms.const(8 * size, 0)
            for place, first, count, at in self._pieces(tensor, base, size):
                element = self.element_bytes[tensor]
                space = SHARED if tensor == SHARED else "global"
                region.events.append(
                    ElementAccess(f"ld.{space}", here, (tensor, place, state), where, order, needs, bytes=element)
                )
                word = self.terms.data(8 * element, 8 * element, f"ld.{space}", tensor, place, element, state)
                piece = self.terms.field(word, 8 * first, 8 * count, 8 * size)
                total = self.terms.add(total, self.terms.scale(piece, 1 << (8 * at)))
            parts.append((condition, total))
        return parts[0][1] if len(parts) == 1 else self.values.choose(parts)

    def store(
        self,
        region: LoopBody,
        holds: Condition,
        tensor: str,
        offset: Value,
        size: int,
        value: Value,
        where: str,
        order: int,
        needs: Needs,
        kind: str = "st",
        group: int = 0,
    ) -> None:
        """Notes the stores of ``size`` bytes of a word at ``offset``."""
        space = SHARED if tensor == SHARED else "global"
        for condition, base in self.values.parts(offset):
            here = self.cases.both(holds, condition)
            if here == 0:
                continue
            for place, first, count, at in self._pieces(tensor, base, size):
                if count < self.element_bytes[tensor]:
                    place = self.terms.add(place, self.terms.const(0, first))
                word = self.values.field(value, 8 * at, 8 * count, 8 * count)
                region.events.append(
                    ElementAccess(f"{kind}.{space}", here, (tensor, place, word), where, order, needs, count, group)
                )

    def _pieces(self, tensor: str, base: Poly, size: int) -> list[tuple[Poly, int, int, int]]:
        """Elements that ``size`` bytes from ``base`` on lie in: place, first byte, bytes, and where in the word.

        A base whose constant part is no multiple of an element begins inside one.
        """
        element = self.element_bytes[tensor]
        constant = next((c for m, c in base.terms if m == ()), 0)
        inside = 0
        if size < element:
            ends = {constant % element} if isinstance(constant, int) else set(map(int, constant.values % element))
            inside = ends.pop() if len(ends) == 1 else 0  # others are places that no element begins at
        found: list[tuple[Poly, int, int, int]] = []
        at = 0
        while at < size:
            count = min(element - inside, size - at)
            place = self.terms.add(base, self.terms.const(0, at - inside))
            found.append((place, inside, count, at))
            at, inside = at + count, 0
        return found
