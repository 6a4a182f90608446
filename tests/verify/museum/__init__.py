"""Real bugs of public kernels, re-created as protocols beside their mended twins; see ``tests/data/real_bugs.json``."""

from __future__ import annotations

from museum.barriers import BARRIERS
from museum.decoys import DECOYS
from museum.exhibit import Exhibit
from museum.fences import FENCES
from museum.phases import PHASES
from museum.reuse import REUSE
from museum.tensor_memory import TENSOR_MEMORY

EXHIBITS: dict[str, Exhibit] = {x.build.__name__: x for x in (*FENCES, *PHASES, *REUSE, *BARRIERS, *TENSOR_MEMORY)}

__all__ = ["DECOYS", "EXHIBITS", "Exhibit"]
