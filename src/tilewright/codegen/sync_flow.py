"""The order of synchronising instructions, in one form for Transport IR and for PTX.

Each instruction is a letter of its own, and a program is the language of the words along its paths. Because no letter
occurs twice, the language is determined by which letters may come first, which last, and which may follow which (V. M.
Glushkov, "The abstract theory of automata", 1961), and rotating or peeling a loop does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SyncInstruction:
    """A synchronising instruction: its name and its size operand; None if the text does not show the size."""

    name: str
    size: str | None = ""

    def fits(self, other: SyncInstruction) -> bool:
        """True if both may be the same instruction."""
        return self.name == other.name and (self.size is None or other.size is None or self.size == other.size)

    def __str__(self) -> str:
        return self.name if not self.size else f"{self.name} {self.size}"


@dataclass(frozen=True)
class SyncLoop:
    """A loop that runs at least once: the instructions with which an iteration may begin and end."""

    first: frozenset[int]
    last: frozenset[int]


@dataclass(frozen=True)
class SyncFlow:
    """Numbered instructions: which may come first, which last, which follow each; and whether there is an empty
    path."""

    instructions: tuple[SyncInstruction, ...]
    first: frozenset[int]
    last: frozenset[int]
    follow: tuple[frozenset[int], ...]
    empty: bool
    loops: tuple[SyncLoop, ...] = ()
    places: tuple[int, ...] = ()
    """Lines of the text they were read from."""


@dataclass(frozen=True)
class SyncRegion:
    """A stretch of a program: its instructions that may come first and last, and whether a path passes none."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    empty: bool = True


@dataclass
class FlowBuilder:
    """Composes a flow of parts, as the program is composed of blocks."""

    instructions: list[SyncInstruction] = field(default_factory=list[SyncInstruction])
    follow: list[set[int]] = field(default_factory=list[set[int]])
    loops: list[SyncLoop] = field(default_factory=list[SyncLoop])

    def one(self, instruction: SyncInstruction) -> SyncRegion:
        """A single instruction."""
        self.instructions.append(instruction)
        self.follow.append(set())
        here = frozenset((len(self.instructions) - 1,))
        return SyncRegion(here, here, empty=False)

    def sequence(self, parts: Iterable[SyncRegion]) -> SyncRegion:
        """Parts one after another."""
        first, last, empty = set[int](), set[int](), True
        for part in parts:
            for earlier in last:
                self.follow[earlier] |= part.first
            if empty:
                first |= part.first
            last = last | part.last if part.empty else set(part.last)
            empty = empty and part.empty
        return SyncRegion(frozenset(first), frozenset(last), empty)

    @staticmethod
    def choice(parts: Sequence[SyncRegion]) -> SyncRegion:
        """One of several alternatives."""
        return SyncRegion(
            frozenset[int]().union(*(p.first for p in parts)),
            frozenset[int]().union(*(p.last for p in parts)),
            any(p.empty for p in parts),
        )

    def repeated(self, part: SyncRegion, *, surely: bool = True) -> SyncRegion:
        """A part that may be run again and again, at least once; ``surely``: there are paths on which it is."""
        for end in part.last:
            self.follow[end] |= part.first
        if part.first and surely:
            self.loops.append(SyncLoop(part.first, part.last))
        return part

    def flow(self, part: SyncRegion) -> SyncFlow:
        """The flow of the program that is ``part``."""
        follow = tuple(frozenset(f) for f in self.follow)
        return SyncFlow(tuple(self.instructions), part.first, part.last, follow, part.empty, tuple(self.loops))
