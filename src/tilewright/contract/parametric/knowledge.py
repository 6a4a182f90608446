"""What each class of threads knows at each place of the common word, for every trip count at once.

Knowledge flows along program order, through phases of barriers and through thread barriers; where several pasts are
possible what all of them say counts, where knowledge is joined what any says. The equations are solved from
"everything is known" downwards: each claim about an execution rests on claims about executions before it in time, so
any solution is sound (``docs/contracts.md``, parametric proof).

What a class finds out by itself (``own``) is known first and enters here as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from tilewright.contract.parametric.marks import Asked, Class, Mark, Marks, classes_of
from tilewright.contract.parametric.own import Own
from tilewright.contract.parametric.statements import Levels, Row, Statements
from tilewright.contract.parametric.ways import FAR, Ways
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph, Unit
from tilewright.protocol.word import NoWord

MAX_STATEMENTS = 150_000
"""Places times marks; beyond, solving would take seconds."""


class Segment(Enum):
    """Kinds of knowledge, as in ``contract.state``."""

    SCHEDULE = "past"
    MEMORY = "visible"
    WRITER_FENCED = "behind a proxy fence of the writer"
    FENCED = "behind a proxy fence"
    TENSOR = "behind fences of tensor memory"
    TOLD = "handed over, not behind an after-fence yet"


class Knowledge:
    """The equations of one protocol and their solution."""

    def __init__(self, graph: EventGraph):
        self.graph = graph
        self.word = graph.word
        self.n = len(self.word.stretches)
        self.classes = classes_of(graph)

    def prepare(self, units: list[Unit], thresholds: Sequence[Iterable[int]]) -> None:
        """Numbers the marks and measures the word, once all indices are known. ``thresholds``: what is told apart, per
        unit."""
        self.units = units
        self.marks = Marks(self.graph, self.classes)
        self.ways = Ways(self.word, units)
        self.levels = Levels([sorted(set(t)) for t in thresholds])
        self.slots: dict[Segment, dict[Mark, int]] = {}
        self._own_slots: list[Mark] = []
        events = [m for c in self.classes for m in self.marks.events[c.index]]
        fenced = [m for m in events if m.asked & Asked.FENCED]
        self._segment(Segment.SCHEDULE, self._by_class(events, Asked.SCHEDULE))
        visible = [m for m in events if not m.asked & Asked.FENCED]
        self._segment(Segment.MEMORY, [*fenced, *self._by_class(visible, Asked.MEMORY)])
        self._segment(Segment.WRITER_FENCED, fenced)
        self._segment(Segment.FENCED, fenced)
        tensor = self._by_class(events, Asked.TENSOR) if self.marks.tensor else []
        self._segment(Segment.TENSOR, tensor)
        self._segment(Segment.TOLD, tensor)
        if len(self.classes) * self.n * len(self._own_slots) > MAX_STATEMENTS:
            raise NoWord(
                f"{len(self.classes)} classes, {self.n} stretches and {len(self._own_slots)} statements are too many"
            )
        self.statements = Statements(self.levels, self.ways, [m.stretch for m in self._own_slots])
        self.schedule = self._space(Segment.SCHEDULE)
        self.tellable = self.statements.everything ^ self._space(Segment.TENSOR)
        self.own = [Own(c, self.marks, self.levels, self.ways, self.word) for c in self.classes]
        both = self.slots[Segment.SCHEDULE], self.slots[Segment.MEMORY]
        self._own_events = [
            [(m, sum(1 << x[m] for x in both if m in x)) for m in self.marks.events[c.index]] for c in self.classes
        ]
        self.values: list[int] = []
        self.places: list[list[list[int]]] = []

    def _by_class(self, events: list[Mark], asked: Asked) -> list[Mark]:
        """Marks of which something is asked: of each class its runs, then its completions."""
        out: list[Mark] = []
        for c in self.classes:
            mine = [m for m in events if m.owner == c.index]
            out += [m for m in [*mine, *self.marks.completions[c.index]] if m.asked & asked]
        return out

    def _segment(self, segment: Segment, marks: list[Mark]) -> None:
        first = len(self._own_slots)
        self.slots[segment] = {m: first + k for k, m in enumerate(marks)}
        self._own_slots += marks

    def copier(self, source: Segment, target: Segment) -> Callable[[int], int]:
        """Says what segment ``source`` says of the marks of ``target``, where they stand in the same order, there."""
        one, two = self.slots[source], self.slots[target]
        if not two:
            return lambda x: 0
        first = next(iter(two))
        return self.statements.copier(two[first] - one[first], sum(1 << one[m] for m in two))

    def _space(self, segment: Segment) -> int:
        return self.statements.spread(sum(1 << slot for slot in self.slots[segment].values()))

    # -- what is known ------------------------------------------------------------------------------------------------
    def at(self, c: Class, s: int, i: int) -> int:
        """What a class knows of others before op ``i`` of a stretch."""
        return self.values[self.places[c.index][s][i]]

    def told(self, c: Class, s: int, i: int) -> int:
        """What an arrival by op ``i`` hands on of the class itself; the op is past then, too."""
        statements, own = self.statements, self.own[c.index]
        events = self._own_events[c.index]
        slots = here = 0
        for mark, mask in events:
            slots |= mask
            if mark.stretch == s and mark.end <= i + 1:
                here |= mask
        out = statements.said(slots, here, s)
        if own.slots:
            before = own.at(s, i)
            out |= self._exported(c, before, own.done, (Segment.SCHEDULE, Segment.MEMORY))
            out |= self._exported(c, before, own.fenced, (Segment.WRITER_FENCED, Segment.FENCED))
            if self.marks.tensor:  # a commit implies the before-fence
                commits = isinstance(c.code[s][i].step.op, ops.Tcgen05Commit)
                out |= self._exported(c, own.at(s, i + 1) if commits else before, own.before, (Segment.TOLD,))
        return out

    def _exported(self, c: Class, x: int, block: dict[Mark, int], segments: tuple[Segment, ...]) -> int:
        """What a class says of a block of its own marks, in segments where they stand in the same order."""
        if not block:
            return 0
        own, (first, at) = self.own[c.index].statements, next(iter(block.items()))
        mask, out = (1 << len(block)) - 1, 0
        targets = [self.slots[segment][first] for segment in segments]
        x >>= at
        for plane in range(self.levels.planes):
            found = x >> plane * own.n & mask
            if found:
                for target in targets:
                    out |= found << plane * self.statements.n + target
        return out

    def closed_row(self, row: Row, s: int, of: int) -> Row:
        """What follows from a row about executions in stretch ``of``, as it stands in stretch ``s``."""
        j, same = len(self.units), s == of
        until, since = self.ways.turns[s][of], self.ways.turns[of][s]
        here = row[j + 1] <= 0 or any(v <= 0 for v in row[:j])
        whole = row[j] <= 0 or here or not self.ways.reaches[of, s]
        whole = whole or any(v <= w for v, w in zip(row, since, strict=False))
        here = here or (whole and not same)
        out = list(row)
        for u in range(j):
            after = -FAR if until[u] >= FAR else 1 - until[u]
            if here:
                out[u] = min(row[u], after)
            elif whole:
                out[u] = min(row[u], max(after, 1) if same else after)
        out[j:] = int(not whole), int(not here)
        return out
