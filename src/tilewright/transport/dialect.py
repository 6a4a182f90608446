"""The ``transport`` dialect: one thread's view of a kernel, with every address and guard written out.

Coordinates, guards and offsets are integer expressions (``base.expr``) over

    dimensions ``M``, strides ``x.stride0``, runtime integer scalars     given at launch
    program ids and ``let`` names, loop counters                         the same for all threads of a CTA
    ``tid``                                                              thread index in the CTA, warp*32 + lane
    ``r``                                                                register index of the op at hand

so that the code generator, the simulator and the access checker read the same text and share no address arithmetic.

Registers are buffers with explicit reads and writes, not SSA values: ``RegistersType(dtype, count)`` is ``count``
elements per thread. An op over a buffer is executed for each ``r`` of its range, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
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
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.base.dtypes import DType, bool_
from tilewright.base.expr import TRUE, Expr
from tilewright.hw.spaces import WARP_THREADS
from tilewright.hw.target import MAX_CTA_THREADS
from tilewright.tile.dialect import ExprAttr, TensorType, TileType
from tilewright.transport import asynchronous, conversion
from tilewright.transport.base import SHARED_BASE_ALIGN_BYTES as SHARED_BASE_ALIGN_BYTES
from tilewright.transport.base import RegistersType as RegistersType
from tilewright.transport.base import SharedType as SharedType
from tilewright.transport.base import TransportOp as TransportOp
from tilewright.transport.base import exprs
from tilewright.transport.base import registers_of as registers_of
from tilewright.transport.base import shared_of as shared_of
from tilewright.transport.conversion import Exchange as Exchange
from tilewright.transport.conversion import Select as Select
from tilewright.transport.conversion import WarpBarrier as WarpBarrier

THREAD = "tid"
REGISTER = "r"


def _strings(items: Sequence[str]) -> ArrayAttr[StringAttr]:
    return ArrayAttr([StringAttr(s) for s in items])


def block(ops: Sequence[Operation] = ()) -> Region:
    """A region of one block without arguments."""
    return Region(Block(ops))


@irdl_op_definition
class Kernel(TransportOp):
    """One GPU kernel. Block arguments: tensors, then runtime scalars, named by ``arg_names``.

    ``assumptions`` are the facts of the specialisation class, guaranteed by the dispatcher; ``index_bits`` says whether
    every element offset into every tensor fits 32 bits or needs 64; ``numerics`` is ``precise`` or
    ``fast``; ``shared_bytes`` of dynamic shared memory are asked for at launch, alignment included.
    """

    name = "transport.kernel"
    sym_name = attr_def(StringAttr)
    arg_names = attr_def(ArrayAttr[StringAttr])
    threads = attr_def(IntAttr)
    min_ctas = attr_def(IntAttr)
    index_bits = attr_def(IntAttr)
    numerics = attr_def(StringAttr)
    assumptions = attr_def(ArrayAttr[ExprAttr])
    shared_bytes = opt_attr_def(IntAttr)
    cluster = opt_attr_def(IntAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        sym_name: str,
        arg_names: Sequence[str],
        arg_types: Sequence[Attribute],
        *,
        threads: int,
        min_ctas: int,
        index_bits: int,
        numerics: str,
        assumptions: Sequence[Expr],
    ):
        super().__init__(
            attributes={
                "sym_name": StringAttr(sym_name),
                "arg_names": _strings(arg_names),
                "threads": IntAttr(threads),
                "min_ctas": IntAttr(min_ctas),
                "index_bits": IntAttr(index_bits),
                "numerics": StringAttr(numerics),
                "assumptions": exprs(assumptions),
            },
            regions=[Region(Block(arg_types=arg_types))],
        )

    def verify_(self) -> None:
        if len(self.arg_names) != len(self.body.block.args):
            raise VerifyException(f"{len(self.arg_names)} argument names for {len(self.body.block.args)} arguments")
        if self.threads.data % WARP_THREADS or not WARP_THREADS <= self.threads.data <= MAX_CTA_THREADS:
            limits = f"{WARP_THREADS} to {MAX_CTA_THREADS}"
            raise VerifyException(f"a CTA has {limits} threads in whole warps, not {self.threads.data}")


@irdl_op_definition
class Programs(TransportOp):
    """Runs its body once for every program of the grid, each on exactly one CTA.

    ``names`` are bound to the program's coordinates, 0 <= name < extent. ``persistent``: a CTA takes program
    ``blockIdx.x``, then every ``gridDim.x``-th; otherwise one program a CTA. The last name varies fastest; with
    ``group`` the last two names are walked in bands of ``group`` of the next to last, which varies fastest in a band.

    With ``cluster`` (x, y) blocks of x by y programs along the last two names are dealt to clusters instead, and the
    CTA of rank r takes the one in row r // y, column r % y; the extents are multiples. With ``turn`` (i, n) the
    executing threads take only the CTA's i-th program and every n-th after it. Names in ``descending`` count down.
    """

    name = "transport.programs"
    names = attr_def(ArrayAttr[StringAttr])
    extents = attr_def(ArrayAttr[ExprAttr])
    persistent = attr_def(IntAttr)
    group = opt_attr_def(IntAttr)
    cluster = opt_attr_def(ArrayAttr[IntAttr])
    turn = opt_attr_def(ArrayAttr[IntAttr])
    descending = opt_attr_def(ArrayAttr[StringAttr])
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        names: Sequence[str],
        extents: Sequence[Expr],
        persistent: bool,
        body: Region,
        group: int | None = None,
        *,
        cluster: tuple[int, int] | None = None,
        turn: tuple[int, int] | None = None,
        descending: Sequence[str] = (),
    ):
        super().__init__(
            attributes={
                "names": _strings(names),
                "extents": exprs(extents),
                "persistent": IntAttr(int(persistent)),
                "group": None if group is None else IntAttr(group),
                "cluster": None if cluster is None else ArrayAttr([IntAttr(n) for n in cluster]),
                "turn": None if turn is None else ArrayAttr([IntAttr(n) for n in turn]),
                "descending": _strings(descending) if descending else None,
            },
            regions=[body],
        )

    def verify_(self) -> None:
        if len(self.names) != len(self.extents):
            raise VerifyException(f"{len(self.names)} program names, {len(self.extents)} extents")
        if self.group is not None and (len(self.names) < 2 or self.group.data < 1):
            raise VerifyException("bands need two names and a group of at least 1")
        if self.cluster is not None and len(self.names) < 2:
            raise VerifyException("clusters lie along the last two of at least two names")
        place, count = self.turns
        if not 0 <= place < count or (count > 1 and not self.persistent.data):
            raise VerifyException(f"turn {place} of {count}: turns are taken at persistent programs")

    @property
    def turns(self) -> tuple[int, int]:
        """The first of a CTA's programs that the executing threads take, and the distance to the next."""
        if self.turn is None:
            return 0, 1
        place, count = (n.data for n in self.turn)
        return place, count

    @property
    def downwards(self) -> frozenset[str]:
        """Names that count down."""
        return frozenset() if self.descending is None else frozenset(n.data for n in self.descending)

    @property
    def cluster_shape(self) -> tuple[int, int]:
        """Programs of a cluster along the last two names."""
        if self.cluster is None:
            return 1, 1
        rows, columns = (n.data for n in self.cluster)
        return rows, columns


@irdl_op_definition
class Let(TransportOp):
    """Names an integer for the ops that follow in this block and the regions inside them."""

    name = "transport.let"
    symbol = attr_def(StringAttr)
    value = attr_def(ExprAttr)

    def __init__(self, symbol: str, value: Expr):
        super().__init__(attributes={"symbol": StringAttr(symbol), "value": ExprAttr.of(value)})


@irdl_op_definition
class For(TransportOp):
    """``for counter in range(begin, end, step)``; the bounds are the same for all threads of the CTA."""

    name = "transport.for"
    counter = attr_def(StringAttr)
    begin = attr_def(ExprAttr)
    end = attr_def(ExprAttr)
    step = attr_def(ExprAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, counter: str, begin: Expr, end: Expr, step: Expr, body: Region):
        super().__init__(
            attributes={
                "counter": StringAttr(counter),
                "begin": ExprAttr.of(begin),
                "end": ExprAttr.of(end),
                "step": ExprAttr.of(step),
            },
            regions=[body],
        )


@irdl_op_definition
class If(TransportOp):
    """Runs ``then`` or ``otherwise``; the condition is the same for all threads of the CTA."""

    name = "transport.if"
    condition = attr_def(ExprAttr)
    then = region_def("single_block")
    otherwise = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, condition: Expr, then: Region, otherwise: Region):
        super().__init__(attributes={"condition": ExprAttr.of(condition)}, regions=[then, otherwise])


@irdl_op_definition
class Registers(TransportOp):
    """Declares a register buffer; its contents are undefined until written."""

    name = "transport.registers"
    hint = attr_def(StringAttr)
    buffer = result_def(RegistersType)

    def __init__(self, hint: str, dtype: DType, count: int):
        super().__init__(attributes={"hint": StringAttr(hint)}, result_types=[RegistersType.of(dtype, count)])


@irdl_op_definition
class Shared(TransportOp):
    """Declares a buffer in shared memory, alive for the whole kernel; 16-byte aligned.

    ``offset`` places it in dynamic shared memory, in bytes from a base at a multiple of ``SHARED_BASE_ALIGN_BYTES``;
    without, it is static.
    """

    name = "transport.shared"
    hint = attr_def(StringAttr)
    offset = opt_attr_def(IntAttr)
    buffer = result_def(SharedType)

    def __init__(self, hint: str, dtype: DType, count: int, offset: int | None = None):
        super().__init__(
            attributes={"hint": StringAttr(hint), "offset": None if offset is None else IntAttr(offset)},
            result_types=[SharedType.of(dtype, count)],
        )


class _GlobalAccess(TransportOp):
    """Shared shape of the global accesses: coordinates per tensor dimension, a guard, a vector width.

    The op runs for ``r`` in ``0, vector, 2*vector, ...``; elements ``r .. r+vector-1`` have the coordinates given for
    each of them, consecutive along dimension ``axis`` when ``vector > 1``. A vector is moved in one instruction where
    the guard holds for all its elements, else element by element under each one's guard. ``live`` (see ``Map``) is
    false only where the guard is false for every thread.
    """

    tensor = operand_def(TensorType)
    buffer = operand_def(RegistersType)
    coords = attr_def(ArrayAttr[ExprAttr])
    guard = attr_def(ExprAttr)
    vector = attr_def(IntAttr)
    axis = attr_def(IntAttr)
    live = attr_def(ExprAttr)

    def __init__(
        self,
        tensor: SSAValue,
        buffer: SSAValue,
        coords: Sequence[Expr],
        guard: Expr,
        *,
        vector: int = 1,
        axis: int = 0,
        live: Expr = TRUE,
    ):
        super().__init__(
            operands=[tensor, buffer],
            attributes={
                "coords": exprs(coords),
                "guard": ExprAttr.of(guard),
                "vector": IntAttr(vector),
                "axis": IntAttr(axis),
                "live": ExprAttr.of(live),
            },
        )

    def verify_(self) -> None:
        tensor, registers = self.tensor.type, registers_of(self.buffer)
        assert isinstance(tensor, TensorType)
        if len(self.coords) != len(tensor.dims):
            raise VerifyException(f"{len(self.coords)} coordinates for a tensor of rank {len(tensor.dims)}")
        if registers.count.data % self.vector.data:
            raise VerifyException(f"{registers.count.data} registers are not whole vectors of {self.vector.data}")


@irdl_op_definition
class Load(_GlobalAccess):
    """Global memory to registers; elements whose guard is false become 0."""

    name = "transport.load"


@irdl_op_definition
class Store(_GlobalAccess):
    """Registers to global memory, where the guard holds."""

    name = "transport.store"


@irdl_op_definition
class ReduceAdd(_GlobalAccess):
    """Atomically adds registers to global memory, where the guard holds (relaxed, gpu scope)."""

    name = "transport.reduce_add"


@irdl_op_definition
class Map(TransportOp):
    """Element-wise code: for each ``r`` in ``range(count)`` evaluates the body on scalars and writes the results.

    Block argument i is input i at register ``reads[i]`` (an expression of ``r``); the terminator's operand j goes to
    output j at register ``r``. The body holds rank-0 ``tile`` ops; ``tile.scalar`` and ``predicate`` there may use
    ``tid`` and ``r``.
    An output may also be an input: all reads of one ``r`` come before its writes.

    ``live`` is an expression of ``r`` and symbols that are the same for the whole CTA. Where it is false no thread
    needs the results, and they may be left as they are.
    """

    name = "transport.map"
    inputs = var_operand_def(RegistersType)
    outputs = var_operand_def(RegistersType)
    reads = attr_def(ArrayAttr[ExprAttr])
    count = attr_def(IntAttr)
    live = attr_def(ExprAttr)
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
    ):
        super().__init__(
            operands=[list(inputs), list(outputs)],
            attributes={"reads": exprs(reads), "count": IntAttr(count), "live": ExprAttr.of(live)},
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
            attributes={"fn": StringAttr(fn), "into": ExprAttr.of(into), "live": ExprAttr.of(live)},
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
            attributes={"fn": StringAttr(fn), "distances": ArrayAttr([IntAttr(d) for d in distances])},
        )


class _SharedAccess(TransportOp):
    """Shared shape of the shared-memory accesses: element ``offset`` (of tid and r), guard, vector width."""

    shared = operand_def(SharedType)
    buffer = operand_def(RegistersType)
    offset = attr_def(ExprAttr)
    guard = attr_def(ExprAttr)
    vector = attr_def(IntAttr)

    def __init__(self, shared: SSAValue, buffer: SSAValue, offset: Expr, guard: Expr, *, vector: int = 1):
        super().__init__(
            operands=[shared, buffer],
            attributes={"offset": ExprAttr.of(offset), "guard": ExprAttr.of(guard), "vector": IntAttr(vector)},
        )


@irdl_op_definition
class SharedWrite(_SharedAccess):
    """Registers to shared memory, where the guard holds."""

    name = "transport.shared_write"


@irdl_op_definition
class SharedRead(_SharedAccess):
    """Shared memory to registers; registers whose guard is false keep their value."""

    name = "transport.shared_read"


@irdl_op_definition
class Barrier(TransportOp):
    """All threads of the CTA, in a role those of the role, meet; shared accesses before it are visible after it."""

    name = "transport.barrier"

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class Print(TransportOp):
    """Prints ``format`` with one element of each buffer, for every (tid, r) whose guard holds."""

    name = "transport.print"
    buffers = var_operand_def(RegistersType)
    format = attr_def(StringAttr)
    indices = attr_def(ArrayAttr[ExprAttr])
    guard = attr_def(ExprAttr)
    count = attr_def(IntAttr)

    def __init__(self, format: str, buffers: Sequence[SSAValue], indices: Sequence[Expr], guard: Expr, count: int):
        super().__init__(
            operands=[list(buffers)],
            attributes={
                "format": StringAttr(format),
                "indices": exprs(indices),
                "guard": ExprAttr.of(guard),
                "count": IntAttr(count),
            },
        )


@irdl_op_definition
class Yield(TransportOp):
    """Ends a map's body with the values of its outputs."""

    name = "transport.yield"
    values = var_operand_def(Attribute)
    traits = traits_def(IsTerminator())

    def __init__(self, values: Sequence[SSAValue]):
        super().__init__(operands=[list(values)])


Transport = Dialect(
    "transport",
    [
        Kernel,
        Programs,
        Let,
        For,
        If,
        Registers,
        Shared,
        Load,
        Store,
        ReduceAdd,
        Map,
        Predicate,
        Fold,
        Pin,
        Shuffle,
        SharedWrite,
        SharedRead,
        Barrier,
        Print,
        Yield,
        *conversion.OPS,
        *asynchronous.OPS,
    ],
    [RegistersType, SharedType, *asynchronous.TYPES],
)
"""Registered with an xDSL ``Context`` to parse transport text."""
