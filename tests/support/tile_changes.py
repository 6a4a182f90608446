"""Changes of Tile IR that a proof about rewritten programs must see."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr


def first(kernel: tile.Kernel, kind: type, index: int = 0) -> tile.TileOp:
    """The op of this kind that comes ``index`` after the first."""
    return [op for op in kernel.walk() if isinstance(op, kind)][index]


def trip(by: int) -> Callable[[tile.Kernel], None]:
    """The first stream has some more steps."""

    def change(kernel: tile.Kernel) -> None:
        stream = first(kernel, tile.StreamLoop)
        stream.attributes["trip"] = ExprAttr(stream.trip.expr + by)

    return change
