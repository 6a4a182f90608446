"""States of scans by functions of the user's that combine as many elements as bounds allow.

Where the domain may end in a tile, the state of a block is another word for each place of the end. Of the bounds
``coordinate < end`` of its elements each implies those before it. So the state is a ``base`` where none of them holds,
and changes with each one that does: the base and all changes, each multiplied with its bound's weight, are one sum, the
same however the elements were grouped, for

    [a] [b] x          = [b] x              where b implies a: the weight of both is that of b
    a holds ? x : y    = y + [a] (x - y)
    word, then word    = a linear function of the matrix of one, where the other does not vary

A word is the matrix (5**a, b; 0, 1) of its pair (``states``). The sum is no word's matrix: it gets a name, under which
it is found again, and which is a term like any other to whatever does not look for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, key, mix, unmix
from tilewright.validate.tile_to_transport.integers import ALWAYS, Bounds, Numbers, merged
from tilewright.validate.tile_to_transport.states import StateFunction
from tilewright.validate.tile_to_transport.values import Atoms, GuardedTerms, weight, without

_NONE = -1
"""The number of no state."""
_NEVER = -ALWAYS
"""A threshold that nothing exceeds."""

Mask: TypeAlias = npt.NDArray[np.bool_]
Matrix: TypeAlias = tuple[Fingerprints, ...]
"""The first row of a matrix."""


@dataclass(frozen=True)
class BoundedState:
    """A state where ``need`` holds, elementwise: its values (``full``) where all of its bounds hold, ``base`` where
    none does, and the sum of all changes, each by its bound's weight."""

    full: tuple[Fingerprints, ...]
    base: Matrix
    changes: Matrix
    varies: Mask
    """Where it has bounds."""
    upper: Numbers
    """The number of the state that it is under the bounds of ``split``, if it was chosen from two."""
    lower: Numbers
    """That of the other one."""
    first: Atoms = field(default_factory=dict[int, Numbers])
    """Thresholds that each of its bounds has at least."""
    last: Atoms = field(default_factory=dict[int, Numbers])
    """Those that each has at most."""
    split: Atoms = field(default_factory=dict[int, Numbers])
    need: Atoms = field(default_factory=dict[int, Numbers])

    @property
    def shape(self) -> tuple[int, ...]:
        """That which all arrays are broadcast to."""
        atoms = (x for several in (self.first, self.last, self.split, self.need) for x in several.values())
        arrays = (*self.full, *self.base, *self.changes, self.varies, self.upper, self.lower, *atoms)
        return np.broadcast_shapes(*(x.shape for x in arrays))

    def full_under(self, atoms: Atoms) -> Mask:
        """Where some bounds imply all of its own."""
        return ~self.varies | _implies(atoms, self.last)

    def implies(self, atoms: Atoms) -> Mask:
        """Where each of its own bounds implies others."""
        return ~self.varies | _implies(self.first, atoms)

    def implies_all(self, other: BoundedState) -> Mask:
        """Where each of its bounds implies all of another one's."""
        return ~other.varies | self.implies(other.last)

    def each(self, fn: Callable[..., Any], *others: BoundedState) -> BoundedState:
        """A function of each of its arrays, and of the same ones of others."""
        states, always = (self, *others), np.full((1,) * self.varies.ndim, ALWAYS)

        def atoms(several: Sequence[Atoms]) -> Atoms:
            forms = dict.fromkeys(f for one in several for f in one)
            return {f: fn(*(one.get(f, always) for one in several)) for f in forms}

        return BoundedState(
            tuple(fn(*x) for x in zip(*(s.full for s in states), strict=True)),
            tuple(fn(*x) for x in zip(*(s.base for s in states), strict=True)),
            tuple(fn(*x) for x in zip(*(s.changes for s in states), strict=True)),
            fn(*(s.varies for s in states)),
            fn(*(s.upper for s in states)),
            fn(*(s.lower for s in states)),
            atoms([s.first for s in states]),
            atoms([s.last for s in states]),
            atoms([s.split for s in states]),
            atoms([s.need for s in states]),
        )

    def where(self, mask: Mask, other: BoundedState) -> BoundedState:
        """This at some elements, the other one elsewhere."""
        if mask.all():
            return self

        def either(x: Numbers, y: Numbers) -> Numbers:
            return np.where(mask, x, y)

        return self.each(either, other) if mask.any() else other

    def picked(self, numbers: Numbers) -> BoundedState:
        """Elements by their numbers."""
        shape = self.shape
        index = np.unravel_index(numbers, shape)

        def pick(x: Numbers) -> Numbers:
            return np.broadcast_to(x, shape)[index]

        return self.each(pick)

    def at(self, places: Numbers) -> BoundedState:
        """Those at places along the first axis."""

        def pick(x: Numbers) -> Numbers:
            return x if x.shape[0] == 1 else x[places]

        return self.each(pick)


class BoundedStates:
    """The states of one function, and the names of those that bounds decide."""

    def __init__(self, function: StateFunction):
        self.function = function
        self._kept: list[BoundedState] = []
        """Arrays of states."""
        self._firsts = [0]
        """The number of the first state of each array, and of the next one."""
        self._starts: dict[int, int] = {}
        self._names, self._numbers = np.empty(0, np.uint64), np.empty(0, np.int64)
        """Names in ascending order, and the numbers of their states."""

    # -- names --------------------------------------------------------------------------------------------------------
    def read(self, values: Sequence[GuardedTerms]) -> BoundedState:
        """The state of some values; what lies beyond other guards than that of named states is not known."""
        terms = [v.beyond if v.whole and v.beyond is not None else v.terms for v in values]
        need: Atoms = {}
        for v in values:
            need = merged(need, v.need if v.whole else v.needs)
        return replace(self.found(terms), need=need)

    def written(self, state: BoundedState) -> list[GuardedTerms]:
        """The values of a state: under the last of its bounds those that are known, else the names of all."""
        if not state.varies.any():
            return [GuardedTerms(x, need=state.need) for x in state.full]
        guard = {f: np.where(state.varies, x, ALWAYS) for f, x in state.last.items()}
        values = zip(state.full, self.named(state), strict=True)
        return [GuardedTerms(x, guard, name, state.need, whole=True) for x, name in values]

    def found(self, terms: Sequence[Fingerprints]) -> BoundedState:
        """The state of which these are names, or values."""
        state = self._full(terms, {})
        if not self._names.size:
            return state
        names = unmix(state.full[0], self._key(0))
        place = np.minimum(np.searchsorted(self._names, names), self._names.size - 1)
        known = self._names[place] == names
        for i, x in enumerate(state.full[1:], 1):
            known &= unmix(x, self._key(i)) == names
        return replace(self._states(np.where(known, self._numbers[place], _NONE), state), need={})

    def named(self, state: BoundedState) -> list[Fingerprints]:
        """The values, by which it is found again: names where it varies."""
        matrices = [self.function.cut(x) for x in (*state.base, *state.changes)]
        name = np.zeros((1,) * state.varies.ndim, np.uint64)
        for i, x in enumerate((*matrices, *state.full)):
            name = mix(name + mix(x, key("bounded", i)), self._key("name"))
        numbers = np.broadcast_to(self._number(state), np.broadcast_shapes(name.shape, state.varies.shape))
        varies = np.broadcast_to(state.varies, numbers.shape)
        new, place = np.unique(np.broadcast_to(name, numbers.shape)[varies], return_index=True)
        at = np.searchsorted(self._names, new)
        known = at < self._names.size
        known[known] = self._names[at[known]] == new[known]
        self._names = np.concatenate([self._names, new[~known]])
        order = np.argsort(self._names, kind="stable")
        self._numbers = np.concatenate([self._numbers, numbers[varies][place[~known]]])[order]
        self._names = self._names[order]
        return [np.where(state.varies, mix(name, self._key(i)), x) for i, x in enumerate(state.full)]

    def _number(self, state: BoundedState) -> Numbers:
        """As what states are kept."""
        if (start := self._starts.get(id(state))) is None:
            start = self._starts[id(state)] = self._firsts[-1]
            self._kept.append(state)
            self._firsts.append(start + prod(state.shape))
        shape = state.shape
        return start + np.arange(prod(shape)).reshape(shape)

    def _states(self, numbers: Numbers, otherwise: BoundedState) -> BoundedState:
        """The states that are kept as these; others where there are none."""
        result = otherwise
        array: Numbers = np.searchsorted(self._firsts, numbers, side="right") - 1
        for i in map(int, np.unique(array[array != _NONE])):
            here = array == i
            picked = self._kept[i].picked(np.where(here, numbers - self._firsts[i], 0))
            result = picked.where(here, result)
        return result

    def _key(self, what: object) -> int:
        return self.function.key("bounded", what)

    # -- words --------------------------------------------------------------------------------------------------------
    def joined(self, before: BoundedState, after: BoundedState, given: Atoms | None = None) -> BoundedState:
        """One state, then the other, under ``given`` bounds. Where those of neither imply those of the other one it is
        the function of their names."""
        need = merged(merged(before.need, after.need), given or {})
        before, after = self._under(need, before), self._under(need, after)
        whole = self._full(self.function(*before.full, *after.full), need)
        if not before.varies.any() and not after.varies.any():
            return whole
        left, right = self._matrix(before.full), self._matrix(after.full)
        later = before.implies_all(after)  # [b] [a] x = [b] x, or the other way round
        changes = zip(
            _sum(_times(before.base, after.changes), _product(before.changes, right)),
            _sum(_times(left, after.changes), _product(before.changes, after.base)),
            strict=True,
        )
        joined = replace(
            whole,
            base=_product(before.base, after.base),
            changes=tuple(np.where(later, x, y) for x, y in changes),
            varies=before.varies | after.varies,
            first=_first(before, after),
            last=_last(before, after),
        )
        names = self._full(self.function(*self.named(before), *self.named(after)), need)
        return joined.where(later | after.implies_all(before), names)

    def _under(self, given: Atoms, state: BoundedState) -> BoundedState:
        """A state where some bounds hold: without those of its own that are implied by these, if all are or if it is
        known what it was chosen from."""
        full = self._full(state.full, state.need)
        result = full.where(state.full_under(given), state)
        parted = result.varies & (result.upper != _NONE) & _implies(given, result.first)
        if not parted.any():
            return result
        upper, lower = (
            self._under(given, replace(self._states(np.where(parted, number, _NONE), full), need=state.need))
            for number in (state.upper, state.lower)
        )
        bounds = Bounds(parted, dict(state.split))
        chosen = upper.where(_implies(given, state.split), self.chosen(bounds, upper, lower))
        return replace(chosen, need=state.need).where(parted, result)

    def chosen(self, bounds: Bounds, then: BoundedState, otherwise: BoundedState) -> BoundedState:
        """One state where bounds hold, else the other. Where it is not told which of the bounds of either are implied
        by these, or imply them, only the first is known."""
        given = bounds.atoms
        if not given:
            return then.where(bounds.mask, otherwise)
        then = self._under(merged(then.need, given), then)
        always = np.logical_and.reduce(np.broadcast_arrays(*(threshold <= ALWAYS for threshold in given.values())))
        unknown = _implies(otherwise.need, given)  # where these do not hold the other state is not known
        factor = weight(given)
        assert factor is not None
        begun = otherwise.full_under(given)  # if not, none of its own holds where these do not
        chain = (begun | otherwise.implies(given)) & then.implies(given) & ~unknown
        only = replace(then, need=merged(then.need, given))
        ends = (np.where(begun, x, y) for x, y in zip(self._matrix(otherwise.full), otherwise.base, strict=True))
        kept = (np.where(begun, x, np.uint64(0)) for x in otherwise.changes)
        before = replace(otherwise, varies=otherwise.varies & begun)
        state = BoundedState(
            then.full,
            otherwise.base,
            tuple(x + factor * (y - z) + dy for x, y, z, dy in zip(kept, then.base, ends, then.changes, strict=True)),
            np.ones_like(chain),
            self._number(then),
            self._number(otherwise),
            {f: np.minimum(x, given.get(f, ALWAYS)) for f, x in _first(before, then, given).items()},
            merged(_last(before, then), given),
            given,
            merged(without(then.need, given), otherwise.need),
        )
        return then.where(always, state.where(chain, only)).where(bounds.mask, otherwise)

    def scanned(
        self,
        values: Sequence[Fingerprints],
        bounds: Bounds,
        before: Sequence[Fingerprints],
        *,
        reverse: bool,
        exclusive: bool,
    ) -> tuple[list[Fingerprints], list[Fingerprints]]:
        """Of states along the first axis, each of which is there where its ``bounds`` hold: at each place the state of
        it and all later ones that are there, by name; and that of all. ``before`` may be the state before the first;
        with ``exclusive`` the place itself is left out. In ``reverse`` later states come first."""
        size: int = values[0].shape[0]
        place = _along(np.arange(size), values[0].ndim)

        def present(places: Numbers) -> tuple[Numbers, Bounds]:
            """The states at places, and where they are there."""
            at = np.minimum(places, size - 1).ravel()
            mask = (bounds.mask if bounds.mask.shape[0] == 1 else bounds.mask[at]) & (places < size)
            return at, Bounds(mask, {f: x[at] for f, x in bounds.atoms.items()})

        def joined(a: BoundedState, b: BoundedState) -> BoundedState:
            return self.joined(b, a) if reverse else self.joined(a, b)

        state = replace(self.found(values), need=bounds.atoms)
        for step in (1 << i for i in range((size - 1).bit_length())):
            at, later = present(place + step)
            state = self.chosen(later, joined(state, state.at(at)), state)
        whole = state.at(np.zeros(1, np.int64))
        if before:
            begin = self.found(before)
            whole = self.chosen(present(place[:1])[1], self.joined(begin, whole), begin)
            at, there = present(place + int(exclusive))
            state = self.chosen(there, self.joined(begin, state.at(at)), begin)
        return self.named(state), self.named(whole)

    def _full(self, full: Sequence[Fingerprints], need: Atoms) -> BoundedState:
        """A state that does not vary."""
        full = tuple(np.broadcast_arrays(*full))
        matrix = self._matrix(full)
        zero, none = np.zeros((1,) * full[0].ndim, np.uint64), np.full((1,) * full[0].ndim, _NONE)
        return BoundedState(full, matrix, tuple(zero for _ in matrix), zero != 0, none, none, need=need)

    def _matrix(self, values: Sequence[Fingerprints]) -> Matrix:
        return self.function.matrix(self.function.into(values))


def _first(a: BoundedState, b: BoundedState, forms: Iterable[int] = ()) -> Atoms:
    """Thresholds that the bounds of both have at least, of their forms and of others."""

    def least(state: BoundedState, form: int) -> Numbers:
        return np.where(state.varies, state.first.get(form, ALWAYS), _NEVER)

    return {form: np.minimum(least(a, form), least(b, form)) for form in {*a.first, *b.first, *forms}}


def _last(a: BoundedState, b: BoundedState) -> dict[int, Numbers]:
    """Thresholds that they have at most."""
    one, other = ({f: np.where(x.varies, c, ALWAYS) for f, c in x.last.items()} for x in (a, b))
    return merged(one, other)


def _sum(a: Matrix, b: Matrix) -> Matrix:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _times(a: Matrix, change: Matrix) -> Matrix:
    """A matrix, times a change of one."""
    return tuple(a[0] * x for x in change)


def _along(x: Numbers, rank: int) -> Numbers:
    """Numbers along the first of some axes."""
    return x.reshape(-1, *(1,) * (rank - 1))


def _product(a: Matrix, b: Matrix) -> Matrix:
    return (a[0] * b[0], *(y + a[0] * x for y, x in zip(a[1:], b[1:], strict=True)))


def _implies(given: Atoms, atoms: Atoms) -> Mask:
    """Where some bounds imply others."""
    result: Mask = np.ones((), np.bool_)
    for form, threshold in atoms.items():
        result = result & (threshold <= given.get(form, ALWAYS))
    return result
