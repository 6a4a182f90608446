"""What every re-created bug is made of: the protocol, its twin, and what the checker must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.protocol import Protocol


@dataclass(frozen=True)
class Exhibit:
    """A bug of ``tests/data/real_bugs.json``.

    ``build(fixed)`` gives the buggy protocol or its twin. ``code`` names the bug under the strict policy. ``fix`` is
    what the twin adds (+) and drops (-), line by line. ``lenient`` and ``advisory``: the bug is only warned of when
    lenient, or always.
    """

    entry: str
    build: Callable[[bool], Protocol]
    code: str
    fix: tuple[str, ...]
    lenient: bool = False
    advisory: bool = False


def rewritten(*kinds: str) -> tuple[str, ...]:
    """A fix that changes lines of these kinds."""
    return tuple(sign + kind for kind in kinds for sign in "-+")
