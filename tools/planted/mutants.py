"""All planted bugs."""

from __future__ import annotations

from planted.beside import ENCODER, TRACING
from planted.chains import CHAINS
from planted.divided import DIVIDED
from planted.drawn import DRAWN
from planted.emission import EMISSION
from planted.indices import INDICES
from planted.mutant import Mutant
from planted.narrow import NARROW
from planted.options import OPTIONS
from planted.places import PLACES
from planted.protocol import PROTOCOL
from planted.provers import PARTS, PROVERS
from planted.ragged import RAGGED
from planted.recent import RECENT
from planted.recipe import RECIPE
from planted.running import RUNNING
from planted.schedule import SCHEDULE
from planted.shared import SHARED
from planted.steps import STEPS
from planted.values import VALUES

MUTANTS: tuple[Mutant, ...] = (
    *SCHEDULE,
    *PARTS,
    *DIVIDED,
    *CHAINS,
    *DRAWN,
    *RAGGED,
    *STEPS,
    *VALUES,
    *INDICES,
    *NARROW,
    *RUNNING,
    *PROTOCOL,
    *EMISSION,
    *PLACES,
    *RECENT,
    *OPTIONS,
    *RECIPE,
    *SHARED,
    *PROVERS,
    *TRACING,
    *ENCODER,
)
