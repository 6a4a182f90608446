"""What a launch passes to a kernel: its parameters in order.

Read from the kernel alone, by the code generator, which declares the parameters, and by the launch recipe, which fills
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

from tilewright.base.dtypes import i64, u32
from tilewright.base.expr import TRUE, Compare, Const, Expr, Sym
from tilewright.tile.attributes import ExprAttr, TensorType, TileType
from tilewright.tile.ops import operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


class Kind(Enum):
    """What a parameter is."""

    TENSOR = "tensor"
    """The address of a tensor."""
    FLOAT = "float"
    """A scalar argument of a float type."""
    INTEGER = "integer"
    """A scalar argument, an extent or a stride."""
    TENSOR_MAP = "tensor_map"
    """A tensor map, by the name that the kernel gives it."""


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: a tensor, a tensor map or an integer symbol by name."""

    kind: Kind
    symbol: str
    bits: int


def parameters_of(kernel: t.Kernel) -> tuple[Parameter, ...]:
    """The parameters: tensors that threads access themselves, scalars, tensor maps, then the extents and strides that
    expressions of the body use, in the order of the arguments."""
    named = list(zip((n.data for n in kernel.arg_names), kernel.body.block.args, strict=True))
    tensors = [(name, kind) for name, arg in named if isinstance(kind := arg.type, TensorType)]
    scalars = {name: kind for name, arg in named if isinstance(kind := arg.type, TileType)}
    by_maps = {name for name, arg in named if arg.uses and all(isinstance(u.operation, a.TensorMap) for u in arg.uses)}
    found = [Parameter(Kind.TENSOR, name, 64) for name, _ in tensors if name not in by_maps]
    for name, kind in scalars.items():
        dtype = kind.dtype.dtype
        integer_bits = 64 if dtype in (i64, u32) else 32
        found.append(
            Parameter(Kind.FLOAT, name, dtype.bits) if dtype.is_float else Parameter(Kind.INTEGER, name, integer_bits)
        )
    maps = (op for op in kernel.body.block.ops if isinstance(op, a.TensorMap))
    found += (Parameter(Kind.TENSOR_MAP, op.hint.data, 1024) for op in maps)
    used = _used(kernel) - scalars.keys()
    extents = dict.fromkeys(s for _, kind in tensors for dim in kind.dims for s in sorted(dim.expr.symbols))
    strides = [f"{name}.stride{axis}" for name, kind in tensors for axis in range(len(kind.dims))]
    wide = 64 if kernel.index_bits.data == 64 else 32
    found += (Parameter(Kind.INTEGER, name, 32) for name in extents if name in used and name not in scalars)
    found += (Parameter(Kind.INTEGER, name, wide) for name in strides if name in used)
    return tuple(found)


def _used(kernel: t.Kernel) -> set[str]:
    """The symbols that the body's expressions and its accesses to tensors need; those that the class fixes are
    constants of the text."""
    found: set[str] = set()
    for op in operations(kernel):
        if isinstance(op, t.Kernel | a.TensorMap):
            continue
        for attribute in op.attributes.values():
            for node in expressions(attribute):
                found |= node.symbols
        if isinstance(op, _ACCESSES):
            kind = op.tensor.type
            assert isinstance(kind, TensorType)
            found |= {f"{kind.tensor_name.data}.stride{i}" for i, c in enumerate(op.coords) if c.expr != Const(0)}
            if not isinstance(op, a.LoadCoordinate) and op.vector.data > 1:
                found.add(f"{kind.tensor_name.data}.stride{op.axis.data}")
            if isinstance(op, t.Load) and op.guard.expr != TRUE:  # elements outside are read nowhere in a short tensor
                found |= {symbol for dim in kind.dims for symbol in dim.expr.symbols}
    return found - {symbol for fact in kernel.assumptions for symbol in _fixed(fact.expr)}


_ACCESSES = (t.Load, t.Store, t.AtomicReduce, a.CpAsync, a.LoadStore, a.CopyOut, a.LoadCoordinate)
"""Ops by which threads touch tensors."""


def _fixed(fact: Expr) -> Iterator[str]:
    """The symbol that a fact sets to a constant."""
    if isinstance(fact, Compare) and fact.op == "==":
        for side, other in ((fact.lhs, fact.rhs), (fact.rhs, fact.lhs)):
            if isinstance(side, Sym) and other.constant is not None:
                yield side.name


def expressions(attribute: Attribute) -> Iterator[Expr]:
    """The expressions of an op's attribute."""
    if isinstance(attribute, ExprAttr):
        yield attribute.expr
    elif isinstance(attribute, ArrayAttr):
        for part in cast("ArrayAttr[Attribute]", attribute).data:
            yield from expressions(part)
