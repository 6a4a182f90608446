"""The effects of thread barriers in a canonical run: named barriers, warp and cluster barriers."""

from __future__ import annotations

from tilewright.protocol.effects import BarrierScope, Sync
from tilewright.verify.canonical_runs.interpreter import Interpreter, StepExecution, rendezvous
from tilewright.verify.canonical_runs.state import Clock, RunState, S, Stream, join
from tilewright.verify.rules import Rule
from tilewright.verify.threads import ThreadKind

CLUSTER: Stream = ("cluster",)


def sync(x: StepExecution, effect: Sync) -> bool:
    """Arrives on a barrier of threads, waits for it, or both."""
    match effect.scope:
        case BarrierScope.CTA:
            return _named(x, effect)
        case BarrierScope.WARP:
            return _warp(x)
        case BarrierScope.CLUSTER:
            return _cluster_arrive(x, effect) if effect.arrives else _cluster_wait(x)


def _named(x: StepExecution, effect: Sync) -> bool:
    assert effect.number is not None
    threads = effect.threads or sum(y.group.size for y in x.m.agents if y.cta == x.agent.cta)
    site = (effect.site or x.agent.group.role) if effect.aligned else ""
    key: Stream = ("named", x.agent.cta, x.value(effect.number))
    if not effect.waits:
        _enter(x, key, threads, site)
        return True
    if x.a.inside is None:
        x.a.inside = (key, rendezvous(x.st, key).generation)
        _enter(x, key, threads, site)
    gift = x.a.gift
    if gift is None:
        return False
    x.acquire(gift)
    _leave(x, key)
    return True


def _leave(x: StepExecution, key: Stream) -> None:
    r = rendezvous(x.st, key)
    assert x.a.inside is not None
    if r.generation == x.a.inside[1] + 1:
        r.passed = (*r.passed, (x.agent.index, x.a.epoch))
    x.a.inside = x.a.gift = None


def _enter(x: StepExecution, key: Stream, threads: int, site: str) -> None:
    """Adds the agent's threads to the current use of a named barrier."""
    r, label = rendezvous(x.st, key), f"named barrier {key[2]}"
    known = r.generation == 0 or any(x.saw(S, c, e) for c, e in r.passed)
    if not known and not all(x.knows(S, c, e) for c, e in r.done_arrivals):
        raise x.breach(Rule.BAR_RECYCLE, f"{x.label} may arrive on {label} while its previous use is not complete")
    if r.arrived and r.threads != threads:
        raise x.breach(Rule.BAR_RECYCLE, f"{label} is used with {r.threads} and {threads} threads")
    r.threads = threads
    r.arrived += x.agent.group.size
    _arrive(x, key, x.released())
    if site:
        r.sites |= {site}
        if len(r.sites) > 1:
            raise x.breach(Rule.BAR_SITE, f"{label} completes from {' and '.join(sorted(r.sites))}")
    if r.arrived > threads:
        raise x.breach(Rule.BAR_RECYCLE, f"{r.arrived} threads arrive on {label} of {threads}")
    if r.arrived == threads:
        _close(x.m, x.st, key)


def _arrive(x: StepExecution, key: Stream, clock: Clock) -> None:
    r = rendezvous(x.st, key)
    r.clock = clock if r.clock is None else join(r.clock, clock)
    r.arrivals = (*r.arrivals, (x.agent.index, x.a.epoch))


def _close(m: Interpreter, st: RunState, key: Stream) -> None:
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


def _warp(x: StepExecution) -> bool:
    """Joins the lanes of each warp. Lane 0 of another warp learns of the lanes of its own warp only, which becomes
    general when the lanes 0 of all warps arrive somewhere."""
    agent, a = x.agent, x.a
    first = agent.group.kind in (ThreadKind.ELECTED, ThreadKind.WARP0)
    lanes = [
        y for y in x.m.role_agents[agent.role] if (y.group.kind in (ThreadKind.ELECTED, ThreadKind.WARP0)) == first
    ]
    if len(lanes) == 1:
        return True
    key: Stream = ("warp", agent.role, first)
    r = rendezvous(x.st, key)
    if a.inside is None:
        a.inside = (key, r.generation)
        _arrive(x, key, x.released())
        if len(r.arrivals) == len(lanes):
            _close(x.m, x.st, key)
    if a.gift is None:
        return False
    if first:
        x.acquire(a.gift)
    else:
        others = 0
        for y in lanes:
            others |= x.st.agents[y.index].past
        s, mem, f, c, t, n = (segment & ~others for segment in a.gift)
        x.acquire((s, mem, f, c, t, n))
        a.extra = join(a.extra, a.gift)
    a.inside = a.gift = None
    return True


def _cluster_arrive(x: StepExecution, effect: Sync) -> bool:
    if x.a.cluster >= 0:
        raise x.breach(Rule.CLUSTER_BARRIER, f"{x.label} arrives twice without waiting between")
    x.a.cluster = rendezvous(x.st, CLUSTER).generation
    _arrive(x, CLUSTER, x.released(effect.release))
    _cluster_progress(x.m, x.st)
    return True


def _cluster_progress(m: Interpreter, st: RunState) -> None:
    """The cluster barrier completes when every agent that has not ended has arrived."""
    r = rendezvous(st, CLUSTER)
    if r.arrivals and all(a.done or a.cluster == r.generation for a in st.agents):
        _close(m, st, CLUSTER)


def _cluster_wait(x: StepExecution) -> bool:
    r = rendezvous(x.st, CLUSTER)
    if x.a.cluster < 0:
        raise x.breach(Rule.CLUSTER_BARRIER, f"{x.label} waits without having arrived")
    _cluster_progress(x.m, x.st)
    if r.generation == x.a.cluster:
        return False
    assert r.done_clock is not None
    x.acquire(r.done_clock)
    x.a.cluster = -1
    return True
