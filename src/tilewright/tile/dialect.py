"""The ``tile`` dialect: the operations of a kernel in the user's order, on values that carry their axes.

    tile.kernel  one kernel; block arguments are tensors, then runtime scalars
      tile.load / store / atomic_reduce        between tensors and tiles; coordinates are ranges or scalars
      tile.gather / scatter / scatter_reduce   the same at computed and loaded coordinates
      tile.index / scalar / constant           integers and numbers as values
      tile.expand / broadcast / transpose / reshape   shapes; element-wise operands have identical axes
      tile.unary / binary / compare / select / cast / bitcast / reduce / dot
      tile.scan                                running values along an axis, by a region that combines two
      tile.sort                                integers along an axis in ascending order, all or the least
      tile.histogram                           how often each number stands in a tile
      tile.fragment / read / write             mutable tiles
      tile.stream                              a loop over ranges, body recorded once
      tile.bind                                a loaded integer as a symbol of bounds and coordinates
      tile.print / trap

Elements outside a range's domain have no value: reductions and contractions skip them, stores don't write them.
Every op holds the user's ``file:line`` in its ``loc`` attribute.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from tilewright.tile.attributes import (
    AtomicFnAttr,
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
)
from tilewright.tile.elements import (
    Binary,
    Bitcast,
    Broadcast,
    Cast,
    Compare,
    Constant,
    Dot,
    Expand,
    Fma,
    FragmentInit,
    FragmentRead,
    FragmentWrite,
    Index,
    Reduce,
    Reshape,
    ScalarExpr,
    Select,
    Transpose,
    Unary,
)
from tilewright.tile.histograms import Histogram
from tilewright.tile.indirect import Gather, Scatter, ScatterReduce, by_places, index_symbol, moves_along
from tilewright.tile.ops import TileOp, begins_at, fragment_type, location_of, tensor_type, tile_type
from tilewright.tile.program_sums import ProgramSum
from tilewright.tile.scans import Scan
from tilewright.tile.sorts import Sort
from tilewright.tile.structure import (
    AtomicReduce,
    Bind,
    Kernel,
    Load,
    Print,
    Store,
    Stream,
    Trap,
    Yield,
)

WRITES = (Store, AtomicReduce, Scatter, ScatterReduce)
"""Ops that write to tensors."""

__all__ = [  # the attributes are part of the dialect: its users import both from here
    "WRITES",
    "AtomicFnAttr",
    "AtomicReduce",
    "AxisAttr",
    "Binary",
    "BinaryFnAttr",
    "Bind",
    "Bitcast",
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
    "Fma",
    "FragmentInit",
    "FragmentRead",
    "FragmentType",
    "FragmentWrite",
    "Gather",
    "Histogram",
    "Index",
    "Kernel",
    "Load",
    "NumberAttr",
    "NumericsAttr",
    "Print",
    "ProgramSum",
    "RangeAttr",
    "Reduce",
    "ReduceFnAttr",
    "Reshape",
    "ScalarExpr",
    "Scan",
    "Scatter",
    "ScatterReduce",
    "Select",
    "Sort",
    "Store",
    "Stream",
    "TensorType",
    "Tile",
    "TileOp",
    "TileType",
    "Transpose",
    "Trap",
    "Unary",
    "UnaryFnAttr",
    "UnitAxisAttr",
    "Yield",
    "begins_at",
    "by_places",
    "fragment_type",
    "index_symbol",
    "location_of",
    "moves_along",
    "tensor_type",
    "tile_type",
]

Tile = Dialect(
    "tile",
    [
        Kernel,
        Load,
        Store,
        AtomicReduce,
        Gather,
        Scatter,
        ScatterReduce,
        Index,
        ScalarExpr,
        Constant,
        Expand,
        Broadcast,
        Transpose,
        Reshape,
        Unary,
        Binary,
        Compare,
        Select,
        Cast,
        Bitcast,
        Fma,
        Reduce,
        Scan,
        Sort,
        Histogram,
        ProgramSum,
        Dot,
        FragmentInit,
        FragmentRead,
        FragmentWrite,
        Stream,
        Bind,
        Yield,
        Print,
        Trap,
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
        AtomicFnAttr,
        NumericsAttr,
        TensorType,
        TileType,
        FragmentType,
    ],
)
"""Registered with an xDSL ``Context`` to parse tile text."""
