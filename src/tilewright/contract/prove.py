"""The parametric proof: all canonical runs of a protocol, for every value of its trip counts, up to equal futures.

The only choices of a canonical run are the trip counts. Where one must be decided the run splits in two: the loop ends
here, or goes on. A state whose normal form was met before needs no second visit, so the search ends when nothing new
comes up: prologue, steady state, drain and carry-over between tiles are covered because every reachable state is, not
because a list of sizes was tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from tilewright.contract.machine import Breach, Machine, OutOfReach, Undecided
from tilewright.contract.normal import normal
from tilewright.contract.rules import Policy, Rule
from tilewright.contract.sem_groups import HANDLERS, check_end
from tilewright.contract.state import State, Trip
from tilewright.protocol.model import Protocol

MAX_STATES = 6000
"""Decision points visited before giving up; the largest protocol here needs about a tenth."""


@dataclass(frozen=True)
class Failure:
    """A breach with the run that led to it."""

    breach: Breach
    state: State
    machine: Machine


@dataclass(frozen=True)
class Search:
    """What the proof search found: ``failure``, or ``reason`` why it is open, or neither: proved."""

    states: int
    ends: int
    steps: int
    failure: Failure | None = None
    reason: str = ""
    warnings: dict[tuple[Rule, str], Breach] = field(default_factory=dict[tuple[Rule, str], Breach])


def machine(protocol: Protocol, policy: Policy, fixed: bool = False) -> Machine:
    """A machine with the semantics of all ops."""
    return Machine(protocol, HANDLERS, policy, fixed)


def search(m: Machine, limit: int = MAX_STATES) -> Search:
    """Runs the protocol for all trip counts; breadth first, so a breach is found at small counts."""
    seen: set[Hashable] = set()
    queue: deque[State] = deque([m.start()])
    ends = epochs = 0
    while queue:
        st = queue.popleft()
        try:
            m.run(st)
            check_end(m, st)
            ends += 1
            continue
        except Undecided as u:
            form = normal(m, st, u.key)
            if form in seen:
                continue
            seen.add(form)
            if len(seen) > limit:
                return Search(len(seen), ends, epochs, reason=f"more than {limit} distinct states", warnings=m.warnings)
            queue.extend(_decided(m, st, u))
        except Breach as breach:
            return Search(len(seen), ends, epochs, Failure(breach, st, m), warnings=m.warnings)
        except OutOfReach as e:
            return Search(len(seen), ends, epochs, reason=e.reason, warnings=m.warnings)
    return Search(len(seen), ends, epochs, warnings=m.warnings)


def _decided(m: Machine, st: State, u: Undecided) -> list[State]:
    """The two ways on: the count ends at its low bound, or is larger."""
    symbol = m.symbols[u.key[0]]
    low = m.trip(st, u.key).low
    here, more = st.copy(), st
    here.trips[u.key] = Trip(low, True)
    above = low + symbol.multiple_of
    out = [here]
    if symbol.most is None or above <= symbol.most:
        more.trips[u.key] = Trip(above, symbol.most is not None and above + symbol.multiple_of > symbol.most)
        out.append(more)
    for s in out:
        s.blocked.clear()
    return out
