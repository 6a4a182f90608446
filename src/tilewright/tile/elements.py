"""Ops that compute values: integers and numbers, shapes, element-wise functions, reductions, dot, fragments."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    VarConstraint,
    attr_def,
    base,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    result_def,
)

from tilewright.base.dtypes import DType, bool_, f32, i8, i32, i64, tf32
from tilewright.base.expr import Expr
from tilewright.lang.axes import UNIT, Axis, Span
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, CompareFn, ReduceFn
from tilewright.lang.regroup import Group, regrouped
from tilewright.tile.attributes import (
    BinaryFnAttr,
    CompareFnAttr,
    DTypeAttr,
    ExprAttr,
    FragmentType,
    NumberAttr,
    RangeAttr,
    ReduceFnAttr,
    TileType,
    UnaryFnAttr,
    UnitAxisAttr,
)
from tilewright.tile.ops import TileOp, fragment_type, require, tile_type


@irdl_op_definition
class Index(TileOp):
    """The coordinates of a range as values."""

    name = "tile.index"
    axis = attr_def(RangeAttr)
    result = result_def(TileType)
    assembly_format = "$axis attr-dict `:` type($result)"

    def __init__(self, axis: Span):
        super().__init__(attributes={"axis": RangeAttr(axis)}, result_types=[TileType.of(i32, [axis])])

    def verify_(self) -> None:
        tile = tile_type(self.result)
        require(tile.element == i32 and tile.axes.data == (self.axis,), "an index is i32 over its own range")


@irdl_op_definition
class ScalarExpr(TileOp):
    """An integer expression as a rank-0 value."""

    name = "tile.scalar"
    expr = attr_def(ExprAttr)
    result = result_def(TileType)
    assembly_format = "$expr attr-dict `:` type($result)"

    def __init__(self, value: Expr, dtype: DType = i32):
        super().__init__(attributes={"expr": ExprAttr(value)}, result_types=[TileType.of(dtype, [])])

    def verify_(self) -> None:
        tile = tile_type(self.result)
        require(tile.element in (i32, i64) and tile.rank == 0, f"an expression is i32 or i64, not {tile}")


@irdl_op_definition
class Constant(TileOp):
    """A number as a rank-0 value; it is representable in the dtype."""

    name = "tile.constant"
    value = attr_def(NumberAttr)
    result = result_def(TileType)
    assembly_format = "$value attr-dict `:` type($result)"

    def __init__(self, value: bool | int | float, dtype: DType):
        super().__init__(attributes={"value": NumberAttr.of(value)}, result_types=[TileType.of(dtype, [])])

    @property
    def dtype(self) -> DType:
        return tile_type(self.result).element

    def verify_(self) -> None:
        tile, value = tile_type(self.result), self.value.data
        fits = isinstance(value, bool) if tile.element.is_bool else not isinstance(value, bool)
        require(tile.rank == 0, "a constant has rank 0")
        require(fits, f"the number {value!r} is no constant of {tile.element}")
        require(not (tile.element.is_int and isinstance(value, float)), f"{value!r} is no {tile.element}")


@irdl_op_definition
class Expand(TileOp):
    """Inserts unit axes; ``positions`` count in the result."""

    name = "tile.expand"
    x = operand_def(TileType)
    positions = attr_def(ArrayAttr[IntAttr])
    result = result_def(TileType)
    assembly_format = "$x `at` $positions attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, positions: Sequence[int]):
        source = tile_type(x)
        axes = list(source.axes_tuple)
        for position in sorted(positions):
            axes.insert(position, UNIT)
        super().__init__(
            operands=[x],
            attributes={"positions": ArrayAttr([IntAttr(p) for p in positions])},
            result_types=[TileType.of(source.element, axes)],
        )

    def verify_(self) -> None:
        source, target = tile_type(self.x), tile_type(self.result)
        inserted = {p.data for p in self.positions}
        kept = tuple(a for i, a in enumerate(target.axes) if i not in inserted)
        added = [a for i, a in enumerate(target.axes) if i in inserted]
        require(kept == source.axes.data and len(added) == len(inserted), f"{source} expanded at {inserted}")
        require(all(isinstance(a, UnitAxisAttr) for a in added), "expand inserts unit axes")
        require(source.element == target.element, "expand keeps the dtype")


@irdl_op_definition
class Broadcast(TileOp):
    """Repeats a tile along its unit axes to the axes of the result; the rank stays."""

    name = "tile.broadcast"
    x = operand_def(TileType)
    result = result_def(TileType)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, axes: Sequence[Axis]):
        super().__init__(operands=[x], result_types=[TileType.of(tile_type(x).element, axes)])

    def verify_(self) -> None:
        source, target = tile_type(self.x), tile_type(self.result)
        require(source.rank == target.rank and source.element == target.element, f"{source} broadcast to {target}")
        for a, b in zip(source.axes, target.axes, strict=True):
            require(a == b or isinstance(a, UnitAxisAttr), f"axis {a} broadcast to {b}")


@irdl_op_definition
class Transpose(TileOp):
    """Axis i of the result is axis ``perm[i]`` of the operand."""

    name = "tile.transpose"
    x = operand_def(TileType)
    perm = attr_def(ArrayAttr[IntAttr])
    result = result_def(TileType)
    assembly_format = "$x `by` $perm attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, perm: Sequence[int]):
        source = tile_type(x)
        super().__init__(
            operands=[x],
            attributes={"perm": ArrayAttr([IntAttr(p) for p in perm])},
            result_types=[TileType.of(source.element, [source.axes_tuple[p] for p in perm])],
        )

    def verify_(self) -> None:
        source, target = tile_type(self.x), tile_type(self.result)
        perm = [p.data for p in self.perm]
        require(sorted(perm) == list(range(source.rank)), f"{perm} is no permutation of {source.rank} axes")
        require(
            target == TileType(source.dtype, ArrayAttr([source.axes.data[p] for p in perm])),
            "axes follow the permutation",
        )


@irdl_op_definition
class Reshape(TileOp):
    """The elements in row-major order along other axes. Those that the operand has outside of its domain are nowhere
    in the result: what stands there is not specified."""

    name = "tile.reshape"
    x = operand_def(TileType)
    result = result_def(TileType)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, axes: Sequence[Axis]):
        super().__init__(operands=[x], result_types=[TileType.of(tile_type(x).element, axes)])

    @property
    def groups(self) -> list[Group]:
        """Axes of the operand and of the result that have the same elements."""
        return regrouped(*([a.size for a in tile_type(v).axes_tuple] for v in (self.x, self.result)))

    def verify_(self) -> None:
        source, target = tile_type(self.x), tile_type(self.result)
        sizes = [prod(a.size for a in kind.axes_tuple) for kind in (source, target)]
        require(source.element == target.element and sizes[0] == sizes[1], f"{source} reshaped to {target}")


@irdl_op_definition
class Unary(TileOp):
    """``fn`` of each element; 16-bit floats are computed in f32 and rounded."""

    name = "tile.unary"
    T: ClassVar = VarConstraint("T", base(TileType))
    x = operand_def(T)
    fn = attr_def(UnaryFnAttr)
    result = result_def(T)
    assembly_format = "$fn $x attr-dict `:` type($result)"

    def __init__(self, fn: UnaryFn, x: SSAValue):
        super().__init__(operands=[x], attributes={"fn": UnaryFnAttr(fn)}, result_types=[x.type])


@irdl_op_definition
class Binary(TileOp):
    """``fn`` of the elements of two tiles of one type; 16-bit floats are computed in f32 and rounded."""

    name = "tile.binary"
    T: ClassVar = VarConstraint("T", base(TileType))
    a = operand_def(T)
    b = operand_def(T)
    fn = attr_def(BinaryFnAttr)
    result = result_def(T)
    assembly_format = "$fn $a `,` $b attr-dict `:` type($result)"

    def __init__(self, fn: BinaryFn, a: SSAValue, b: SSAValue):
        super().__init__(operands=[a, b], attributes={"fn": BinaryFnAttr(fn)}, result_types=[a.type])


@irdl_op_definition
class Fma(TileOp):
    """``a * b + c`` of the elements of three tiles of f32, rounded once, as the program says.

    What the compiler contracts is ``transport.fma``, which its policy has to allow.
    """

    name = "tile.fma"
    T: ClassVar = VarConstraint("T", base(TileType))
    a = operand_def(T)
    b = operand_def(T)
    c = operand_def(T)
    result = result_def(T)
    assembly_format = "$a `,` $b `,` $c attr-dict `:` type($result)"

    def __init__(self, a: SSAValue, b: SSAValue, c: SSAValue):
        super().__init__(operands=[a, b, c], result_types=[a.type])

    def verify_(self) -> None:
        require(tile_type(self.result).element == f32, "an fma is of f32")


@irdl_op_definition
class Compare(TileOp):
    """A bool for each pair of elements of two tiles of one type."""

    name = "tile.compare"
    T: ClassVar = VarConstraint("T", base(TileType))
    a = operand_def(T)
    b = operand_def(T)
    fn = attr_def(CompareFnAttr)
    result = result_def(TileType)
    assembly_format = "$fn $a `,` $b attr-dict `:` type($a) `->` type($result)"

    def __init__(self, fn: CompareFn, a: SSAValue, b: SSAValue):
        super().__init__(
            operands=[a, b],
            attributes={"fn": CompareFnAttr(fn)},
            result_types=[TileType(DTypeAttr(bool_), tile_type(a).axes)],
        )

    def verify_(self) -> None:
        require(tile_type(self.result) == TileType(DTypeAttr(bool_), tile_type(self.a).axes), "the result is bool")


@irdl_op_definition
class Select(TileOp):
    """``a`` where the condition is true, else ``b``."""

    name = "tile.select"
    cond = operand_def(TileType)
    T: ClassVar = VarConstraint("T", base(TileType))
    a = operand_def(T)
    b = operand_def(T)
    result = result_def(T)
    assembly_format = "$cond `,` $a `,` $b attr-dict `:` type($cond) `,` type($result)"

    def __init__(self, cond: SSAValue, a: SSAValue, b: SSAValue):
        super().__init__(operands=[cond, a, b], result_types=[a.type])

    def verify_(self) -> None:
        require(tile_type(self.cond) == TileType(DTypeAttr(bool_), tile_type(self.a).axes), "the condition is bool")


@irdl_op_definition
class Cast(TileOp):
    """Converts elements as PTX ``cvt`` does: to nearest even between floats, toward zero and saturating from float to
    int, ``!= 0`` to bool (docs/language.md, Conversions)."""

    name = "tile.cast"
    x = operand_def(TileType)
    result = result_def(TileType)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, dtype: DType):
        super().__init__(operands=[x], result_types=[TileType(DTypeAttr(dtype), tile_type(x).axes)])

    @property
    def dtype(self) -> DType:
        return tile_type(self.result).element

    def verify_(self) -> None:
        require(tile_type(self.x).axes == tile_type(self.result).axes, "a cast keeps the axes")


@irdl_op_definition
class Bitcast(TileOp):
    """The bits of each element as those of another dtype of its width. The bits of a NaN are not specified."""

    name = "tile.bitcast"
    x = operand_def(TileType)
    result = result_def(TileType)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    def __init__(self, x: SSAValue, dtype: DType):
        super().__init__(operands=[x], result_types=[TileType(DTypeAttr(dtype), tile_type(x).axes)])

    @property
    def dtype(self) -> DType:
        return tile_type(self.result).element

    def verify_(self) -> None:
        kinds = {tile_type(self.x).element, self.dtype}
        plain = not any(d.is_bool or d == tf32 for d in kinds)
        require(tile_type(self.x).axes == tile_type(self.result).axes, "a bitcast keeps the axes")
        require(len(kinds) == 2 and plain, f"a bitcast is to another dtype of numbers, not of {kinds}")
        require(len({d.bits for d in kinds}) == 1, f"a bitcast keeps the width, unlike {kinds}")


@irdl_op_definition
class Reduce(TileOp):
    """Reduces the domain of one axis, which is dropped. Sums are of f32 or integers: the tracer casts before."""

    name = "tile.reduce"
    x = operand_def(TileType)
    fn = attr_def(ReduceFnAttr)
    axis = attr_def(IntAttr)
    result = result_def(TileType)
    assembly_format = "$fn $x `along` $axis attr-dict `:` type($x) `->` type($result)"

    def __init__(self, fn: ReduceFn, x: SSAValue, axis: int):
        source = tile_type(x)
        axes = [a for i, a in enumerate(source.axes_tuple) if i != axis]
        super().__init__(
            operands=[x],
            attributes={"fn": ReduceFnAttr(fn), "axis": IntAttr(axis)},
            result_types=[TileType.of(i32 if fn is ReduceFn.ARGMAX else source.element, axes)],
        )

    def verify_(self) -> None:
        source, target, axis = tile_type(self.x), tile_type(self.result), self.axis.data
        require(0 <= axis < source.rank, f"axis {axis} of rank {source.rank}")
        kept = tuple(a for i, a in enumerate(source.axes) if i != axis)
        require(target.axes.data == kept, "a reduction drops its axis")
        expected = i32 if self.fn.data is ReduceFn.ARGMAX else source.element
        require(target.element == expected, f"{self.fn.data} of {source.element} is {expected}")


@irdl_op_definition
class Dot(TileOp):
    """``result[m, n] = sum over k of a[m, k] * b[k, n]``, over k's domain, accumulated in f32 (i8: i32).

    Tensor cores may keep a sum across products; a ``promoted`` one ends with each, and is added by ordinary arithmetic.
    """

    name = "tile.dot"
    a = operand_def(TileType)
    b = operand_def(TileType)
    promoted = opt_attr_def(UnitAttr)
    result = result_def(TileType)
    assembly_format = "$a `,` $b attr-dict `:` type($a) `,` type($b) `->` type($result)"

    def __init__(self, a: SSAValue, b: SSAValue, *, promoted: bool = False):
        left, right = tile_type(a), tile_type(b)
        axes = (left.axes_tuple[0], right.axes_tuple[1])
        super().__init__(
            operands=[a, b],
            attributes={"promoted": UnitAttr() if promoted else None},
            result_types=[TileType.of(i32 if left.element == i8 else f32, axes)],
        )

    def verify_(self) -> None:
        a, b, result = tile_type(self.a), tile_type(self.b), tile_type(self.result)
        require(a.rank == b.rank == result.rank == 2, "dot is of matrices")
        require(a.axes.data[1] == b.axes.data[0], f"contracted axes {a.axes.data[1]} and {b.axes.data[0]} differ")
        require(result.axes.data == (a.axes.data[0], b.axes.data[1]), "the result has the outer axes")
        require(result.element == (i32 if a.element == i8 else f32), "dot accumulates in f32, of i8 in i32")


@irdl_op_definition
class FragmentInit(TileOp):
    """A mutable tile, holding ``init`` at first."""

    name = "tile.fragment"
    init = operand_def(TileType)
    result = result_def(FragmentType)
    assembly_format = "$init attr-dict `:` type($init) `->` type($result)"

    def __init__(self, init: SSAValue):
        tile = tile_type(init)
        super().__init__(operands=[init], result_types=[FragmentType(tile.dtype, tile.axes)])

    def verify_(self) -> None:
        _verify_same(fragment_type(self.result), tile_type(self.init))


@irdl_op_definition
class FragmentRead(TileOp):
    """The fragment's value at this point."""

    name = "tile.read"
    frag = operand_def(FragmentType)
    result = result_def(TileType)
    assembly_format = "$frag attr-dict `:` type($frag) `->` type($result)"

    def __init__(self, frag: SSAValue):
        fragment = fragment_type(frag)
        super().__init__(operands=[frag], result_types=[TileType(fragment.dtype, fragment.axes)])

    def verify_(self) -> None:
        _verify_same(fragment_type(self.frag), tile_type(self.result))


@irdl_op_definition
class FragmentWrite(TileOp):
    """Replaces the fragment's value."""

    name = "tile.write"
    frag = operand_def(FragmentType)
    value = operand_def(TileType)
    assembly_format = "$frag `,` $value attr-dict `:` type($frag) `,` type($value)"

    def __init__(self, frag: SSAValue, value: SSAValue):
        super().__init__(operands=[frag, value])

    def verify_(self) -> None:
        _verify_same(fragment_type(self.frag), tile_type(self.value))


def _verify_same(fragment: FragmentType, tile: TileType) -> None:
    require(fragment.dtype == tile.dtype and fragment.axes == tile.axes, f"{fragment} holds {tile}")
