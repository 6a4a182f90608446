"""What one op does to an abstract state, and what it must not find there.

A violation is raised where some execution of the traced program that gets to this state does wrong; the state is then
given up, so that one mistake is told once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.pages.programs.heap import Cover, Duty, Heap, Held, Stored, least, least_hazards
from tilewright.pages.programs.ops import (
    AppendTokens,
    AskPlace,
    CaptureGraph,
    ChooseFlag,
    HandOver,
    HostFence,
    LaunchKernel,
    PageOp,
    PutPage,
    RecordEvent,
    ReleasePages,
    ReusePage,
    SharePage,
    SlideWindow,
    StreamWait,
    TakeFromPlace,
    TakePage,
)


@dataclass
class PageViolation(Exception):
    """A rule (its code) that ``op`` breaks in a state, about a handle."""

    code: str
    op: PageOp
    heap: Heap
    handle: int
    found: str
    required: str
    help: str = ""


def apply(op: PageOp, heap: Heap) -> list[Heap]:
    """The states behind ``op``, made from ``heap``, which is used up; raises PageViolation."""
    match op:
        case TakePage():
            _new(heap, op.result, op)
        case SharePage():
            _share(op, heap)
        case AppendTokens():
            return _append(op, heap)
        case ReusePage():
            _reuse(op, heap)
        case ReleasePages():
            _release(op, heap)
        case SlideWindow():
            held = _live(op, heap, op.of, "given back in part")
            _ended(op, heap, op.of, held.duty, op.after, "a launch by this handle")
        case CaptureGraph():
            for handle in op.handles:
                _live(op, heap, handle, "captured")
            heap.graphs[op.graph] = frozenset(op.handles)
        case LaunchKernel():
            _launch(op, heap)
        case PutPage():
            _put(op, heap)
        case TakeFromPlace():
            _take(op, heap)
        case AskPlace():
            heap.facts[op.condition] = op.place.name in heap.places
        case ChooseFlag():
            heap.facts.pop(op.condition, None)
        case HandOver():
            _live(op, heap, op.of, "handed over")
            held = heap.handles.pop(op.of)
            heap.step(op.where, "handed over", op.of)
            heap.forget(held.storage)
        case _:
            _order(op, heap)
    return [heap]


def _order(op: PageOp, heap: Heap) -> None:
    """Events, waits and fences alter what comes behind the launches so far."""
    match op:
        case RecordEvent(event=event, stream=stream):
            heap.map_covers(lambda c: c - {event} | {event} if stream in c else c - {event})
        case StreamWait(stream=stream, event=event):
            heap.map_covers(lambda c: c | {stream} if event in c else c)
        case HostFence(event=None):
            heap.map_covers(lambda _: None)
        case HostFence(event=event):
            heap.map_covers(lambda c: None if event in c else c)
        case _:
            raise AssertionError(op)


def _new(heap: Heap, handle: int, op: TakePage) -> None:
    heap.handles[handle] = Held(heap.fresh(op.result, Stored(op.table)))
    heap.step(op.where, "taken" if not op.given else "given by the caller", handle)


def _live(op: PageOp, heap: Heap, handle: int, verb: str) -> Held:
    """What a handle holds; PAG001 or PAG002 where it is consumed already."""
    held = heap.handles.get(handle)
    if held is not None:
        return held
    again = isinstance(op, ReleasePages | HandOver)
    raise PageViolation(
        "PAG001" if again else "PAG002",
        op,
        heap,
        handle,
        f"a handle that was consumed already is {verb}",
        "each handle is consumed exactly once on every path",
    )


def _share(op: SharePage, heap: Heap) -> None:
    held = _live(op, heap, op.of, "shared")
    cow = held.cow or op.cow
    heap.handles[op.of] = Held(held.storage, cow, held.duty)
    heap.handles[op.result] = Held(held.storage, cow)
    heap.step(op.where, "forked" if op.cow else "shared", op.result)


# -- accesses ---------------------------------------------------------------------------------------------------------
def _hazard(op: PageOp, heap: Heap, handle: int, held: Held, stream: str, writes: bool) -> None:
    """PAG006 where work in flight on another stream is not ordered before this access."""
    for other, wrote, cover in sorted(heap.storages[held.storage].hazards, key=repr):
        if (writes or wrote) and stream not in cover:
            did, does = "writes" if wrote else "reads", "write" if writes else "read"
            raise PageViolation(
                "PAG006",
                op,
                heap,
                handle,
                f"a {does} on stream {stream!r} while a launch on {other!r} {did} the page",
                f"work on {stream!r} that is ordered behind it",
                f'event = pages.record("{other}"); pages.wait("{stream}", event)',
            )


def _access(heap: Heap, handle: int, stream: str, writes: bool) -> None:
    """The launch is in flight from now on."""
    held, cover = heap.handles[handle], frozenset({stream})
    heap.handles[handle] = Held(held.storage, held.cow, least(held.duty | {cover}))
    stored = heap.storages[held.storage]
    hazards = least_hazards(stored.hazards | {(stream, writes, cover)})
    heap.storages[held.storage] = Stored(stored.table, hazards, stored.duty)


def _unshared(op: PageOp, heap: Heap, handle: int, held: Held, does: str) -> None:
    if heap.maybe_shared(held):
        raise PageViolation(
            "PAG004",
            op,
            heap,
            handle,
            f"{does} while another handle holds the page, too",
            "the only handle of its page; with fork() an append copies",
        )


def _append(op: AppendTokens, heap: Heap) -> list[Heap]:
    held = _live(op, heap, op.of, "written")
    if not held.cow or not heap.maybe_shared(held):
        _unshared(op, heap, op.of, held, "an append")
        return [_in_place(op, heap, held)]
    if heap.surely_shared(held):
        return [_copied(op, heap, held)]
    return [_in_place(op, heap.copy(), held), _copied(op, heap, held)]


def _in_place(op: AppendTokens, heap: Heap, held: Held) -> Heap:
    _hazard(op, heap, op.of, held, op.stream, writes=True)
    _access(heap, op.of, op.stream, writes=True)
    heap.step(op.where, f"written on stream {op.stream!r}", op.of)
    return heap


def _copied(op: AppendTokens, heap: Heap, held: Held) -> Heap:
    """Copy on write: the handle leaves its storage, whose freeing must wait for what the handle launched on it."""
    _hazard(op, heap, op.of, held, op.stream, writes=False)
    left, cover = heap.storages[held.storage], frozenset({op.stream})
    hazards = least_hazards(left.hazards | {(op.stream, False, cover)})
    heap.storages[held.storage] = Stored(left.table, hazards, least(left.duty | held.duty | {cover}))
    written = frozenset({(op.stream, True, cover)})
    storage = heap.fresh(op.of, Stored(left.table, written))
    duty = least(held.duty | {cover}) if left.table else frozenset({cover})
    heap.handles[op.of] = Held(storage, held.cow, duty)
    if not left.table:
        heap.graphs = {graph: handles - {op.of} for graph, handles in heap.graphs.items()}
    heap.step(op.where, f"copied and written on stream {op.stream!r}", op.of)
    heap.forget(held.storage)
    return heap


def _launch(op: LaunchKernel, heap: Heap) -> None:
    for handles, writes in ((op.reads, False), (op.writes, True)):
        for handle in handles:
            held = _live(op, heap, handle, f"used by {'a replay of ' if op.graph is not None else ''}{op.kernel}")
            if op.graph is not None and handle not in heap.graphs[op.graph]:
                raise PageViolation(
                    "PAG002",
                    op,
                    heap,
                    handle,
                    f"a replay of {op.kernel} uses a page that its handle has left since: an append copied it",
                    "captured handles that hold the captured pages",
                    "capture the graph behind the copy",
                )
            if writes:
                _unshared(op, heap, handle, held, f"{op.kernel} writes")
            _hazard(op, heap, handle, held, op.stream, writes)
    for handles, writes in ((op.reads, False), (op.writes, True)):
        for handle in handles:
            _access(heap, handle, op.stream, writes)
            heap.step(op.where, f"used by {op.kernel} on stream {op.stream!r}", handle)


# -- consuming --------------------------------------------------------------------------------------------------------
def _reuse(op: ReusePage, heap: Heap) -> None:
    held = _live(op, heap, op.of, "reused")
    _unshared(op, heap, op.of, held, "a reuse")
    del heap.handles[op.of]
    heap.handles[op.result] = Held(held.storage, held.cow, held.duty)
    heap.step(op.where, "reused", op.of)
    heap.step(op.where, "taken by reuse", op.result)


def _release(op: ReleasePages, heap: Heap) -> None:
    held = _live(op, heap, op.of, "released")
    _ended(op, heap, op.of, held.duty, op.after, "a launch by this handle")
    if not heap.surely_shared(held):
        duty = heap.storages[held.storage].duty
        _ended(op, heap, op.of, duty, op.after, "a launch by a handle that has copied on write since")
    del heap.handles[op.of]
    heap.step(op.where, "released", op.of)
    heap.forget(held.storage)


def _ended(op: PageOp, heap: Heap, handle: int, duty: Duty, after: int | None, who: str) -> None:
    """PAG005 where a launch may not have ended when the page is free."""
    open_: list[Cover] = sorted((c for c in duty if after is None or after not in c), key=repr)
    if not open_:
        return
    streams = sorted({s for c in open_ for s in c if isinstance(s, str)})
    raise PageViolation(
        "PAG005",
        op,
        heap,
        handle,
        f"{who} on stream {' and '.join(map(repr, streams))} may still run",
        "every launch that uses a page has ended when the page is free",
        f'pages.fence() before it, or event = pages.record("{streams[0]}") behind the launch, '
        "then release(after=event)",
    )


# -- places -----------------------------------------------------------------------------------------------------------
def _put(op: PutPage, heap: Heap) -> None:
    held = _live(op, heap, op.of, "put into a place")
    if op.place.name in heap.places:
        raise PageViolation(
            "PAG008",
            op,
            heap,
            op.of,
            f"{op.place.name} holds a page already, which would leak",
            "an empty place",
            "take what it holds and release it, or ask has()",
        )
    del heap.handles[op.of]
    heap.places[op.place.name] = held
    heap.step(op.where, f"put into {op.place.name}", op.of)


def _take(op: TakeFromPlace, heap: Heap) -> None:
    held = heap.places.pop(op.place.name, None)
    if held is None:
        raise PageViolation(
            "PAG008",
            op,
            heap,
            op.result,
            f"{op.place.name} is empty",
            "a place that holds a page",
            f"with pages.when(place.has()): around it, if {op.place.name} may be empty",
        )
    heap.handles[op.result] = held
    heap.step(op.where, f"taken from {op.place.name}", op.result)


def leak(op: PageOp, heap: Heap, handle: int, where: str) -> PageViolation:
    """The violation of a handle that is alive where its name ends."""
    return PageViolation(
        "PAG003",
        op,
        heap,
        handle,
        f"its handle still holds it at {where}",
        "each handle is consumed exactly once on every path: released, reused, moved or returned",
        "release it on this path",
    )
