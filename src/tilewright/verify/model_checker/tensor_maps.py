"""Tensor maps that threads write: released by one that knows of the write, then acquired by each that uses them."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.world import Bytes, Problem, World, WrittenMap
from tilewright.verify.rules import Rule


def write(g: ProtocolInstance, w: World, t: int, place: Bytes) -> None:
    """A thread writes bytes of tensor maps: nobody may use them."""
    w.maps = _changed(w.maps, place, lambda x: None if x.writer == t else x)
    w.maps |= {WrittenMap(place, u, t, False) for u in g.everyone}


def release(w: World, t: int, place: Bytes) -> None:
    """fence.proxy.tensormap.release: what the thread has written, or knows to be written."""
    w.maps = _changed(w.maps, place, lambda x: x._replace(released=True) if _known(w, t, x) else x)


def acquire(w: World, t: int, place: Bytes) -> None:
    """fence.proxy.tensormap.acquire: of what has been released."""
    w.maps = _changed(w.maps, place, lambda x: None if x.released and x.thread == t else x)


def _changed(
    maps: frozenset[WrittenMap], place: Bytes, change: Callable[[WrittenMap], WrittenMap | None]
) -> frozenset[WrittenMap]:
    """The parts of entries that lie in ``place`` changed, or left out; the rest of each as it was."""
    found: set[WrittenMap] = set()
    for x in maps:
        if not x.bytes.meets(place):
            found.add(x)
            continue
        begin, end = max(x.bytes.begin, place.begin), min(x.bytes.end, place.end)
        here = change(x._replace(bytes=x.bytes._replace(begin=begin, end=end)))
        found |= set() if here is None else {here}
        beside = (x.bytes._replace(end=begin), x.bytes._replace(begin=end))
        found |= {x._replace(bytes=rest) for rest in beside if not rest.empty}
    return frozenset(found)


def use(w: World, t: int, place: Bytes) -> None:
    """A copy reads a tensor map; raises ``Problem`` where it may find another one."""
    if any(x.thread == t and x.bytes.meets(place) for x in w.maps):
        raise Problem(Rule.TENSORMAP, (t,), "a rewritten descriptor is used before it is released and acquired")


def _known(w: World, t: int, x: WrittenMap) -> bool:
    """Whether the write is past for the thread."""
    if x.writer == t:
        return True
    c = w.causality
    if c is not None:
        theirs = (a for a in c.accesses if a.owner == x.writer and a.writes and a.bytes.meets(x.bytes))
        return all(a in c.known[t] for a in theirs)
    return not any(o.writes and o.bytes.meets(x.bytes) for o in w.open[x.writer])
