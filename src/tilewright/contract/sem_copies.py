"""Copies that complete on mbarriers, and the descriptors that copies use, in a canonical run."""

from __future__ import annotations

from tilewright.contract.agents import Agent
from tilewright.contract.machine import Handler, Machine
from tilewright.contract.meaning import Breach
from tilewright.contract.rules import Rule
from tilewright.contract.sem_barriers import land
from tilewright.contract.sem_memory import GENERIC, Use, access, space_key
from tilewright.contract.state import AgentState, M, State, Stream
from tilewright.contract.values import Thunk
from tilewright.protocol import ops
from tilewright.protocol.model import Step


def tma_load(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.TmaLoad)
    targets = {m.value(st, agent, a, e) for e in op.ctas} or {agent.cta}
    for rank in sorted(targets):
        m.rank(agent, a, step, _fixed(rank))
        b = m.bar(agent, a, step, op.bar, rank)
        stream, seq = ("bar", b), st.bars[b].phase
        access(m, st, agent, a, step, op.dst, Use("tma_load", True, stream, seq), rank)
        if op.tensormap is not None:
            use_map(m, st, agent, a, step, op.tensormap, stream, seq)
        for _ in range(agent.group.size):
            land(m, st, agent, a, step, b, op.dst.size)
    return True


def _fixed(rank: int) -> Thunk:
    return lambda env: rank


def dsmem_copy(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.DsmemCopy)
    b = m.bar(agent, a, step, op.bar)
    stream, seq = ("bar", b), st.bars[b].phase
    access(m, st, agent, a, step, op.src, Use("dsmem", False, stream, seq))
    access(m, st, agent, a, step, op.dst, Use("dsmem", True, stream, seq))
    land(m, st, agent, a, step, b, op.dst.size)
    return True


def use_map(
    m: Machine, st: State, agent: Agent, a: AgentState, step: Step, region: ops.Region, stream: Stream, seq: int
) -> None:
    """A copy reads its descriptor: rewritten ones must be released and acquired."""
    place = m.place(region)
    key = (*space_key(agent, place, agent.cta), place.begin(a.env))
    access(m, st, agent, a, step, region, Use("map", False, stream, seq))
    released = st.maps.get(key)
    if released is None:
        return
    c, e = released
    mine = c == agent.index
    acquired = a.maps is not None and (a.after_map if mine else a.maps[M]) >> max(e, 0) & 1
    if e < 0 or not acquired:
        raise Breach(
            Rule.TENSORMAP, agent.index, step, f"{agent.label} uses {region.buffer} without acquiring its last update"
        )


def map_replace(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.TensormapReplace)
    place = m.place(op.map)
    access(m, st, agent, a, step, op.map, Use(GENERIC, True))
    st.maps[*space_key(agent, place, agent.cta), place.begin(a.env)] = (agent.index, -1)
    return True


def map_release(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.TensormapRelease)
    place = m.place(op.map)
    key = (*space_key(agent, place, agent.cta), place.begin(a.env))
    if key in st.maps:
        st.maps[key] = (agent.index, a.epoch)
    return True


def map_acquire(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    a.maps, a.after_map = a.clock, a.past
    return True


COPY_HANDLERS: dict[type[object], Handler] = {
    ops.TmaLoad: tma_load,
    ops.DsmemCopy: dsmem_copy,
    ops.TensormapReplace: map_replace,
    ops.TensormapRelease: map_release,
    ops.TensormapAcquire: map_acquire,
}
