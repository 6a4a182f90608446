"""Compilation targets, a module each: the row of its limits, from the vendor's documents, and the register fragments of
the instructions that it brought."""

from __future__ import annotations

from tilewright.hw.target.row import MAX_CTA_THREADS as MAX_CTA_THREADS
from tilewright.hw.target.row import MAX_GRID as MAX_GRID
from tilewright.hw.target.row import MAX_VECTOR_BYTES as MAX_VECTOR_BYTES
from tilewright.hw.target.row import MBARRIER_BYTES as MBARRIER_BYTES
from tilewright.hw.target.row import NAMED_BARRIERS as NAMED_BARRIERS
from tilewright.hw.target.row import STATIC_SHARED_BYTES as STATIC_SHARED_BYTES
from tilewright.hw.target.row import InstructionSet as InstructionSet
from tilewright.hw.target.row import Target as Target
from tilewright.hw.target.sm_80 import SM80 as SM80
from tilewright.hw.target.sm_90a import SM90A as SM90A
from tilewright.hw.target.sm_100a import SM100A as SM100A

TARGETS: dict[str, Target] = {t.name: t for t in (SM80, SM90A, SM100A)}
