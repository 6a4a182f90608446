"""Control flow: the kernel, its programs, loops, branches, names, and the barrier of a CTA."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute, Region, SSAValue
from xdsl.irdl import (
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    region_def,
    traits_def,
)
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.base.dtypes import i32
from tilewright.base.expr import Expr, interval
from tilewright.hw.spaces import WARP_THREADS
from tilewright.hw.target import MAX_CTA_THREADS, TARGETS, Target
from tilewright.tile.dialect import ExprAttr
from tilewright.transport.ops.base import RegistersType, TransportOp, exprs, registers_of


def _strings(items: Sequence[str]) -> ArrayAttr[StringAttr]:
    return ArrayAttr([StringAttr(s) for s in items])


def block(ops: Sequence[Operation] = ()) -> Region:
    """A region of one block without arguments."""
    return Region(Block(ops))


@irdl_attr_definition
class Workspace(ParametrizedAttribute):
    """The tensor ``tensor`` of a kernel lies in the program's workspace ``index`` of ``size_bytes``, and has these
    strides, in elements, and extents. Of a dimension that is a symbol of the compiler's own the extent is its value."""

    name = "transport.workspace"
    tensor: StringAttr
    index: IntAttr
    strides: ArrayAttr[ExprAttr]
    size_bytes: ExprAttr
    extents: ArrayAttr[ExprAttr]


@irdl_attr_definition
class Extent(ParametrizedAttribute):
    """What a launch passes for ``symbol``, an extent of the kernel's tensors, in place of the arguments' own."""

    name = "transport.extent"
    symbol: StringAttr
    value: ExprAttr


@irdl_op_definition
class Kernel(TransportOp):
    """One GPU kernel. Block arguments: tensors, then runtime scalars, named by ``arg_names``.

    ``assumptions`` are the facts of the specialisation class, guaranteed by the dispatcher; ``index_bits`` says whether
    every element offset into every tensor fits 32 bits or needs 64; ``numerics`` is ``strict``, ``accurate`` or
    ``fast``; ``shared_bytes`` of dynamic shared memory are asked for at launch, alignment included. ``target`` is what
    it was scheduled for, whose limits later passes take. ``min_ctas`` CTAs run on an SM together; of a kernel whose
    programs are persistent so many are launched for each SM, in whole clusters. ``workspaces`` are the tensors that a
    launch places itself; ``collapsed`` are the extents by which it takes dense tensors for a single row each.
    The CTAs of a kernel that ``waits`` may begin before the kernel before it has ended, and first of all wait for that;
    one that ``releases`` lets those of the next kernel begin then, or with its own if it doesn't wait. Of a
    ``dependent`` kernel the launch before may be anybody's: any tensor may be written while it waits.
    """

    name = "transport.kernel"
    sym_name = attr_def(StringAttr)
    target_name = attr_def(StringAttr, attr_name="target")
    arg_names = attr_def(ArrayAttr[StringAttr])
    threads = attr_def(IntAttr)
    min_ctas = attr_def(IntAttr)
    index_bits = attr_def(IntAttr)
    numerics = attr_def(StringAttr)
    assumptions = attr_def(ArrayAttr[ExprAttr])
    shared_bytes = opt_attr_def(IntAttr)
    cluster = opt_attr_def(IntAttr)
    workspaces = opt_attr_def(ArrayAttr[Workspace])
    collapsed = opt_attr_def(ArrayAttr[Extent])
    waits = opt_attr_def(UnitAttr)
    releases = opt_attr_def(UnitAttr)
    dependent = opt_attr_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(
        self,
        sym_name: str,
        arg_names: Sequence[str],
        arg_types: Sequence[Attribute],
        *,
        target: Target,
        threads: int,
        min_ctas: int,
        index_bits: int,
        numerics: str,
        assumptions: Sequence[Expr],
    ):
        super().__init__(
            attributes={
                "sym_name": StringAttr(sym_name),
                "target": StringAttr(target.name),
                "arg_names": _strings(arg_names),
                "threads": IntAttr(threads),
                "min_ctas": IntAttr(min_ctas),
                "index_bits": IntAttr(index_bits),
                "numerics": StringAttr(numerics),
                "assumptions": exprs(assumptions),
            },
            regions=[Region(Block(arg_types=arg_types))],
        )

    @property
    def entry(self) -> str:
        """The name of the kernel's entry point in its text, which no identifier of CUDA C++ is."""
        return f"kernel_{self.sym_name.data}"

    @property
    def target(self) -> Target:
        """The GPU that the kernel is for."""
        return TARGETS[self.target_name.data]

    @property
    def registers_at_launch(self) -> int:
        """Registers of a thread when the CTAs of an SM share all it has."""
        return self.target.registers_per_sm // (self.threads.data * self.min_ctas.data)

    def verify_(self) -> None:
        if self.target_name.data not in TARGETS:
            raise VerifyException(f"{self.target_name.data} is none of the targets {', '.join(TARGETS)}")
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

    ``descending`` is the name with which programs get longer, ``ascending`` one with which they get shorter. It counts
    down or up, and the others vary fastest, in bands of ``group`` of their combinations; every other round of a
    persistent walk is dealt to the CTAs from the last to the first. So long programs are begun first, and what each CTA
    has in all is nearly equal.

    With ``cluster`` (x, y) blocks of x by y programs along the last two names are dealt to clusters instead, and the
    CTA of rank r takes the one in row r // y, column r % y; the extents are multiples. With
    ``interleave`` (i, n) the executing threads take only the CTA's i-th program and every n-th after it.

    With ``drawn`` only the first program is that of the CTA's number: which one comes next is the integer of that name,
    which the body binds, and from the number of programs on there is none.
    """

    name = "transport.programs"
    names = attr_def(ArrayAttr[StringAttr])
    extents = attr_def(ArrayAttr[ExprAttr])
    persistent = attr_def(IntAttr)
    group = opt_attr_def(IntAttr)
    cluster = opt_attr_def(ArrayAttr[IntAttr])
    interleave = opt_attr_def(ArrayAttr[IntAttr])
    descending = opt_attr_def(StringAttr)
    ascending = opt_attr_def(StringAttr)
    drawn = opt_attr_def(StringAttr)
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
        interleave: tuple[int, int] | None = None,
        descending: str | None = None,
        ascending: str | None = None,
        drawn: str | None = None,
    ):
        super().__init__(
            attributes={
                "names": _strings(names),
                "extents": exprs(extents),
                "persistent": IntAttr(int(persistent)),
                "group": None if group is None else IntAttr(group),
                "cluster": None if cluster is None else ArrayAttr([IntAttr(n) for n in cluster]),
                "interleave": None if interleave is None else ArrayAttr([IntAttr(n) for n in interleave]),
                "descending": None if descending is None else StringAttr(descending),
                "ascending": None if ascending is None else StringAttr(ascending),
                "drawn": None if drawn is None else StringAttr(drawn),
            },
            regions=[body],
        )

    def verify_(self) -> None:
        if len(self.names) != len(self.extents):
            raise VerifyException(f"{len(self.names)} program names, {len(self.extents)} extents")
        if self.group is not None and ((len(self.names) < 2 and self.level is None) or self.group.data < 1):
            raise VerifyException("bands need two names and a group of at least 1")
        if self.cluster is not None and len(self.names) < 2:
            raise VerifyException("clusters lie along the last two of at least two names")
        if self.level is not None:
            self._verify_level(self.level)
        place, count = self.interleaving
        if not 0 <= place < count or (count > 1 and not self.persistent.data):
            raise VerifyException(f"programs {place} of every {count}: only those of persistent CTAs are interleaved")
        if self.drawn is not None and (not self.persistent.data or count > 1 or self.cluster is not None):
            raise VerifyException("single CTAs draw programs, persistent ones, for all of their threads")

    def _verify_level(self, level: int) -> None:
        if level < 0 or self.group is None or self.cluster is not None or None not in (self.descending, self.ascending):
            raise VerifyException("what descends or ascends is one of the names, walked in bands by single CTAs")

    @property
    def level(self) -> int | None:
        """Which of the names counts down or up, outside of the others in a band; -1 if it is none of them."""
        name = self.descending or self.ascending
        names = self.names.data
        return None if name is None else names.index(name) if name in names else -1

    @property
    def interleaving(self) -> tuple[int, int]:
        """The first of a CTA's programs that the executing threads take, and the distance to the next."""
        if self.interleave is None:
            return 0, 1
        place, count = (n.data for n in self.interleave)
        return place, count

    @property
    def alternates(self) -> bool:
        """Every other round is dealt to the CTAs from the last to the first."""
        return self.level is not None and bool(self.persistent.data) and self.drawn is None

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
class Bind(TransportOp):
    """Names an integer that was loaded, register 0 of ``buffer``, for the ops that follow in this block and the regions
    inside them. All threads of the CTA hold the same, from 0 to ``MAX_EXTENT``, and at most ``most``: one of them has
    given it to the others.
    """

    name = "transport.bind"
    symbol = attr_def(StringAttr)
    buffer = operand_def(RegistersType)
    most = opt_attr_def(ExprAttr)

    def __init__(self, symbol: str, buffer: SSAValue, most: Expr | None = None):
        super().__init__(
            operands=[buffer],
            attributes={"symbol": StringAttr(symbol), "most": None if most is None else ExprAttr(most)},
        )


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

    @property
    def at_most_one_iteration(self) -> bool:
        """Whether its bounds exclude a second iteration, for all arguments."""
        begin, step, most = self.begin.expr.constant, self.step.expr.constant, interval(self.end.expr, {})[1]
        return begin is not None and step is not None and most is not None and most <= begin + step


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
class Barrier(TransportOp):
    """A barrier of all threads of the CTA, in a role of those of the role; shared accesses before it are visible after
    it."""

    name = "transport.barrier"

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class BarrierCount(TransportOp):
    """All threads of the CTA meet, as at its barrier; in each register 0 of ``buffer``, an i32, becomes the number of
    threads in which it was not 0 (``barrier.cta.red.popc``)."""

    name = "transport.barrier_count"
    buffer = operand_def(RegistersType)

    def __init__(self, buffer: SSAValue):
        super().__init__(operands=[buffer])

    def verify_(self) -> None:
        kind = registers_of(self.buffer)
        if kind.dtype.dtype != i32:
            raise VerifyException(f"threads are counted in i32, not {kind.dtype.dtype}")


OPS = [Kernel, Programs, Let, Bind, For, If, Barrier, BarrierCount]
ATTRIBUTES = [Workspace, Extent]
"""Registered by the ``Transport`` dialect."""
