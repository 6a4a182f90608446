"""Between what the elements of a tile of integers lie, where they are coordinates, or differ from them by an integer
that data decide and of which a bound of a stream was made.

Such a bound is ``max(min(x + c, greatest), least)``, in 64 bits: where it is neither of both, ``x`` is it less ``c``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.base.expr import Expr, Sym
from tilewright.lang.enums import BinaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import tile_type


@dataclass(frozen=True)
class _Clamped:
    """An integer ``x`` of at most 32 bits, of which ``name`` is ``max(min(x + added, greatest), least)``."""

    name: str
    added: int
    least: int
    greatest: int


class IndexEnds:
    """The least and the greatest of tiles of integers, by what is known ``never_negative``."""

    def __init__(self, never_negative: Callable[[Expr], bool]):
        self._never_negative = never_negative
        self._clamped: dict[SSAValue, list[_Clamped]] = {}

    def bound(self, op: tile.Bind) -> None:
        """Keeps of which integer a name was made, if it was of one."""
        least, inner = _with_number(BinaryFn.MAX, op.value)
        greatest, inner = _with_number(BinaryFn.MIN, inner)
        added, inner = _with_number(BinaryFn.ADD, inner)
        if least is None or greatest is None or not isinstance(cast := inner.owner, tile.Cast):
            return
        source, target = tile_type(cast.x).element, cast.dtype
        exact = source.is_int and source.bits <= 32 and target.is_int and target.signed and target.bits == 64
        if exact and abs(added or 0) < 1 << 62:
            made = _Clamped(op.symbol.data, added or 0, least, greatest)
            self._clamped.setdefault(cast.x, []).append(made)

    def least_apart(self, op: tile.Compare) -> Expr | None:
        """By how much a comparison holds where it does least; None if it is of other values."""
        fn, sides = op.fn.data.value, [op.a, op.b]
        if fn in ("le", "lt"):
            sides.reverse()
        greater, smaller = map(self._ends, sides)
        if fn not in ("ge", "gt", "le", "lt") or greater is None or smaller is None:
            return None
        return greater[0] - smaller[1] - int(fn in ("gt", "lt"))

    def _ends(self, value: SSAValue) -> tuple[Expr, Expr] | None:
        value = _behind(value)
        match value.owner:
            case tile.Index() as op:
                return op.axis.data.origin, op.axis.data.origin + op.axis.data.size - 1
            case tile.Binary() as op if op.fn.data is BinaryFn.ADD and tile_type(op.a).element.is_int:
                return self._sum(op)
            case _:
                made = (
                    x for x in self._clamped.get(value, ()) if self._within(Sym(x.name), x.least + 1, x.greatest - 1)
                )
                return next(((Sym(x.name) - x.added, Sym(x.name) - x.added) for x in made), None)

    def _sum(self, op: tile.Binary) -> tuple[Expr, Expr] | None:
        """The ends of a sum that does not wrap around."""
        a, b = self._ends(op.a), self._ends(op.b)
        if a is None or b is None:
            return None
        least, greatest = a[0] + b[0], a[1] + b[1]
        first, last = tile_type(op.a).element.integers
        return (least, greatest) if self._within(least, first, last) and self._within(greatest, first, last) else None

    def _within(self, e: Expr, least: int, greatest: int) -> bool:
        return self._never_negative(e - least) and self._never_negative(greatest - e)


def _with_number(fn: BinaryFn, value: SSAValue) -> tuple[int | None, SSAValue]:
    """The number that a function takes with another value, and that; no number, of another function."""
    op = value.owner
    if isinstance(op, tile.Binary) and op.fn.data is fn and isinstance(number := op.b.owner, tile.Constant):
        return int(number.value.data), op.a
    return None, value


def _behind(value: SSAValue) -> SSAValue:
    """The value of which one is another shape."""
    while isinstance(value.owner, tile.Expand | tile.Broadcast | tile.Transpose):
        value = value.owner.x
    return value


__all__ = ["IndexEnds"]
