"""The common base of both halves of the ``transport`` dialect: buffer types and the base class of ops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition, opt_attr_def

from tilewright.base.dtypes import DType
from tilewright.base.expr import Expr
from tilewright.tile.dialect import DTypeAttr, ExprAttr
from tilewright.tile.ops import DialectOp, integer, string

SHARED_BASE_ALIGN_BYTES = 1024
"""Offsets into dynamic shared memory count from a multiple of this: the period of the widest swizzle
(hw.tensormap.PATTERNS). A kernel rounds up, so a launch asks for as many bytes more."""


@irdl_attr_definition
class RegistersType(ParametrizedAttribute, TypeAttribute):
    """``count`` elements of ``dtype`` in each thread's registers."""

    name = "transport.registers"
    dtype: DTypeAttr
    count: IntAttr

    @staticmethod
    @lru_cache(maxsize=1 << 10)
    def of(dtype: DType, count: int) -> RegistersType:
        return RegistersType(DTypeAttr.of(dtype), integer(count))


@irdl_attr_definition
class SharedType(ParametrizedAttribute, TypeAttribute):
    """``count`` elements of ``dtype`` in the CTA's shared memory."""

    name = "transport.shared"
    dtype: DTypeAttr
    count: IntAttr

    @staticmethod
    @lru_cache(maxsize=1 << 10)
    def of(dtype: DType, count: int) -> SharedType:
        return SharedType(DTypeAttr.of(dtype), integer(count))


def registers_of(value: SSAValue) -> RegistersType:
    """The type of a register buffer."""
    assert isinstance(value.type, RegistersType)
    return value.type


def shared_of(value: SSAValue) -> SharedType:
    """The type of a shared buffer."""
    assert isinstance(value.type, SharedType)
    return value.type


class TransportOp(DialectOp):
    """Base of all ops; ``loc`` is the user's ``file:line``, ``note`` the tile op it came from."""

    loc = opt_attr_def(StringAttr)
    note = opt_attr_def(StringAttr)

    def at(self, loc: str, note: str = "") -> TransportOp:
        """Attach the user's place and a word for the reader of the emitted code; returns the op."""
        if loc:
            self.attributes["loc"] = string(loc)
        if note:
            self.attributes["note"] = string(note)
        return self


class SyncOp(TransportOp):
    """An op that is one instruction without operands: it orders what other ops do, and moves nothing."""

    INSTRUCTION: ClassVar[str]
    """The instruction in PTX, without the qualifiers that are the same wherever it is emitted."""

    def __init__(self) -> None:
        super().__init__()


def exprs(items: Sequence[Expr]) -> ArrayAttr[ExprAttr]:
    """Expressions as one attribute."""
    return ArrayAttr([ExprAttr.of(e) for e in items])
