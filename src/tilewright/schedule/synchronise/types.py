"""The types of the synthesis: violations, provers and fixes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.protocol.edit import Insertion, NodePath
from tilewright.protocol.model import Protocol


@dataclass(frozen=True)
class ProtocolViolation:
    """Why a protocol is not proved: the code of the rule, the step that breaks it and the one it conflicts with.

    ``role`` is that of the step's threads. ``instance`` holds the trip counts that show the violation, the smallest
    first; a protocol with more faults repaired needs others.
    """

    code: str
    spot: NodePath | None
    other: NodePath | None
    role: int
    instance: tuple[tuple[str, int, int], ...]
    detail: str
    buffer: str = ""
    """The buffer that is read, where nothing was written to it before."""


Prover = Callable[[Protocol], ProtocolViolation | None]
"""None: proved."""


Fix = tuple[Insertion, ...]
"""Steps that together may resolve a violation."""
