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

from tilewright.tile.attributes import AtomicFnAttr as AtomicFnAttr
from tilewright.tile.attributes import AxisAttr as AxisAttr
from tilewright.tile.attributes import BinaryFnAttr as BinaryFnAttr
from tilewright.tile.attributes import BoundAttr as BoundAttr
from tilewright.tile.attributes import CompareFnAttr as CompareFnAttr
from tilewright.tile.attributes import CoordAttr as CoordAttr
from tilewright.tile.attributes import DTypeAttr as DTypeAttr
from tilewright.tile.attributes import ExprAttr as ExprAttr
from tilewright.tile.attributes import FragmentType as FragmentType
from tilewright.tile.attributes import NumberAttr as NumberAttr
from tilewright.tile.attributes import NumericsAttr as NumericsAttr
from tilewright.tile.attributes import RangeAttr as RangeAttr
from tilewright.tile.attributes import ReduceFnAttr as ReduceFnAttr
from tilewright.tile.attributes import TensorType as TensorType
from tilewright.tile.attributes import TileType as TileType
from tilewright.tile.attributes import UnaryFnAttr as UnaryFnAttr
from tilewright.tile.attributes import UnitAxisAttr as UnitAxisAttr
from tilewright.tile.elements import Binary as Binary
from tilewright.tile.elements import Bitcast as Bitcast
from tilewright.tile.elements import Broadcast as Broadcast
from tilewright.tile.elements import Cast as Cast
from tilewright.tile.elements import Compare as Compare
from tilewright.tile.elements import Constant as Constant
from tilewright.tile.elements import Dot as Dot
from tilewright.tile.elements import Expand as Expand
from tilewright.tile.elements import Fma as Fma
from tilewright.tile.elements import FragmentInit as FragmentInit
from tilewright.tile.elements import FragmentRead as FragmentRead
from tilewright.tile.elements import FragmentWrite as FragmentWrite
from tilewright.tile.elements import Index as Index
from tilewright.tile.elements import Reduce as Reduce
from tilewright.tile.elements import Reshape as Reshape
from tilewright.tile.elements import ScalarExpr as ScalarExpr
from tilewright.tile.elements import Select as Select
from tilewright.tile.elements import Transpose as Transpose
from tilewright.tile.elements import Unary as Unary
from tilewright.tile.histograms import Histogram as Histogram
from tilewright.tile.indirect import Gather as Gather
from tilewright.tile.indirect import Scatter as Scatter
from tilewright.tile.indirect import ScatterReduce as ScatterReduce
from tilewright.tile.indirect import by_places as by_places
from tilewright.tile.indirect import index_symbol as index_symbol
from tilewright.tile.indirect import moves_along as moves_along
from tilewright.tile.ops import TileOp as TileOp
from tilewright.tile.ops import begins_at as begins_at
from tilewright.tile.ops import fragment_type as fragment_type
from tilewright.tile.ops import location_of as location_of
from tilewright.tile.ops import tensor_type as tensor_type
from tilewright.tile.ops import tile_type as tile_type
from tilewright.tile.program_sums import ProgramSum as ProgramSum
from tilewright.tile.scans import Scan as Scan
from tilewright.tile.sorts import Sort as Sort
from tilewright.tile.structure import AtomicReduce as AtomicReduce
from tilewright.tile.structure import Bind as Bind
from tilewright.tile.structure import Kernel as Kernel
from tilewright.tile.structure import Load as Load
from tilewright.tile.structure import Print as Print
from tilewright.tile.structure import Store as Store
from tilewright.tile.structure import StreamLoop as StreamLoop
from tilewright.tile.structure import Trap as Trap
from tilewright.tile.structure import Yield as Yield

WRITES = (Store, AtomicReduce, Scatter, ScatterReduce)
"""Ops that write to tensors."""


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
        StreamLoop,
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
