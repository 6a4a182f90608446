"""The protocol verifier: proves a protocol for all trip counts, or shows a schedule that breaks it.

``check(protocol, policy)`` answers ``Proved``, ``Refuted`` (with a ``Timeline``) or ``Unknown``; ``verify`` adds the
certificate and diagnostics. ``prove`` runs the parametric proof, ``model_checker`` judges it on small instances.
"""

from __future__ import annotations

from tilewright.verify.check import certificate as certificate
from tilewright.verify.check import check as check
from tilewright.verify.check import verify as verify
from tilewright.verify.rules import ASSUMPTIONS as ASSUMPTIONS
from tilewright.verify.rules import Policy as Policy
from tilewright.verify.rules import Rule as Rule
from tilewright.verify.timeline import Timeline as Timeline
from tilewright.verify.timeline import TimelineRow as TimelineRow
from tilewright.verify.verification import Certificate as Certificate
from tilewright.verify.verification import ProvedObligation as ProvedObligation
from tilewright.verify.verification import Verification as Verification
