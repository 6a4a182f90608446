"""Cache programs as data: a tree of ops with the user's places; handles, events and conditions are integers.

A handle is made by exactly one op and, where the program is right, consumed by exactly one op on every path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.diag import Location

Body = tuple["PageOp", ...]


@dataclass(frozen=True)
class PageOp:
    """Base of all ops; ``where`` is the user's place."""

    where: Location


@dataclass(frozen=True)
class TakePage(PageOp):
    """``result`` owns a page, or with ``table`` the pages of a sequence, taken from the pool.

    ``given``: the caller brings it. ``matched``: a table whose first pages may be cached ones.
    """

    result: int
    table: bool = False
    given: bool = False
    matched: bool = False


@dataclass(frozen=True)
class SharePage(PageOp):
    """``result`` is another handle of what ``of`` holds; with ``cow`` both handles copy on write from now on."""

    result: int
    of: int
    cow: bool


@dataclass(frozen=True)
class AppendTokens(PageOp):
    """Writes tokens behind those of ``of``, by a kernel on ``stream``."""

    of: int
    stream: str


@dataclass(frozen=True)
class ReusePage(PageOp):
    """Consumes ``of``; ``result`` owns the same page, empty, for another sequence."""

    result: int
    of: int


@dataclass(frozen=True)
class ReleasePages(PageOp):
    """Consumes ``of``: the pool may hand its pages out once ``after``, an event, has passed; without one at once."""

    of: int
    after: int | None


@dataclass(frozen=True)
class SlideWindow(PageOp):
    """Gives the pages of a table before its window back; the handle stays."""

    of: int
    after: int | None


@dataclass(frozen=True)
class CaptureGraph(PageOp):
    """``graph`` is a launch with the pages that ``handles`` hold now."""

    graph: int
    handles: tuple[int, ...]


@dataclass(frozen=True)
class LaunchKernel(PageOp):
    """Asynchronous work on ``stream``; ``graph``: the replay of this captured graph."""

    kernel: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    stream: str
    graph: int | None = None


@dataclass(frozen=True)
class RecordEvent(PageOp):
    """``event`` passes when what is on ``stream`` now has ended."""

    event: int
    stream: str


@dataclass(frozen=True)
class StreamWait(PageOp):
    """Later work of ``stream`` begins after ``event``."""

    stream: str
    event: int


@dataclass(frozen=True)
class HostFence(PageOp):
    """The host waits until ``event`` has completed; without one, until all work has."""

    event: int | None


@dataclass(frozen=True)
class Place:
    """Where a handle is kept under a name: one for the program, or with ``each`` one for every request."""

    name: str
    each: bool


@dataclass(frozen=True)
class PutPage(PageOp):
    """Moves ``of`` into an empty place."""

    place: Place
    of: int


@dataclass(frozen=True)
class TakeFromPlace(PageOp):
    """Moves what a full place holds to ``result``."""

    result: int
    place: Place


@dataclass(frozen=True)
class AskPlace(PageOp):
    """``condition`` is whether ``place`` is full now."""

    condition: int
    place: Place


@dataclass(frozen=True)
class ChooseFlag(PageOp):
    """``condition`` gets a value, which the running program decides."""

    condition: int
    name: str


@dataclass(frozen=True)
class WhenBranch(PageOp):
    """One of two bodies; ``condition`` has one value for as long as it can be named. ``name`` is for people."""

    condition: int
    name: str
    then: Body
    otherwise: Body


@dataclass(frozen=True)
class RepeatLoop(PageOp):
    """A body that runs any number of times, or with ``each`` once for every request. ``name`` is for people."""

    name: str
    each: bool
    body: Body


@dataclass(frozen=True)
class NamedPhase(PageOp):
    """Ops whose peak is reported separately."""

    name: str
    body: Body


@dataclass(frozen=True)
class HandOver(PageOp):
    """Consumes ``of``: the caller owns it from now on."""

    of: int


@dataclass(frozen=True)
class CacheProgram:
    """A traced program; ``end`` is the last line of its function."""

    name: str
    body: Body
    where: Location
    end: Location


def bodies(op: PageOp) -> tuple[Body, ...]:
    """The bodies inside of an op."""
    match op:
        case WhenBranch():
            return op.then, op.otherwise
        case RepeatLoop() | NamedPhase():
            return (op.body,)
        case _:
            return ()


def walk(body: Body) -> Iterator[PageOp]:
    """All ops in the order of the text, those inside of others behind them."""
    for op in body:
        yield op
        for inner in bodies(op):
            yield from walk(inner)


def made_by(op: PageOp) -> int | None:
    """The handle that an op makes."""
    match op:
        case TakePage() | SharePage() | ReusePage() | TakeFromPlace():
            return op.result
        case _:
            return None
