"""Loops of any number of steps: what is carried at the head of a step, and what comes out, as terms.

Three forms are told apart by running one step on unknown states. *Accumulated*: each step adds, under an operation that
associates and commutes, something that no state enters; the steps together add a linear image of it. *Runs*: two
buffers of which only the sum is accumulated. Anything else is a recurrence of its own, named by its first value and by
what a step makes of it: two of the same name are equal at every step, by induction, if equal names go on to equal
values (``Claims``; partition refinement after Alpern, Wegman and Zadeck, POPL 1988).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.validate.tile_to_transport.arithmetic import ElementFunctions
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, Group, key, mix, term, word

Step = Callable[[Sequence[Fingerprints], bool], list[Fingerprints]]
"""The states after a step, of those before it; the flag says that its stores count."""


@dataclass
class Claims:
    """Names that were given to recurrences, and the names of what a step makes of them, by loop."""

    given: dict[int, list[tuple[Fingerprints, Fingerprints]]] = field(
        default_factory=dict[int, list[tuple[Fingerprints, Fingerprints]]]
    )

    def add(self, other: Claims) -> None:
        """Those of the other side too."""
        for loop, pairs in other.given.items():
            self.given.setdefault(loop, []).extend(pairs)

    def hold(self) -> bool:
        """Equal names go on to equal values."""
        for pairs in self.given.values():
            heads = np.concatenate([np.ravel(head) for head, _ in pairs])
            after = np.concatenate([np.ravel(n) for _, n in pairs])
            order = np.argsort(heads, kind="stable")
            heads, after = heads[order], after[order]
            if ((heads[1:] == heads[:-1]) & (after[1:] != after[:-1])).any():
                return False
        return True


def run_loop(
    loop: int,
    arithmetic: ElementFunctions,
    kinds: Sequence[DType],
    first: Sequence[Fingerprints],
    step: Step,
    claims: Claims,
) -> list[Fingerprints]:
    """The states after all steps of ``loop``, whose name is their number."""
    if not first:
        step((), True)
        return []
    before = [[_unknown(loop, i, x, turn) for i, x in enumerate(first)] for turn in (0, 1)]
    after = [step(states, False) for states in before]
    heads: list[Fingerprints | None] = [None] * len(first)
    finals: list[Fingerprints | None] = [None] * len(first)
    head, total = word(key(loop, "so far")), word(key(loop, "all"))
    for i, kind in enumerate(kinds):
        for group in _groups(arithmetic, kind):
            added, again = (group.into(n[i]) - group.into(s[i]) for s, n in zip(before, after, strict=True))
            if np.array_equal(added, again):
                begin = group.into(first[i])
                heads[i], finals[i] = group.back(begin + added * head), group.back(begin + added * total)
                break
    _runs(loop, arithmetic, kinds, first, before, after, heads, finals)
    left = [i for i, x in enumerate(heads) if x is None]
    if not left:
        step([x for x in heads if x is not None], True)
        return [x for x in finals if x is not None]
    names = {i: term((loop, "begins"), first[i]) for i in left}
    for turn in (0, 1):
        states = [names[i] if x is None else x for i, x in enumerate(heads)]
        found = step(states, turn == 1)
        later = {i: term((loop, "state"), first[i], found[i]) for i in left}
        if turn == 1:
            claims.given.setdefault(loop, []).extend((names[i], later[i]) for i in left)
            return [mix(names[i], key(loop, "final")) if x is None else x for i, x in enumerate(finals)]
        names = later
    raise AssertionError


def _unknown(loop: int, place: int, like: Fingerprints, turn: int) -> Fingerprints:
    numbers = np.arange(like.size, dtype=np.uint64).reshape(like.shape)
    return mix(numbers, key(loop, "unknown", place, turn))


def _groups(arithmetic: ElementFunctions, kind: DType) -> list[Group]:
    return [] if kind.is_bool else [arithmetic.group(fn, kind) for fn in ("sum", "max", "min")]


def _runs(
    loop: int,
    arithmetic: ElementFunctions,
    kinds: Sequence[DType],
    first: Sequence[Fingerprints],
    before: Sequence[Sequence[Fingerprints]],
    after: Sequence[Sequence[Fingerprints]],
    heads: list[Fingerprints | None],
    finals: list[Fingerprints | None],
) -> None:
    """Pairs of buffers whose sum is accumulated."""
    open_ = [i for i, x in enumerate(heads) if x is None]
    for i, j in combinations(open_, 2):
        if heads[i] is not None or heads[j] is not None or kinds[i] != kinds[j] or first[i].shape != first[j].shape:
            continue
        group = arithmetic.group("sum", kinds[i])

        def both(states: Sequence[Fingerprints], i: int = i, j: int = j, group: Group = group) -> Fingerprints:
            return group.into(states[i]) + group.into(states[j])

        added, again = (both(n) - both(s) for s, n in zip(before, after, strict=True))
        if not np.array_equal(added, again):
            continue
        for found, name in ((heads, "so far"), (finals, "all")):
            whole = both(first) + added * word(key(loop, name))
            one = mix(group.into(first[i]), key(loop, "run", name, i))
            found[i], found[j] = group.back(one), group.back(whole - one)
