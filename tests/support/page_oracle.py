"""Executes cache programs: real reference counts, launches that run until they are known to have ended.

Shares nothing with the checker but the ops. Where the checker has covers (what comes after a launch), this has sets of
launches (what came before an event). Tables are lists of physical pages here, which the checker does not know.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tilewright.pages.programs import ops as o

Choose = Callable[[int], int]
"""One of the numbers below n."""

MOST_ITERATIONS = 3
MOST_REQUESTS = 3


class Wrong(Exception):
    """What an execution did wrong: the rule's code and the op."""

    def __init__(self, code: str, op: o.PageOp) -> None:
        super().__init__(code, op)
        self.code, self.op = code, op


@dataclass(eq=False)
class Kernel:
    """One launch: ``before`` had ended when it began."""

    stream: str
    before: frozenset[Kernel]


@dataclass(eq=False)
class Physical:
    """A page of the memory: how many hold it, and how many tokens are written."""

    holders: int = 1
    tokens: int = 0
    accesses: list[tuple[Kernel, bool]] = field(default_factory=list)
    guarded: set[Kernel] = field(default_factory=set)


@dataclass(eq=False)
class Object:
    """What handles share: a page or the pages of a table; launches whose handle has left it."""

    handles: set[Handle] = field(default_factory=set)
    accesses: list[tuple[Kernel, bool]] = field(default_factory=list)
    left: set[Kernel] = field(default_factory=set)


@dataclass(eq=False)
class Handle:
    object: Object
    table: bool
    physical: list[Physical]
    cow: bool = False
    launches: set[Kernel] = field(default_factory=set)
    alive: bool = True


class Execution:
    """Runs a program once; raises Wrong."""

    def __init__(self, program: o.CacheProgram, choose: Choose) -> None:
        self.program, self.choose = program, choose
        self.capacity = 1 + choose(3)
        self.requests = choose(MOST_REQUESTS + 1) if self._loops_over_requests() else 0
        self.names: dict[int, Handle] = {}
        self.events: dict[int, frozenset[Kernel]] = {}
        self.values: dict[int, bool] = {}
        self.cells: dict[tuple[str, int], Handle] = {}
        self.queued: dict[str, set[Kernel]] = {}
        self.ended: set[Kernel] = set()
        self.launched: set[Kernel] = set()
        self.request = -1
        self.captured: dict[int, dict[int, Physical]] = {}

    def _loops_over_requests(self) -> bool:
        return any(isinstance(op, o.RepeatLoop) and op.each for op in o.walk(self.program.body))

    def run(self) -> None:
        self.body(self.program.body)
        end = o.PageOp(self.program.end)
        self.forgotten(self.program.body, end)
        if self.cells:
            raise Wrong("PAG003", end)

    # -- control ------------------------------------------------------------------------------------------------------
    def body(self, ops: o.Body) -> None:
        for op in ops:
            match op:
                case o.NamedPhase():
                    self.body(op.body)
                case o.ChooseFlag():
                    self.values[op.condition] = bool(self.choose(2))
                case o.AskPlace():
                    self.values[op.condition] = self.place(op.place) in self.cells
                case o.WhenBranch():
                    taken = op.then if self.values[op.condition] else op.otherwise
                    self.body(taken)
                    self.forgotten(taken, op)
                case o.RepeatLoop(each=True):
                    for number in range(self.requests):
                        self.request = number
                        self.body(op.body)
                        self.forgotten(op.body, op)
                    self.request = -1
                case o.RepeatLoop():
                    for _ in range(MOST_ITERATIONS):
                        if not self.choose(2):
                            break
                        self.body(op.body)
                        self.forgotten(op.body, op)
                case _:
                    self.step(op)

    def forgotten(self, ops: o.Body, op: o.PageOp) -> None:
        """Names end: none of them may still hold something."""
        for inner in _own(ops):
            handle = o.made_by(inner)
            if handle is not None and handle in self.names and self.names[handle].alive:
                raise Wrong("PAG003", op)

    def place(self, place: o.Place) -> tuple[str, int]:
        return place.name, self.request if place.each else -1

    # -- steps --------------------------------------------------------------------------------------------------------
    def step(self, op: o.PageOp) -> None:
        match op:
            case o.TakePage():
                physical = [] if op.table else [Physical()]
                if op.matched:
                    physical = [Physical(holders=2, tokens=self.capacity) for _ in range(self.choose(3))]
                self.name(op.result, Handle(Object(), op.table, physical))
            case o.SharePage():
                old = self.alive(op, op.of)
                old.cow = old.cow or op.cow
                for page in old.physical:
                    page.holders += 1
                self.name(op.result, Handle(old.object, old.table, list(old.physical), old.cow))
            case o.AppendTokens():
                self.append(op)
            case o.ReusePage():
                old = self.alive(op, op.of)
                self.alone(op, old)
                made = Handle(old.object, old.table, old.physical, old.cow, old.launches)
                self.consume(old)
                self.name(op.result, made)
                made.physical[0].tokens = 0
            case o.ReleasePages():
                self.release(op)
            case o.SlideWindow():
                self.slide(op)
            case o.HandOver():
                self.consume(self.alive(op, op.of))
            case o.PutPage():
                held, place = self.alive(op, op.of), self.place(op.place)
                if place in self.cells:
                    raise Wrong("PAG008", op)
                self.cells[place] = self.moved(held)
            case o.TakeFromPlace():
                if self.place(op.place) not in self.cells:
                    raise Wrong("PAG008", op)
                self.names[op.result] = self.moved(self.cells.pop(self.place(op.place)))
            case _:
                self.order(op)

    def order(self, op: o.PageOp) -> None:
        match op:
            case o.CaptureGraph():
                held = [self.alive(op, h) for h in op.handles]
                self.captured[op.graph] = {
                    h: x.physical[0] for h, x in zip(op.handles, held, strict=True) if not x.table
                }
            case o.LaunchKernel():
                self.launch(op)
            case o.RecordEvent():
                self.events[op.event] = frozenset(self.queued.get(op.stream, ()))
            case o.StreamWait():
                self.queued.setdefault(op.stream, set()).update(self.events[op.event])
            case o.HostFence(event=None):
                self.ended |= self.launched
            case o.HostFence(event=event):
                self.ended |= self.events[event]
            case _:
                raise AssertionError(op)

    def name(self, number: int, handle: Handle) -> None:
        handle.object.handles.add(handle)
        self.names[number] = handle

    def moved(self, held: Handle) -> Handle:
        """The same under another name: the old one is consumed."""
        made = Handle(held.object, held.table, held.physical, held.cow, held.launches)
        self.consume(held)
        held.object.handles.add(made)
        return made

    def alive(self, op: o.PageOp, number: int) -> Handle:
        held = self.names[number]
        if not held.alive:
            raise Wrong("PAG001" if isinstance(op, o.ReleasePages | o.HandOver) else "PAG002", op)
        return held

    def consume(self, held: Handle) -> None:
        held.alive = False
        held.object.handles.discard(held)

    def alone(self, op: o.PageOp, held: Handle) -> None:
        if len(held.object.handles) > 1:
            raise Wrong("PAG004", op)

    # -- launches -----------------------------------------------------------------------------------------------------
    def kernel(self, stream: str) -> Kernel:
        queued = self.queued.setdefault(stream, set())
        made = Kernel(stream, frozenset(queued | self.ended))
        queued.add(made)
        self.launched.add(made)
        return made

    def touch(self, op: o.PageOp, on: Object | Physical, kernel: Kernel, writes: bool) -> None:
        for other, wrote in on.accesses:
            if (writes or wrote) and other is not kernel and other not in kernel.before:
                raise Wrong("PAG006", op)
        on.accesses.append((kernel, writes))

    def launch(self, op: o.LaunchKernel) -> None:
        reads = [self.alive(op, h) for h in op.reads]
        writes = [self.alive(op, h) for h in op.writes]
        for number, page in self.captured.get(-1 if op.graph is None else op.graph, {}).items():
            if self.names[number].physical[0] is not page:
                raise Wrong("PAG002", op)
        kernel = self.kernel(op.stream)
        for held in writes:
            self.alone(op, held)
        for held in reads:
            self.use(op, held, kernel, held.physical, writes=False)
        for held in writes:
            self.use(op, held, kernel, held.physical[-1:], writes=True)

    def use(self, op: o.PageOp, held: Handle, kernel: Kernel, physical: list[Physical], writes: bool) -> None:
        self.touch(op, held.object, kernel, writes)
        for page in physical:
            assert page.holders > 0
            self.touch(op, page, kernel, writes)
        held.launches.add(kernel)

    def append(self, op: o.AppendTokens) -> None:
        held = self.alive(op, op.of)
        if len(held.object.handles) > 1 and not held.cow:
            raise Wrong("PAG004", op)
        kernel = self.kernel(op.stream)
        if len(held.object.handles) > 1:
            self.leave(op, held, kernel)
        if held.table and (not held.physical or held.physical[-1].tokens >= self.capacity):
            held.physical.append(Physical())
        last = held.physical[-1]
        if last.holders > 1:
            self.touch(op, last, kernel, writes=False)
            last.holders -= 1
            held.physical[-1] = Physical(tokens=last.tokens)
        held.physical[-1].tokens += 1
        self.use(op, held, kernel, held.physical[-1:], writes=True)

    def leave(self, op: o.PageOp, held: Handle, kernel: Kernel) -> None:
        """Copy on write: another object; who frees the old one must wait for what this handle launched."""
        self.touch(op, held.object, kernel, writes=False)
        held.object.left |= held.launches | {kernel}
        held.object.handles.discard(held)
        held.object = Object({held})
        if not held.table:
            held.launches = set()

    # -- freeing ------------------------------------------------------------------------------------------------------
    def release(self, op: o.ReleasePages) -> None:
        held = self.alive(op, op.of)
        passed = self.ended | (set() if op.after is None else self.events[op.after])
        if held.launches - passed:
            raise Wrong("PAG005", op)
        self.consume(held)
        if not held.object.handles and held.object.left - passed:
            raise Wrong("PAG005", op)
        for page in held.physical:
            self.drop(op, page, passed)

    def slide(self, op: o.SlideWindow) -> None:
        held = self.alive(op, op.of)
        passed = self.ended | (set() if op.after is None else self.events[op.after])
        if held.launches - passed:
            raise Wrong("PAG005", op)
        for page in held.physical[:-1]:
            self.drop(op, page, passed)
        held.physical = held.physical[-1:]

    def drop(self, op: o.PageOp, page: Physical, passed: set[Kernel]) -> None:
        """One holder less; with the last one the page is free once what has guarded it is over."""
        page.holders -= 1
        page.guarded |= passed
        if page.holders == 0 and {k for k, _ in page.accesses} - page.guarded - self.ended:
            raise Wrong("physical", op)


def _own(ops: o.Body) -> Iterator[o.PageOp]:
    for op in ops:
        yield op
        if isinstance(op, o.NamedPhase):
            yield from _own(op.body)


def run(program: o.CacheProgram, choose: Choose) -> Wrong | None:
    """What one execution does wrong, or None."""
    try:
        Execution(program, choose).run()
    except Wrong as wrong:
        return wrong
    return None


def random_runs(program: o.CacheProgram, count: int, seed: int) -> Iterator[Wrong]:
    """What executions with random choices do wrong."""
    source = random.Random(seed)
    for _ in range(count):
        wrong = run(program, source.randrange)
        if wrong is not None:
            yield wrong


def all_runs(program: o.CacheProgram, most: int) -> Iterator[Wrong | None]:
    """The outcome of every execution, in the order of its choices, ``most`` of them."""
    script: list[int] = []
    for _ in range(most):
        taken: list[tuple[int, int]] = []

        def choose(n: int, taken: list[tuple[int, int]] = taken, script: list[int] = script) -> int:
            value = script[len(taken)] if len(taken) < len(script) else 0
            taken.append((value, n))
            return value

        yield run(program, choose)
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        script = [v for v, _ in taken[:-1]] + [taken[-1][0] + 1]
