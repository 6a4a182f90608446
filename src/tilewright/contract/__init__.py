"""The contract checker: proves a protocol for all trip counts, or shows a schedule that breaks it.

``check(protocol, policy)`` answers ``Proved``, ``Refuted`` (with a ``Timeline``) or ``Unknown``; ``judge`` adds the
certificate and diagnostics. ``prove`` runs the parametric proof, ``explore`` judges it on small instances.
"""

from __future__ import annotations

from tilewright.contract.check import certificate as certificate
from tilewright.contract.check import check as check
from tilewright.contract.check import judge as judge
from tilewright.contract.judgement import Certificate as Certificate
from tilewright.contract.judgement import Judgement as Judgement
from tilewright.contract.judgement import ProvedObligation as ProvedObligation
from tilewright.contract.rules import ASSUMPTIONS as ASSUMPTIONS
from tilewright.contract.rules import Policy as Policy
from tilewright.contract.rules import Rule as Rule
from tilewright.contract.timeline import Timeline as Timeline
from tilewright.contract.timeline import TimelineRow as TimelineRow
