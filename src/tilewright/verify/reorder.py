"""Reordered protocols: proved, and the same traces as what they were made from."""

from __future__ import annotations

from dataclasses import replace

from tilewright.protocol.independence import equivalent
from tilewright.protocol.model import Protocol
from tilewright.verify.check import certificate
from tilewright.verify.rules import Policy
from tilewright.verify.verification import Certificate, ProvedObligation


def reordering(before: Protocol, after: Protocol, policy: Policy = Policy.STRICT) -> Certificate | None:
    """The certificate of ``after``, extended by its equality with ``before`` up to swaps of independent neighbours.
    None where it is not proved, or not equal."""
    if replace(before, roles=()) != replace(after, roles=()) or len(before.roles) != len(after.roles):
        return None
    if not all(equivalent(before, x, y) for x, y in zip(before.roles, after.roles, strict=True)):
        return None
    found = certificate(after, policy)
    if found is None:
        return None
    rule = "each role runs the steps it ran before, but for swaps of independent neighbours"
    same = ProvedObligation("order of independent steps", rule, "lexicographic normal forms of traces")
    return replace(found, obligations=(*found.obligations, same))
