"""Tensor maps in a canonical run: bytes of one that were written are released and acquired before a copy uses them.

Any write of them counts, not the rewrite of a field alone: a copy reads its tensor map through a proxy of its own (PTX
ISA 9.1, 8.3, 9.7.13.4)."""

from __future__ import annotations

from tilewright.hw.spaces import Space
from tilewright.protocol.effects import Access, Proxy
from tilewright.protocol.operands import Region
from tilewright.verify.canonical_runs.evaluation import CompiledRegion, OutOfReach
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.state import M, MapBytes
from tilewright.verify.rules import Rule


def written(x: StepExecution, effect: Access, place: CompiledRegion, begin: int, end: int) -> None:
    """Bytes of global memory were written; those that copies read as tensor maps are not released yet."""
    if place.space is not Space.GLOBAL or effect.region.buffer not in x.m.described:
        return
    agent, maps = x.agent.index, x.st.maps
    inside = _cut(maps, begin, end)
    by_copy = effect.proxy is Proxy.ASYNC
    if not any(c != agent for at in inside for c, _ in _unreleased(maps[at])):
        for at in inside:
            del maps[at]
        maps[begin, end] = MapBytes(((agent, x.a.epoch),), by_copy=by_copy)
        return
    for at in inside:  # others have yet to release what they wrote
        before = maps[at]
        others = tuple(w for w in _unreleased(before) if w[0] != agent)
        maps[at] = MapBytes((*others, (agent, x.a.epoch)), by_copy=by_copy or (before.by_copy and bool(others)))
    gaps = zip((begin, *(high for _, high in inside)), (*(low for low, _ in inside), end), strict=True)
    maps.update({gap: MapBytes(((agent, x.a.epoch),), by_copy=by_copy) for gap in gaps if gap[0] < gap[1]})


def released(x: StepExecution, region: Region) -> None:
    """A release covers the writes of a tensor map that the agent made or knows of."""
    for at in _of(x, region):
        found = x.st.maps[at]
        if not all(_known(x, c, e) for c, e in found.writers):
            continue
        if found.by_copy:
            raise OutOfReach(f"a release of {region.buffer}, which an asynchronous copy wrote")
        others = tuple(r for r in found.releases if r[0] != x.agent.index)
        x.st.maps[at] = found._replace(releases=(*others, (x.agent.index, x.a.epoch)))


def acquired(x: StepExecution, region: Region) -> None:
    """The agent may use a tensor map of which it knows a release."""
    for at in _of(x, region):
        found = x.st.maps[at]
        if any(_known(x, c, e) for c, e in found.releases):
            x.st.maps[at] = found._replace(acquired=found.acquired | {x.agent.index})


def check_acquired(x: StepExecution, region: Region) -> None:
    """A copy reads its tensor map: what was last written of it must have been released and acquired."""
    if any(x.agent.index not in x.st.maps[at].acquired for at in _of(x, region)):
        raise x.breach(Rule.TENSORMAP, f"{x.label} uses {region.buffer} without acquiring its last update")


def _unreleased(found: MapBytes) -> tuple[tuple[int, int], ...]:
    return () if found.releases else found.writers


def _known(x: StepExecution, c: int, e: int) -> bool:
    return c == x.agent.index or x.knows(M, c, e)


def _of(x: StepExecution, region: Region) -> list[tuple[int, int]]:
    """What was written of a region; nothing outside of global memory, where no copy finds its tensor map."""
    place = x.m.place(region)
    if place.space is not Space.GLOBAL:
        return []
    begin = place.begin(x.a.env)
    return _cut(x.st.maps, begin, begin + place.size)


def _cut(maps: dict[tuple[int, int], MapBytes], begin: int, end: int) -> list[tuple[int, int]]:
    """What lies between two bytes, in order, once entries that reach beyond are cut there."""
    for (low, high), found in [*maps.items()]:
        if low < end and begin < high and not begin <= low < high <= end:
            del maps[low, high]
            parts = ((low, min(high, begin)), (max(low, begin), min(high, end)), (max(low, end), high))
            maps.update({part: found for part in parts if part[0] < part[1]})
    return sorted(at for at in maps if begin <= at[0] and at[1] <= end)
