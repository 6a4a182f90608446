"""Each class's knowledge of itself: program order, its proxy fences, its groups of asynchronous ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.protocol import ops
from tilewright.protocol.effects import Commit, Effect, Fence, Order, Queue, Retire
from tilewright.protocol.product_graph import ProductGraph
from tilewright.verify.parametric.classes import Class
from tilewright.verify.parametric.equations import Equations, Value
from tilewright.verify.parametric.marks import GROUPS, Marks, OpRun, Segment
from tilewright.verify.parametric.paths import PathBound, Paths
from tilewright.verify.parametric.statements import Levels, Passed, Statements

Move = Callable[[int], int]


_OF_ITSELF = (Fence, Retire, Commit)


def _changes(op: ops.Op) -> tuple[Effect, ...]:
    """The effects behind which a class knows more of itself."""
    found = [e for e in op.effects if isinstance(e, _OF_ITSELF)]
    return tuple([e for e in found if not isinstance(e, Commit) or e.queue in GROUPS]) if found else ()


class OwnStatements:
    """Statements of one class about its own marks, in *sections* of slots:

    fenced  accesses before its last proxy fence       done  asynchronous ops that are complete
    before  ops before its last tcgen05 before-fence   after ops before its last after-fence
    groups  asynchronous ops committed at least 1, 2, ... groups ago
    """

    def __init__(self, c: Class, marks: Marks, levels: Levels, paths: Paths, product: ProductGraph):
        self.c, self.product, self.paths = c, product, paths
        self.events, self.completions = marks.events[c.index], marks.completions[c.index]
        fenced = [m for m in self.events if Segment.WRITER_FENCED in m.asked]
        tensor = [m for m in self.events if Segment.TENSOR in m.asked]
        self._changes = [[_changes(op) for op in code] for code in c.ops]
        waits = (e for code in self._changes for found in code for e in found if isinstance(e, Retire))
        self.depth = max((e.pending + 1 for e in waits), default=1)
        self.slots: list[OpRun] = []
        self.fenced = self._section(fenced)
        self._fenced_by = {
            space: {m: slot for m, slot in self.fenced.items() if m.fenced_by(space)} for space in ops.FenceSpace
        }
        self.done = self._section(self.completions)
        self.before = self._section([*tensor, *(m for m in self.completions if Segment.TENSOR in m.asked)])
        self.after = self._section(tensor)
        self.groups = [self._section(self.completions) for _ in range(self.depth)]
        self.sections = {"fenced": self.fenced, "done": self.done, "before": self.before, "after": self.after}
        self.statements = Statements(levels, paths, [m.block for m in self.slots])
        self._places: list[list[int]] = []
        self._passed: dict[int, Passed] = {}
        self._queues: dict[Queue, _Queue] = {}
        self._retired: dict[tuple[Queue, int], Move] = {}

    def _section(self, marks: Iterable[OpRun]) -> dict[OpRun, int]:
        out: dict[OpRun, int] = {}
        for mark in marks:
            out[mark] = len(self.slots)
            self.slots.append(mark)
        return out

    def at(self, s: int, i: int) -> int:
        """The knowledge before op ``i`` of block ``s``."""
        return self._places[s][i] if self.slots else 0

    @property
    def shape(self) -> tuple[object, ...]:
        """All that the solution depends on: classes of equal shape know the same."""
        steps = tuple(
            (s, i, changes) for s, code in enumerate(self._changes) for i, changes in enumerate(code) if changes
        )
        slots = tuple((m.block, m.end, m.queue, m.space) for m in self.slots)
        sections = len(self.fenced), len(self.done), len(self.before), len(self.after), self.depth
        return steps, slots, sections, tuple(map(len, self.c.code))

    def solve(self, solved: dict[tuple[object, ...], OwnStatements]) -> None:
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
        for s, code in enumerate(self._changes):
            steps.append([])
            places.append([equations.variable()])
            for i, changes in enumerate(code):
                change = self._step(s, i, changes) if changes else None
                if change is not None:
                    steps[s].append((i, change))
                places[s].append(places[s][-1] if change is None else equations.variable())
        for s in self.paths.order:
            edges = [
                (places[x][-1], self.statements.mover(x, s, PathBound(advanced, frozenset())))
                for x, advanced in self.paths.entering[s]
            ]
            first = self.statements.closed(0, s) if s in self.product.starts else self.statements.everything
            equations.define(places[s][0], [v for v, _ in edges], _met(first, edges))
            for i, change in steps[s]:
                equations.define(places[s][i + 1], [places[s][i]], _applied(places[s][i], change))
        equations.solve()
        self._places = [[equations.values[v] for v in at] for at in places]

    def _step(self, s: int, i: int, changes: tuple[Effect, ...]) -> Move | None:
        """Applies the effects of an op in order."""
        found = [x for x in (self._change(s, i, e) for e in changes) if x is not None]
        if len(found) < 2:
            return found[0] if found else None
        first, second = found
        return lambda x: second(first(x))

    def _change(self, s: int, i: int, effect: Effect) -> Move | None:
        match effect:
            case Fence(Order.ASYNC_PROXY, space):
                return self._adding(self._past(self._fenced_by[space], s, i + 1))
            case Commit(queue):
                return self._commit(s, i, queue)
            case Retire(queue, pending):
                return self._retire(queue, pending)
            case Fence(Order.TENSOR_BEFORE):
                past = self._past(self.before, s, i + 1)
                finished = self._copier((m for m in self.before if m.queue), self.done, self.before)
                return lambda x: x | past | finished(x)
            case Fence(Order.TENSOR_AFTER):
                return self._adding(self._past(self.after, s, i + 1))
            case _:
                return None

    @staticmethod
    def _adding(learned: int) -> Move:
        return lambda x: x | learned

    def _past(self, section: dict[OpRun, int], s: int, i: int) -> int:
        """What program order tells before op ``i`` of a block of the runs in a section."""
        found = self._passed.get(id(section))
        if found is None:
            runs = ((m, 1 << slot) for m, slot in section.items() if not m.queue)
            found = self._passed[id(section)] = Passed(self.statements, runs)
        return found.before(s, i)

    def _copier(self, marks: Iterable[OpRun], source: dict[OpRun, int], target: dict[OpRun, int]) -> Move:
        """Says what is said of ``marks`` in one section in another one."""
        return self.statements.copier((source[m], target[m]) for m in marks)

    def _commit(self, s: int, i: int, queue: Queue) -> Move:
        groups = self._queues.get(queue)
        if groups is None:
            groups = self._queues[queue] = _Queue(self, [m for m in self.completions if m.queue is queue])
        older, kept, width, issued = groups.older, groups.kept, len(self.completions), groups.issued.before(s, i)
        return lambda x: x & kept | (x & older) << width | issued

    def _retire(self, queue: Queue, pending: int) -> Move:
        done = self._retired.get((queue, pending))
        if done is None:
            marks = (m for m in self.completions if m.queue is queue)
            done = self._retired[queue, pending] = self._copier(marks, self.groups[pending], self.done)
        return lambda x: x | done(x)


class _Queue:
    """The groups of one queue: which statements speak of them, and of those that a commit makes one group older."""

    def __init__(self, own: OwnStatements, marks: list[OpRun]):
        spread = own.statements.spread
        slots = [sum(1 << group[m] for m in marks) for group in own.groups]
        self.older, self.kept = spread(sum(slots[:-1])), own.statements.everything ^ spread(sum(slots))
        self.issued = Passed(own.statements, ((m, 1 << own.groups[0][m]) for m in marks))


def _applied(before: int, change: Move) -> Value:
    return lambda values: change(values[before])


def _met(first: int, edges: list[tuple[int, Move]]) -> Callable[[list[int]], int]:
    def run(values: list[int]) -> int:
        out = first
        for v, move in edges:
            out &= move(values[v])
        return out

    return run
