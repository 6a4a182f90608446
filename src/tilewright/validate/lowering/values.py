"""Values of threads' registers: a term for each register, and under which bounds it is that.

A register may hold a term only where some bounds hold: beyond them it is what an access with a guard or a ``select``
leaves there (``beyond``), or nothing that is known (``need``). Tile IR has no value there at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.validate.lowering.arithmetic import Arithmetic
from tilewright.validate.lowering.integers import ALWAYS, NEVER, Bounds, Numbers, merged
from tilewright.validate.lowering.prints import Prints, key, mix, prints

Atoms = Mapping[int, Numbers]
"""Thresholds by the form that must exceed them."""


@dataclass(frozen=True)
class Value:
    """``terms`` where ``need`` and ``guard`` hold; where a bound of ``guard`` does not, ``beyond``."""

    terms: Prints
    guard: Atoms = field(default_factory=dict[int, Numbers])
    beyond: Prints | None = None
    need: Atoms = field(default_factory=dict[int, Numbers])

    @property
    def needs(self) -> Atoms:
        """All bounds under which it is ``terms``."""
        return merged(self.need, self.guard)

    def flat(self) -> Value:
        """Without what lies beyond its guard."""
        return self if not self.guard else Value(self.terms, need=self.needs)

    def folded(self, arithmetic: Arithmetic) -> Value:
        """Without a guard: where 0 lies beyond it, it is a factor of the value, as far as products tell."""
        if not self.guard or self.beyond is None or self.beyond.any():
            return self.flat()
        return Value(arithmetic.weighed(self.terms, weight(self.guard)), need=self.need)

    def at(self, pick: Callable[[Numbers], Numbers]) -> Value:
        """The registers that ``pick`` takes out of an array of them."""
        return Value(
            pick(self.terms),
            {f: pick(c) for f, c in self.guard.items()},
            None if self.beyond is None else pick(self.beyond),
            {f: pick(c) for f, c in self.need.items()},
        )


def same(a: Atoms, b: Atoms) -> bool:
    """The same bounds for every register."""
    return a is b or (a.keys() == b.keys() and all(c is b[f] or np.array_equal(c, b[f]) for f, c in a.items()))


def element_wise(fn: Callable[..., Prints], args: Sequence[Value]) -> Value:
    """A function of each register's values."""
    guarded = [a for a in args if a.guard]
    if guarded and not all(same(a.guard, guarded[0].guard) and a.beyond is not None for a in guarded):
        args, guarded = [a.flat() for a in args], []
    need: dict[int, Numbers] = {}
    for a in args:
        need = merged(need, a.need)
    terms = fn(*(a.terms for a in args))
    if not guarded:
        return Value(terms, need=need)
    return Value(terms, guarded[0].guard, fn(*(a.terms if a.beyond is None else a.beyond for a in args)), need)


def without(need: Atoms, given: Atoms) -> dict[int, Numbers]:
    """Of some bounds those that given ones don't imply."""
    left: dict[int, Numbers] = {}
    for form, threshold in need.items():
        if form not in given:
            left[form] = threshold
        elif not (met := threshold <= given[form]).all():
            left[form] = np.where(met, ALWAYS, threshold)
    return left


def chosen(bounds: Bounds, a: Value, b: Value) -> Value:
    """``a`` where the bounds hold, else ``b``."""
    if bounds.decided:
        if bounds.mask.all():
            return a
        return where(bounds.mask, a, b)
    atoms = dict(bounds.atoms)
    if not bounds.mask.all():
        form = next(iter(atoms))
        atoms[form] = np.where(bounds.mask, atoms[form], NEVER)
    b = b.flat()
    return Value(a.terms, atoms, b.terms, merged(without(a.needs, atoms), b.need))


def where(mask: Numbers, a: Value, b: Value) -> Value:
    """``a`` at some registers, ``b`` at the others."""
    if mask.all():
        return a
    if not mask.any():
        return b
    if a.guard or b.guard:
        if (a.beyond is None) == (b.beyond is None) and same(a.guard, b.guard):
            beyond = np.where(mask, *_pair(a.beyond, b.beyond))
            return replace(where(mask, replace(a, guard={}), replace(b, guard={})), guard=a.guard, beyond=beyond)
        a, b = a.flat(), b.flat()
    need = {
        f: np.where(mask, a.need.get(f, np.int64(ALWAYS)), b.need.get(f, np.int64(ALWAYS)))
        for f in {**a.need, **b.need}
    }
    return Value(np.where(mask, a.terms, b.terms), need=need)


def _pair(a: Prints | None, b: Prints | None) -> tuple[Prints, Prints]:
    assert a is not None and b is not None
    return a, b


def weight(atoms: Atoms) -> Prints | None:
    """What a term that is added under bounds is multiplied by: one random number for each bound; None for 1."""
    total: Prints | None = None
    for form, threshold in atoms.items():
        factor = mix(prints(threshold) + prints(form), key("bound")) | np.uint64(1)
        factor = np.where(threshold <= ALWAYS, np.uint64(1), np.where(threshold >= NEVER, np.uint64(0), factor))
        total = factor if total is None else total * factor
    return total
