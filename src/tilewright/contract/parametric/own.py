"""What a class knows of itself: program order, its proxy fences, its groups of asynchronous ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.contract.parametric.classes import Class
from tilewright.contract.parametric.equations import Equations, Value
from tilewright.contract.parametric.marks import Mark, Marks, Segment
from tilewright.contract.parametric.statements import Levels, Passed, Statements
from tilewright.contract.parametric.ways import Link, Ways
from tilewright.protocol import ops
from tilewright.protocol.word import Word

Move = Callable[[int], int]

CHANGES = frozenset((
    ops.FenceProxyAsync, ops.WgmmaCommit, ops.BulkCommit, ops.WgmmaWait, ops.BulkWait, ops.Tcgen05WaitLd,
    ops.Tcgen05WaitSt, ops.Tcgen05FenceBefore, ops.Tcgen05Commit, ops.Tcgen05FenceAfter,
))  # fmt: skip
"""Ops behind which a class knows more of itself."""

COMMITS: dict[type[object], str] = {ops.WgmmaCommit: "wgmma", ops.BulkCommit: "bulk"}


class Own:
    """Statements of one class about its own marks, in *blocks* of slots:

    fenced  accesses before its last proxy fence       done  asynchronous ops that are complete
    before  ops before its last tcgen05 before-fence   after ops before its last after-fence
    groups  asynchronous ops committed at least 1, 2, ... groups ago
    """

    def __init__(self, c: Class, marks: Marks, levels: Levels, ways: Ways, word: Word):
        self.c, self.word, self.ways = c, word, ways
        self.events, self.completions = marks.events[c.index], marks.completions[c.index]
        fenced = [m for m in self.events if Segment.WRITER_FENCED in m.asked]
        tensor = [m for m in self.events if Segment.TENSOR in m.asked]
        waits = (op for code in c.ops for op in code if isinstance(op, ops.WgmmaWait | ops.BulkWait))
        self.depth = max((x.pending + 1 for x in waits), default=1)
        self.slots: list[Mark] = []
        self.fenced = self._block(fenced)
        self._fenced_by = {
            space: {m: slot for m, slot in self.fenced.items() if m.fenced_by(space)} for space in ops.FenceSpace
        }
        self.done = self._block(self.completions)
        self.before = self._block([*tensor, *(m for m in self.completions if Segment.TENSOR in m.asked)])
        self.after = self._block(tensor)
        self.groups = [self._block(self.completions) for _ in range(self.depth)]
        self.blocks = {"fenced": self.fenced, "done": self.done, "before": self.before, "after": self.after}
        self.statements = Statements(levels, ways, [m.stretch for m in self.slots])
        self._places: list[list[int]] = []
        self._passed: dict[int, Passed] = {}
        self._queues: dict[str, _Queue] = {}
        self._retired: dict[tuple[str, int], Move] = {}

    def _block(self, marks: Iterable[Mark]) -> dict[Mark, int]:
        out: dict[Mark, int] = {}
        for mark in marks:
            out[mark] = len(self.slots)
            self.slots.append(mark)
        return out

    def at(self, s: int, i: int) -> int:
        """What is known before op ``i`` of stretch ``s``."""
        return self._places[s][i] if self.slots else 0

    @property
    def shape(self) -> tuple[object, ...]:
        """All that the solution depends on: classes of equal shape know the same."""
        steps = tuple(
            (s, i, type(op), getattr(op, "pending", None), getattr(op, "space", None))
            for s, code in enumerate(self.c.ops)
            for i, op in enumerate(code)
            if type(op) in CHANGES
        )
        slots = tuple((m.stretch, m.end, m.queue, m.space) for m in self.slots)
        blocks = len(self.fenced), len(self.done), len(self.before), len(self.after), self.depth
        return steps, slots, blocks, tuple(map(len, self.c.code))

    def solve(self, solved: dict[tuple[object, ...], Own]) -> None:
        """Finds what is known at every place; ``solved``: classes that have been, by shape."""
        if not self.slots:
            return
        twin = solved.setdefault(self.shape, self)
        if twin is not self:
            self.statements, self._places = twin.statements, twin._places
            return
        equations = Equations(self.statements.everything)
        steps: list[list[tuple[int, Move]]] = []
        places: list[list[int]] = []
        for s, code in enumerate(self.c.ops):
            steps.append([])
            places.append([equations.variable()])
            for i, op in enumerate(code):
                change = self._step(s, i, op) if type(op) in CHANGES else None
                if change is not None:
                    steps[s].append((i, change))
                places[s].append(places[s][-1] if change is None else equations.variable())
        for s in self.ways.order:
            flows = [
                (places[x][-1], self.statements.mover(x, s, Link(turned, frozenset())))
                for x, turned in self.ways.entering[s]
            ]
            first = self.statements.closed(0, s) if s in self.word.starts else self.statements.everything
            equations.define(places[s][0], [v for v, _ in flows], _met(first, flows))
            for i, change in steps[s]:
                equations.define(places[s][i + 1], [places[s][i]], _applied(places[s][i], change))
        equations.solve()
        self._places = [[equations.values[v] for v in at] for at in places]

    def _step(self, s: int, i: int, op: ops.Op) -> Move | None:
        """What an op changes."""
        match op:
            case ops.FenceProxyAsync(space):
                return self._adding(self._past(self._fenced_by[space], s, i + 1))
            case ops.WgmmaCommit() | ops.BulkCommit():
                return self._commit(s, i, COMMITS[type(op)])
            case ops.WgmmaWait(pending):
                return self._retire("wgmma", pending)
            case ops.BulkWait(pending):
                return self._retire("bulk", pending)
            case ops.Tcgen05WaitLd() | ops.Tcgen05WaitSt():
                queue = "ld" if isinstance(op, ops.Tcgen05WaitLd) else "st"
                commit, retire = self._commit(s, i, queue), self._retire(queue, 0)
                return lambda x: retire(commit(x))
            case ops.Tcgen05FenceBefore() | ops.Tcgen05Commit():
                past = self._past(self.before, s, i + 1)
                finished = self._copier((m for m in self.before if m.queue), self.done, self.before)
                return lambda x: x | past | finished(x)
            case ops.Tcgen05FenceAfter():
                return self._adding(self._past(self.after, s, i + 1))
            case _:
                return None

    @staticmethod
    def _adding(learned: int) -> Move:
        return lambda x: x | learned

    def _past(self, block: dict[Mark, int], s: int, i: int) -> int:
        """What program order tells before op ``i`` of a stretch of the runs in a block."""
        found = self._passed.get(id(block))
        if found is None:
            runs = ((m, 1 << slot) for m, slot in block.items() if not m.queue)
            found = self._passed[id(block)] = Passed(self.statements, runs)
        return found.before(s, i)

    def _copier(self, marks: Iterable[Mark], source: dict[Mark, int], target: dict[Mark, int]) -> Move:
        """Says what is said of ``marks`` in one block in another one."""
        return self.statements.copier((source[m], target[m]) for m in marks)

    def _commit(self, s: int, i: int, queue: str) -> Move:
        groups = self._queues.get(queue)
        if groups is None:
            groups = self._queues[queue] = _Queue(self, [m for m in self.completions if m.queue == queue])
        older, kept, width, issued = groups.older, groups.kept, len(self.completions), groups.issued.before(s, i)
        return lambda x: x & kept | (x & older) << width | issued

    def _retire(self, queue: str, pending: int) -> Move:
        done = self._retired.get((queue, pending))
        if done is None:
            marks = (m for m in self.completions if m.queue == queue)
            done = self._retired[queue, pending] = self._copier(marks, self.groups[pending], self.done)
        return lambda x: x | done(x)


class _Queue:
    """The groups of one queue: which statements speak of them, and of those that a commit makes one group older."""

    def __init__(self, own: Own, marks: list[Mark]):
        spread = own.statements.spread
        slots = [sum(1 << group[m] for m in marks) for group in own.groups]
        self.older, self.kept = spread(sum(slots[:-1])), own.statements.everything ^ spread(sum(slots))
        self.issued = Passed(own.statements, ((m, 1 << own.groups[0][m]) for m in marks))


def _applied(before: int, change: Move) -> Value:
    return lambda values: change(values[before])


def _met(first: int, flows: list[tuple[int, Move]]) -> Callable[[list[int]], int]:
    def run(values: list[int]) -> int:
        out = first
        for v, move in flows:
            out &= move(values[v])
        return out

    return run
