"""Tensor maps that threads write: released by one that knows of the write, then acquired by each that uses them."""

from __future__ import annotations

from tilewright.hw.tensormap import MAP_ALIGN_BYTES
from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.world import Bytes, Problem, World, WrittenMap
from tilewright.verify.rules import Rule


def write(g: ProtocolInstance, w: World, t: int, place: Bytes) -> None:
    """A thread writes bytes of tensor maps: nobody may use them."""
    units = range(place.begin // MAP_ALIGN_BYTES, -(-place.end // MAP_ALIGN_BYTES))
    parts = [Bytes(place.space, i * MAP_ALIGN_BYTES, (i + 1) * MAP_ALIGN_BYTES) for i in units]
    kept = frozenset(x for x in w.maps if x.writer != t or x.bytes not in parts)
    w.maps = kept | {WrittenMap(part, u, t, False) for part in parts for u in g.everyone}


def release(w: World, t: int, place: Bytes) -> None:
    """fence.proxy.tensormap.release: what the thread has written, or knows to be written."""
    w.maps = frozenset(x._replace(released=True) if x.bytes.inside(place) and _known(w, t, x) else x for x in w.maps)


def acquire(w: World, t: int, place: Bytes) -> None:
    """fence.proxy.tensormap.acquire: of what has been released."""
    w.maps = frozenset(x for x in w.maps if not (x.released and x.thread == t and x.bytes.inside(place)))


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
