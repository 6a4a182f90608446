"""All planted bugs."""

from __future__ import annotations

from planted.emission import EMISSION
from planted.mutant import Mutant
from planted.protocol import PROTOCOL
from planted.schedule import SCHEDULE
from planted.values import VALUES

MUTANTS: tuple[Mutant, ...] = (*SCHEDULE, *VALUES, *PROTOCOL, *EMISSION)
