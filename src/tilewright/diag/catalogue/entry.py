"""The shape of a catalogue entry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One diagnostic code. ``id`` is a prefix of capitals and three digits, never reused."""

    id: str
    title: str
    why: str
    bad: str = ""
    good: str = ""
    source: str = "Tilewright language rules"
    help: str = ""
    """Help that applies to every case; a diagnostic may replace it."""

    @property
    def advice(self) -> str:
        """``help``, or else the right example."""
        return self.help or (f"write, for example: {'; '.join(self.good.splitlines())}" if self.good else "")
