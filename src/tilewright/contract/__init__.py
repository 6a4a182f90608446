"""The contract checker: proves a protocol for all trip counts, or shows a schedule that breaks it.

``check(protocol, policy)`` answers ``Proved``, ``Refuted`` (with a ``Timeline``) or ``Unknown``; ``verify`` adds the
certificate and diagnostics. ``prove`` runs the parametric proof, ``explore`` judges it on small instances.
"""

from __future__ import annotations

from tilewright.contract.check import certificate as certificate
from tilewright.contract.check import check as check
from tilewright.contract.check import verify as verify
from tilewright.contract.rules import ASSUMPTIONS as ASSUMPTIONS
from tilewright.contract.rules import Policy as Policy
from tilewright.contract.rules import Rule as Rule
from tilewright.contract.timeline import Timeline as Timeline
from tilewright.contract.timeline import TimelineRow as TimelineRow
from tilewright.contract.verification import Certificate as Certificate
from tilewright.contract.verification import ProvedObligation as ProvedObligation
from tilewright.contract.verification import Verification as Verification
