"""wgmma, mma, stmatrix, ldmatrix: what warps do with registers and shared tiles (PTX ISA 9.1, 9.7.14.5, 9.7.15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from tilewright.base.dtypes import DType
from tilewright.base.expr import Expr
from tilewright.tile.dialect import DTypeAttr, ExprAttr
from tilewright.tile.ops import integer
from tilewright.transport.descriptor_attrs import OperandNumbers, WgmmaOperandAttr
from tilewright.transport.ops.base import RegistersType, SharedType, SyncOp, TransportOp, registers_of, shared_of


class MatrixAccess(TransportOp):
    """ldmatrix or stmatrix of ``matrices`` (1, 2 or 4) 8x8 matrices: consecutive registers of a 16-bit buffer, from
    ``first``, two for each matrix, of each warp.

    Register 2*i and 2*i + 1 of lane 4*row + c are columns 2*c and 2*c + 1 of matrix i, with ``trans`` rows of column
    ``row``. Lane 8*i + row gives the byte address ``base + offset`` of that row of matrix i; ``base`` has no ``tid``,
    and 0 <= offset <= ``bytes`` - 16.
    """

    shared = operand_def(SharedType)
    buffer = operand_def(RegistersType)
    first = attr_def(IntAttr)
    base = attr_def(ExprAttr)
    offset = attr_def(ExprAttr)
    bytes = attr_def(IntAttr)
    matrices = attr_def(IntAttr)
    trans = attr_def(IntAttr)

    def __init__(
        self,
        shared: SSAValue,
        buffer: SSAValue,
        *,
        first: int,
        base: Expr,
        offset: Expr,
        bytes: int,
        matrices: int = 4,
        trans: bool = False,
    ):
        super().__init__(
            operands=[shared, buffer],
            attributes={
                "first": integer(first),
                "base": ExprAttr.of(base),
                "offset": ExprAttr.of(offset),
                "bytes": integer(bytes),
                "matrices": integer(matrices),
                "trans": integer(int(trans)),
            },
        )

    def verify_(self) -> None:
        registers, count = registers_of(self.buffer), self.matrices.data
        last = self.first.data + 2 * count
        if (
            count not in (1, 2, 4)
            or registers.dtype.dtype.bits != 16
            or self.first.data % 2
            or last > registers.count.data
        ):
            raise VerifyException(f"{self.name} takes 2, 4 or 8 registers of a 16-bit buffer, in whole words")


@irdl_op_definition
class StoreMatrix(MatrixAccess):
    """stmatrix: registers to shared memory."""

    name = "transport.stmatrix"


@irdl_op_definition
class LoadMatrix(MatrixAccess):
    """ldmatrix: shared memory to registers."""

    name = "transport.ldmatrix"


@irdl_op_definition
class Mma(TransportOp):
    """One mma.sync.m16n8k16 of each warp: ``acc[first .. first + 3] += A B`` of 16-bit floats, in f32.

    A is read from 8 registers of ``a`` from ``a_register``, B from 4 of ``b`` from ``b_register`` (both in whole
    words); all lanes of the warp execute it together.
    """

    name = "transport.mma"
    accumulator = operand_def(RegistersType)
    a = operand_def(RegistersType)
    b = operand_def(RegistersType)
    first = attr_def(IntAttr)
    a_register = attr_def(IntAttr)
    b_register = attr_def(IntAttr)

    def __init__(
        self, accumulator: SSAValue, a: SSAValue, b: SSAValue, *, first: int, a_register: int, b_register: int
    ):
        super().__init__(
            operands=[accumulator, a, b],
            attributes={
                "first": integer(first),
                "a_register": integer(a_register),
                "b_register": integer(b_register),
            },
        )

    @property
    def dtype(self) -> DType:
        """The dtype of both operands."""
        return registers_of(self.a).dtype.dtype

    def verify_(self) -> None:
        kinds = [registers_of(v) for v in self.operands]
        names = [kind.dtype.dtype.name for kind in kinds]
        if names not in (["f32", "f16", "f16"], ["f32", "bf16", "bf16"]):
            raise VerifyException(f"mma adds products of f16 or of bf16 to f32, not {', '.join(names)}")
        for kind, first, count in zip(kinds, (self.first, self.a_register, self.b_register), (4, 8, 4), strict=True):
            if first.data % count or not 0 <= first.data <= kind.count.data - count:
                raise VerifyException(f"{count} registers from {first.data} of {kind.count.data}")


@irdl_op_definition
class WgmmaFence(SyncOp):
    """wgmma.fence: earlier register accesses come before the wgmmas that follow."""

    name = "transport.wgmma_fence"
    INSTRUCTION: ClassVar = "wgmma.fence"


@irdl_op_definition
class Wgmma(TransportOp):
    """One wgmma.mma_async of each warpgroup: ``acc[first ..] (+)= A B``, m64 x ``n`` x (256 bits of K).

    ``a`` is a shared buffer, read through the descriptor of ``a_operand`` at byte ``a_offset``, or a 16-bit register
    buffer, read from element ``a_register``. ``b`` is shared. The instruction reads ``a_bytes`` from ``a_region`` and
    ``b_bytes`` from ``b_region`` at most (its whole tile). ``scale_d`` 0 ignores what the accumulator held.
    The accumulator and a register A are untouchable until a ``wgmma_wait`` has retired the group.
    """

    name = "transport.wgmma"
    accumulator = operand_def(RegistersType)
    a = operand_def(Attribute)
    b = operand_def(SharedType)
    dtype = attr_def(DTypeAttr)
    n = attr_def(IntAttr)
    first = attr_def(IntAttr)
    a_register = attr_def(IntAttr)
    a_offset = attr_def(ExprAttr)
    b_offset = attr_def(ExprAttr)
    a_operand = opt_attr_def(WgmmaOperandAttr)
    b_operand = attr_def(WgmmaOperandAttr)
    a_region = attr_def(ExprAttr)
    a_bytes = attr_def(IntAttr)
    b_region = attr_def(ExprAttr)
    b_bytes = attr_def(IntAttr)
    scale_d = attr_def(IntAttr)

    def __init__(
        self,
        accumulator: SSAValue,
        a: SSAValue,
        b: SSAValue,
        *,
        dtype: DTypeAttr,
        n: int,
        first: int,
        a_register: int,
        a_offset: Expr,
        b_offset: Expr,
        a_operand: OperandNumbers | None,
        b_operand: OperandNumbers,
        a_region: Expr,
        a_bytes: int,
        b_region: Expr,
        b_bytes: int,
        scale_d: bool,
    ):
        super().__init__(
            operands=[accumulator, a, b],
            attributes={
                "dtype": dtype,
                "n": integer(n),
                "first": integer(first),
                "a_register": integer(a_register),
                "a_offset": ExprAttr.of(a_offset),
                "b_offset": ExprAttr.of(b_offset),
                "b_operand": WgmmaOperandAttr(b_operand),
                "a_region": ExprAttr.of(a_region),
                "a_bytes": integer(a_bytes),
                "b_region": ExprAttr.of(b_region),
                "b_bytes": integer(b_bytes),
                "scale_d": integer(int(scale_d)),
                **({} if a_operand is None else {"a_operand": WgmmaOperandAttr(a_operand)}),
            },
        )

    @property
    def a_in_registers(self) -> bool:
        """The left operand is a register buffer."""
        return isinstance(self.a.type, RegistersType)

    def verify_(self) -> None:
        count = registers_of(self.accumulator).count.data
        if self.n.data % 8 or not 8 <= self.n.data <= 256:
            raise VerifyException(f"wgmma has n of 8 to 256 in steps of 8, not {self.n.data}")
        if self.first.data + self.n.data // 2 > count:
            raise VerifyException(f"{self.n.data // 2} accumulators from {self.first.data} of {count}")
        if self.a_in_registers is (self.a_operand is not None):
            raise VerifyException("a left operand has a descriptor where it is in shared memory, and only there")
        if not self.a_in_registers:
            shared_of(self.a)


@irdl_op_definition
class WgmmaCommit(SyncOp):
    """Closes the warpgroup's wgmma group."""

    name = "transport.wgmma_commit"
    INSTRUCTION: ClassVar = "wgmma.commit_group"


@irdl_op_definition
class WgmmaWait(TransportOp):
    """Waits until at most ``pending`` wgmma groups are open; ``retired`` are the buffers that may be touched again."""

    name = "transport.wgmma_wait"
    pending = attr_def(IntAttr)
    retired = var_operand_def(RegistersType)

    def __init__(self, pending: int, retired: Sequence[SSAValue] = ()):
        super().__init__(operands=[list(retired)], attributes={"pending": integer(pending)})


OPS = [StoreMatrix, LoadMatrix, Mma, WgmmaFence, Wgmma, WgmmaCommit, WgmmaWait]
