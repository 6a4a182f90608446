"""What the search asks its prover, and what it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.protocol.edit import Insertion, NodePath
from tilewright.protocol.model import Protocol


@dataclass(frozen=True)
class Clash:
    """Why a protocol is not proved: the code of the rule, the step that breaks it and the one it clashes with.

    ``role`` is that of the step's threads. ``instance`` holds the trip counts that show the clash, least ones first:
    a protocol with more of its faults mended needs others.
    """

    code: str
    spot: NodePath | None
    other: NodePath | None
    role: int
    instance: tuple[tuple[str, int, int], ...]
    detail: str
    buffer: str = ""
    """What is read, where nothing was written to it before."""


Prover = Callable[[Protocol], Clash | None]
"""None: proved."""


Fix = tuple[Insertion, ...]
"""Steps that together may mend a clash."""
