"""Synthesis of synchronisation: the waits, fences and barriers that a protocol needs, and where.

``synchronised`` inserts a least-cost set with which a protocol is proved; ``unneeded`` lists ops that can be removed
without losing the proof. The prover is a parameter: this room does not judge.
"""

from __future__ import annotations

from tilewright.schedule.synchronise.cost import cost, stripped
from tilewright.schedule.synchronise.reorder import late_waits
from tilewright.schedule.synchronise.search import Synchronised, synchronised, unneeded
from tilewright.schedule.synchronise.types import ProtocolViolation, Prover

__all__ = ["ProtocolViolation", "Prover", "Synchronised", "cost", "late_waits", "stripped", "synchronised", "unneeded"]
