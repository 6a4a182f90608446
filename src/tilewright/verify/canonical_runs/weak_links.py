"""Synchronisation that orders in time and hands no memory on: relaxed, or of too narrow a scope."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.protocol.effects import Await, BarrierScope, Effect, Release, Signal, Strong, Sync
from tilewright.protocol.model import Protocol, steps
from tilewright.protocol.operands import Scope, Sem


def weak_links(protocol: Protocol) -> str:
    """What a protocol does relaxed, or at scope cta though CTAs are several, in words for a help; empty if nothing."""
    effects = [effect for role in protocol.roles for step in steps(role.body) for effect in step.op.effects]
    of_peers = {e.bar.barrier for e in effects if isinstance(e, Signal) and e.arrivals and e.bar.cta is not None}
    return ", ".join(dict.fromkeys(word for effect in effects for word in _weak(effect, of_peers)))


def _weak(effect: Effect, of_peers: set[str]) -> Iterator[str]:
    match effect:
        case Signal(bar, arrivals, release=Release.NOTHING, after=None) if arrivals:
            yield f"arrivals on {bar.barrier} are relaxed"
        case Signal(bar, arrivals, release=Release.MEMORY, scope=Scope.CTA) if arrivals and bar.cta is not None:
            yield f"arrivals on {bar.barrier} of peers are of scope cta"
        case Await(bar, acquire=False):
            yield f"a wait for {bar.barrier} is relaxed"
        case Await(bar, scope=Scope.CTA) if bar.barrier in of_peers:
            yield f"a wait for {bar.barrier}, on which peers arrive, is of scope cta"
        case Sync(scope=BarrierScope.CLUSTER, arrives=True, release=False):
            yield "an arrival on the cluster barrier is relaxed"
        case Strong(word, sem=Sem.RELAXED):
            yield f"an operation on {word.counter} is relaxed"
        case Strong(word, scope=Scope.CTA):
            yield f"an operation on {word.counter} is of scope cta"
        case _:
            pass
