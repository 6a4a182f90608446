"""The contract checker: proves a protocol for all trip counts, or shows a schedule that breaks it.

``check(protocol, policy)`` answers ``Proved``, ``Refuted`` (with a ``Timeline``) or ``Unknown``; ``judge`` adds the
certificate and diagnostics. ``prove`` runs the parametric proof, ``explore`` judges it on small instances.
"""

from __future__ import annotations

from tilewright.contract.check import Certificate, Judgement, ProvedObligation, certificate, check, judge
from tilewright.contract.rules import ASSUMPTIONS, Policy, Rule
from tilewright.contract.timeline import Timeline, TimelineRow

__all__ = [
    "ASSUMPTIONS",
    "Certificate",
    "Judgement",
    "Policy",
    "ProvedObligation",
    "Rule",
    "Timeline",
    "TimelineRow",
    "certificate",
    "check",
    "judge",
]
