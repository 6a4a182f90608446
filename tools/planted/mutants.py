"""All planted bugs."""

from __future__ import annotations

from planted.emission import EMISSION
from planted.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (*EMISSION,)
