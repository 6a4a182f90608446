"""The ``tile`` dialect: the operations of a kernel in the user's order, on values that carry their axes.

    tile.kernel  one kernel; block arguments are tensors, then runtime scalars
      tile.load / store / reduce_add           between tensors and tiles; coordinates are ranges or scalars
      tile.index / scalar / constant           integers and numbers as values
      tile.expand / broadcast / transpose      shapes; element-wise operands have identical axes
      tile.unary / binary / compare / select / cast / reduce / dot
      tile.fragment / read / write             mutable tiles
      tile.stream                              a loop over ranges, body recorded once
      tile.print

Elements outside a range's domain have no value: reductions and contractions skip them, stores don't write them.
Every op holds the user's ``file:line`` in its ``loc`` attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    attr_def,
    base,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.base.dtypes import DType, bool_, f32, i8, i32, i64
from tilewright.base.expr import Expr
from tilewright.diag import Location
from tilewright.lang.axes import UNIT, Axis, Coord, Span
from tilewright.lang.fns import BinaryFn, CompareFn, Numerics, ReduceFn, UnaryFn
from tilewright.tile.attributes import (
    AxisAttr,
    BinaryFnAttr,
    BoundAttr,
    CompareFnAttr,
    CoordAttr,
    DTypeAttr,
    ExprAttr,
    FragmentType,
    NumberAttr,
    NumericsAttr,
    RangeAttr,
    ReduceFnAttr,
    TensorType,
    TileType,
    UnaryFnAttr,
    UnitAxisAttr,
    coord_attr,
)

__all__ = [  # the attributes are part of the dialect: its users import both from here
    "AxisAttr",
    "Binary",
    "BinaryFnAttr",
    "BoundAttr",
    "Broadcast",
    "Cast",
    "Compare",
    "CompareFnAttr",
    "Constant",
    "CoordAttr",
    "DTypeAttr",
    "Dot",
    "Expand",
    "ExprAttr",
    "Fragment",
    "FragmentType",
    "Index",
    "Kernel",
    "Load",
    "NumberAttr",
    "NumericsAttr",
    "Print",
    "RangeAttr",
    "Read",
    "Reduce",
    "ReduceAdd",
    "ReduceFnAttr",
    "Scalar",
    "Select",
    "Store",
    "Stream",
    "TensorType",
    "Tile",
    "TileOp",
    "TileType",
    "Transpose",
    "Unary",
    "UnaryFnAttr",
    "UnitAxisAttr",
    "Write",
    "Yield",
    "fragment_type",
    "location_of",
    "tensor_type",
    "tile_type",
]


def tile_type(value: SSAValue) -> TileType:
    """The type of a tile."""
    assert isinstance(value.type, TileType)
    return value.type


def fragment_type(value: SSAValue) -> FragmentType:
    """The type of a fragment."""
    assert isinstance(value.type, FragmentType)
    return value.type


def tensor_type(value: SSAValue) -> TensorType:
    """The type of a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type


def location_of(op: Operation) -> Location | None:
    """The user's place an op was recorded at; None for an op that no user wrote."""
    loc = op.attributes.get("loc")
    if not isinstance(loc, StringAttr):
        return None
    file, _, line = loc.data.rpartition(":")
    return Location(file, int(line))


class TileOp(IRDLOperation):
    """Base of all ops; ``loc`` is the user's ``file:line``."""

    loc = opt_attr_def(StringAttr)


def _array(items: Sequence[Expr]) -> ArrayAttr[ExprAttr]:
    return ArrayAttr([ExprAttr(e) for e in items])


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyException(message)


@irdl_op_definition
class Kernel(TileOp):
    """One kernel. Block arguments, named by ``arg_names``: tensors, then runtime scalars (rank-0 tiles; an i32 scalar's
    name is also a symbol of expressions).

    ``grid[i]`` programs run along axis i, their coordinate is the symbol ``p<i>``. A launch holds only if every
    ``bounds`` extent is within its ``upto`` and every predicate of ``requires`` (over dims and scalars) is true; the
    tracer has put there what it could not decide about accesses staying inside their tensors.
    """

    name = "tile.kernel"
    sym_name = attr_def(StringAttr)
    arg_names = attr_def(ArrayAttr[StringAttr])
    grid = attr_def(ArrayAttr[ExprAttr])
    bounds = attr_def(ArrayAttr[BoundAttr])
    requires = attr_def(ArrayAttr[ExprAttr])
    numerics = attr_def(NumericsAttr)
    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    def __init__(
        self,
        sym_name: str,
        arg_names: Sequence[str],
        body: Region,
        *,
        grid: Sequence[Expr] = (),
        bounds: Sequence[tuple[Expr, int]] = (),
        requires: Sequence[Expr] = (),
        numerics: Numerics = Numerics.PRECISE,
    ):
        super().__init__(
            attributes={
                "sym_name": StringAttr(sym_name),
                "arg_names": ArrayAttr([StringAttr(n) for n in arg_names]),
                "grid": _array(grid),
                "bounds": ArrayAttr([BoundAttr(b) for b in bounds]),
                "requires": _array(requires),
                "numerics": NumericsAttr(numerics),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        args = self.body.block.args
        _require(len(args) == len(self.arg_names), f"{len(self.arg_names)} names for {len(args)} arguments")
        for arg in args:
            scalar = isinstance(arg.type, TileType) and arg.type.rank == 0
            _require(scalar or isinstance(arg.type, TensorType), f"argument of type {arg.type}")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        with printer.in_parens():
            printer.print_list(
                zip(self.arg_names, self.body.block.args, strict=True), lambda pair: _print_arg(printer, *pair)
            )
        rest = {k: v for k, v in self.attributes.items() if k not in ("sym_name", "arg_names")}
        printer.print_string(" attributes ")
        printer.print_attr_dict(rest)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> Kernel:
        name = parser.parse_symbol_name()
        names = list[StringAttr]()

        def argument() -> Parser.Argument:
            names.append(StringAttr(parser.parse_str_literal(" naming the argument")))
            return parser.parse_argument()

        args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, argument)
        parser.parse_keyword("attributes")
        attributes = parser.parse_optional_attr_dict()
        body = parser.parse_region(args)
        return cls.create(
            attributes={"sym_name": name, "arg_names": ArrayAttr(names), **attributes},
            regions=[body],
        )


def _print_arg(printer: Printer, name: StringAttr, arg: SSAValue) -> None:
    printer.print_string_literal(name.data)
    printer.print_string(" ")
    printer.print_ssa_value(arg)
    printer.print_string(" : ")
    printer.print_attribute(arg.type)


class _Access(TileOp):
    """Shared by accesses to tensors: one coordinate per dimension; a range keeps its axis, an expression drops it."""

    tensor = operand_def(TensorType)
    coords = attr_def(ArrayAttr[CoordAttr])

    @property
    def spans(self) -> tuple[Span, ...]:
        """The ranges among the coordinates, in order."""
        return tuple(c.data for c in self.coords if isinstance(c, RangeAttr))

    def _verify_tile(self, tile: TileType) -> None:
        tensor = tensor_type(self.tensor)
        _require(len(self.coords) == tensor.rank, f"{len(self.coords)} coordinates for a tensor of rank {tensor.rank}")
        _require(tile.element == tensor.element, f"a tile of {tile.element} and a tensor of {tensor.element}")
        _require(tile.axes.data == self.spans_as_axes, f"axes {tile.axes} differ from the coordinates' ranges")

    @property
    def spans_as_axes(self) -> tuple[AxisAttr, ...]:
        """The axes of the tile that is moved."""
        return tuple(c for c in self.coords if isinstance(c, RangeAttr))


@irdl_op_definition
class Load(_Access):
    """The tensor's elements at the coordinates' domains."""

    name = "tile.load"
    result = result_def(TileType)
    assembly_format = "$tensor $coords attr-dict `:` type($tensor) `->` type($result)"

    def __init__(self, tensor: SSAValue, coords: Sequence[Coord]):
        spans = [c for c in coords if isinstance(c, Span)]
        super().__init__(
            operands=[tensor],
            attributes={"coords": ArrayAttr([coord_attr(c) for c in coords])},
            result_types=[TileType.of(tensor_type(tensor).element, spans)],
        )

    def verify_(self) -> None:
        self._verify_tile(tile_type(self.result))


class _Writing(_Access):
    """Shared by the accesses that write a tile."""

    value = operand_def(TileType)
    assembly_format = "$value `,` $tensor $coords attr-dict `:` type($value) `,` type($tensor)"

    def __init__(self, value: SSAValue, tensor: SSAValue, coords: Sequence[Coord]):
        super().__init__(operands=[value, tensor], attributes={"coords": ArrayAttr([coord_attr(c) for c in coords])})

    def verify_(self) -> None:
        self._verify_tile(tile_type(self.value))


@irdl_op_definition
class Store(_Writing):
    """Writes the tile's domain; each element is written by one program, once."""

    name = "tile.store"


@irdl_op_definition
class ReduceAdd(_Writing):
    """Adds the tile's domain to the tensor; programs may overlap."""

    name = "tile.reduce_add"


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
        _require(tile.element == i32 and tile.axes.data == (self.axis,), "an index is i32 over its own range")


@irdl_op_definition
class Scalar(TileOp):
    """An integer expression as a rank-0 value."""

    name = "tile.scalar"
    expr = attr_def(ExprAttr)
    result = result_def(TileType)
    assembly_format = "$expr attr-dict `:` type($result)"

    def __init__(self, value: Expr, dtype: DType = i32):
        super().__init__(attributes={"expr": ExprAttr(value)}, result_types=[TileType.of(dtype, [])])

    def verify_(self) -> None:
        tile = tile_type(self.result)
        _require(tile.element in (i32, i64) and tile.rank == 0, f"an expression is i32 or i64, not {tile}")


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
        _require(tile.rank == 0, "a constant has rank 0")
        _require(fits, f"the number {value!r} is no constant of {tile.element}")
        _require(not (tile.element.is_int and isinstance(value, float)), f"{value!r} is no {tile.element}")


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
        _require(kept == source.axes.data and len(added) == len(inserted), f"{source} expanded at {inserted}")
        _require(all(isinstance(a, UnitAxisAttr) for a in added), "expand inserts unit axes")
        _require(source.element == target.element, "expand keeps the dtype")


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
        _require(source.rank == target.rank and source.element == target.element, f"{source} broadcast to {target}")
        for a, b in zip(source.axes, target.axes, strict=True):
            _require(a == b or isinstance(a, UnitAxisAttr), f"axis {a} broadcast to {b}")


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
        _require(sorted(perm) == list(range(source.rank)), f"{perm} is no permutation of {source.rank} axes")
        _require(
            target == TileType(source.dtype, ArrayAttr([source.axes.data[p] for p in perm])),
            "axes follow the permutation",
        )


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
        _require(tile_type(self.result) == TileType(DTypeAttr(bool_), tile_type(self.a).axes), "the result is bool")


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
        _require(tile_type(self.cond) == TileType(DTypeAttr(bool_), tile_type(self.a).axes), "the condition is bool")


@irdl_op_definition
class Cast(TileOp):
    """Converts elements: to nearest even between floats, toward zero from float to int, ``!= 0`` to bool."""

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
        _require(tile_type(self.x).axes == tile_type(self.result).axes, "a cast keeps the axes")


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
        _require(0 <= axis < source.rank, f"axis {axis} of rank {source.rank}")
        kept = tuple(a for i, a in enumerate(source.axes) if i != axis)
        _require(target.axes.data == kept, "a reduction drops its axis")
        expected = i32 if self.fn.data is ReduceFn.ARGMAX else source.element
        _require(target.element == expected, f"{self.fn.data} of {source.element} is {expected}")


@irdl_op_definition
class Dot(TileOp):
    """``result[m, n] = sum over k of a[m, k] * b[k, n]``, over k's domain, accumulated in f32 (i8: i32)."""

    name = "tile.dot"
    a = operand_def(TileType)
    b = operand_def(TileType)
    result = result_def(TileType)
    assembly_format = "$a `,` $b attr-dict `:` type($a) `,` type($b) `->` type($result)"

    def __init__(self, a: SSAValue, b: SSAValue):
        left, right = tile_type(a), tile_type(b)
        axes = (left.axes_tuple[0], right.axes_tuple[1])
        super().__init__(operands=[a, b], result_types=[TileType.of(i32 if left.element == i8 else f32, axes)])

    def verify_(self) -> None:
        a, b, result = tile_type(self.a), tile_type(self.b), tile_type(self.result)
        _require(a.rank == b.rank == result.rank == 2, "dot is of matrices")
        _require(a.axes.data[1] == b.axes.data[0], f"contracted axes {a.axes.data[1]} and {b.axes.data[0]} differ")
        _require(result.axes.data == (a.axes.data[0], b.axes.data[1]), "the result has the outer axes")
        _require(result.element == (i32 if a.element == i8 else f32), "dot accumulates in f32, of i8 in i32")


@irdl_op_definition
class Fragment(TileOp):
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
class Read(TileOp):
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
class Write(TileOp):
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
    _require(fragment.dtype == tile.dtype and fragment.axes == tile.axes, f"{fragment} holds {tile}")


@irdl_op_definition
class Yield(TileOp):
    """Ends a stream's body."""

    name = "tile.yield"
    assembly_format = "attr-dict"
    traits = traits_def(IsTerminator())

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class Stream(TileOp):
    """Runs the body for ``counter`` = 0, 1, .. ``trip``-1; ``axis`` is the range of one iteration."""

    name = "tile.stream"
    counter = attr_def(StringAttr)
    axis = attr_def(RangeAttr)
    begin = attr_def(ExprAttr)
    trip = attr_def(ExprAttr)
    body = region_def("single_block")
    assembly_format = "$counter `over` $axis `from` $begin `trip` $trip attr-dict-with-keyword $body"

    def __init__(self, counter: str, axis: Span, begin: Expr, trip: Expr, body: Region):
        super().__init__(
            attributes={
                "counter": StringAttr(counter),
                "axis": RangeAttr(axis),
                "begin": ExprAttr(begin),
                "trip": ExprAttr(trip),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        _require(not self.body.block.args, "a stream's body has no block arguments; state lives in fragments")
        _require(isinstance(self.body.block.last_op, Yield), "a stream's body ends with tile.yield")


@irdl_op_definition
class Print(TileOp):
    """Prints ``format`` with the operands' elements in place of each ``{}``."""

    name = "tile.print"
    format = attr_def(StringAttr)
    values = var_operand_def(TileType)
    assembly_format = "$format (`,` $values^ `:` type($values))? attr-dict"

    def __init__(self, format: str, values: Sequence[SSAValue]):
        super().__init__(operands=[list(values)], attributes={"format": StringAttr(format)})


Tile = Dialect(
    "tile",
    [
        Kernel,
        Load,
        Store,
        ReduceAdd,
        Index,
        Scalar,
        Constant,
        Expand,
        Broadcast,
        Transpose,
        Unary,
        Binary,
        Compare,
        Select,
        Cast,
        Reduce,
        Dot,
        Fragment,
        Read,
        Write,
        Stream,
        Yield,
        Print,
    ],
    [
        ExprAttr,
        DTypeAttr,
        RangeAttr,
        UnitAxisAttr,
        NumberAttr,
        BoundAttr,
        UnaryFnAttr,
        BinaryFnAttr,
        CompareFnAttr,
        ReduceFnAttr,
        NumericsAttr,
        TensorType,
        TileType,
        FragmentType,
    ],
)
"""Registered with an xDSL ``Context`` to parse tile text."""
