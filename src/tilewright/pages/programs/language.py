"""The language of cache programs: a Python function that is traced once, as kernels are.

Loops and branches that depend on requests are constructs (``each``, ``repeat``, ``when``, ``otherwise``); Python's own
``for`` and ``if`` run while the program is traced.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NoReturn, cast

from tilewright.base.cached import cached_property
from tilewright.diag import Location, TilewrightError, fail, shown, type_shown
from tilewright.pages.programs.checker import CheckedProgram, check
from tilewright.pages.programs.jumps import jump_out_of_with, last_line
from tilewright.pages.programs.ops import (
    AppendTokens,
    AskPlace,
    CacheProgram,
    CaptureGraph,
    ChooseFlag,
    HandOver,
    HostFence,
    LaunchKernel,
    NamedPhase,
    PageOp,
    Place,
    PutPage,
    RecordEvent,
    ReleasePages,
    RepeatLoop,
    ReusePage,
    SharePage,
    SlideWindow,
    StreamWait,
    TakeFromPlace,
    TakePage,
    WhenBranch,
)

MAIN = "main"
"""The stream of launches that name none."""

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CONTEXTLIB = contextmanager.__code__.co_filename


@dataclass
class _Scope:
    """An open body: its ops so far. ``closed`` ones let no name out. ``branch``: the last ``when`` in it whose other
    case has not been written yet, and whether that is the one in which its condition holds."""

    what: str
    ops: list[PageOp] = field(default_factory=list[PageOp])
    each: bool = False
    closed: bool = False
    branch: tuple[WhenBranch, bool] | None = None


class _Trace:
    """The ops that one run of the function records; ``tables`` names the places known from an earlier run to hold
    tables."""

    def __init__(self, tables: frozenset[str] = frozenset()) -> None:
        self.tables = tables
        self.guessed: str | None = None
        """The place that the last handle taken to be a page came from before anything was put there in the text."""
        self.mistaken: set[str] = set()
        """Those of such places in which a table was put then."""
        self.scopes: list[_Scope] = [_Scope("the program")]
        self.count = 0
        self.plain: dict[CodeType, tuple[str, int] | None] = {}
        self.names: set[str] = set()
        self.left: Location | None = None
        """A body that a jump or an error left: what stands behind it in the text was not traced."""
        self.refused: TilewrightError | None = None
        """The first refusal, which holds even if the function catches it."""

    def fresh_number(self) -> int:
        self.count += 1
        return self.count

    def add(self, op: PageOp) -> None:
        if _trace() is not self:
            _refuse("what another program made", "what this program made", of=self)
        self.scopes[-1].ops.append(op)

    @contextmanager
    def inside(self, scope: _Scope, where: Location) -> Generator[list[PageOp]]:
        self.scopes.append(scope)
        try:
            yield scope.ops
        except BaseException:  # also GeneratorExit, where Python drops what is raised here: the trace's end refuses it
            self.left = self.left or where
            raise
        finally:
            scope.closed = True
            self.scopes.pop()

    def in_each(self) -> _Scope | None:
        return next((s for s in self.scopes if s.each), None)


class _Tracing(threading.local):
    """The traces that run in this thread, each inside of the one before it."""

    def __init__(self) -> None:
        self.stack: list[_Trace] = []


_tracing = _Tracing()
_everywhere: list[_Trace] = []
"""The traces that run in any thread."""


def _trace() -> _Trace:
    if not _tracing.stack:
        _refuse(
            "a construct of cache programs outside of one, or in another thread",
            "a function under @pages.program, which is traced in one thread",
        )
    return _tracing.stack[-1]


def _frame() -> FrameType:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - the documented way to a caller
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OURS, _CONTEXTLIB)):
        frame = frame.f_back
    return frame


def _here() -> Location:
    frame = _frame()
    return Location(frame.f_code.co_filename, frame.f_lineno)


def _refuse(
    found: str, required: str, help: str = "", where: Location | None = None, of: _Trace | None = None
) -> NoReturn:
    _fail("PAG009", found, required, help, where, of)


def _fail(
    code: str,
    found: str,
    required: str,
    help: str = "",
    where: Location | None = None,
    of: _Trace | None = None,
) -> NoReturn:
    """Fails the program that is traced, also if it catches what is raised, or if that ends a thread of its own; and the
    program ``of`` which something is misused in it."""
    try:
        fail(code, where=where or _here(), found=found, required=required, help=help)
    except TilewrightError as error:
        for trace in (*(_tracing.stack[-1:] or _everywhere), *([] if of is None else [of])):
            trace.refused = trace.refused or error
        raise


class _Named:
    """A value of the program; it may be used while the body that defined it is open."""

    def __init__(self, trace: _Trace) -> None:
        self._trace = trace
        self._scope = trace.scopes[-1]
        self.where = _here()
        self.number = trace.fresh_number()

    def _reached(self, what: str) -> int:
        """Its number; PAG007 where the body it belongs to is over."""
        if self._trace is not _trace():
            _refuse(f"{what} of another program", f"{what} that this program made", of=self._trace)
        if self._scope.closed:
            _fail(
                "PAG007",
                f"{what} of line {self.where.line}, made in {self._scope.what}, which is over",
                f"{what} that is made in a body around this line, or moved by a cell or a slot",
            )
        return self.number

    def __bool__(self) -> bool:
        _refuse(
            f"the truth of {type_shown(self)} while the program is traced",
            "pages.when(condition), which records both branches",
            "`with pages.when(condition): ...` and `with pages.otherwise(): ...`",
        )


class PageEvent(_Named):
    """A point of a stream; see ``record``."""

    def used(self) -> int:
        return self._reached("an event")


class PageCondition(_Named):
    """A choice of the running program, with one value while it can be named; ``~condition`` is its negation."""

    def __init__(self, trace: _Trace, name: str) -> None:
        super().__init__(trace)
        self.name = name
        self.negated = False
        self._origin = self

    def __invert__(self) -> PageCondition:
        flipped = object.__new__(PageCondition)
        flipped.__dict__.update(self.__dict__, negated=not self.negated)
        return flipped

    def __eq__(self, other: object) -> bool:
        return bool(self)

    __hash__ = _Named.__hash__

    def used(self) -> int:
        return self._reached("a condition")


class PageHandle(_Named):
    """A handle of pages: consumed exactly once on every path."""

    _table = False

    def append(self, tokens: int = 1, *, stream: str = MAIN) -> None:
        """Write ``tokens`` tokens (``int``, at least 1) behind those it holds, by a kernel on ``stream``.

        The page must not be shared (PAG004), unless the handle copies on write (``fork``).
        """
        if not isinstance(tokens, int) or tokens < 1:  # pyright: ignore[reportUnnecessaryIsInstance] - of a stranger
            _refuse(f"append of {shown(tokens)} tokens", "an integer of at least 1")
        self._trace.add(AppendTokens(_here(), self.used(), _stream(stream)))

    def share(self) -> Any:
        """Another handle of the same pages, for reading: while there are two, neither may be written."""
        return self._again(cow=False)

    def fork(self) -> Any:
        """Another handle; from now on both copy on write: an append leaves the other's tokens as they are."""
        return self._again(cow=True)

    def _again(self, cow: bool) -> PageHandle:
        of = self.used()
        made = type(self)(self._trace)
        self._trace.add(SharePage(made.where, made.number, of, cow))
        return made

    def release(self, *, after: PageEvent | None = None) -> None:
        """Give it back. The pool hands the pages out at once, or with ``after`` when that event has passed."""
        self._trace.add(ReleasePages(_here(), self.used(), _event(after)))

    def used(self) -> int:
        return self._reached("a table" if self._table else "a page")


class TracedPage(PageHandle):
    """One page."""

    def reuse(self) -> TracedPage:
        """The same page, empty, for another sequence, without a way through the pool; consumes this handle."""
        of = self.used()
        made = TracedPage(self._trace)
        self._trace.add(ReusePage(made.where, made.number, of))
        return made


class TracedTable(PageHandle):
    """The pages of one sequence, as many as its tokens need; ``append`` takes more."""

    _table = True

    def slide(self, *, after: PageEvent | None = None) -> None:
        """Give the pages before the sliding window back; the table's launches must have ended, as for ``release``."""
        self._trace.add(SlideWindow(_here(), self.used(), _event(after)))


class TracedPool:
    """The pool, in a program."""

    def __init__(self, trace: _Trace) -> None:
        self._trace = trace

    def take(self) -> TracedPage:
        """A page of its own."""
        made = TracedPage(self._trace)
        self._trace.add(TakePage(made.where, made.number))
        return made

    def table(self) -> TracedTable:
        """An empty table of pages, for one sequence."""
        return self._table(matched=False)

    def match(self) -> TracedTable:
        """A table that begins with the cached pages of its request's prefix: full pages, shared and never written."""
        return self._table(matched=True)

    def _table(self, matched: bool) -> TracedTable:
        made = TracedTable(self._trace)
        self._trace.add(TakePage(made.where, made.number, table=True, matched=matched))
        return made


class TracedRequests:
    """The requests of a program: any number, also none."""

    def __init__(self, trace: _Trace) -> None:
        self._trace = trace


class TracedRequest(_Named):
    """The request of this iteration."""

    def used(self) -> int:
        return self._reached("a request")


class PageCell:
    """A mutable variable for one handle: a handle put in one branch may be taken in another."""

    def __init__(self, trace: _Trace, place: Place) -> None:
        self._trace = trace
        self._place = place
        self._tables: bool | None = True if place.name in trace.tables else None
        self._guessed = False

    def put(self, handle: PageHandle) -> None:
        """Move a handle into the place, which must be empty (PAG008)."""
        self._put(handle)

    def take(self) -> Any:
        """Move what it holds out; PAG008 where it may be empty."""
        return self._take()

    def has(self) -> PageCondition:
        """Whether it holds something now."""
        return self._has()

    def _put(self, handle: PageHandle) -> None:
        if not isinstance(handle, PageHandle):  # pyright: ignore[reportUnnecessaryIsInstance] - of a stranger
            _refuse(f"{shown(handle)} put into a place", "a page or a table")
        table = isinstance(handle, TracedTable)
        if self._tables not in (None, table):
            self._refuse_both()
        self._tables = table
        self._trace.add(PutPage(_here(), self._place, handle.used()))

    def _refuse_both(self) -> None:
        """Where a table was taken for a page, the run goes on: another follows, for all such places at once."""
        try:
            _refuse("pages and tables in one place", "a place for pages and another for tables")
        except TilewrightError:
            if not self._guessed:
                raise
            self._trace.mistaken.add(self._place.name)

    def _take(self) -> PageHandle:
        if self._tables is None:
            self._tables, self._guessed, self._trace.guessed = False, True, self._place.name
        made = (TracedTable if self._tables else TracedPage)(self._trace)
        self._trace.add(TakeFromPlace(made.where, made.number, self._place))
        return made

    def _has(self) -> PageCondition:
        made = PageCondition(self._trace, f"{self._place.name} is full")
        self._trace.add(AskPlace(made.where, made.number, self._place))
        return made


class PageSlots(PageCell):
    """A place for each request: ``slots[request]`` is that of the iteration."""

    def __getitem__(self, request: TracedRequest) -> PageCell:
        if not isinstance(request, TracedRequest):  # pyright: ignore[reportUnnecessaryIsInstance] - of a stranger
            _refuse(f"slots[{shown(request)}]", "the request of a loop over pages.each(requests)")
        request.used()
        return _Slot(self)

    def put(self, handle: PageHandle) -> NoReturn:
        """Refused: a slot belongs to a request."""
        _refuse("the slots of all requests", "that of one: slots[request].put(page)")

    take = has = put  # pyright: ignore[reportAssignmentType]


class _Slot(PageCell):
    def __init__(self, slots: PageSlots) -> None:
        self.__dict__ = slots.__dict__


def _stream(name: object) -> str:
    if not isinstance(name, str) or not name:
        _refuse(f"the stream {shown(name)}", 'a name, such as stream="copies"')
    return name


def _event(event: object) -> int | None:
    if event is None:
        return None
    if not isinstance(event, PageEvent):
        _refuse(f"{shown(event)} as an event", 'what pages.record("main") returned')
    return event.used()


# -- constructs -------------------------------------------------------------------------------------------------------
def each(requests: TracedRequests) -> Iterator[TracedRequest]:
    """A loop over all requests; its body is traced once, for any of them."""
    if not isinstance(requests, TracedRequests):  # pyright: ignore[reportUnnecessaryIsInstance] - of a stranger
        _refuse(f"pages.each({shown(requests)})", "the program's requests")
    trace = _trace()
    if trace.in_each() is not None:
        _refuse("a loop over requests in another", "one such loop around each op", "write two loops behind each other")
    return _loop(trace, "requests", True, _here())


def repeat(name: str = "steps") -> Iterator[None]:
    """A loop of any number of iterations, none too: ``for _ in pages.repeat("steps"):``."""
    return _loop(_trace(), name, False, _here())


def _loop(trace: _Trace, name: str, each: bool, where: Location) -> Iterator[Any]:
    with trace.inside(_Scope(f"the loop of line {where.line}", each=each), where) as ops:
        yield TracedRequest(trace) if each else None
        _check_jumps(trace)
    trace.add(RepeatLoop(where, name, each, tuple(ops)))


def flag(name: str) -> PageCondition:
    """A condition decided at run time, anew each time this line runs."""
    made = PageCondition(_trace(), name)
    _trace().add(ChooseFlag(made.where, made.number, name))
    return made


@contextmanager
def when(condition: PageCondition) -> Generator[None]:
    """Ops that happen where ``condition`` holds."""
    if not isinstance(condition, PageCondition):  # pyright: ignore[reportUnnecessaryIsInstance] - of a stranger
        _refuse(f"pages.when({shown(condition)})", "a condition: pages.flag(name), cell.has(), slots[request].has()")
    trace, where = _trace(), _here()
    number = condition.used()
    with trace.inside(_Scope(f"the branch of line {where.line}"), where) as ops:
        yield
        _check_jumps(trace)
    then, other = ((), tuple(ops)) if condition.negated else (tuple(ops), ())
    made = WhenBranch(where, number, condition.name, then, other)
    trace.add(made)
    trace.scopes[-1].branch = made, condition.negated


@contextmanager
def otherwise() -> Generator[None]:
    """Ops that happen where the condition of the ``when`` right before does not hold."""
    trace, where = _trace(), _here()
    scope = trace.scopes[-1]
    if scope.branch is None or scope.ops[-1] is not scope.branch[0]:
        _refuse("pages.otherwise() with no pages.when(...) right before it", "a branch to be the other of")
    (before, holds), scope.branch = scope.branch, None
    with trace.inside(_Scope(f"the branch of line {where.line}"), where) as ops:
        yield
        _check_jumps(trace)
    then, other = (tuple(ops), before.otherwise) if holds else (before.then, tuple(ops))
    scope.ops[-1] = WhenBranch(before.where, before.condition, before.name, then, other)


@contextmanager
def phase(name: str) -> Generator[None]:
    """Ops whose peak of pages ``lifetime`` tells apart; names made inside live on behind it."""
    trace, where = _trace(), _here()
    scope = trace.scopes[-1]
    begin = len(scope.ops)
    yield
    _check_jumps(trace)
    scope.ops[begin:] = [NamedPhase(where, name, tuple(scope.ops[begin:]))]


def cell(name: str = "") -> PageCell:
    """An empty place for one handle."""
    return PageCell(_trace(), _place(name, each=False))


def slots(requests: TracedRequests, name: str = "") -> PageSlots:
    """An empty place for each request."""
    if not isinstance(requests, TracedRequests):  # pyright: ignore[reportUnnecessaryIsInstance] - of a stranger
        _refuse(f"pages.slots({shown(requests)})", "the program's requests")
    return PageSlots(_trace(), _place(name, each=True))


def _place(name: str, each: bool) -> Place:
    trace = _trace()
    if len(trace.scopes) > 1:
        _refuse("a place that is made in a loop or a branch", "cells and slots at the program's beginning")
    name = name or f"the {'slots' if each else 'cell'} of line {_here().line}"
    if name in trace.names:
        _refuse(f"two places with the name {name}", "a name for each")
    trace.names.add(name)
    return Place(name, each)


def launch(kernel: str, *reads: PageHandle, writes: Sequence[PageHandle] = (), stream: str = MAIN) -> None:
    """Asynchronous work that reads and writes pages: they are in flight until an event or a fence behind it."""
    _launch(_trace(), str(kernel), _handles(reads), _handles(writes), stream)


def copy(target: PageHandle, source: PageHandle, *, stream: str) -> None:
    """A copy from page to page on ``stream``."""
    _launch(_trace(), "copy", _handles((source,)), _handles((target,)), stream)


class PageGraph(_Named):
    """A captured launch: each replay uses the pages that were captured."""

    def __init__(self, kernel: str, reads: Sequence[PageHandle], writes: Sequence[PageHandle]) -> None:
        super().__init__(_trace())
        self._kernel, self._reads, self._writes = kernel, tuple(reads), tuple(writes)
        self._trace.add(CaptureGraph(self.where, self.number, _handles((*reads, *writes))))

    def replay(self, *, stream: str = MAIN) -> None:
        """Launch it again on ``stream``: the captured handles must still hold their pages."""
        reads, writes = _handles(self._reads), _handles(self._writes)
        _launch(_trace(), self._kernel, reads, writes, stream, graph=self._reached("a graph"))


def capture(kernel: str, *reads: PageHandle, writes: Sequence[PageHandle] = ()) -> PageGraph:
    """A graph of one launch, to be replayed; capturing launches nothing."""
    return PageGraph(kernel, reads, writes)


def _handles(handles: Sequence[object]) -> tuple[int, ...]:
    for handle in handles:
        if not isinstance(handle, PageHandle):
            _refuse(f"{shown(handle)} given to a launch", "pages and tables; other arguments have no part here")
    return tuple(h.used() for h in handles if isinstance(h, PageHandle))


def _launch(
    trace: _Trace, kernel: str, reads: tuple[int, ...], writes: tuple[int, ...], stream: str, graph: int | None = None
) -> None:
    trace.add(LaunchKernel(_here(), kernel, reads, writes, _stream(stream), graph))


def record(stream: str = MAIN) -> PageEvent:
    """An event that passes when what is on ``stream`` now has ended."""
    event = PageEvent(_trace())
    _trace().add(RecordEvent(event.where, event.number, _stream(stream)))
    return event


def wait(stream: str, event: PageEvent) -> None:
    """Later work of ``stream`` begins after ``event``."""
    number = _event(event)
    if number is None:
        _refuse("a wait for no event", 'pages.wait("copies", event)')
    _trace().add(StreamWait(_here(), _stream(stream), number))


def fence(event: PageEvent | None = None) -> None:
    """The program waits: for ``event``, or for all work."""
    _trace().add(HostFence(_here(), _event(event)))


# -- jumps that tracing does not see ----------------------------------------------------------------------------------
def _check_jumps(trace: _Trace) -> None:
    """Refuses functions in which a jump leaves a ``with``: what stands behind it was never traced."""
    for code in _in_with(_frame()):
        if code not in trace.plain:
            trace.plain[code] = jump_out_of_with(code)
        found = trace.plain[code]
        if found is not None:
            _refuse(
                found[0],
                "bodies that run to their end; a return stands at the end of the function only",
                "write the other case under pages.otherwise()",
                Location(code.co_filename, found[1]),
            )


def _in_with(frame: FrameType | None) -> Iterator[CodeType]:
    """The functions in whose ``with`` a body ends: the one that entered it, and those that entered a context manager
    which did."""
    while frame is not None:
        yield frame.f_code
        manages = frame.f_code.co_name == "__exit__"
        frame = frame.f_back
        while frame is not None and frame.f_code.co_filename == _CONTEXTLIB:
            manages, frame = True, frame.f_back
        if not manages:
            return


# -- programs ---------------------------------------------------------------------------------------------------------
class PageProgram:
    """A checked cache program: its ops, the checker's result, and its lifetime analysis."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<cache program {self.__name__}>"

    @cached_property
    def traced(self) -> CacheProgram:
        """The function's ops; PAG007 and PAG009 for what is no program."""
        return trace(self.function)

    @cached_property
    def checked(self) -> CheckedProgram:
        """The checker's answer: ``legal``, ``diagnostics``, ``peaks``."""
        return check(self.traced)

    def check(self) -> PageProgram:
        """This program, where it is legal; otherwise everything that is wrong, as one TilewrightError."""
        if self.checked.diagnostics:
            raise TilewrightError(self.checked.diagnostics)
        return self


def program(function: Callable[..., Any]) -> PageProgram:
    """Decorate a function as a cache program; its parameters are annotated ``pages.Pool``, ``Requests``, ``Page``,
    ``Table``. What it returns (a page, a table, or a tuple of them) belongs to the caller."""
    if not isinstance(function, FunctionType | MethodType):
        help = "write @pages.program above `def`"
        fail("PAG009", found=f"{type_shown(function)} as a cache program", required="a function", help=help)
    return PageProgram(function)


def trace(function: Callable[..., Any]) -> CacheProgram:
    """Run a function with symbolic arguments: once, and again where tables were taken from places before one was put
    there in the text, since they were taken to be pages."""
    run, first = _Trace(), None
    while True:
        try:
            return _recorded(run, function)
        except (TilewrightError, AttributeError) as wrong:
            if not run.mistaken:
                first = first or wrong
            if run.guessed is None:
                raise first or wrong from None
            run = _Trace(run.tables | (run.mistaken or {run.guessed}))


def _recorded(made: _Trace, function: Callable[..., Any]) -> CacheProgram:
    code = function.__code__
    where = Location(code.co_filename, code.co_firstlineno)
    _tracing.stack.append(made)
    _everywhere.append(made)
    try:
        arguments = [_argument(made, p, where) for p in _parameters(function)]
        returned = function(*arguments)
        end = Location(code.co_filename, last_line(code))
        if made.refused is not None:
            raise made.refused
        if made.left is not None or len(made.scopes) > 1:
            found = made.scopes[-1].what if made.left is None else "a loop or a branch"
            _refuse(f"{found}, which a jump or an error leaves", "a body that runs to its end", where=made.left or end)
        for handle in _returned(returned, end):
            made.add(HandOver(end, handle.used()))
    finally:
        made.scopes[0].closed = True
        _tracing.stack.pop()
        _everywhere.remove(made)
    return CacheProgram(function.__name__, tuple(made.scopes[0].ops), where, end)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


def _argument(trace: _Trace, parameter: inspect.Parameter, where: Location) -> object:
    kind = parameter.annotation
    if kind in (TracedPool, TracedRequests):
        return kind(trace)
    if kind in (TracedPage, TracedTable):
        made = kind(trace)
        trace.add(TakePage(where, made.number, table=kind is TracedTable, given=True))
        return made
    return _refuse(
        f"the parameter {parameter}",
        "parameters annotated pages.Pool, pages.Requests, pages.Page or pages.Table",
        where=where,
    )


def _returned(value: object, where: Location) -> list[PageHandle]:
    if value is None:
        return []
    found = cast("Sequence[object]", value) if isinstance(value, tuple | list) else (value,)
    handles: list[PageHandle] = []
    for handle in found:
        if not isinstance(handle, PageHandle):
            _refuse(f"{shown(handle)} is returned", "pages and tables, or nothing", where=where)
        handles.append(handle)
    return handles
