"""The parametric proof of a protocol: every rule for all trip counts at once, on its event graph."""

from __future__ import annotations

from tilewright.verify.parametric.proof import METHOD, GraphProof, prove, prove_graph

__all__ = ["METHOD", "GraphProof", "prove", "prove_graph"]
