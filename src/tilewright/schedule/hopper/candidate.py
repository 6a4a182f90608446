"""A candidate schedule of a kernel with matrix products."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """One way to schedule.

    ``warpgroups`` consumer warpgroups share a tile; ``ping_pong`` such sets alternate over the CTA's tiles. ``copies``
    allows tensor copies, ``matrix_stores`` stores through shared memory, ``ordinary`` multiplies without wgmma.
    ``cluster`` counts CTAs along the grid's last two axes.
    """

    warpgroups: int
    ping_pong: int = 1
    copies: bool = True
    matrix_stores: bool = True
    ordinary: bool = False
    stages: int | None = None
    """Of the pipelines of streams; refused where there is none. None: as many as fit."""
    cluster: tuple[int, int] = (1, 1)
    resident: int = 1
    """CTAs that share an SM: one multiplies while another converts its tiles or waits for them."""
    software_pipelined: bool = False
    whole_stores: bool = False
    """Only for extents whose 16-bit stores tensor copies can do: half the code, and half the proof."""
    clipped_stores: bool = True
    """Whether tiles may be stored by tensor copies that end with their domain (``store_ways``)."""
    whole_steps: bool = False
    """Only for extents with which steps of software-pipelined streams lie inside of their domain: the first ones, or
    all where indices are compared."""
    few_lengths: bool = False
    """Only for launches whose programs have few lengths: a row of them after the other."""
    one_row: bool = False
    """Only for launches of one row of tiles: what varies along the others is read once, and L2 evicts it first."""
    one_wave: bool = False
    """Only for launches whose programs all run at one time: L2 evicts first what they read."""

    def __str__(self) -> str:
        how = "tensor copies in pipelines where legal" if self.copies else "tiles staged by the threads themselves"
        if self.ordinary:
            how = "products without wgmma"
        out = "stored by tensor copies where legal" if self.matrix_stores else "stored from registers"
        clusters = "" if self.cluster == (1, 1) else f", clusters of {self.cluster[0]} x {self.cluster[1]} CTAs"
        turns = "" if self.ping_pong == 1 else f"ping-pong of {self.ping_pong} x "
        clusters += "" if self.clipped_stores else ", no stores clipped by the hardware"
        clusters += ", software-pipelined streams" if self.software_pipelined else ""
        clusters += ", whole steps" if self.whole_steps else ""
        clusters += ", programs of few lengths" if self.few_lengths else ""
        clusters += f", {self.resident} CTAs an SM" if self.resident > 1 else ""
        return f"{turns}{self.warpgroups} consumer warpgroups, {how}, {out}{clusters}"
