"""What an entry of the gallery is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.protocol import Protocol, RoleBuilder
from tilewright.protocol import ops as o


@dataclass(frozen=True)
class Entry:
    """``build(wrong)`` gives the right protocol or the one with the mistake, which is to be refuted under ``codes``."""

    build: Callable[[bool], Protocol]
    codes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The function's name in words."""
        return self.build.__name__.replace("_", " ")


def multiply(c: RoleBuilder, accumulator: o.Region, *operands: o.Region, pending: int = 0) -> None:
    """One wgmma group, waited for until ``pending`` are open."""
    c.all(o.WgmmaFence())
    c.all(o.Wgmma(accumulator, operands))
    c.all(o.WgmmaCommit())
    c.all(o.WgmmaWait(pending))
