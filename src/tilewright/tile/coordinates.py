"""Integer tiles read as coordinates: an expression over positions along their axes, and the elements that no expression
gives (what was loaded, or computed from it beyond its dtype)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import i64
from tilewright.base.expr import Const, Expr, Sym, expr, maximum, own
from tilewright.lang.axes import Axis, Span, axis_symbol
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn
from tilewright.lang.values import ON_INTEGERS
from tilewright.tile import elements
from tilewright.tile.accesses import Accesses
from tilewright.tile.ops import tile_type


@dataclass
class Coordinates:
    """Reads the index tiles of one trace. ``leaves`` are the values whose elements stand in expressions, by symbol."""

    accesses: Accesses
    leaves: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    _read: dict[SSAValue, Expr] = field(default_factory=dict[SSAValue, Expr])
    _spans: dict[Span, str] = field(default_factory=dict[Span, str])

    def of(self, value: SSAValue) -> Expr:
        """The exact integers that the tile's elements are: over ``axis_symbol``s and symbols of ``leaves``."""
        found = self._read.get(value)
        if found is None:
            found = self._computed(value)
            if found is None or not self._fits(found, value):
                found = Sym(self._leaf(value))
            self._read[value] = found
        return found

    def placed(self, form: Expr, axes: Sequence[Axis]) -> Expr:
        """``form`` with a separate symbol for each range, so that its bounds can be queried."""
        ranges = {axis_symbol(d): axis for d, axis in enumerate(axes) if isinstance(axis, Span)}
        return form.substitute({name: Sym(self.position(r)) for name, r in ranges.items() if name in form.symbols})

    def position(self, span: Span) -> str:
        """The symbol of a coordinate in a range: any in its domain."""
        name = self._spans.get(span)
        if name is None:
            name = self._spans[span] = own(f"i{len(self._spans)}")
            self.accesses.limits.add(name, span.stop)
        return name

    def any_loaded(self, form: Expr) -> Expr:
        """``form`` with any integer of its dtype for each leaf, so that bounds of it hold whatever was loaded."""
        limits, given = self.accesses.limits, dict[str, Expr]()
        for name in self.leaves.keys() & form.symbols:
            if not limits.bounds(name):
                low, high = tile_type(self.leaves[name]).element.integers
                limits.add(f"{name}_any", Const(high - low + 1))
                given[name] = Sym(f"{name}_any") + low
        return form.substitute(given)

    def _leaf(self, value: SSAValue) -> str:
        name = own(f"v{len(self.leaves)}")
        self.leaves[name] = value
        limits = self.accesses.limits
        limits.known = {**limits.known, name: tile_type(value).element.integers}
        divisor = self._divisor(value)
        if divisor is not None and limits.fixed(divisor) and limits.at_least(divisor, Const(0)):
            limits.add(name, maximum(divisor, Const(1)))  # a remainder of 0 is 0
        return name

    def _divisor(self, value: SSAValue) -> Expr | None:
        """The divisor of a remainder."""
        while isinstance(value.owner, elements.Broadcast | elements.Expand):
            value = value.owner.x
        op = value.owner
        return self.of(op.b) if isinstance(op, elements.Binary) and op.fn.data is BinaryFn.MOD else None

    def _computed(self, value: SSAValue) -> Expr | None:
        """The expression of an op's elements; None where they are no expression of its operands' elements."""
        match value.owner:
            case elements.Index():
                return Sym(axis_symbol(0))
            case elements.ScalarExpr() as op:
                return op.expr.expr
            case elements.Constant() as op:
                return expr(int(op.value.data))
            case elements.Cast() as op if tile_type(op.x).element.is_int:
                return self.of(op.x)
            case elements.Unary() as op if op.fn.data is UnaryFn.NEG:
                return -self.of(op.x)
            case elements.Binary() as op:
                return self._binary(op)
            case elements.Broadcast() as op:
                return self.of(op.x)
            case elements.Expand() as op:
                inserted = {p.data for p in op.positions}
                kept = [d for d in range(tile_type(value).rank) if d not in inserted]
                return self._renumbered(op, self.of(op.x), kept)
            case elements.Transpose() as op:
                order = [p.data for p in op.perm]
                return self._renumbered(op, self.of(op.x), [order.index(d) for d in range(len(order))])
            case _:
                return None

    def _binary(self, op: elements.Binary) -> Expr | None:
        fn = op.fn.data
        if fn in _OF_BITS:
            return _of_bits(fn, self.of(op.a), self.of(op.b))
        combine = ON_INTEGERS.get(fn)
        if combine is None:
            return None
        a, b = self.of(op.a), self.of(op.b)
        divides = fn in (BinaryFn.FLOORDIV, BinaryFn.MOD)
        return None if divides and (b.constant is None or b.constant <= 0) else combine(a, b)

    def _renumbered(self, op: Operation, form: Expr, axes: list[int]) -> Expr | None:
        """``form`` where axis d of the operand is axis ``axes[d]``; None for one that leaves stand in, which have the
        operand's axes."""
        if not self.leaves.keys().isdisjoint(form.symbols):
            return None
        return form.substitute({axis_symbol(d): Sym(axis_symbol(at)) for d, at in enumerate(axes)})

    def _fits(self, form: Expr, value: SSAValue) -> bool:
        """No element wraps: by its bounds, or because dispatch checks it."""
        low, high = tile_type(value).element.integers
        placed, limits = self.placed(form, tile_type(value).axes_tuple), self.accesses.limits
        least, most = limits.range(placed)
        if least is not None and most is not None and low <= least and most <= high:
            return True
        if not self.leaves.keys().isdisjoint(form.symbols):
            return False
        bottom, top = limits.lower(placed), limits.upper(placed)
        if bottom is None or top is None:
            return False
        return self.accesses.require(Const(low) <= bottom) and self.accesses.require(top <= high)


_OF_BITS = frozenset({BinaryFn.AND, BinaryFn.SHL, BinaryFn.SHR})


def _of_bits(fn: BinaryFn, a: Expr, b: Expr) -> Expr | None:
    """The low bits that a constant keeps, a shift by a constant: of integers in two's complement a remainder, a
    quotient to minus infinity, a product."""
    if fn is BinaryFn.AND and b.constant is None:
        a, b = b, a
    number = b.constant
    if number is None or number < 0:
        return None
    if fn is BinaryFn.AND:
        return a % (number + 1) if number & (number + 1) == 0 else None
    if number >= i64.bits:
        return None
    return a * (1 << number) if fn is BinaryFn.SHL else a // (1 << number)
