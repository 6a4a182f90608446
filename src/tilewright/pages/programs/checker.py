"""The checker of cache programs: is every page consumed exactly once on every path, and used only as it may be?

Abstract interpretation over sets of states (``heap``): branches split them by the condition's value, which is kept for
as long as another branch may ask for it; equal states are joined; a loop is taken until its set of states at the back
edge does not grow. Conditions and trip counts are free, so some execution reaches a state that is found, but for one
thing: what the requests' slots hold is summarised by a set of records, of each of which there may be one or more.
Where the states get too many, the answer is PAG010, which is neither legal nor illegal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tilewright.diag import Diagnostic, Label
from tilewright.pages.programs.heap import NONE, Heap, PathStep, RequestSlots, apart
from tilewright.pages.programs.ops import (
    AskPlace,
    Body,
    CacheProgram,
    ChooseFlag,
    NamedPhase,
    PageOp,
    Place,
    RecordEvent,
    RepeatLoop,
    WhenBranch,
    made_by,
    walk,
)
from tilewright.pages.programs.transfer import PageViolation, apply, leak

STATES = 512
"""The most states at one point of a program; programs with more are undecided."""

_MOST_STEPS = 12
_EMPTY = RequestSlots()
_SOURCE = "docs/paged.md, rules of cache programs"


_Loop = Callable[[RepeatLoop, Heap], list[Heap]]


@dataclass(frozen=True)
class Peak:
    """Most storages alive at once: of the program and of one iteration, and of each other request's slots."""

    pages: int = 0
    tables: int = 0
    pages_per_request: int = 0
    tables_per_request: int = 0

    def max(self, other: Peak) -> Peak:
        """The greater of each."""
        return Peak(
            max(self.pages, other.pages),
            max(self.tables, other.tables),
            max(self.pages_per_request, other.pages_per_request),
            max(self.tables_per_request, other.tables_per_request),
        )


@dataclass
class CheckedProgram:
    """What the checker found: ``diagnostics`` (none: legal), the peak of each phase, how many states it saw."""

    diagnostics: tuple[Diagnostic, ...]
    peaks: dict[str, Peak]
    states: int

    @property
    def legal(self) -> bool:
        """Whether every rule holds on every path."""
        return not self.diagnostics


class _TooMany(Exception):
    def __init__(self, op: PageOp, states: int) -> None:
        super().__init__(op)
        self.op, self.states = op, states


def check(program: CacheProgram) -> CheckedProgram:
    """Check a traced program. Takes about 10 us an op and state."""
    return _Checker(program).run()


@dataclass
class _Checker:
    program: CacheProgram
    violations: dict[tuple[str, int, int], PageViolation] = field(
        default_factory=dict[tuple[str, int, int], PageViolation]
    )
    peaks: dict[str, Peak] = field(default_factory=dict[str, Peak])
    phase: str = ""
    states: int = 0

    def __post_init__(self) -> None:
        ops = list(walk(self.program.body))
        self.lines = {h: op.where for op in ops if (h := made_by(op)) is not None}
        self.slots = frozenset(p.name for op in ops if isinstance(p := getattr(op, "place", None), Place) and p.each)
        self.has_requests = any(isinstance(op, RepeatLoop) and op.each for op in ops)
        self.bodies: dict[int, _BodyFacts] = {}
        self.texts: dict[RequestSlots, str] = {}
        self.memo: dict[tuple[int, tuple[object, ...]], list[Heap]] = {}
        self.iterations: dict[tuple[RequestSlots, tuple[object, ...]], list[tuple[Heap, RequestSlots]]] = {}

    def run(self) -> CheckedProgram:
        try:
            self._run()
        except _TooMany as error:
            return CheckedProgram((self._undecided(error),), self.peaks, self.states)
        found = tuple(self._diagnostic(v) for v in self.violations.values())
        return CheckedProgram(found, self.peaks, self.states)

    def _run(self) -> None:
        starts = [Heap()]
        if self.has_requests:
            starts.append(Heap())
            starts[1].records = frozenset({_EMPTY})
        end = PageOp(self.program.end)
        for heap in self._body(self.program.body, starts):
            self._close(heap, self.program.body, end, "the end of the program")
            self._places_empty(heap, end)

    # -- control ------------------------------------------------------------------------------------------------------
    def _body(self, body: Body, heaps: list[Heap]) -> list[Heap]:
        """The states behind a body; its names are still there."""
        return self._ops(body, heaps, self._facts(body).last)

    def _ops(self, body: Body, heaps: list[Heap], last: dict[int, list[int]]) -> list[Heap]:
        for position, op in enumerate(body):
            heaps = self._op(op, heaps)
            over = last.get(position)
            if over:
                for heap in heaps:
                    for condition in over:
                        heap.facts.pop(condition, None)
                heaps = self._joined(op, heaps)
            if not heaps:
                break
        return heaps

    def _op(self, op: PageOp, heaps: list[Heap]) -> list[Heap]:
        match op:
            case WhenBranch():
                return self._joined(op, [h for heap in heaps for h in self._branch(op, heap)])
            case RepeatLoop():
                loop = self._each if op.each else self._repeat
                return self._joined(op, [h for heap in heaps for h in self._remembered(op, heap, loop)])
            case NamedPhase():
                outer, self.phase = self.phase, op.name
                heaps = self._ops(op.body, heaps, {})
                self.phase = outer
                return heaps
            case _:
                return self._applied(op, heaps)

    def _applied(self, op: PageOp, heaps: list[Heap]) -> list[Heap]:
        found: list[Heap] = []
        for heap in heaps:
            self.states += 1
            try:
                found += apply(op, heap)
            except PageViolation as violation:
                self._report(violation)
        if made_by(op) is not None or len(found) > len(heaps):
            self._count(found)
        return found if len(found) <= len(heaps) else self._joined(op, found)

    def _branch(self, op: WhenBranch, heap: Heap) -> list[Heap]:
        known = heap.facts.get(op.condition)
        found: list[Heap] = []
        for value, body in ((True, op.then), (False, op.otherwise)):
            if known not in (None, value):
                continue
            taken = heap.copy()
            taken.facts[op.condition] = value
            taken.step(op.where, op.name if value else f"not {op.name}")
            for end in self._body(body, [taken]):
                found += self._closed(end, body, op, f"the end of the branch of line {op.where.line}")
        return found

    def _remembered(self, op: RepeatLoop, heap: Heap, loop: _Loop) -> list[Heap]:
        key = (id(op), heap.key())
        if key not in self.memo:
            self.memo[key] = loop(op, heap)
        return [h.copy() for h in self.memo[key]]

    def _repeat(self, op: RepeatLoop, heap: Heap) -> list[Heap]:
        """Any number of iterations: all states at the loop's head."""
        heads, fresh = {heap.key(): heap}, [heap]
        while fresh:
            entered = [h.copy() for h in fresh]
            for h in entered:
                h.step(op.where, f"an iteration of {op.name}")
            fresh = list[Heap]()
            for end in self._body(op.body, entered):
                for h in self._closed(end, op.body, op, f"the end of an iteration of {op.name}"):
                    if h.key() not in heads:
                        heads[h.key()] = h
                        fresh.append(h)
            self._bounded(op, len(heads))
        return list(heads.values())

    def _each(self, op: RepeatLoop, heap: Heap) -> list[Heap]:
        """One iteration for each request: each record that some request has is chosen at least once."""
        heap = heap.copy()
        heap.done = heap.after = NONE
        heads, fresh = {heap.key(): heap}, [heap]
        while fresh:
            ends = [end for h in fresh for end in self._requests(op, h)]
            fresh = list[Heap]()
            for h in ends:
                if h.key() not in heads:
                    heads[h.key()] = h
                    fresh.append(h)
            self._bounded(op, len(heads))
        return [_left(h) for h in heads.values() if h.done == h.records]

    def _requests(self, op: RepeatLoop, heap: Heap) -> Iterator[Heap]:
        """The states behind one iteration, for a request of each record."""
        records = sorted(heap.records, key=self._order)
        known = heap.records | heap.after
        if not apart(known):
            for record in records:
                for end, new in self._iteration(op, heap.copy(), record):
                    yield self._counted(end, new)
            return
        origins = tuple(sorted(known, key=self._order))
        entered = heap.copy()
        entered.records = entered.done = entered.after = NONE
        entered.others = origins
        key = (id(op), entered.key())
        for record in records:
            if (record, key) not in self.iterations:
                self.iterations[record, key] = list(self._iteration(op, entered.copy(), record))
            for end, new in self.iterations[record, key]:
                yield self._counted(_with_others(end, heap, dict(zip(origins, end.others, strict=True)), record), new)

    def _order(self, record: RequestSlots) -> str:
        """The sort key of records, so that every run visits paths in the same order."""
        if record not in self.texts:
            self.texts[record] = repr(record)
        return self.texts[record]

    def _iteration(self, op: RepeatLoop, entered: Heap, record: RequestSlots) -> Iterator[tuple[Heap, RequestSlots]]:
        """The states behind the body, and what the request's slots hold then."""
        entered.open_record(record)
        entered.step(op.where, "a request")
        for end in self._body(op.body, [entered]):
            for h in self._closed(end, op.body, op, "the end of a request's iteration"):
                yield h, h.close_record(self.slots)

    def _counted(self, heap: Heap, new: RequestSlots) -> Heap:
        """The request is done, and of the record that its iteration made of it."""
        assert heap.chosen is not None
        heap.done |= {heap.chosen}
        heap.chosen = None
        heap.after |= {new}
        return heap

    def _joined(self, op: PageOp, heaps: list[Heap]) -> list[Heap]:
        if len(heaps) < 2:
            return heaps
        found: dict[tuple[object, ...], Heap] = {}
        for heap in heaps:
            found.setdefault(heap.key(), heap)
        self._bounded(op, len(found))
        return list(found.values())

    def _bounded(self, op: PageOp, states: int) -> None:
        if states > STATES:
            raise _TooMany(op, states)

    # -- the end of a body --------------------------------------------------------------------------------------------
    def _facts(self, body: Body) -> _BodyFacts:
        if id(body) not in self.bodies:
            self.bodies[id(body)] = _BodyFacts.of(body)
        return self.bodies[id(body)]

    def _closed(self, heap: Heap, body: Body, op: PageOp, what: str) -> list[Heap]:
        return [heap] if self._close(heap, body, op, what) else []

    def _close(self, heap: Heap, body: Body, op: PageOp, what: str) -> bool:
        """End the names of a body; False where one of them still holds a page."""
        facts = self._facts(body)
        for handle in facts.handles:
            if handle in heap.handles:
                self._report(leak(op, heap, handle, what))
                return False
        for condition in facts.conditions:
            heap.facts.pop(condition, None)
        if facts.events:
            heap.map_covers(lambda cover: cover - facts.events)
        return True

    def _places_empty(self, heap: Heap, end: PageOp) -> None:
        full = [*heap.places, *(name for record in heap.records for name, _ in record.slots)]
        if full:
            violation = leak(end, heap, 0, "the end of the program")
            violation.found = f"{full[0]} still holds a page at the end of the program"
            self._report(violation)

    # -- what is told -------------------------------------------------------------------------------------------------
    def _count(self, heaps: Iterable[Heap]) -> None:
        for heap in heaps:
            tables = sum(s.table for s in heap.storages.values())
            most = Peak(len(heap.storages) - tables, tables)
            for record in (*heap.records, *heap.after, *heap.others):
                own = sum(s.table for _, s in record.local)
                most = most.max(Peak(0, 0, len(record.local) - own, own))
            self.peaks[self.phase] = self.peaks.get(self.phase, Peak()).max(most)

    def _report(self, violation: PageViolation) -> None:
        where = violation.op.where
        self.violations.setdefault((violation.code, where.line, violation.handle), violation)

    def _diagnostic(self, v: PageViolation) -> Diagnostic:
        where = v.op.where
        labels = [Label(s.where, s.what) for s in _steps(v.heap.path) if v.handle and s.handle == v.handle]
        if v.code == "PAG003" and v.handle:
            where = self.lines[v.handle]
            labels = [Label(v.op.where, v.found)]
        turns = [f"{s.what} (line {s.where.line})" for s in _steps(v.heap.path) if not s.handle]
        shown = ["...", *turns[-_MOST_STEPS:]] if len(turns) > _MOST_STEPS else turns
        path = f"path: {' -> '.join(shown)}" if turns else "path: every execution gets here"
        return Diagnostic(
            v.code,
            where=where,
            found=v.found,
            required=v.required,
            help=v.help,
            source=_SOURCE,
            labels=tuple(labels[-3:]),
            notes=(path,),
        )

    def _undecided(self, error: _TooMany) -> Diagnostic:
        return Diagnostic(
            "PAG010",
            where=error.op.where,
            found=f"{error.states} states of handles, sharing and conditions at this op",
            required=f"at most {STATES}",
            source=_SOURCE,
        )


@dataclass(frozen=True)
class _BodyFacts:
    """What a body makes, and behind which of its ops a condition it made is asked for the last time."""

    handles: tuple[int, ...]
    events: frozenset[int]
    conditions: frozenset[int]
    last: dict[int, list[int]]

    @staticmethod
    def of(body: Body) -> _BodyFacts:
        flat = list(_flat(body))
        handles = tuple(h for op in flat if (h := made_by(op)) is not None)
        events = frozenset(op.event for op in flat if isinstance(op, RecordEvent))
        conditions = frozenset(op.condition for op in flat if isinstance(op, ChooseFlag | AskPlace))
        asked: dict[int, int] = {}
        for position, op in enumerate(body):
            for inner in walk((op,)):
                if isinstance(inner, WhenBranch | AskPlace | ChooseFlag) and inner.condition in conditions:
                    asked[inner.condition] = position
        last: dict[int, list[int]] = {}
        for condition, position in asked.items():
            last.setdefault(position, []).append(condition)
        return _BodyFacts(handles, events, conditions, last)


def _flat(body: Body) -> Iterator[PageOp]:
    """The ops whose names belong to a body: its own, and those of phases in it."""
    for op in body:
        yield op
        if isinstance(op, NamedPhase):
            yield from _flat(op.body)


def _steps(path: PathStep | None) -> list[PathStep]:
    """From the first to the last."""
    found: list[PathStep] = []
    while path is not None:
        found.append(path)
        path = path.before
    return found[::-1]


def _left(heap: Heap) -> Heap:
    """Behind a loop over requests: what became of them is what they are."""
    made = heap.copy()
    made.records, made.done, made.after = heap.after, NONE, NONE
    for storage in list(made.storages):
        made.forget(storage)
    return made


def _with_others(end: Heap, begin: Heap, image: dict[RequestSlots, RequestSlots], record: RequestSlots) -> Heap:
    """Behind an iteration that did not depend on other requests: theirs are as its events left them."""
    made = end.copy()
    made.records, made.done, made.after = (
        frozenset(image[r] for r in records) for records in (begin.records, begin.done, begin.after)
    )
    made.chosen, made.others = image[record], ()
    return made
