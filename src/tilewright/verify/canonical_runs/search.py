"""The parametric proof: all canonical runs of a protocol, for every value of its trip counts, up to equal futures.

The only choices of a canonical run are the trip counts, and the order of strong operations on counters. Where a count
must be decided the run splits in two: the loop ends here, or goes on. Where several agents stand at strong operations
it splits into one for each that may go first; from then on no two states are taken for one. A state needs no visit if
one of the same shape that knows no more was met before, so the search ends when nothing new comes up: prologue, steady
state, drain and carry-over between tiles are covered because every reachable state is, not because a list of sizes was
tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from tilewright.protocol.model import Protocol
from tilewright.protocol.tickets import with_reads
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.canonical_runs.counter_order import unordered
from tilewright.verify.canonical_runs.evaluation import Breach, OpenOrder, OpenTripCount, OutOfReach
from tilewright.verify.canonical_runs.global_counters import serve_next
from tilewright.verify.canonical_runs.interpreter import Interpreter
from tilewright.verify.canonical_runs.normal import normal
from tilewright.verify.canonical_runs.state import RunState, Trip, TripDecision
from tilewright.verify.canonical_runs.transfers import TRANSFERS, check_end
from tilewright.verify.op_constraints import declared
from tilewright.verify.rules import Policy, Rule
from tilewright.verify.threads import LoopTest

MAX_STATES = 4000
"""Decision points visited before giving up; the largest protocol here needs about a tenth."""

FIRST_LOOK = 150
"""Decision points visited where a proof is unlikely: bounds may end the loops, or a breach show early."""


@dataclass(frozen=True)
class Failure:
    """A breach with the run that led to it."""

    breach: Breach
    state: RunState
    interpreter: Interpreter


@dataclass(frozen=True)
class Search:
    """The result of the proof search: ``failure``, or the ``reason`` why it is open, or neither: proved."""

    states: int
    ends: int
    merges: int = 0
    failure: Failure | None = None
    reason: str = ""
    warnings: dict[tuple[Rule, str], Breach] = field(default_factory=dict[tuple[Rule, str], Breach])


def interpreter(protocol: Protocol, policy: Policy) -> Interpreter:
    """An interpreter with the semantics of all ops."""
    return Interpreter(with_reads(protocol), TRANSFERS, serve_next, policy)


def search(m: Interpreter, limit: int = MAX_STATES) -> Search:
    """Runs the protocol for all trip counts; breadth first, so a breach is found at small counts.

    States of one shape are merged into one that knows what both know, which keeps the search small. A breach found
    after that may be the merge's doing: then the search is run again without.
    """
    for rule, detail in declared(m.protocol):
        return Search(0, 0, failure=Failure(Breach(rule, 0, None, detail), m.start(), m))
    m.doubt = unordered(m.agents, m.operations)
    found = _searched(m, limit)
    return replace(found, reason=m.doubt) if m.doubt and found.failure is None and not found.reason else found


def _searched(m: Interpreter, limit: int) -> Search:
    wandering = sorted(f"{counter} of {x.label}" for x in m.agents for counter in x.usage.raw & _endless(m, x))
    if wandering:
        found = _search(m, FIRST_LOOK, False)
        reason = f"the loop counter {wandering[0]} is used in full, so no two iterations are alike"
        return found if found.failure is not None or not found.reason else replace(found, reason=reason)
    merged = _search(m, limit, True)
    if merged.failure is None or not merged.merges:
        return merged
    return _search(m, limit, False)


def _endless(m: Interpreter, x: CompiledAgent) -> set[str]:
    """Counters of the agent's loops that no bound of a symbol ends."""
    return {
        ins.loop.counter
        for ins in x.code
        if isinstance(ins, LoopTest) and any(m.symbols[n].most is None for n in ins.loop.end.symbols & m.trip_names)
    }


def _search(m: Interpreter, limit: int, merge: bool) -> Search:
    seen: dict[Hashable, list[int]] = {}
    queue: deque[RunState] = deque([m.start()])
    ends = states = merges = m.spent = 0
    while queue:
        st = queue.popleft()
        try:
            m.run(st)
            check_end(m, st)
            ends += 1
            continue
        except OpenOrder as order:
            states += 1
            if states > limit:
                return Search(states, ends, merges, reason=f"more than {limit} distinct states", warnings=m.warnings)
            queue.extend(_ordered(st, order))
        except OpenTripCount as u:
            if st.words:
                states += 1
                queue.extend(_decided(m, st, u))
                continue
            try:
                form = normal(m, st, u.key)
            except OutOfReach as e:
                return Search(states, ends, merges, reason=e.reason, warnings=m.warnings)
            known = seen.setdefault(form.shape, [])
            if any(k & ~form.knowledge == 0 for k in known):
                continue
            if known and merge:
                merges += 1
                known[:] = [known[0] & form.knowledge]
                form.forget(known[0])
            else:
                known[:] = [k for k in known if form.knowledge & ~k]
                known.append(form.knowledge)
            states += 1
            if states > limit:
                return Search(states, ends, merges, reason=f"more than {limit} distinct states", warnings=m.warnings)
            queue.extend(_decided(m, st, u))
        except Breach as breach:
            return Search(states, ends, merges, Failure(breach, st, m), warnings=m.warnings)
        except OutOfReach as e:
            return Search(states, ends, merges, reason=e.reason, warnings=m.warnings)
    return Search(states, ends, merges, warnings=m.warnings)


def _ordered(st: RunState, order: OpenOrder) -> list[RunState]:
    """One branch for each agent that may execute its strong operation first."""
    out = [*(st.copy() for _ in order.agents[1:]), st]
    for s, i in zip(out, order.agents, strict=True):
        s.turn = i
        s.blocked.discard(i)
    return out


def _decided(m: Interpreter, st: RunState, u: OpenTripCount) -> list[RunState]:
    """The two branches: the count equals its lower bound, or is larger."""
    symbol = m.symbols[u.key[0]]
    low = m.trip(st, u.key).low
    here, more = st.copy(), st
    here.trips[u.key] = Trip(low, True)
    here.decided = TripDecision(u.key, low, st.decided)
    above = low + symbol.multiple_of
    out = [here]
    if symbol.most is None or above <= symbol.most:
        last = symbol.most is not None and above + symbol.multiple_of > symbol.most
        more.trips[u.key] = Trip(above, last)
        if last:
            more.decided = TripDecision(u.key, above, st.decided)
        out.append(more)
    for s in out:
        s.blocked.clear()
    return out
