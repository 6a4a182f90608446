"""Obligations of a plain kernel: every store's domain written once (cover), no access outside a tensor (guards)."""

from __future__ import annotations

from tilewright.artifact.schema import Obligation
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as transport


def certify(kernel: tile.Kernel, lowered: transport.Kernel) -> tuple[Obligation, ...]:
    """Prove the obligations of one lowered kernel."""
    return ()
