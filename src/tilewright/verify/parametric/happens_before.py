"""What each class of threads knows at each place of the common product, for every trip count at once.

HappensBefore edges along program order, through phases of barriers and through thread barriers; where several pasts are
possible what all of them say counts, where knowledge is joined what any says. The equations are solved from
"everything is known" downwards: each claim about an execution rests on claims about executions before it in time, so
any solution is sound (``docs/contracts.md``, parametric proof).

What a class finds out by itself (``own``) is known first and enters here as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from tilewright.protocol.effects import Fence, Order
from tilewright.protocol.graph import EventGraph, InductionVariable
from tilewright.protocol.ops import FenceSpace
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.parametric.classes import Class, EffectsByKind, classes_of
from tilewright.verify.parametric.marks import Asked, Marks, OpRun, Segment
from tilewright.verify.parametric.paths import FAR, Paths
from tilewright.verify.parametric.statements import Levels, Passed, Row, Statements, by_distance
from tilewright.verify.parametric.thread_order import OwnStatements

MAX_STATEMENTS = 500_000
"""Places times marks; beyond, solving would take more than half a second."""


class HappensBefore:
    """The equations of one protocol and their solution."""

    def __init__(self, graph: EventGraph):
        self.graph = graph
        self.product = graph.product
        self.n = len(self.product.blocks)
        self.classes = classes_of(graph)
        self.effects = EffectsByKind(self.classes)

    def prepare(
        self, ivs: list[InductionVariable], thresholds: Sequence[Iterable[int]], asked: Asked, waits: Set[Segment]
    ) -> None:
        """Numbers the marks and measures the product graph, once all indices are known. ``thresholds``: what is
        distinguished, per induction variable; ``asked`` and ``waits``: as ``Marks`` has them."""
        self.ivs = ivs
        self.marks = Marks(self.graph, self.classes, asked, waits)
        self.paths = Paths(self.product, ivs)
        self.levels = Levels([sorted(set(t)) for t in thresholds])
        self._lay_out()
        if len(self.classes) * self.n * self.statements.n > MAX_STATEMENTS:
            raise OutsideFragment(
                f"{len(self.classes)} classes, {self.n} blocks and {self.statements.n} marks are too many"
            )
        self.schedule = self._space(Segment.SCHEDULE)
        self.committed = self.schedule | self._space(Segment.RELEASED)
        """What a tcgen05.commit hands on: it implies the before-fence, and releases nothing."""
        self.releasable = self.statements.everything ^ self._space(Segment.TENSOR)
        self.own = [OwnStatements(c, self.marks, self.levels, self.paths, self.product) for c in self.classes]
        self.values: list[int] = []
        self.places: list[list[list[int]]] = []
        segments = self.slots[Segment.SCHEDULE], self.slots[Segment.MEMORY]
        self._passed = [
            Passed(
                self.statements, ((m, sum(1 << x[m] for x in segments if m in x)) for m in self.marks.events[c.index])
            )
            for c in self.classes
        ]
        self._exports: dict[tuple[int, int, bool], int] = {}
        self._parts: dict[tuple[int, bool], list[tuple[int, int]]] = {}

    def _lay_out(self) -> None:
        """Assigns each mark a slot in the segments in which it is queried."""
        self.slots: dict[Segment, dict[OpRun, int]] = {segment: {} for segment in Segment}
        blocks: list[int] = []
        marks = [m for c in self.classes for m in (*self.marks.events[c.index], *self.marks.completions[c.index])]
        # what is copied from segment to segment stands in the same order in both
        marks.sort(key=lambda m: Segment.FENCED not in m.asked)
        for segment, slots in self.slots.items():
            asked = Segment.TENSOR if segment is Segment.RELEASED else segment
            for m in marks:
                if asked in m.asked:
                    slots[m] = len(blocks)
                    blocks.append(m.block)
        self.statements = Statements(self.levels, self.paths, blocks)

    def copier(self, source: Segment, target: Segment, space: FenceSpace = FenceSpace.ALL) -> Callable[[int], int]:
        """Says what segment ``source`` says of the marks of ``target`` there, of those that a fence of ``space``
        covers."""
        one = self.slots[source]
        return self.statements.copier((one[m], slot) for m, slot in self.slots[target].items() if m.fenced_by(space))

    def _space(self, segment: Segment) -> int:
        return self.statements.spread(sum(1 << slot for slot in self.slots[segment].values()))

    # -- what is known ------------------------------------------------------------------------------------------------
    def at(self, c: Class, s: int, i: int) -> int:
        """What a class knows of others before op ``i`` of a block."""
        return self.values[self.places[c.index][s][i]]

    def released(self, c: Class, s: int, i: int) -> int:
        """What an arrival by op ``i`` releases of what the class itself did; the op is past then, too."""
        out = self._passed[c.index].before(s, i + 1)
        own = self.own[c.index]
        if own.slots:
            out |= self._exported(c, own.at(s, i), False)
            if self.marks.tensor:
                # an op that fences by itself, as a commit does, hands on what is behind its fence
                fences = any(x.order is Order.TENSOR_BEFORE for x in c.ops[s][i].of(Fence))
                out |= self._exported(c, own.at(s, i + 1) if fences else own.at(s, i), True)
        return out

    def _exported(self, c: Class, x: int, tensor: bool) -> int:
        """What a class releases of its own marks, in the segments that others acquire."""
        key = c.index, x, tensor
        found = self._exports.get(key)
        if found is None:
            parts = self._parts.get((c.index, tensor))
            if parts is None:
                parts = self._parts[c.index, tensor] = by_distance(self._exporting(self.own[c.index], tensor))
            found = self._exports[key] = self.statements.copied_from(self.own[c.index].statements, x, parts)
        return found

    def _exporting(self, own: OwnStatements, tensor: bool) -> Iterator[tuple[int, int]]:
        """Slots of what a class knows of itself, with those that others acquire."""
        if tensor:
            copied = [(own.before, Segment.RELEASED)]
        else:
            copied = [(own.done, Segment.SCHEDULE), (own.done, Segment.MEMORY)]
            copied += [(own.fenced, Segment.WRITER_FENCED), (own.fenced, Segment.FENCED)]
        for section, segment in copied:
            target = self.slots[segment]
            yield from ((slot, target[m]) for m, slot in section.items() if m in target)

    def closed_row(self, row: Row, s: int, of: int) -> Row:
        """The consequences of a row about executions in block ``of``, at block ``s``."""
        j, same = len(self.ivs), s == of
        until, since = self.paths.iterations[s][of], self.paths.iterations[of][s]
        here = row[j + 1] <= 0 or any(v <= 0 for v in row[:j])
        whole = row[j] <= 0 or here or not self.paths.reaches[of, s]
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
