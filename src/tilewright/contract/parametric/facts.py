"""What the rules ask: the uses of barriers, the accesses, and what a class knows of an op at another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.contract.parametric.knowledge import FAR, Knowledge, Rows
from tilewright.contract.parametric.matching import (
    Array,
    BarrierUse,
    Piece,
    Ref,
    barrier_uses,
)
from tilewright.contract.parametric.meetings import thread_barriers
from tilewright.contract.rules import Policy
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph, Place
from tilewright.protocol.word import NoWord

MAX_TURNS = 8
"""How far back ``Facts.reached`` looks for an op of a ring."""


@dataclass(frozen=True)
class Access:
    """What one op of a class does to some bytes."""

    ref: Ref
    place: Place
    engine: str
    writes: bool
    private: bool = False
    landing: tuple[Array, int] | None = None
    """The barrier that tracks a copy, and the number of its phase in turns."""


Answer = Callable[[Rows], bool]


class Issue(NamedTuple):
    """A wgmma of another class of the role: if ``flag`` of its completion is set, ``earlier`` marks are past too."""

    mark: int
    flag: int
    issued: list[int]
    earlier: list[int]


class Facts:
    """A protocol made ready to be asked."""

    def __init__(self, graph: EventGraph, policy: Policy):
        self.graph, self.policy, self.protocol = graph, policy, graph.protocol
        self.issue_plans: dict[Ref, list[Issue]] = {}
        self.absent: dict[Piece, NDArray[np.bool_]] = {}
        """Per piece: marks without execution in the iteration of its use."""
        self._mine: dict[tuple[Ref, Ref], Rows] = {}
        self.inits: dict[Array, list[Ref]] = {}
        self.k = Knowledge(graph)
        self.bars = barrier_uses(graph, self.k)
        self.syncs, self.barriers = thread_barriers(graph, self.k)
        self.accesses = list(self._accesses())
        self.k.prepare([u for u in graph.units if u])
        self.column = {u: i for i, u in enumerate(self.k.units)}
        self.wait_of = {p.ref: (use, p) for use in self.bars.values() for p in use.waits}
        self.position = {
            (c.index, site): (s, i)
            for c in self.k.classes
            for s, code in enumerate(c.code)
            for i, site in enumerate(code)
        }

    def rows(self, ref: Ref) -> Rows:
        """What the class knows just before the op."""
        return self.k.before[ref.c.index, ref.s, ref.i]

    def mine(self, ref: Ref, other: Ref) -> Rows:
        """What program order says of an op of the same class."""
        found = self._mine.get((ref, other))
        if found is None:
            row = [FAR] * self.k.j + [0, 0 if other.s == ref.s and other.i < ref.i else 1]
            found = self._mine[ref, other] = self.k.closed_row(row, ref.s, other.s)
        return found

    def known(self, ref: Ref, segment: int, other: Ref, own: bool = False) -> Rows:
        """The row of an op at another: of its whole class."""
        row = self.rows(ref)[segment, self.k.mark[other.c.index, other.s, other.i]]
        if other.c is ref.c and (own or ref.c.group.size == 1):
            return np.minimum(row, self.mine(ref, other))
        return row

    def seen(self, ref: Ref, segment: int, use: BarrierUse, wait: Piece) -> list[Rows]:
        """The rows of a wait at an op, one for each class that runs it."""
        return [self.known(ref, segment, w, own=w.c is ref.c) for w in use.alike[wait.ref.site]]

    def upto(self, use_unit: object, bound: int) -> Answer:
        """Whether a row covers all executions up to ``bound`` turns before now."""
        if not use_unit:
            return self.past
        column = self.column[use_unit]  # type: ignore[index]
        return lambda row: bool(row[column] <= bound)

    def reached(self, use: BarrierUse, pieces: Sequence[Piece], s: int) -> int:
        """The word has come to the ops among ``pieces`` for all uses up to ``now + reached`` where we stand in stretch
        ``s``; each use has one of them. -FAR: none for sure.

        Rows may say more: that executions still to come are past, of which there are none. Another op must not be
        told of those as if there were one.
        """
        held: dict[int, int] = {}
        for piece in pieces:
            held[piece.ref.s] = max(piece.number, held.get(piece.ref.s, piece.number))
        least, seen, pending = FAR, set[tuple[int, int]](), [(s, 0)]
        while pending:
            at, turns = pending.pop()
            if (at, turns) in seen:
                continue
            seen.add((at, turns))
            if turns > MAX_TURNS:
                return -FAR
            if at in held:
                least = min(least, held[at] - turns)
                continue
            if at in self.graph.word.starts:
                least = min(least, -1 - turns)
            pending += [
                (f.source, turns + bool(use.unit.intersection(f.turns)))
                for f in self.graph.word.flows
                if f.target == at
            ]
        return least

    def passed(self, there: Set[int], s: int) -> bool:
        """Whether every way from the start to stretch ``s`` passes one of ``there``; it may be one of them."""
        seen, pending = set[int](), [*self.graph.word.starts]
        while pending:
            at = pending.pop()
            if at in there or at in seen:
                continue
            if at == s:
                return False
            seen.add(at)
            pending += [x for x, _ in self.flows(at)]
        return True

    def past(self, row: Rows) -> bool:
        """Whether all executions until now are covered."""
        return bool(row[self.k.j + 1] == 0)

    def name(self, ref: Ref) -> str:
        return f"{type(ref.op).__name__} of {ref.c.group.label}"

    def repeats(self, s: int) -> bool:
        seen, pending = set[int](), [s]
        while pending:
            for x, _ in self.flows(pending.pop()):
                if x == s:
                    return True
                if x not in seen:
                    seen.add(x)
                    pending.append(x)
        return False

    def flows(self, s: int) -> list[tuple[int, int]]:
        return [(f.target, len(f.turns)) for f in self.graph.word.flows if f.source == s]

    def _accesses(self) -> Iterator[Access]:
        for c in self.k.classes:
            for s, code in enumerate(c.code):
                for i, site in enumerate(code):
                    for a in self._of(Ref(c, s, i), site.step.op):
                        if a.place.memory[0] != "register" or c.group.primary:
                            yield a

    def _of(self, ref: Ref, op: ops.Op) -> Iterator[Access]:
        def place(region: ops.Region, cta: int | None = None) -> Place:
            found = self.graph.place(ref.site, region, cta)
            if cta is None and found.memory[0] in ("shared", "tmem") and found.memory[1] != ref.c.cta:
                raise NoWord("bytes of a peer")
            return found

        match op:
            case ops.Read(region, private):
                yield Access(ref, place(region), "generic", False, private)
            case ops.Write(region, private):
                yield Access(ref, place(region), "generic", True, private)
            case ops.TmaLoad():
                for array, use in self.bars.items():
                    for f in use.landings:
                        for p in f.pieces:
                            if p.ref == ref:
                                yield Access(ref, place(op.dst, array[0]), "tma_load", True, False, (array, p.number))
            case ops.TmaStore(src, dst):
                yield Access(ref, place(src), "tma_store", False)
                if dst is not None:
                    raise NoWord("bulk stores to named bytes")
            case ops.Wgmma(accumulator, operands):
                for region in operands:
                    yield Access(ref, place(region), "wgmma", False)
                yield Access(ref, place(accumulator), "wgmma", True)
            case ops.CpAsync(dst):
                yield Access(ref, place(dst), "cp_async", True, private=True)
            case ops.Tcgen05Mma(accumulator, operands):
                for region in operands:
                    yield Access(ref, place(region), "mma", False)
                yield Access(ref, place(accumulator), "mma", True)
            case ops.Tcgen05Ld(region):
                yield Access(ref, place(region), "ld", False)
            case ops.Tcgen05St(region):
                yield Access(ref, place(region), "st", True)
            case ops.Tcgen05Dealloc(buffer) if ref.c.group.primary:
                yield Access(
                    ref, place(ops.Region(buffer, ops.ZERO, self.protocol.buffer(buffer).size)), "dealloc", True
                )
            case _:
                pass
