"""Tensor maps in a canonical run: a rewritten one is released and acquired before a copy uses it."""

from __future__ import annotations

from tilewright.hw.spaces import Space
from tilewright.protocol.operands import Region
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.state import M, Stream
from tilewright.verify.rules import Rule


def _key(x: StepExecution, region: Region) -> Stream:
    """The descriptor at a region, in global memory or in the CTA's own."""
    place = x.m.place(region)
    memory = ("global",) if place.space is Space.GLOBAL else ("shared", x.agent.cta)
    return *memory, place.begin(x.a.env)


def replaced(x: StepExecution, region: Region) -> None:
    """The descriptor was rewritten, and is not released yet."""
    x.st.maps[_key(x, region)] = (x.agent.index, -1)


def released(x: StepExecution, region: Region) -> None:
    """The rewrites of a descriptor so far are released."""
    key = _key(x, region)
    if key in x.st.maps:
        x.st.maps[key] = (x.agent.index, x.a.epoch)


def acquired(x: StepExecution) -> None:
    """The agent may use every descriptor whose release it knows of."""
    x.a.maps, x.a.after_map = x.a.clock, x.a.past


def check_acquired(x: StepExecution, region: Region) -> None:
    """A copy reads its descriptor: the last rewrite must have been released and acquired."""
    found = x.st.maps.get(_key(x, region))
    if found is None:
        return
    c, e = found
    known = x.a.after_map if c == x.agent.index else 0 if x.a.maps is None else x.a.maps[M]
    if e < 0 or x.a.maps is None or not known >> e & 1:
        raise x.breach(Rule.TENSORMAP, f"{x.label} uses {region.buffer} without acquiring its last update")
