"""Values of threads' registers: a term for each register, and under which bounds it is that.

A register may hold a term only where some bounds hold: beyond them it is what an access with a guard or a ``select``
leaves there (``beyond``), or nothing that is known (``need``). Tile IR has no value there at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.validate.tile_to_transport.arithmetic import ElementFunctions
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, Group, fingerprints, key, mix
from tilewright.validate.tile_to_transport.integers import ALWAYS, Bounds, Numbers, merged

Atoms = Mapping[int, Numbers]
"""Thresholds by the form that must exceed them."""


@dataclass(frozen=True)
class GuardedTerms:
    """``terms`` where ``need`` and ``guard`` hold; where a bound of ``guard`` does not, ``beyond``."""

    terms: Fingerprints
    guard: Atoms = field(default_factory=dict[int, Numbers])
    beyond: Fingerprints | None = None
    need: Atoms = field(default_factory=dict[int, Numbers])
    whole: bool = False
    """``beyond`` is what it is where the guard holds, too: the name of a value that bounds decide
    (``bounded_states``)."""

    @property
    def needs(self) -> Atoms:
        """All bounds under which it is ``terms``."""
        return merged(self.need, self.guard)

    def flat(self) -> GuardedTerms:
        """Without what lies beyond its guard."""
        return self if not self.guard else GuardedTerms(self.terms, need=self.needs)

    def folded(self, arithmetic: ElementFunctions, kind: DType) -> GuardedTerms:
        """Without a guard: a sum of the two values, each counting where it is the one."""
        factor = weight(self.guard)
        if factor is None or self.beyond is None:
            return self.flat()
        if self.whole:
            return GuardedTerms(self.beyond, need=self.need)
        return GuardedTerms(arithmetic.between(kind, factor, self.terms, self.beyond), need=self.need)

    def named(self, given: Atoms) -> GuardedTerms:
        """Under given bounds, by its name where these do not imply its guard."""
        left = without(self.guard, given) if self.whole else {}
        if not left or self.beyond is None:
            return self
        beyond = np.logical_or.reduce(np.broadcast_arrays(*(c > ALWAYS for c in left.values())))
        guard = {f: np.where(beyond, ALWAYS, c) for f, c in self.guard.items()}
        return GuardedTerms(np.where(beyond, self.beyond, self.terms), guard, self.beyond, self.need, whole=True)

    def at(self, pick: Callable[[Numbers], Numbers]) -> GuardedTerms:
        """The registers that ``pick`` takes out of an array of them."""
        return GuardedTerms(
            pick(self.terms),
            {f: pick(c) for f, c in self.guard.items()},
            None if self.beyond is None else pick(self.beyond),
            {f: pick(c) for f, c in self.need.items()},
            self.whole,
        )


def same(a: Atoms, b: Atoms) -> bool:
    """The same bounds for every register."""
    return a is b or (a.keys() == b.keys() and all(c is b[f] or np.array_equal(c, b[f]) for f, c in a.items()))


def element_wise(fn: Callable[..., Fingerprints], args: Sequence[GuardedTerms]) -> GuardedTerms:
    """A function of each register's values. Bounds that all guards have stay one; where another does not hold, the
    result is not known."""
    guarded = [a for a in args if a.guard]
    shared = _shared_guard(guarded)
    need: dict[int, Numbers] = {}
    for a in args:
        need = merged(merged(need, a.need), {f: c for f, c in a.guard.items() if f not in shared})
    terms = fn(*(a.terms for a in args))
    if not shared:
        return GuardedTerms(terms, need=need)
    whole = all(a.whole and len(a.guard) == len(shared) for a in guarded)
    return GuardedTerms(terms, shared, fn(*(a.terms if a.beyond is None else a.beyond for a in args)), need, whole)


def _shared_guard(guarded: Sequence[GuardedTerms]) -> Atoms:
    """The bounds that all of several guards have."""
    if not guarded or any(a.beyond is None for a in guarded):
        return {}
    first = guarded[0].guard
    others = [a.guard for a in guarded[1:]]
    return {f: c for f, c in first.items() if all(f in o and (o[f] is c or np.array_equal(o[f], c)) for o in others)}


def product_added(arithmetic: ElementFunctions, a: GuardedTerms, b: GuardedTerms, c: GuardedTerms) -> GuardedTerms:
    """``a * b + c``, a step of a product of matrices: beyond the end of what is contracted both factors are 0."""
    zeros = all(x.beyond is not None and not x.beyond.any() for x in (a, b))
    shared = _shared_guard([a, b]) if zeros else dict[int, Numbers]()
    need = c.needs
    for x in (a, b):
        need = merged(merged(need, x.need), {f: at for f, at in x.guard.items() if f not in shared})
    return GuardedTerms(arithmetic.fma(a.terms, b.terms, c.terms, weight(shared)), need=need)


def combined(group: Group, a: GuardedTerms, b: GuardedTerms) -> GuardedTerms:
    """A step of a reduction: what lies beyond a guard counts for nothing, where it is the identity."""
    a, b = weighed(group, a), weighed(group, b)
    return GuardedTerms(group(a.terms, b.terms), need=merged(a.needs, b.needs))


def weighed(group: Group, x: GuardedTerms) -> GuardedTerms:
    """``x`` without a guard: its image by the bounds under which it counts, if beyond them it is the identity."""
    factor = weight(x.guard)
    if factor is None or x.beyond is None:
        return x
    bounded = np.logical_or.reduce(np.broadcast_arrays(*(c > ALWAYS for c in x.guard.values())))
    if (bounded & (group.into(x.beyond) != np.uint64(0))).any():
        return x
    return GuardedTerms(group.back(group.into(x.terms) * factor), need=x.need)


def without(need: Atoms, given: Atoms) -> dict[int, Numbers]:
    """Of some bounds those that given ones don't imply."""
    left: dict[int, Numbers] = {}
    for form, threshold in need.items():
        if form not in given:
            left[form] = threshold
        elif not (met := threshold <= given[form]).all():
            left[form] = np.where(met, ALWAYS, threshold)
    return left


def chosen(bounds: Bounds, a: GuardedTerms, b: GuardedTerms) -> GuardedTerms:
    """``a`` where the bounds hold, else ``b``."""
    if bounds.decided:
        if bounds.mask.all():
            return a
        return where(bounds.mask, a, b)
    b = b.flat()
    need = merged(without(a.needs, bounds.atoms), b.need)
    if bounds.mask.all():
        return GuardedTerms(a.terms, bounds.atoms, b.terms, need)
    terms = np.where(bounds.mask, a.terms, b.terms)  # where the mask is false, it is the same on either side of a guard
    need = {f: np.where(bounds.mask, c, b.need.get(f, np.int64(ALWAYS))) for f, c in need.items()}
    return GuardedTerms(terms, bounds.atoms, b.terms, need)


def where(mask: Numbers, a: GuardedTerms, b: GuardedTerms) -> GuardedTerms:
    """``a`` at some registers, ``b`` at the others."""
    if mask.all():
        return a
    if not mask.any():
        return b
    whole = any(x.whole and x.guard for x in (a, b))
    a, b = (x.flat() if x.beyond is None or (whole and not x.whole) else x for x in (a, b))

    def joined(x: Atoms, y: Atoms) -> dict[int, Numbers]:
        always = np.int64(ALWAYS)
        return {f: np.where(mask, x.get(f, always), y.get(f, always)) for f in {**x, **y}}

    guard = joined(a.guard, b.guard)
    beyond = None
    if guard:
        beyond = np.where(mask, *(x.terms if x.beyond is None else x.beyond for x in (a, b)))
    return GuardedTerms(np.where(mask, a.terms, b.terms), guard, beyond, joined(a.need, b.need), whole)


def weight(atoms: Atoms) -> Fingerprints | None:
    """What a term that is added under bounds is multiplied by: one random number for each bound; None for 1."""
    total: Fingerprints | None = None
    for form, threshold in atoms.items():
        factor = mix(fingerprints(threshold) + fingerprints(form), key("bound")) | np.uint64(1)
        factor = np.where(threshold <= ALWAYS, np.uint64(1), factor)
        total = factor if total is None else total * factor
    return total
