"""Checks generated PTX against Transport IR: every role must synchronise as the IR says.

A compiler that unrolled a loop around a barrier, dropped a fence, duplicated a branch or moved an instruction would
change how often a synchronising instruction occurs in a role, or which instructions follow it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import product

from tilewright.codegen.sync_flow import SyncFlow
from tilewright.codegen.sync_in_ir import planned_flows, role_threads
from tilewright.codegen.sync_in_ptx import UnreadablePtxError, ptx_flows
from tilewright.transport import dialect as t

CODE = "CGN004"
"""The diagnostic for a mismatch."""


@dataclass(frozen=True)
class Mismatch:
    """A role whose instructions in PTX differ from those of the IR, with both sides."""

    role: str
    ptx: str
    ir: str

    def __str__(self) -> str:
        return f"{CODE}, role {self.role}: the PTX has {self.ptx}; the IR has {self.ir}"


def mismatches(kernel: t.Kernel, ptx: str) -> tuple[Mismatch, ...]:
    """The differences between the PTX and the IR, at most one per role; empty if they agree."""
    planned, threads = planned_flows(kernel), role_threads(kernel)
    try:
        found = ptx_flows(ptx, kernel.threads.data, threads)
    except UnreadablePtxError as error:
        return (Mismatch("any", f"what can't be read, {error}", "branches and instructions of known kinds"),)
    pairs = ((role, _counted(found[role], flow) or _ordered(found[role], flow)) for role, flow in planned.items())
    return tuple(Mismatch(role, *difference) for role, difference in pairs if difference is not None)


_Difference = tuple[str, str]
"""What the PTX has and what the IR has."""


def _counted(found: SyncFlow, planned: SyncFlow) -> _Difference | None:
    """Instructions that occur more often in the first than in the second."""
    shown = {i.name for i in found.instructions if i.size is None}

    def counts(flow: SyncFlow) -> Counter[str]:
        return Counter(i.name if i.name in shown else str(i) for i in flow.instructions)

    ours, theirs = counts(planned), counts(found)
    names = [name for name in {**ours, **theirs} if ours[name] != theirs[name]]
    if not names:
        return None
    ptx, ir = (", ".join(f"{side[name]} x {name}" for name in names) for side in (theirs, ours))
    return ptx, ir


def _ordered(found: SyncFlow, planned: SyncFlow) -> _Difference | None:
    """A path through the PTX that is none through the IR, or a loop of the IR that the PTX does not repeat."""
    walk = _Walk(found, planned)
    return walk.paths() or walk.loops()


class _Walk:
    """Walks all paths of the PTX together with those of the IR: each PTX instruction is matched with the IR
    instructions that may follow the same path."""

    def __init__(self, found: SyncFlow, planned: SyncFlow):
        self.found, self.planned = found, planned
        self.pending: list[tuple[int, frozenset[int]]] = []
        self.seen: set[tuple[int, frozenset[int]]] = set()
        self.passed: set[tuple[int, int]] = set()
        """Instructions of the IR that the PTX has one after the other."""

    def paths(self) -> _Difference | None:
        """The first path of the PTX that leaves those of the IR."""
        found, planned = self.found, self.planned
        if found.empty and not planned.empty:
            return "a path without any instruction", _any_of(planned, planned.first)
        different = self.step("first ", found.first, {p: frozenset() for p in planned.first})
        while self.pending and different is None:
            number, read_as = self.pending.pop()
            after = f"after {found.instructions[number]} (line {found.places[number]}) "
            nexts: defaultdict[int, set[int]] = defaultdict(set)
            for one in read_as:
                for other in planned.follow[one]:
                    nexts[other].add(one)
            if number in found.last and not read_as & planned.last:
                return f"{after}the end", f"{after}{_any_of(planned, nexts)}"
            different = self.step(after, found.follow[number], nexts)
        return different

    def step(self, after: str, numbers: Set[int], nexts: Mapping[int, Set[int]]) -> _Difference | None:
        """Reads the PTX's next instructions as the IR's ``nexts``, each with those it may follow."""
        for number in numbers:
            instruction = self.found.instructions[number]
            read_as = frozenset(p for p in nexts if self.planned.instructions[p].fits(instruction))
            if not read_as:
                place = f"(line {self.found.places[number]})"
                return f"{after}{instruction} {place}", f"{after}{_any_of(self.planned, nexts)}"
            self.passed.update((one, other) for other in read_as for one in nexts[other])
            if (number, read_as) not in self.seen:
                self.seen.add((number, read_as))
                self.pending.append((number, read_as))
        return None

    def loops(self) -> _Difference | None:
        """The first loop of the IR that no path of the PTX repeats."""
        for loop in self.planned.loops:
            if self.passed.isdisjoint(product(loop.last, loop.first)):
                turn = f"{_any_of(self.planned, loop.first)} after {_any_of(self.planned, loop.last)}"
                return "no back edge", f"a loop with {turn}"
        return None


def _any_of(flow: SyncFlow, numbers: Iterable[int]) -> str:
    names = dict.fromkeys(str(flow.instructions[n]) for n in sorted(numbers))
    return " or ".join(names) or "nothing"
