"""Synchronisation synthesis: which waits, fences and joins a protocol needs, and where.

``synchronised`` puts back a least-cost set that proves into a protocol without any; ``unneeded`` lists the ops whose
removal keeps the proof. The prover is passed in: this room decides, it does not judge.
"""

from __future__ import annotations

from tilewright.schedule.synchronise.cost import cost, stripped
from tilewright.schedule.synchronise.reorder import late_waits
from tilewright.schedule.synchronise.search import Synchronised, synchronised, unneeded
from tilewright.schedule.synchronise.types import Clash, Prover

__all__ = ["Clash", "Prover", "Synchronised", "cost", "late_waits", "stripped", "synchronised", "unneeded"]
