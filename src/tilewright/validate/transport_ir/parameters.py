"""Launch parameters: extents, strides, scalars, addresses, and their ranges."""

from __future__ import annotations

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.dtypes import DType
from tilewright.base.expr import Compare, Const, Expr, FloorDiv, Min, Product, Sum, Sym
from tilewright.tile.dialect import TensorType, TileType
from tilewright.transport import dialect as t
from tilewright.validate.values import Value, Values


def storage_bits(dtype: DType) -> int:
    """Bits of an element as a buffer holds it."""
    return max(8, dtype.bits)


def parameter(values: Values, name: str, low: int, high: int) -> Value:
    """An integer that a launch gives: an extent, a stride, a scalar, an address."""
    terms = values.terms
    if name.endswith(".address"):
        return terms.of(0, terms.atom("address", name.removesuffix(".address"), low=0))
    return terms.of(0, terms.atom("parameter", name, low=low, high=high))


def ranges(kernel: t.Kernel, grid: Expr) -> dict[str, tuple[int, int]]:
    """The ranges of launch integers: strides of the class's width, scalars of their dtype; extents from 0 on, or from 1
    where the grid has no programs for 0."""
    found: dict[str, tuple[int, int]] = dict.fromkeys(_at_least_one(grid), (1, MAX_EXTENT))
    wide = 1 << (kernel.index_bits.data - 1)
    for arg, name in zip(kernel.body.block.args, (n.data for n in kernel.arg_names), strict=True):
        if isinstance(arg.type, TensorType):
            found |= {f"{name}.stride{axis}": (-wide, wide - 1) for axis in range(len(arg.type.dims))}
        elif isinstance(arg.type, TileType) and arg.type.dtype.dtype.is_int:
            found[name] = arg.type.dtype.dtype.integers
    for fact in kernel.assumptions:
        match fact.expr:
            case Compare("<=" | "<" as op, Sym(name), Const(most)) if not name.endswith(".address"):
                low, high = found.get(name, (0, MAX_EXTENT))
                found[name] = low, min(high, most if op == "<=" else most - 1)
            case Compare("<=", Sum(offset, ((Sym(name), by),)), Const(most)) if by > 0 and not name.endswith(
                ".address"
            ):
                low, high = found.get(name, (0, MAX_EXTENT))
                found[name] = low, min(high, (most - offset) // by)
            case Compare("<=" | "<" as op, Const(least), Sym(name)) if not name.endswith(".address"):
                low, high = found.get(name, (0, MAX_EXTENT))
                found[name] = max(low, least if op == "<=" else least + 1), high
            case _:
                pass
    return found


def _at_least_one(grid: Expr) -> set[str]:
    """Extents that are not 0 where a number of programs made of them is not."""
    match grid:
        case Sym(name):
            return {name}
        case Product(args) | Min(args):
            return set[str]().union(*map(_at_least_one, args))
        case FloorDiv(Sum(offset, ((Sym(name), 1),)), Const(by)) if 0 <= offset < by:
            return {name}
        case _:
            return set()


def scalar_parameter(values: Values, name: str) -> Value:
    """A float that a launch gives."""
    return values.terms.data(32, 32, "scalar", name)
