"""Ops on a thread's registers: element-wise code, reductions, prints."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.base.dtypes import bool_, f32
from tilewright.base.expr import TRUE, Expr
from tilewright.hw.approximations import APPROXIMATIONS
from tilewright.tile.dialect import ExprAttr, TileType
from tilewright.tile.ops import integer, string
from tilewright.transport.ops.base import RegistersType, TransportOp, exprs


@irdl_op_definition
class Map(TransportOp):
    """Element-wise code: for each ``r`` in ``range(count)`` evaluates the body on scalars and writes the results.

    Block argument i is input i at register ``reads[i]`` (an expression of ``r``); the terminator's operand j goes to
    output j at register ``r``. The body holds rank-0 ``tile`` ops; ``tile.scalar`` and ``predicate`` there may use
    ``tid`` and ``r``.
    An output may also be an input: all reads of one ``r`` come before its writes.

    ``live`` is an expression of ``r`` and symbols that are the same for the whole CTA. Where it is false no thread
    needs the results, and they may be left as they are.

    A map that ``combines`` computes running states of a scan by that function: ``add``, ``mul``, ``max``, ``min``, or
    ``fn``, a user's. It is associative: how states are grouped is free, as the order of sums is. One that combines by
    ``sort`` is a step of a network, whose elements beyond the domain are numbers like others.
    """

    name = "transport.map"
    inputs = var_operand_def(RegistersType)
    outputs = var_operand_def(RegistersType)
    reads = attr_def(ArrayAttr[ExprAttr])
    count = attr_def(IntAttr)
    live = attr_def(ExprAttr)
    combines = opt_attr_def(StringAttr)
    body = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(),)

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        reads: Sequence[Expr],
        outputs: Sequence[SSAValue],
        count: int,
        body: Region,
        live: Expr = TRUE,
        *,
        combines: str | None = None,
    ):
        super().__init__(
            operands=[list(inputs), list(outputs)],
            attributes={
                "reads": exprs(reads),
                "count": integer(count),
                "live": ExprAttr.of(live),
                "combines": None if combines is None else string(combines),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        if not len(self.inputs) == len(self.reads) == len(self.body.block.args):
            raise VerifyException("a map has one read index and one block argument for each input")
        last = self.body.block.last_op
        if not isinstance(last, Yield) or len(last.operands) != len(self.outputs):
            raise VerifyException("a map's body ends with a yield of one value for each output")


@irdl_op_definition
class Predicate(TransportOp):
    """In a map's body: a predicate over tid and r as a bool."""

    name = "transport.predicate"
    expr = attr_def(ExprAttr)
    result = result_def(TileType)

    def __init__(self, value: Expr):
        super().__init__(attributes={"expr": ExprAttr.of(value)}, result_types=[TileType.of(bool_, [])])


@irdl_op_definition
class Fma(TransportOp):
    """In a map's body: ``a * b + c`` in f32, rounded once (``fma.rn.f32``).

    The only contraction there is: what is written as a product and a sum is rounded twice by every stage behind us.
    """

    name = "transport.fma"
    a = operand_def(TileType)
    b = operand_def(TileType)
    c = operand_def(TileType)
    result = result_def(TileType)

    def __init__(self, a: SSAValue, b: SSAValue, c: SSAValue):
        super().__init__(operands=[a, b, c], result_types=[TileType.of(f32, [])])

    def verify_(self) -> None:
        if any(value.type != self.result.type for value in self.operands):
            raise VerifyException("an fma takes and gives f32")


@irdl_op_definition
class Approximate(TransportOp):
    """In a map's body: an f32 function by one instruction, as exact as ``hw.approximations`` says."""

    name = "transport.approximate"
    fn = attr_def(StringAttr)
    x = operand_def(TileType)
    result = result_def(TileType)

    def __init__(self, fn: str, x: SSAValue):
        super().__init__(operands=[x], attributes={"fn": string(fn)}, result_types=[TileType.of(f32, [])])

    def verify_(self) -> None:
        if self.fn.data not in APPROXIMATIONS or self.x.type != self.result.type:
            raise VerifyException(f"one of {', '.join(APPROXIMATIONS)} of an f32")


@irdl_op_definition
class ExponentScale(TransportOp):
    """In a map's body: what an exponent ``a c - b c`` of base 2 is scaled by beside ``b``, in f32.

    That is ``scale``, c, while |b c| is below 2^28, or up to 9 % less, else the power of two, of c's sign, that makes
    2^31 or more, but less than 2^32, of |b|. So the rounding of ``b c`` is worth at most 2^8 in the result, and nothing
    where it would be worth more, for a product with a power of two is exact. No other float is nearer to such a ``b``
    than 14 / |c|: its weight, at most 2^-14, is 0 with a power that makes 128 of the distance."""

    name = "transport.exponent_scale"
    scale = operand_def(TileType)
    b = operand_def(TileType)
    result = result_def(TileType)

    def __init__(self, scale: SSAValue, b: SSAValue):
        super().__init__(operands=[scale, b], result_types=[TileType.of(f32, [])])

    def verify_(self) -> None:
        if any(value.type != self.result.type for value in self.operands):
            raise VerifyException("the scale of an exponent is f32, beside an f32")


@irdl_op_definition
class Fold(TransportOp):
    """Reduces registers of one thread: ``target[into(r)] = fn(target[into(r)], source[r])`` for each r, in order.

    Registers for which ``live`` is false (see ``Map``) hold the identity and may be skipped. The targets hold their
    start values before. For ``argmax`` sources and targets are (value, index) pairs and of
    equal values the lower index wins.
    """

    name = "transport.fold"
    sources = var_operand_def(RegistersType)
    targets = var_operand_def(RegistersType)
    fn = attr_def(StringAttr)
    into = attr_def(ExprAttr)
    live = attr_def(ExprAttr)

    irdl_options = (AttrSizedOperandSegments(),)

    def __init__(
        self, fn: str, sources: Sequence[SSAValue], targets: Sequence[SSAValue], into: Expr, live: Expr = TRUE
    ):
        super().__init__(
            operands=[list(sources), list(targets)],
            attributes={"fn": string(fn), "into": ExprAttr.of(into), "live": ExprAttr.of(live)},
        )


@irdl_op_definition
class Pin(TransportOp):
    """Keeps a buffer in registers as it is: what was computed from it before is computed again after.

    Without it the compiler behind us carries the unpacked elements of a long row across a reduction, and spills.
    """

    name = "transport.pin"
    buffer = operand_def(RegistersType)

    def __init__(self, buffer: SSAValue):
        super().__init__(operands=[buffer])


@irdl_op_definition
class Shuffle(TransportOp):
    """Butterfly reduction over lanes, in place: for each distance d, ``x = fn(x, x of lane ^ d)``."""

    name = "transport.shuffle"
    buffers = var_operand_def(RegistersType)
    fn = attr_def(StringAttr)
    distances = attr_def(ArrayAttr[IntAttr])

    def __init__(self, fn: str, buffers: Sequence[SSAValue], distances: Sequence[int]):
        super().__init__(
            operands=[list(buffers)],
            attributes={"fn": string(fn), "distances": ArrayAttr([integer(d) for d in distances])},
        )


class _Printing(TransportOp):
    """Shared by the ops that print ``format`` with one element of each of several buffers."""

    buffers = var_operand_def(RegistersType)
    format = attr_def(StringAttr)
    indices = attr_def(ArrayAttr[ExprAttr])
    guard = attr_def(ExprAttr)
    count = attr_def(IntAttr)

    def __init__(self, format: str, buffers: Sequence[SSAValue], indices: Sequence[Expr], guard: Expr, count: int):
        super().__init__(
            operands=[list(buffers)],
            attributes={
                "format": string(format),
                "indices": exprs(indices),
                "guard": ExprAttr.of(guard),
                "count": integer(count),
            },
        )


@irdl_op_definition
class Print(_Printing):
    """Prints ``format`` with one element of each buffer, for every (tid, r) whose guard holds."""

    name = "transport.print"


@irdl_op_definition
class Trap(_Printing):
    """Ends the launch with an error at every (tid, r) whose guard holds and for which the first buffer, of bools, is
    true: it prints ``format`` with one element of each of the others."""

    name = "transport.trap"


@irdl_op_definition
class Yield(TransportOp):
    """Ends a map's body with the values of its outputs."""

    name = "transport.yield"
    values = var_operand_def(Attribute)
    traits = traits_def(IsTerminator())

    def __init__(self, values: Sequence[SSAValue]):
        super().__init__(operands=[list(values)])


OPS = [Map, Predicate, Fma, Approximate, ExponentScale, Fold, Pin, Shuffle, Print, Trap, Yield]
"""Registered by the ``Transport`` dialect."""
