"""The checker's result: a verdict with its certificate, diagnostics and figures."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tilewright.base import verdict
from tilewright.base.cached import cached_property
from tilewright.base.verdict import Proof, Proved, Unknown
from tilewright.diag import Diagnostic, Severity
from tilewright.protocol import ops, to_text
from tilewright.protocol.model import Protocol, steps
from tilewright.verify.parametric import METHOD, GraphProof
from tilewright.verify.rules import ASSUMPTIONS, Policy, Rule
from tilewright.verify.timeline import Timeline


@dataclass(frozen=True)
class ProvedObligation:
    """One proved obligation, and the method."""

    name: str
    rule: str
    method: str


@dataclass(frozen=True)
class Certificate:
    """The basis of a proof: the exact protocol text, the obligations, the assumptions, the policy's warnings."""

    protocol: Protocol
    policy: Policy
    obligations: tuple[ProvedObligation, ...]
    assumptions: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the protocol's text."""
        return hashlib.sha256(to_text(self.protocol).encode()).hexdigest()


@dataclass(frozen=True)
class Verification:
    """The verdict with everything there is to show for it."""

    proof: Proof[Timeline]
    certificate: Certificate | None
    diagnostics: tuple[Diagnostic, ...]
    states: int
    """Decision points of the proof search."""
    replayed: str = ""
    """How a refutation was reproduced."""


def proved(
    protocol: Protocol, policy: Policy, method: str, warnings: tuple[Diagnostic, ...] = (), states: int = 0
) -> Verification:
    """Every rule is kept, as ``method`` shows."""
    obligations = tuple(ProvedObligation(r.obligation, r.text, method) for r in Rule)
    told = tuple(f"{w.code}: {w.found}" for w in warnings)
    certificate = Certificate(protocol, policy, obligations, ASSUMPTIONS, told)
    discharged = Proved(tuple(verdict.Discharged(o.name, o.method) for o in obligations))
    return Verification(discharged, certificate, warnings, states)


def proved_by_graph(protocol: Protocol, policy: Policy, proof: GraphProof) -> Verification:
    """Every rule is kept, as the event graph shows; with a warning for each initialisation without a fence."""
    inits = {
        step.op.barrier: step.where
        for role in protocol.roles
        for step in steps(role.body)
        if isinstance(step.op, ops.MbarrierInit)
    }
    warnings = tuple(
        Rule.INIT_FENCE.diagnostic(
            f"no init fence between the init of {name} and use", inits[name], severity=Severity.WARNING
        )
        for name in sorted(proof.unfenced)
    )
    return proved(protocol, policy, METHOD, warnings)


def undecided(unknown: Unknown, states: int) -> Verification:
    """Neither proved nor refuted."""
    told = Diagnostic(
        "MBR009",
        found=f"{unknown.obligation}: {unknown.reason}",
        required="a proof or a refutation",
        help=unknown.settle,
    )
    return Verification(unknown, None, (told,), states)
