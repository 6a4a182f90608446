"""What barriers of threads do in a canonical run: named barriers, warp and cluster barriers."""

from __future__ import annotations

from tilewright.contract.agents import Agent
from tilewright.contract.machine import Handler, Machine, rendezvous
from tilewright.contract.meaning import Breach
from tilewright.contract.rules import Rule
from tilewright.contract.state import AgentState, Clock, S, State, Stream, join
from tilewright.contract.threads import Kind
from tilewright.protocol import ops
from tilewright.protocol.model import Step


def _enter(
    m: Machine, st: State, agent: Agent, a: AgentState, step: Step, key: Stream, threads: int, site: str, clock: Clock
) -> None:
    """Adds the agent's threads to the current use of a named barrier."""
    r = rendezvous(st, key)
    known = r.generation == 0 or any(m.saw(agent, a, S, c, e) for c, e in r.passed)
    if not known and not all(m.knows(agent, a, S, c, e) for c, e in r.done_arrivals):
        raise Breach(
            Rule.BAR_RECYCLE,
            agent.index,
            step,
            f"{agent.label} may arrive on {_bar_label(key)} while its previous use is not complete",
        )
    if r.arrived and r.threads != threads:
        raise Breach(
            Rule.BAR_RECYCLE, agent.index, step, f"{_bar_label(key)} is used with {r.threads} and {threads} threads"
        )
    r.threads = threads
    r.arrived += agent.group.size
    r.clock = clock if r.clock is None else join(r.clock, clock)
    r.arrivals = (*r.arrivals, (agent.index, a.epoch))
    if site:
        r.sites |= {site}
        if len(r.sites) > 1:
            raise Breach(
                Rule.BAR_SITE, agent.index, step, f"{_bar_label(key)} completes from {' and '.join(sorted(r.sites))}"
            )
    if r.arrived > threads:
        raise Breach(
            Rule.BAR_RECYCLE, agent.index, step, f"{r.arrived} threads arrive on {_bar_label(key)} of {threads}"
        )
    if r.arrived == threads:
        close(m, st, key)


def close(m: Machine, st: State, key: Stream) -> None:
    """The current use is complete; those inside may leave with what all brought, and the next one begins."""
    r = rendezvous(st, key)
    for a in st.agents:
        if a.inside == (key, r.generation):
            a.gift = r.clock
    r.generation += 1
    r.done_clock, r.done_arrivals = r.clock, r.arrivals
    r.passed = ()
    r.arrived, r.clock, r.arrivals, r.sites = 0, None, (), frozenset()
    m.wake(st)


def _bar_label(key: Stream) -> str:
    return f"named barrier {key[2]}"


def bar_sync(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.BarSync | ops.CtaSync)
    if isinstance(op, ops.CtaSync):
        number, threads, site = 0, sum(x.group.size for x in m.agents if x.cta == agent.cta), ""
    else:
        number, threads = m.value(st, agent, a, op.id), op.threads
        site = (op.site or agent.group.role) if op.aligned else ""
    key: Stream = ("named", agent.cta, number)
    return _meet(m, st, agent, a, step, key, threads, site)


def _meet(m: Machine, st: State, agent: Agent, a: AgentState, step: Step, key: Stream, threads: int, site: str) -> bool:
    """Arrives once, then waits for the rest."""
    r = rendezvous(st, key)
    if a.inside is None:
        a.inside = (key, r.generation)
        _enter(m, st, agent, a, step, key, threads, site, m.released(agent, a))
    if a.gift is None:
        return False
    m.acquire(a, a.gift)
    if r.generation == a.inside[1] + 1:
        r.passed = (*r.passed, (agent.index, a.epoch))
    a.inside = a.gift = None
    return True


def bar_arrive(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.BarArrive)
    key: Stream = ("named", agent.cta, m.value(st, agent, a, op.id))
    _enter(m, st, agent, a, step, key, op.threads, "", m.released(agent, a))
    return True


def warp_sync(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    """Joins the lanes of each warp. Lane 0 of another warp learns of the lanes of its own warp only, which becomes
    general when the lanes 0 of all warps arrive somewhere."""
    first = agent.group.kind in (Kind.ELECTED, Kind.WARP0)
    lanes = [x for x in m.role_agents[agent.role] if (x.group.kind in (Kind.ELECTED, Kind.WARP0)) == first]
    if len(lanes) == 1:
        return True
    key: Stream = ("warp", agent.role, first)
    r = rendezvous(st, key)
    if a.inside is None:
        a.inside = (key, r.generation)
        clock = m.released(agent, a)
        r.clock = clock if r.clock is None else join(r.clock, clock)
        r.arrivals = (*r.arrivals, (agent.index, a.epoch))
        if len(r.arrivals) == len(lanes):
            close(m, st, key)
    if a.gift is None:
        return False
    if first:
        m.acquire(a, a.gift)
    else:
        others = 0
        for x in lanes:
            others |= st.agents[x.index].past
        s, mem, f, x, t, y = (segment & ~others for segment in a.gift)
        m.acquire(a, (s, mem, f, x, t, y))
        a.extra = join(a.extra, a.gift)
    a.inside = a.gift = None
    return True


def cluster_arrive(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    op = step.op
    assert isinstance(op, ops.ClusterArrive)
    r = rendezvous(st, ("cluster",))
    if a.cluster >= 0:
        raise Breach(Rule.CLUSTER_BARRIER, agent.index, step, f"{agent.label} arrives twice without waiting between")
    a.cluster = r.generation
    clock = m.released(agent, a, op.release)
    r.clock = clock if r.clock is None else join(r.clock, clock)
    r.arrivals = (*r.arrivals, (agent.index, a.epoch))
    cluster_progress(m, st)
    return True


def cluster_progress(m: Machine, st: State) -> None:
    """The cluster barrier completes when every agent that has not ended has arrived."""
    r = rendezvous(st, ("cluster",))
    if r.arrivals and all(a.done or a.cluster == r.generation for a in st.agents):
        close(m, st, ("cluster",))


def cluster_wait(m: Machine, st: State, agent: Agent, a: AgentState, step: Step) -> bool:
    r = rendezvous(st, ("cluster",))
    if a.cluster < 0:
        raise Breach(Rule.CLUSTER_BARRIER, agent.index, step, f"{agent.label} waits without having arrived")
    cluster_progress(m, st)
    if r.generation == a.cluster:
        return False
    assert r.done_clock is not None
    m.acquire(a, r.done_clock)
    a.cluster = -1
    return True


MEETING_HANDLERS: dict[type[object], Handler] = {
    ops.BarSync: bar_sync,
    ops.CtaSync: bar_sync,
    ops.BarArrive: bar_arrive,
    ops.WarpSync: warp_sync,
    ops.ClusterArrive: cluster_arrive,
    ops.ClusterWait: cluster_wait,
}
