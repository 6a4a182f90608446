"""The common word of a protocol: one control-flow graph that all its roles walk together.

Roles go round the same symbolic loops, a producer ahead of its consumers. Laid side by side, iteration by iteration,
their programs are one sequence of *stretches*; which sequences there are is a finite graph:

    opening -> before -> k=0 -> k>=1 -> after -> ending        a tile loop around one stream; the first iteration
                 ^         |______|^      |                    stands alone because "k > 0" guards a release
                 |________________________|

A stretch has straight-line code for every role, perhaps none. Branches are gone: a guard on a counter splits its loop
(first iterations, residues), a guard on a symbol splits the body of the loop that the symbol varies with. The order of
stretches is a label, not a schedule: roles may be any distance apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tilewright.protocol.model import Role, Step


class NoWord(Exception):
    """The roles do not go round the same loops, or a guard is outside the fragment; the text says which."""


@dataclass(frozen=True)
class Stretch:
    """Straight-line code of every party, executed once each time the word passes here."""

    index: int
    label: str
    loops: tuple[int, ...]
    """The loops around it, outermost first."""
    code: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class Flow:
    """The word may go on from one stretch to another; ``turns`` are the loops of which an iteration ends on the way."""

    source: int
    target: int
    turns: tuple[int, ...]


@dataclass(frozen=True)
class WordLoop:
    """A loop of the word; in all its copies the same number. ``outermost``: it runs once at most.

    ``end`` is the text of its count, ``before`` are the stretches from which it is entered, or left out if that is 0.
    """

    index: int
    counter: str
    outermost: bool
    end: str
    before: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Word:
    """Stretches, flows between them, where the word may start and end, and its loops.

    ``parties`` are the roles with the rank of the CTA they run in; a stretch has one piece of code for each.
    """

    parties: tuple[tuple[Role, int], ...]
    stretches: tuple[Stretch, ...]
    flows: tuple[Flow, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    loops: tuple[WordLoop, ...]

    @cached_property
    def leaving(self) -> tuple[tuple[Flow, ...], ...]:
        """The flows from each stretch."""
        return tuple(tuple(f for f in self.flows if f.source == s.index) for s in self.stretches)


def turned(word: Word, stretch: int, count: str) -> WordLoop | None:
    """A loop of ``count`` turns that is over, on every way, where the word is in ``stretch``; the turns are then that
    count, be it 0."""
    inside = {x.index for s in _reachable(word, [stretch], frozenset()) for x in word.loops if x.index in s.loops}
    for loop in word.loops:
        if loop.outermost and loop.end == count and loop.index not in inside:
            ways = _reachable(word, word.starts, loop.before)
            if word.stretches[stretch] not in ways and stretch not in loop.before:
                return loop
    return None


def _reachable(word: Word, since: Iterable[int], closed: frozenset[int]) -> list[Stretch]:
    """The stretches from some on, without passing closed ones."""
    seen: dict[int, None] = dict.fromkeys(s for s in since if s not in closed)
    pending = list(seen)
    while pending:
        for f in word.leaving[pending.pop()]:
            if f.target not in seen and f.target not in closed:
                seen[f.target] = None
                pending.append(f.target)
    return [word.stretches[s] for s in seen]


def numbered(word: Word, unit: frozenset[int], uses: dict[int, int], start: int) -> dict[int, int] | None:
    """Per stretch: uses made before it, minus turns of the unit; None if that depends on the way. The value at the end
    after stretch ``e`` is under ``-1 - e``."""
    lead = dict.fromkeys(word.starts, start)
    pending = list(word.starts)
    while pending:
        at = pending.pop()
        made = lead[at] + uses.get(at, 0)
        for f in word.leaving[at]:
            value = made - len(unit.intersection(f.turns))
            if f.target not in lead:
                lead[f.target] = value
                pending.append(f.target)
            elif lead[f.target] != value:
                return None
    return lead | {-1 - e: lead[e] + uses.get(e, 0) for e in word.ends if e in lead}
