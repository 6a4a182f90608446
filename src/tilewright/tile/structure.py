"""Ops that make up a kernel: the kernel itself, streams, accesses to tensors, prints."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Region, SSAValue
from xdsl.irdl import (
    attr_def,
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

from tilewright.base.expr import Expr
from tilewright.lang.axes import Coord, Span
from tilewright.lang.enums import AtomicFn, Numerics
from tilewright.tile.attributes import (
    AtomicFnAttr,
    AxisAttr,
    BoundAttr,
    CoordAttr,
    ExprAttr,
    NumericsAttr,
    RangeAttr,
    TensorType,
    TileType,
    coord_attr,
)
from tilewright.tile.ops import TileOp, exprs, require, tensor_type, tile_type


@irdl_op_definition
class Kernel(TileOp):
    """One kernel. Block arguments, named by ``arg_names``: tensors, then runtime scalars (rank-0 tiles; an i32 scalar's
    name is also a symbol of expressions).

    ``grid[i]`` programs run along axis i, their coordinate is the symbol ``p<i>``. A launch holds only if every
    ``bounds`` extent is within its ``upto`` and every predicate of ``requires`` (over dims and scalars) is true; the
    tracer has put there what it could not decide about accesses staying inside their tensors. Of the tensors in
    ``ascending`` it is promised that they are offsets; the integers of those in ``planned`` a plan of ours has made, no
    two of them equal and inside of a tensor. Where an element of the tensor ``gate`` is not 0, no program
    does anything. Of a kernel with ``judged`` offsets each CTA finds out itself, before its programs, whether each of
    them begins with 0, ascends, and does not go beyond the one of the ``limits`` at its place: where one does not, no
    program does anything, and every CTA adds 1 to the element of ``gate`` at its place. The first element of the tensor
    ``queue``, which is 0 when a launch begins that has more programs than CTAs, counts the programs that CTAs draw
    beyond their first one.
    """

    name = "tile.kernel"
    sym_name = attr_def(StringAttr)
    arg_names = attr_def(ArrayAttr[StringAttr])
    grid = attr_def(ArrayAttr[ExprAttr])
    bounds = attr_def(ArrayAttr[BoundAttr])
    requires = attr_def(ArrayAttr[ExprAttr])
    numerics = attr_def(NumericsAttr)
    ascending = opt_attr_def(ArrayAttr[StringAttr])
    planned = opt_attr_def(ArrayAttr[StringAttr])
    gate = opt_attr_def(StringAttr)
    judged = opt_attr_def(ArrayAttr[StringAttr])
    limits = opt_attr_def(ArrayAttr[ExprAttr])
    queue = opt_attr_def(StringAttr)
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
        numerics: Numerics = Numerics.STRICT,
        ascending: Sequence[str] = (),
        planned: Sequence[str] = (),
    ):
        super().__init__(
            attributes={
                "ascending": ArrayAttr([StringAttr(n) for n in ascending]) if ascending else None,
                "planned": ArrayAttr([StringAttr(n) for n in planned]) if planned else None,
                "sym_name": StringAttr(sym_name),
                "arg_names": ArrayAttr([StringAttr(n) for n in arg_names]),
                "grid": exprs(grid),
                "bounds": ArrayAttr([BoundAttr(b) for b in bounds]),
                "requires": exprs(requires),
                "numerics": NumericsAttr(numerics),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        args = self.body.block.args
        require(len(args) == len(self.arg_names), f"{len(self.arg_names)} names for {len(args)} arguments")
        for arg in args:
            scalar = isinstance(arg.type, TileType) and arg.type.rank == 0
            require(scalar or isinstance(arg.type, TensorType), f"argument of type {arg.type}")

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


class _TensorAccess(TileOp):
    """Shared by accesses to tensors: one coordinate per dimension; a range keeps its axis, an expression drops it."""

    tensor = operand_def(TensorType)
    coords = attr_def(ArrayAttr[CoordAttr])

    @property
    def spans(self) -> tuple[Span, ...]:
        """The ranges among the coordinates, in order."""
        return tuple(c.data for c in self.coords if isinstance(c, RangeAttr))

    def _verify_tile(self, tile: TileType) -> None:
        tensor = tensor_type(self.tensor)
        require(len(self.coords) == tensor.rank, f"{len(self.coords)} coordinates for a tensor of rank {tensor.rank}")
        require(tile.element == tensor.element, f"a tile of {tile.element} and a tensor of {tensor.element}")
        require(tile.axes.data == self.spans_as_axes, f"axes {tile.axes} differ from the coordinates' ranges")

    @property
    def spans_as_axes(self) -> tuple[AxisAttr, ...]:
        """The axes of the tile that is moved."""
        return tuple(c for c in self.coords if isinstance(c, RangeAttr))


@irdl_op_definition
class Load(_TensorAccess):
    """The tensor's elements at the coordinates' domains; where an integer that was loaded leads outside, 0."""

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


@irdl_op_definition
class Store(_TensorAccess):
    """Writes the tile's domain; each element is written by one program, once."""

    name = "tile.store"
    value = operand_def(TileType)
    assembly_format = "$value `,` $tensor $coords attr-dict `:` type($value) `,` type($tensor)"

    def __init__(self, value: SSAValue, tensor: SSAValue, coords: Sequence[Coord]):
        super().__init__(operands=[value, tensor], attributes={"coords": ArrayAttr([coord_attr(c) for c in coords])})

    def verify_(self) -> None:
        self._verify_tile(tile_type(self.value))


@irdl_op_definition
class AtomicReduce(_TensorAccess):
    """Combines the tile's domain with the tensor's elements by ``fn``; programs may overlap, in any order."""

    name = "tile.atomic_reduce"
    fn = attr_def(AtomicFnAttr)
    value = operand_def(TileType)
    assembly_format = "$fn $value `,` $tensor $coords attr-dict `:` type($value) `,` type($tensor)"

    def __init__(self, fn: AtomicFn, value: SSAValue, tensor: SSAValue, coords: Sequence[Coord]):
        super().__init__(
            operands=[value, tensor],
            attributes={"fn": AtomicFnAttr(fn), "coords": ArrayAttr([coord_attr(c) for c in coords])},
        )

    def verify_(self) -> None:
        self._verify_tile(tile_type(self.value))
        require(tile_type(self.value).element in self.fn.data.dtypes, f"no {self.fn.data} of this element in memory")


@irdl_op_definition
class Yield(TileOp):
    """Ends a stream's body; that of a scan with the combined values."""

    name = "tile.yield"
    values = var_operand_def(TileType)
    assembly_format = "($values^ `:` type($values))? attr-dict"
    traits = traits_def(IsTerminator())

    def __init__(self, values: Sequence[SSAValue] = ()):
        super().__init__(operands=[list(values)])


@irdl_op_definition
class StreamLoop(TileOp):
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
        require(not self.body.block.args, "a stream's body has no block arguments; state lives in fragments")
        last = self.body.block.last_op
        require(isinstance(last, Yield) and not last.operands, "a stream's body ends with tile.yield")


@irdl_op_definition
class Bind(TileOp):
    """Names an integer of rank 0, which was loaded, for the ops that follow in this block and the regions inside them;
    it is in ``0 .. MAX_EXTENT``, and at most ``most``."""

    name = "tile.bind"
    symbol = attr_def(StringAttr)
    value = operand_def(TileType)
    most = opt_attr_def(ExprAttr)
    assembly_format = "$symbol `to` $value attr-dict `:` type($value)"

    def __init__(self, symbol: str, value: SSAValue, most: Expr | None = None):
        super().__init__(
            operands=[value],
            attributes={"symbol": StringAttr(symbol), "most": None if most is None else ExprAttr(most)},
        )

    def verify_(self) -> None:
        tile = tile_type(self.value)
        require(tile.rank == 0 and tile.element.is_int, f"an integer of rank 0, not {tile}")


@irdl_op_definition
class Print(TileOp):
    """Prints ``format`` with the operands' elements in place of each ``{}``."""

    name = "tile.print"
    format = attr_def(StringAttr)
    values = var_operand_def(TileType)
    assembly_format = "$format (`,` $values^ `:` type($values))? attr-dict"

    def __init__(self, format: str, values: Sequence[SSAValue]):
        super().__init__(operands=[list(values)], attributes={"format": StringAttr(format)})


@irdl_op_definition
class Trap(TileOp):
    """Ends the launch with an error where the first operand, of bools, is true in the domain of its axes: it prints
    ``format`` with the elements of the others, tiles of the same axes."""

    name = "tile.trap"
    format = attr_def(StringAttr)
    values = var_operand_def(TileType)
    assembly_format = "$format `,` $values `:` type($values) attr-dict"

    def __init__(self, format: str, values: Sequence[SSAValue]):
        super().__init__(operands=[list(values)], attributes={"format": StringAttr(format)})

    def verify_(self) -> None:
        first, *others = map(tile_type, self.values)
        require(first.element.is_bool, f"a trap where {first.element} is true")
        require(all(v.axes == first.axes for v in others), "a trap of tiles of several axes")
