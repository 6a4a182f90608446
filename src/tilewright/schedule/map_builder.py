"""Builds element-wise ``transport.map`` ops: the expression of a value over buffers, register by register."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType, f32, i32
from tilewright.base.expr import TRUE, Const, Expr, Sym
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.schedule.distribute import Distribution
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element
from tilewright.transport import dialect as t

ClassId = int


@dataclass(frozen=True)
class Buffered:
    """A value in registers: its buffer, and the class of each of its axes (None: one element).

    ``window``: the first register of the value that the buffer holds.
    """

    buffer: SSAValue
    axes: tuple[ClassId | None, ...]
    window: int = 0


class MapBuilder:
    """Builds the body of one map whose results have ``axes`` under ``distribution``.

    ``buffers`` are the values in registers; everything else is computed in place from its operands. With ``window``
    (first register, count) only a part of the result is computed, into registers from 0.
    """

    def __init__(
        self,
        distribution: Distribution,
        axes: tuple[ClassId | None, ...],
        buffers: Mapping[SSAValue, Buffered],
        axes_of: Mapping[SSAValue, tuple[ClassId | None, ...]],
        arguments: Mapping[SSAValue, SSAValue],
        window: tuple[int, int] | None = None,
    ):
        self.distribution = distribution
        self.axes = axes
        self.buffers = buffers
        self.axes_of = axes_of
        self.arguments = arguments
        first, self.count = window if window is not None else (0, distribution.registers(axes))
        self.register = Sym(t.REGISTER) + first
        self.moved: Expr = Const(0)  # registers by which all buffers have moved down: r holds what lay in r + moved
        self.holds: frozenset[SSAValue] = frozenset()  # conditions that are true for every element
        self.block = Block()
        self.inputs: list[SSAValue] = []
        self.reads: list[Expr] = []
        self.computed: dict[SSAValue, None] = {}  # in order: the emitted text must not depend on addresses
        self._values: dict[SSAValue, SSAValue] = {}
        self._arguments: dict[tuple[SSAValue, Expr], SSAValue] = {}

    def coordinate(self, axis: ClassId | None) -> Expr:
        """Position along a class inside the tile, as an expression of tid and r."""
        if axis is None:
            return Const(0)
        places = self.distribution.coordinates(self.axes, Sym(t.THREAD), Sym(t.REGISTER))
        return places[self.axes.index(axis)].substitute({t.REGISTER: self.register + self.moved})

    def read(self, source: Buffered, dtype: DType) -> SSAValue:
        """The element of a buffer that corresponds to register r of the result."""
        index = self.distribution.register_of(source.axes, self.axes, self.register) - source.window
        return self.read_at(source.buffer, index, dtype)

    def read_at(self, buffer: SSAValue, index: Expr, dtype: DType) -> SSAValue:
        """The element in register ``index``, an expression of r, of a buffer."""
        key = (buffer, index)
        if key not in self._arguments:
            self._arguments[key] = self.block.insert_arg(scalar_type(dtype), len(self.inputs))
            self.inputs.append(buffer)
            self.reads.append(index)
        return self._arguments[key]

    def value(self, source: SSAValue) -> SSAValue:
        """The scalar of tile value ``source`` at this register. Iterative, because an unrolled chain can exceed
        Python's recursion limit."""
        pending = [source]
        while pending:
            wanted = pending[-1]
            missing = () if wanted in self._values else [v for v in self._operands(wanted) if v not in self._values]
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            if wanted not in self._values:
                self._values[wanted] = self._made(wanted)
        return self._values[source]

    def _operands(self, source: SSAValue) -> Sequence[SSAValue]:
        """What is computed before ``source`` where that is computed in place."""
        op = source.owner
        if source in self.buffers or not isinstance(op, Operation) or isinstance(op, tile.Index):
            return ()
        return (op.a,) if isinstance(op, tile.Select) and op.cond in self.holds else op.operands

    def _made(self, source: SSAValue) -> SSAValue:
        if source in self.buffers:
            return self.read(self.buffers[source], element(source))
        if not isinstance(source.owner, Operation):
            return self.arguments[source]  # a runtime scalar of the kernel
        self.computed[source] = None
        return self._compute(source.owner, source)

    def scalar(self, source: SSAValue) -> SSAValue:
        """The scalar already computed for ``source``."""
        return self._values[source]

    def _compute(self, op: Operation, source: SSAValue) -> SSAValue:
        match op:
            case tile.Expand() | tile.Broadcast() | tile.Transpose():
                return self._values[op.operands[0]]
            case tile.Select() if op.cond in self.holds:
                return self._values[op.a]
            case tile.Index():
                (axis,) = self.axes_of[source]
                span = op.axis.data
                return self.integer(span.origin + self.coordinate(axis), i32)
            case _:
                return self.emit(op, [self._values[v] for v in op.operands], element(source))

    def emit(self, op: Operation, operands: Sequence[SSAValue], dtype: DType) -> SSAValue:
        """A rank-0 copy of an element-wise op on other operands."""
        clone = type(op).create(
            operands=list(operands),
            result_types=[scalar_type(dtype)],
            attributes=dict(op.attributes),
            properties=dict(op.properties),
        )
        self.block.add_op(clone)
        return clone.results[0]

    def integer(self, value: Expr, dtype: DType) -> SSAValue:
        """An integer expression of tid and r as a value."""
        return self._append(tile.ScalarExpr(value, dtype))

    def constant(self, value: float | int | bool, dtype: DType) -> SSAValue:
        """A constant."""
        return self._append(tile.Constant(value, dtype))

    def select(self, predicate: Expr, then: SSAValue, otherwise: SSAValue) -> SSAValue:
        """``then`` where the predicate holds."""
        return self.choose(self.predicate(predicate), then, otherwise)

    def predicate(self, condition: Expr) -> SSAValue:
        """A condition over tid and r as a value."""
        return self._append(t.Predicate(condition))

    def equal(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Whether two scalars are equal."""
        return self._append(tile.Compare(CompareFn.EQ, a, b))

    def choose(self, condition: SSAValue, then: SSAValue, otherwise: SSAValue) -> SSAValue:
        """``then`` where a computed condition holds."""
        return self._append(tile.Select(condition, then, otherwise))

    def binary(self, fn: BinaryFn, a: SSAValue, b: SSAValue) -> SSAValue:
        """``fn`` of two scalars."""
        return self._append(tile.Binary(fn, a, b))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The sum of two values."""
        return self._append(tile.Binary(BinaryFn.ADD, a, b))

    def multiply_add(self, a: SSAValue, b: SSAValue, c: SSAValue) -> SSAValue:
        """``a * b + c``, in f32 rounded once."""
        if element(c) == f32:
            return self._append(t.Fma(a, b, c))
        return self.add(c, self.binary(BinaryFn.MUL, a, b))

    def cast(self, value: SSAValue, dtype: DType) -> SSAValue:
        """``value`` as another dtype."""
        if element(value) == dtype:
            return value
        return self._append(tile.Cast(value, dtype))

    def _append(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def finish(
        self,
        results: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        live: Expr = TRUE,
        *,
        combines: str | None = None,
    ) -> t.Map:
        """The map that writes ``results`` to ``outputs``, where ``live`` holds."""
        self.block.add_op(t.Yield(results))
        return t.Map(self.inputs, self.reads, outputs, self.count, Region(self.block), live, combines=combines)


def scalar_type(dtype: DType) -> tile.TileType:
    """Type of a scalar in a map body."""
    return tile.TileType.of(dtype, [])
