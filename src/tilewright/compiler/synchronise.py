"""Connects the synthesis of synchronisation with the provers: their counterexamples guide the search for waits, fences
and barriers."""

from __future__ import annotations

from tilewright.base.verdict import Proved
from tilewright.protocol.edit import NodePath, spots
from tilewright.protocol.model import Protocol, Step
from tilewright.schedule.synchronise import (
    ProtocolViolation,
    Prover,
    Synchronised,
    late_waits,
    stripped,
    synchronised,
    unneeded,
)
from tilewright.verify import Certificate, Policy
from tilewright.verify.canonical_runs.search import Failure, interpreter, search
from tilewright.verify.parametric import prove as by_event_graph
from tilewright.verify.reorder import reordering


def prover(policy: Policy = Policy.STRICT) -> Prover:
    """The provers as the synthesis asks them: the event graph first, which is quick for correct protocols, then
    canonical runs, which report a violation. Refutations are not replayed."""

    def prove(protocol: Protocol) -> ProtocolViolation | None:
        if isinstance(by_event_graph(protocol), Proved):
            return None
        found = search(interpreter(protocol, policy))
        if found.failure is not None:
            return _clash(protocol, found.failure)
        if found.reason:
            return ProtocolViolation("MBR009", None, None, 0, (), found.reason)
        return None

    return prove


def _clash(protocol: Protocol, failure: Failure) -> ProtocolViolation:
    breach, m, st = failure.breach, failure.interpreter, failure.state
    names = [r.name for r in protocol.roles]

    def place(agent: int, step: Step | None) -> NodePath | None:
        role = names.index(m.agents[agent].group.role)
        return next((spot for spot, s in spots(protocol) if s is step and spot.role == role), None)

    return ProtocolViolation(
        breach.rule.code,
        place(breach.agent, breach.step),
        None if breach.other is None else place(*breach.other),
        names.index(m.agents[breach.agent].group.role),
        tuple(sorted((name, context, trip.low) for (name, context), trip in st.trips.items())),
        breach.detail,
        breach.buffer,
    )


def synthesised(protocol: Protocol, policy: Policy = Policy.STRICT) -> Synchronised:
    """The protocol with its waits, fences and barriers removed and a minimal proved set inserted."""
    return synchronised(stripped(protocol), prover(policy))


def unneeded_syncs(protocol: Protocol, policy: Policy = Policy.STRICT) -> tuple[NodePath, ...]:
    """Synchronisation ops of a proved protocol that can be removed, each alone, without losing the proof."""
    return unneeded(protocol, prover(policy))


def with_late_waits(protocol: Protocol, policy: Policy = Policy.STRICT) -> tuple[Protocol, Certificate] | None:
    """The protocol with every wait as late as possible, and its certificate; None if it is not proved."""
    later = late_waits(protocol)
    found = reordering(protocol, later, policy)
    return None if found is None else (later, found)
