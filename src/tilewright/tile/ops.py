"""What every op of the ``tile`` dialect shares: its place in the user's file, and how verifiers refuse."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import UNKNOWN_LOC, ArrayAttr, DenseArrayBase, IntAttr, StringAttr, i32
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.ir.core import SSAValues
from xdsl.irdl import AttrSizedOperandSegments, IRDLOperation, opt_attr_def
from xdsl.irdl.operations import BeforeVariadicSingleAccessor, VarIRConstruct
from xdsl.utils.exceptions import VerifyException

from tilewright.base.expr import Expr, Sym, minimum, own
from tilewright.diag import Location
from tilewright.tile.attributes import (
    ExprAttr,
    FragmentType,
    TensorType,
    TileType,
)
from tilewright.tile.printing import text_of

COUNTER = own("k")
"""Prefix of the names of stream counters."""

GATE = own("gate")
"""An integer above 0 where every promise that a kernel relies on was found to hold."""
NEXT = own("next")
"""The number of the program that a CTA does after this one, drawn from a queue."""
OPEN_COUNTER = f"{COUNTER}gate"
OPEN_TRIP = minimum(Sym(GATE), 1)
"""The loop of at most one step in which such a kernel does what it does."""


def program_index(axis: int) -> str:
    """The symbol of a program's coordinate along an axis of the grid."""
    return own(f"p{axis}")


@lru_cache(maxsize=1 << 12, typed=True)
def integer(value: int) -> IntAttr:
    """A number as an attribute. Attributes never change, so that a kernel's thousands of small ones are few objects."""
    return IntAttr(value)


@lru_cache(maxsize=1 << 12)
def string(value: str) -> StringAttr:
    """A string attribute, interned, for names, notes and locations."""
    return StringAttr(value)


def tile_type(value: SSAValue) -> TileType:
    """The type of a tile."""
    assert isinstance(value.type, TileType)
    return value.type


def fragment_type(value: SSAValue) -> FragmentType:
    """The type of a fragment."""
    assert isinstance(value.type, FragmentType)
    return value.type


def tensor_type(value: SSAValue) -> TensorType:
    """The type of a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type


def location_of(op: Operation) -> Location | None:
    """The user's place an op was recorded at; None for an op that no user wrote."""
    loc = op.attributes.get("loc")
    if not isinstance(loc, StringAttr):
        return None
    file, _, line = loc.data.rpartition(":")
    return Location(file, int(line))


def begins_at(kernel: Operation) -> Location | None:
    """The user's place of the first op inside a kernel."""
    return location_of(next(op for op in kernel.walk() if op is not kernel))


def ops_in(block: Block) -> list[Operation]:
    """The ops of a block. A list of xDSL's view of them would walk it twice, once for its length."""
    found: list[Operation] = []
    op = block.first_op
    while op is not None:
        found.append(op)
        op = op.next_op
    return found


def ops_before(op: Operation) -> Iterator[Operation]:
    """The ops before one in its block, the nearest first."""
    found = op.prev_op
    while found is not None:
        yield found
        found = found.prev_op


def operations(root: Operation) -> Sequence[Operation]:
    """``root`` and every op inside it, in order."""
    return _UNCHANGED.get().get(id(root)) or _listed(root)


_UNCHANGED: ContextVar[Mapping[int, Sequence[Operation]]] = ContextVar("unchanged", default=MappingProxyType({}))


@contextmanager
def unchanged(*roots: Operation) -> Generator[None]:
    """A context in which no op in ``roots`` is added, removed or moved: each root is walked once for all callers.
    Proofs walk a kernel dozens of times, which took 2 to 6 % of a compilation."""
    token = _UNCHANGED.set({**_UNCHANGED.get(), **{id(root): tuple(_listed(root)) for root in roots}})
    try:
        yield
    finally:
        _UNCHANGED.reset(token)


def _listed(root: Operation) -> list[Operation]:
    found: list[Operation] = []
    left = [root]
    while left:
        op = left.pop()
        found.append(op)
        for region in reversed(op.regions):
            block = region.last_block
            while block is not None:
                inner = block.last_op
                while inner is not None:
                    left.append(inner)
                    inner = inner.prev_op
                block = block.prev_block
    return found


def _read_at_once(part: Any) -> Any:
    """What stands in an op's class for xDSL's accessor of a named operand, result or region; anything else as it is."""
    if not isinstance(part, BeforeVariadicSingleAccessor):
        return part
    at = cast("Callable[[Any, int], Any]", tuple.__getitem__)  # pyright: ignore[reportUnknownMemberType]
    index = part.idx
    match part.construct:
        case VarIRConstruct.OPERAND:
            return property(lambda op: at(op._operands, index))
        case VarIRConstruct.RESULT:
            return property(lambda op: at(op.results, index))
        case VarIRConstruct.REGION:
            return property(lambda op: at(op.regions, index))
        case VarIRConstruct.SUCCESSOR:
            return part


class OpClass(ABCMeta):
    """A class of ops, of which nothing but its instances is an instance: ``isinstance`` need not look for classes that
    were registered. Passes tell ops apart by class, mostly in vain, a hundred thousand times a compilation.

    Named parts of its ops are read without the view of all operands that xDSL makes for each look at one."""

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, _read_at_once(value))

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


T = TypeVar("T")
Several: TypeAlias = list[T] | tuple[T, ...]
"""Operands or results of one variadic part: told from a single one faster than any sequence would be."""


@lru_cache(maxsize=1 << 10)
def _segments(sizes: tuple[int, ...]) -> DenseArrayBase:
    """The number of operands of each variadic part of an op, in xDSL's representation."""
    return DenseArrayBase.from_list(i32, sizes)


@lru_cache(maxsize=1 << 10)
def _counts_operands(kind: type[DialectOp]) -> bool:
    """Ops of a class say how many operands belong to each variadic part."""
    return any(isinstance(option, AttrSizedOperandSegments) for option in kind.get_irdl_definition().options)


class DialectOp(IRDLOperation, metaclass=OpClass):
    """Base of the ops of our dialects. The constructor is xDSL's for what these take, without its search for the form
    of every argument: operands are values, or sequences of values where the definition is variadic. Parts that an op
    has none of are left as the class has them, empty; no op of ours has successors or properties."""

    def __init__(
        self,
        *,
        operands: Sequence[SSAValue | Several[SSAValue]] = (),
        result_types: Sequence[Attribute | Several[Attribute]] = (),
        attributes: Mapping[str, Attribute | None] | None = None,
        regions: Sequence[Region] = (),
    ):
        values: list[SSAValue] = []
        sizes: list[int] = []
        for operand in operands:
            if isinstance(operand, list | tuple):
                values += operand
                sizes.append(len(operand))
            else:
                values.append(operand)
                sizes.append(1)
        types: list[Attribute] = []
        for kind in result_types:
            if isinstance(kind, list | tuple):
                types += kind
            else:
                types.append(kind)
        given = {} if attributes is None else {n: attr for n, attr in attributes.items() if attr is not None}
        if _counts_operands(type(self)):
            given[AttrSizedOperandSegments.attribute_name] = _segments(tuple(sizes))
        if values:
            self.operands = values
        if types:
            self.results = SSAValues([OpResult(kind, self, index) for index, kind in enumerate(types)])
        self.properties = {}
        self.attributes = given
        self.location = UNKNOWN_LOC
        for region in regions:
            self.add_region(region)

    def walk(self, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
        """This op and every op inside it, as a list. xDSL's ``walk`` passes each op through a generator per enclosing
        region, block and op, which costs a compilation more than its passes do."""
        if reverse or region_first:
            return super().walk(reverse=reverse, region_first=region_first)
        return iter(operations(self))

    def __str__(self) -> str:
        return text_of(self)

    def __post_init__(self) -> None:
        """xDSL would look for default attributes here; no op of ours has any (a test says so)."""


class TileOp(DialectOp):
    """Base of all ops; ``loc`` is the user's ``file:line``."""

    loc = opt_attr_def(StringAttr)


def exprs(items: Sequence[Expr]) -> ArrayAttr[ExprAttr]:
    return ArrayAttr([ExprAttr(e) for e in items])


def require(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyException(message)
