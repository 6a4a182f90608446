"""Buffers in registers and in shared memory, and the threads' own accesses to them and to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    attr_def,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    result_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from tilewright.base.dtypes import DType, i32
from tilewright.base.expr import TRUE, Const, Expr, Sym
from tilewright.lang.enums import AtomicFn
from tilewright.tile.dialect import AtomicFnAttr, ExprAttr, TensorType
from tilewright.tile.ops import integer, string
from tilewright.transport.ops.base import RegistersType, SharedType, TransportOp, exprs, registers_of, shared_of


@irdl_op_definition
class Registers(TransportOp):
    """Declares a register buffer; its contents are undefined until written."""

    name = "transport.registers"
    hint = attr_def(StringAttr)
    buffer = result_def(RegistersType)

    def __init__(self, hint: str, dtype: DType, count: int):
        super().__init__(attributes={"hint": string(hint)}, result_types=[RegistersType.of(dtype, count)])


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
            attributes={"hint": string(hint), "offset": None if offset is None else integer(offset)},
            result_types=[SharedType.of(dtype, count)],
        )


@dataclass(frozen=True)
class Scattered:
    """Which elements of a tile an access at loaded coordinates writes, or one that adds (see ``_GlobalAccess``)."""

    number: int
    at: tuple[Expr, ...]


class _AccessOptions(TypedDict, total=False):
    """What an access to global memory need not say."""

    vector: int
    axis: int
    live: Expr
    indices: Sequence[SSAValue]
    reads: Sequence[Expr]
    within: Expr | None
    scattered: Scattered | None


class _GlobalAccess(TransportOp):
    """Shared shape of the global accesses: coordinates per tensor dimension, a guard, a vector width.

    The op runs for ``r`` in ``0, vector, 2*vector, ...``; elements ``r .. r+vector-1`` have the coordinates given for
    each of them, consecutive along dimension ``axis`` when ``vector > 1``. A vector is moved in one instruction where
    the guard holds for all its elements, else element by element under each one's guard. ``live`` (see ``Map``) is
    false only where the guard is false for every thread.

    In coordinates and guard ``index_symbol(k)`` is the integer that index buffer k holds in register ``reads[k]``, an
    expression of ``r`` that is the same for all elements of a vector. Of an access at computed or loaded coordinates
    the elements are those ``within`` the tile's domain; the guard has besides only tests that the coordinates lie in
    the tensor. One that writes at loaded ones, or adds at either, carries out scatter number ``scatter`` of the tile
    program, of the elements ``at_axes``, coordinates along the axes of its tile.
    """

    tensor = operand_def(TensorType)
    buffer = operand_def(RegistersType)
    indices = var_operand_def(RegistersType)
    index_registers = opt_attr_def(ArrayAttr[ExprAttr])
    scatter = opt_attr_def(IntAttr)
    at_axes = opt_attr_def(ArrayAttr[ExprAttr])
    within = opt_attr_def(ExprAttr)
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
        indices: Sequence[SSAValue] = (),
        reads: Sequence[Expr] = (),
        within: Expr | None = None,
        scattered: Scattered | None = None,
    ):
        super().__init__(
            operands=[tensor, buffer, list(indices)],
            attributes={
                "coords": exprs(coords),
                "index_registers": exprs(reads) if indices else None,
                "guard": ExprAttr.of(guard),
                "vector": integer(vector),
                "axis": integer(axis),
                "live": ExprAttr.of(live),
                "scatter": None if scattered is None else integer(scattered.number),
                "at_axes": None if scattered is None else exprs(scattered.at),
                "within": None if within is None else ExprAttr.of(within),
            },
        )

    @property
    def reads(self) -> tuple[Expr, ...]:
        """The register of each index buffer."""
        return () if self.index_registers is None else tuple(r.expr for r in self.index_registers)

    @property
    def scattered(self) -> Scattered | None:
        """What an access at loaded coordinates writes."""
        if self.scatter is None or self.at_axes is None:
            return None
        return Scattered(self.scatter.data, tuple(c.expr for c in self.at_axes))

    def verify_(self) -> None:
        tensor, registers = self.tensor.type, registers_of(self.buffer)
        assert isinstance(tensor, TensorType)
        if len(self.coords) != len(tensor.dims):
            raise VerifyException(f"{len(self.coords)} coordinates for a tensor of rank {len(tensor.dims)}")
        if len(self.indices) != len(self.reads):
            raise VerifyException(f"{len(self.reads)} registers of {len(self.indices)} index buffers")
        if registers.count.data % self.vector.data:
            raise VerifyException(f"{registers.count.data} registers are not whole vectors of {self.vector.data}")


@irdl_op_definition
class Load(_GlobalAccess):
    """Global memory to registers; elements whose guard is false become 0.

    ``shift``, a symbol of at least 0 and less than ``vector``, is how many elements before a multiple of their bytes
    the vectors begin: coordinate ``axis`` is less by it, and nothing else but the guard speaks of it. Of a vector the
    two aligned ones are read in which it lies, where the guard holds for all of their elements, and shifted:

        memory      |a a a a a a a a|b b b b b b b b|      | multiples of the vector's bytes
        shift 3               |a a a b b b b b|
    """

    name = "transport.load"
    shift = opt_attr_def(ExprAttr)

    def __init__(
        self,
        tensor: SSAValue,
        buffer: SSAValue,
        coords: Sequence[Expr],
        guard: Expr,
        *,
        shift: Expr | None = None,
        **options: Unpack[_AccessOptions],
    ):
        super().__init__(tensor, buffer, coords, guard, **options)
        if shift is not None:
            self.attributes["shift"] = ExprAttr.of(shift)

    @property
    def shifted(self) -> str | None:
        """The symbol by which vectors are shifted."""
        return None if self.shift is None or not isinstance(self.shift.expr, Sym) else self.shift.expr.name

    def verify_(self) -> None:
        super().verify_()
        if self.shift is None:
            return
        if self.shifted is None or self.indices or self.vector.data == 1:
            raise VerifyException("vectors at coordinates that are not loaded are shifted by a symbol")
        for axis, coord in enumerate(c.expr for c in self.coords):
            by = coord - coord.substitute({self.shifted: Const(0)})
            if by != (-self.shift.expr if axis == self.axis.data else Const(0)):
                raise VerifyException(f"coordinate {coord} of axis {axis} is not less by {self.shift.expr}")


@irdl_op_definition
class Store(_GlobalAccess):
    """Registers to global memory, where the guard holds."""

    name = "transport.store"


@irdl_op_definition
class AtomicReduce(_GlobalAccess):
    """Atomically combines registers with global memory by ``fn``, where the guard holds (relaxed, gpu scope)."""

    name = "transport.atomic_reduce"
    fn = attr_def(AtomicFnAttr)

    def __init__(
        self,
        fn: AtomicFn,
        tensor: SSAValue,
        buffer: SSAValue,
        coords: Sequence[Expr],
        guard: Expr,
        **options: Unpack[_AccessOptions],
    ):
        super().__init__(tensor, buffer, coords, guard, **options)
        self.attributes["fn"] = AtomicFnAttr(fn)


@irdl_op_definition
class Draw(TransportOp):
    """Each executing thread atomically adds 1 to the first element of ``tensor``, at gpu scope; register 0 of
    ``buffer`` receives the number of CTAs plus the old value, which is unique in the launch. In a launch with as many
    CTAs as ``programs`` it does not access memory, and the result is the number of CTAs."""

    name = "transport.draw"
    tensor = operand_def(TensorType)
    buffer = operand_def(RegistersType)
    programs = attr_def(ExprAttr)

    def __init__(self, tensor: SSAValue, buffer: SSAValue, programs: Expr):
        super().__init__(operands=[tensor, buffer], attributes={"programs": ExprAttr.of(programs)})

    def verify_(self) -> None:
        kind = self.tensor.type
        assert isinstance(kind, TensorType)
        if len(kind.dims) != 1 or not kind.element == registers_of(self.buffer).dtype.dtype == i32:
            raise VerifyException("an i32 of a tensor with one dimension is drawn from, into i32")


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
            attributes={"offset": ExprAttr.of(offset), "guard": ExprAttr.of(guard), "vector": integer(vector)},
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
class ClusterRead(_SharedAccess):
    """Shared memory of the cluster's CTAs to registers: of each register that of rank ``cta``, an expression of r that
    is the same for all elements of a vector. Registers whose guard is false keep their value."""

    name = "transport.cluster_read"
    cta = attr_def(ExprAttr)

    def __init__(self, shared: SSAValue, buffer: SSAValue, offset: Expr, guard: Expr, *, cta: Expr, vector: int = 1):
        super().__init__(shared, buffer, offset, guard, vector=vector)
        self.attributes["cta"] = ExprAttr.of(cta)


@irdl_op_definition
class SharedCount(TransportOp):
    """Atomically adds 1 to the element of shared memory that each register names, where the guard holds (relaxed, CTA
    scope). A number that names no element is skipped."""

    name = "transport.shared_count"
    shared = operand_def(SharedType)
    buffer = operand_def(RegistersType)
    guard = attr_def(ExprAttr)

    def __init__(self, shared: SSAValue, buffer: SSAValue, guard: Expr):
        super().__init__(operands=[shared, buffer], attributes={"guard": ExprAttr.of(guard)})

    def verify_(self) -> None:
        if not shared_of(self.shared).dtype.dtype == registers_of(self.buffer).dtype.dtype == i32:
            raise VerifyException("i32 are counted, in i32")


OPS = [Registers, Shared, Load, Store, AtomicReduce, Draw, SharedWrite, SharedRead, ClusterRead, SharedCount]
"""Registered by the ``Transport`` dialect."""
