"""Explicit-state exploration of protocols: the judge of the parametric proof.

It shares the protocol model with the proof and nothing else: no clocks, no graph, but threads that interleave, copies
that land when they like, and accesses that are open for as long as nothing orders them.
"""

from __future__ import annotations

from tilewright.verify.model_checker.search import Outcome, adversarial, exhaust
from tilewright.verify.model_checker.witness import Finding

__all__ = ["Finding", "Outcome", "adversarial", "exhaust"]
