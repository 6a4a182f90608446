"""A class of launches of a kernel with products, and what is tried for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.base.expr import TRUE, Expr
from tilewright.schedule.hopper.candidate import Candidate


@dataclass(frozen=True)
class ProductVariant:
    """Choices of extents, best first, for the launches in which ``predicate`` holds; candidates to try with the first
    of them before all others. ``applies`` is the predicate without what decides between tiles of different widths."""

    predicate: Expr
    choices: tuple[Mapping[str, int], ...]
    candidates: tuple[Candidate, ...] = ()
    applies: Expr = TRUE
    parts: Expr | None = None
    """Into how many the stream is cut, which another kernel adds; None: it is not."""
    many: bool = False
    """These are more than ``split_k.FEW``."""
    narrow: Mapping[str, int] | None = None
    """The extents of a share, where the stream is cut into parts that the CTAs of the candidate's cluster add."""
    swapped: bool = False
    one_row: bool = False
    """Its launches have one row of tiles, so that what varies along the columns is read once."""
    one_wave: bool = False
    """All programs of its launches run at one time, so that nothing is read again later."""
    whole_stores: bool = False
    """Its launches' results are ones that tensor copies can store: half the code where elements are computed in it."""
    time: Expr | None = None
    """Nanoseconds of a launch by the prices; None where nothing is chosen by them."""

    @property
    def rewritten(self) -> bool:
        """It runs another program than the kernel's."""
        return self.parts is not None or self.narrow is not None or self.swapped
