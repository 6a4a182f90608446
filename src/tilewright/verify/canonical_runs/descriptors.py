"""Tensor maps in a canonical run: bytes of one that were written are released and acquired before a copy uses them.

They are kept by blocks of 64 bytes, at whose multiples a tensor map begins. Any write of them counts, not the rewrite
of a field alone: a copy reads its tensor map through a proxy of its own (PTX ISA 9.1, 8.3, 9.7.13.4, membar/fence)."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.hw.spaces import Space
from tilewright.hw.tensormap import MAP_ALIGN_BYTES
from tilewright.protocol.effects import Access, Proxy
from tilewright.protocol.operands import Region
from tilewright.verify.canonical_runs.evaluation import CompiledRegion, OutOfReach
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.state import M, MapBlock
from tilewright.verify.rules import Rule


def written(x: StepExecution, effect: Access, place: CompiledRegion, begin: int, end: int) -> None:
    """Bytes of global memory were written; those that copies read as tensor maps are not released yet."""
    if place.space is not Space.GLOBAL or effect.region.buffer not in x.m.described:
        return
    agent = x.agent.index
    for at in _blocks(begin, end):
        before = x.st.maps.get(at, MapBlock(()))
        others = tuple(w for w in before.writers if w[0] != agent)
        by_copy = effect.proxy is Proxy.ASYNC or (before.by_copy and bool(others))
        x.st.maps[at] = MapBlock((*others, (agent, x.a.epoch)), by_copy=by_copy)


def released(x: StepExecution, region: Region) -> None:
    """A release covers the writes of a tensor map that the agent made or knows of."""
    for at in _of(x, region):
        found = x.st.maps.get(at)
        if found is None or not all(c == x.agent.index or x.knows(M, c, e) for c, e in found.writers):
            continue
        if found.by_copy:
            raise OutOfReach(f"a release of {region.buffer}, which an asynchronous copy wrote")
        x.st.maps[at] = MapBlock((), (x.agent.index, x.a.epoch), found.acquired)


def acquired(x: StepExecution, region: Region) -> None:
    """The agent may use a tensor map whose last release it knows of."""
    for at in _of(x, region):
        found = x.st.maps.get(at)
        if found is not None and found.release is not None and _known(x, *found.release):
            x.st.maps[at] = found._replace(acquired=found.acquired | {x.agent.index})


def check_acquired(x: StepExecution, region: Region) -> None:
    """A copy reads its tensor map: what was last written of it must have been released and acquired."""
    found = [x.st.maps[at] for at in _of(x, region) if at in x.st.maps]
    if any(b.writers or x.agent.index not in b.acquired for b in found):
        raise x.breach(Rule.TENSORMAP, f"{x.label} uses {region.buffer} without acquiring its last update")


def _known(x: StepExecution, c: int, e: int) -> bool:
    return c == x.agent.index or x.knows(M, c, e)


def _of(x: StepExecution, region: Region) -> Iterable[int]:
    """The blocks of a region; none outside of global memory, where no copy finds its tensor map."""
    place = x.m.place(region)
    if place.space is not Space.GLOBAL:
        return ()
    begin = place.begin(x.a.env)
    return _blocks(begin, begin + place.size)


def _blocks(begin: int, end: int) -> range:
    return range(begin // MAP_ALIGN_BYTES, -(-end // MAP_ALIGN_BYTES))
