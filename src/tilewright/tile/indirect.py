"""Accesses to tensors at computed and loaded coordinates: gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def, var_operand_def

from tilewright.base.expr import Expr, own
from tilewright.lang.axes import Axis, Span, axis_symbol
from tilewright.lang.enums import AtomicFn
from tilewright.tile.attributes import AtomicFnAttr, ExprAttr, TensorType, TileType, UnitAxisAttr
from tilewright.tile.ops import TileOp, exprs, require, tensor_type, tile_type


def index_symbol(operand: int) -> str:
    """The symbol of an element of index operand ``operand`` in coordinates."""
    return own(f"index{operand}")


class _Indirect(TileOp):
    """Shared by gathers and scatters: an expression per tensor dimension, over program ids, counters, dimensions and
    scalars, coordinates along the tile's axes (``axis_symbol``) and elements of the index operands (``index_symbol``).

    An index operand has the tile's rank; along each axis it has the tile's range or one element. Coordinates are exact
    integers. An element of which some coordinate lies outside the tensor is absent: read as 0, not written.
    """

    tensor = operand_def(TensorType)
    indices = var_operand_def(TileType)
    coords = attr_def(ArrayAttr[ExprAttr])

    @property
    def moved(self) -> SSAValue:
        """The tile that is read or written."""
        raise NotImplementedError

    def verify_(self) -> None:
        tile, tensor = tile_type(self.moved), tensor_type(self.tensor)
        require(len(self.coords) == tensor.rank, f"{len(self.coords)} coordinates for a tensor of rank {tensor.rank}")
        require(tile.element == tensor.element, f"a tile of {tile.element} and a tensor of {tensor.element}")
        for index in map(tile_type, self.indices):
            require(index.element.is_int, f"an index of {index.element}")
            require(index.rank == tile.rank, f"an index of rank {index.rank} for a tile of rank {tile.rank}")
            for own_axis, axis in zip(index.axes, tile.axes, strict=True):
                require(own_axis == axis or isinstance(own_axis, UnitAxisAttr), f"index axes {index.axes}")


@irdl_op_definition
class Gather(_Indirect):
    """The tensor's elements at the coordinates; 0 where one lies outside."""

    name = "tile.gather"
    result = result_def(TileType)
    assembly_format = (
        "$tensor $coords (`indices` $indices^ `:` type($indices))? attr-dict `:` type($tensor) `->` type($result)"
    )

    def __init__(self, tensor: SSAValue, coords: Sequence[Expr], indices: Sequence[SSAValue], axes: Sequence[Axis]):
        super().__init__(
            operands=[tensor, list(indices)],
            attributes={"coords": exprs(coords)},
            result_types=[TileType.of(tensor_type(tensor).element, axes)],
        )

    @property
    def moved(self) -> SSAValue:
        return self.result


class _Scattering(_Indirect):
    """Shared by the ops that write at coordinates."""

    value = operand_def(TileType)
    assembly_format = (
        "$value `,` $tensor $coords (`indices` $indices^ `:` type($indices))? attr-dict "
        "`:` type($value) `,` type($tensor)"
    )

    def __init__(self, value: SSAValue, tensor: SSAValue, coords: Sequence[Expr], indices: Sequence[SSAValue]):
        super().__init__(operands=[value, tensor, list(indices)], attributes={"coords": exprs(coords)})

    @property
    def moved(self) -> SSAValue:
        return self.value


@irdl_op_definition
class Scatter(_Scattering):
    """Writes the tile's elements whose coordinates lie in the tensor; each element is written by one program, once:
    those at loaded coordinates by a promise, or, of one ``apart``, because its other coordinates differ."""

    name = "tile.scatter"
    apart = opt_attr_def(UnitAttr)


@irdl_op_definition
class ScatterReduce(_Scattering):
    """Combines the elements with the tensor's by ``fn``; several may target one element, in any order."""

    name = "tile.scatter_reduce"
    fn = attr_def(AtomicFnAttr)
    assembly_format = (
        "$fn $value `,` $tensor $coords (`indices` $indices^ `:` type($indices))? attr-dict "
        "`:` type($value) `,` type($tensor)"
    )

    def __init__(
        self, fn: AtomicFn, value: SSAValue, tensor: SSAValue, coords: Sequence[Expr], indices: Sequence[SSAValue]
    ):
        super().__init__(value, tensor, coords, indices)
        self.attributes["fn"] = AtomicFnAttr(fn)

    def verify_(self) -> None:
        super().verify_()
        require(tile_type(self.value).element in self.fn.data.dtypes, f"no {self.fn.data} of this element in memory")


def by_places(op: Scatter | ScatterReduce) -> bool:
    """Whether its writes are identified by their positions in its tile, because several may target one element."""
    return isinstance(op, ScatterReduce) or bool(op.indices)


def moves_along(op: Gather | Scatter | ScatterReduce, dimension: int) -> tuple[int, Expr] | None:
    """The axis of the tile along which coordinate ``dimension`` advances by 1 an element, with the rest of the
    coordinate: where no other coordinate or index follows that axis. None where there is no such axis."""
    coords = [c.expr for c in op.coords]
    for axis, kind in enumerate(tile_type(op.moved).axes_tuple):
        symbol = axis_symbol(axis)
        rest = coords[dimension].substitute({symbol: 0})
        along = isinstance(kind, Span) and coords[dimension].symbols >= {symbol}
        if not along or (coords[dimension] - rest).text != symbol:
            continue
        others = any(symbol in c.symbols for d, c in enumerate(coords) if d != dimension)
        indexed = any(isinstance(tile_type(i).axes_tuple[axis], Span) for i in op.indices)
        if not others and not indexed:
            return axis, rest
    return None


def scatter_number(op: Scatter | ScatterReduce) -> int:
    """The number of the scatter among the kernel's, counted from 0."""
    root: Operation = op
    while (parent := root.parent_op()) is not None:
        root = parent
    return [other for other in root.walk() if isinstance(other, _Scattering)].index(op)
