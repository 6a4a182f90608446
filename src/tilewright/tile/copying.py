"""Copies of kernels op by op, under other expressions for some symbols: what transformations of programs begin with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute, Region, SSAValue

from tilewright.base.expr import Expr
from tilewright.lang.axes import Coord, Span
from tilewright.tile.attributes import ExprAttr, RangeAttr, TensorType
from tilewright.tile.ops import ops_in, string
from tilewright.tile.structure import Kernel

Names: TypeAlias = Mapping[str, Expr]
"""The replacements of symbols in a copy."""


def renamed(attribute: Attribute, names: Names) -> Attribute:
    """An attribute or type under other names."""
    match attribute:
        case ExprAttr():
            return ExprAttr(attribute.data.substitute(names))
        case RangeAttr():
            return RangeAttr(renamed_span(attribute.data, names))
        case ArrayAttr():
            return ArrayAttr([renamed(part, names) for part in attribute])  # pyright: ignore[reportUnknownVariableType]
        case ParametrizedAttribute():
            return type(attribute).new([renamed(part, names) for part in attribute.parameters])
        case _:
            return attribute


def renamed_span(span: Span, names: Names) -> Span:
    """A span under other names."""
    return Span(span.origin.substitute(names), span.size, span.stop.substitute(names))


def renamed_coord(coord: Coord, names: Names) -> Coord:
    """A coordinate under other names."""
    return renamed_span(coord, names) if isinstance(coord, Span) else coord.substitute(names)


class Copier:
    """A kernel in the making from the ops of ``source``; ``values`` are those of the copy by those of the source.

    ``tensors`` come behind the source's own.
    """

    def __init__(self, source: Kernel, tensors: Sequence[TensorType] = ()):
        self.source = source
        self.block = Block()
        self.values: dict[SSAValue, SSAValue] = {}
        self.tensors: list[SSAValue] = []
        self._names = [n.data for n in source.arg_names]
        for arg in source.body.block.args:
            self.values[arg] = self.block.insert_arg(arg.type, len(self.block.args))
        place = sum(isinstance(arg.type, TensorType) for arg in source.body.block.args)
        for i, kind in enumerate(tensors, place):
            self.tensors.append(self.block.insert_arg(kind, i))
            self._names.insert(i, kind.tensor_name.data)

    def emit(self, op: Operation, *, like: Operation, block: Block | None = None) -> Operation:
        """Adds an op of its own to ``block``, at the user's place of another one."""
        if "loc" in like.attributes:
            op.attributes["loc"] = like.attributes["loc"]
        (block or self.block).add_op(op)
        return op

    def add(self, op: Operation, names: Names, block: Block | None = None) -> None:
        """Adds a copy of an op, with its regions, to ``block``."""
        regions = [Region(self.copied(region.block, names)) for region in op.regions]
        made = type(op).create(
            operands=[self.values[v] for v in op.operands],
            result_types=[renamed(r.type, names) for r in op.results],
            attributes={name: renamed(value, names) for name, value in op.attributes.items()},
            regions=regions,
        )
        (block or self.block).add_op(made)
        self.values.update(zip(op.results, made.results, strict=True))

    def copied(self, block: Block, names: Names) -> Block:
        """A copy of a block inside of an op."""
        made = Block(arg_types=[renamed(a.type, names) for a in block.args])
        self.values.update(zip(block.args, made.args, strict=True))
        for op in ops_in(block):
            self.add(op, names, made)
        return made

    def kernel(self, grid: Iterable[Expr], requires: Sequence[Expr] = ()) -> Kernel:
        """The kernel of all ops so far, which also ``requires`` this of a launch."""
        source = self.source
        made = Kernel(source.sym_name.data, self._names, Region(self.block), grid=tuple(grid))
        kept = {name: value for name, value in source.attributes.items() if name not in ("grid", "arg_names")}
        made.attributes |= {**kept, "arg_names": ArrayAttr([string(name) for name in self._names])}
        made.attributes["requires"] = ArrayAttr([*source.requires, *map(ExprAttr, requires)])
        return made
