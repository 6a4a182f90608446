"""What a kernel requires of a launch: its grid, its arguments, the addresses of its tensors, the memory it accesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise, permutations
from typing import cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation

from tilewright.artifact.schema import FloatScalar, IntScalar, KernelArg, TensorMapArg, TensorPointer, WorkspacePointer
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Compare, Const, Expr, Sym, minimum
from tilewright.lang.enums import AtomicFn
from tilewright.tile.attributes import ExprAttr, TensorType, TileType
from tilewright.tile.ops import operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


def programs_of(kernel: t.Kernel) -> list[t.Programs]:
    """Every walk over the grid's programs: one of the kernel, or one of each role. None is inside of another."""
    return list(_walks(kernel))


def _walks(op: Operation) -> Iterator[t.Programs]:
    for inner in chain.from_iterable(block.ops for region in op.regions for block in region.blocks):
        if isinstance(inner, t.Programs):
            yield inner
        elif inner.regions:
            yield from _walks(inner)


def ctas_at_once(kernel: t.Kernel) -> int:
    """CTAs of a kernel that the GPU runs at once, in whole clusters."""
    ctas = kernel.target.sm_count * kernel.min_ctas.data
    return ctas - ctas % (1 if kernel.cluster is None else kernel.cluster.data)


def grid_of(kernel: t.Kernel, *, given: bool = True) -> Expr:
    """One CTA per program; for persistent kernels at most as many as run at one time, in whole clusters. The compiler's
    own extents are replaced by their launch values, unless they are not ``given``."""
    head, total = programs_of(kernel)[0], cast(Expr, Const(1))
    for extent in reversed(head.extents.data):
        total = extent.expr * total
    total = total.substitute(places_of(kernel)) if given else total
    if head.persistent.data:
        return minimum(ctas_at_once(kernel), total)
    return total


# -- workspaces --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Placed:
    """A workspace as one kernel has it: the tensor's extents and element, its strides in elements, bytes in all."""

    element: str
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    size_bytes: Expr


def workspaces_of(kernel: t.Kernel) -> Iterator[tuple[int, Placed]]:
    """The workspaces that a kernel uses, by number."""
    kinds = {n.data: arg.type for n, arg in zip(kernel.arg_names, kernel.body.block.args, strict=True)}
    for placed in kernel.workspaces or ():
        kind = kinds[placed.tensor.data]
        assert isinstance(kind, TensorType)
        dims = tuple(d.expr for d in placed.extents)
        strides = tuple(s.expr for s in placed.strides)
        yield placed.index.data, Placed(kind.element.name, dims, strides, placed.size_bytes.expr)


def places_of(kernel: t.Kernel) -> dict[str, Expr]:
    """What a launch has for the addresses and strides of tensors in workspaces, for extents that are a symbol of the
    compiler's own, and for those of tensors that it takes for a single row."""
    found: dict[str, Expr] = {item.symbol.data: item.value.expr for item in kernel.collapsed or ()}
    kinds = {n.data: arg.type for n, arg in zip(kernel.arg_names, kernel.body.block.args, strict=True)}
    for placed in kernel.workspaces or ():
        name = placed.tensor.data
        found[f"{name}.address"] = Sym(f"$workspace{placed.index.data}.address")
        found |= {f"{name}.stride{axis}": s.expr for axis, s in enumerate(placed.strides)}
        kind = kinds[name]
        assert isinstance(kind, TensorType)
        for own, extent in zip(kind.dims, placed.extents, strict=True):
            if isinstance(own.expr, Sym) and "$" in own.expr.name:
                found[own.expr.name] = extent.expr
    return found


def given_of(kernel: t.Kernel) -> dict[str, Expr]:
    """The launch values of extents that belong to no argument."""
    return {name: value for name, value in places_of(kernel).items() if "." not in name}


def fits(placed: Placed) -> bool:
    """Whether the tensor's elements are disjoint and within the workspace: rows are as long as the dense axis rounded
    up, the stride of each axis spans all of the next inner one, and the size spans the outermost."""
    if Const(1) not in placed.strides:
        return False
    dense = placed.strides.index(Const(1))
    elements = placed.size_bytes // DTYPES[placed.element].bytes
    for order in permutations(axis for axis in range(len(placed.dims)) if axis != dense):
        steps = [*(placed.strides[axis] for axis in order), elements]
        pairs = zip(order, pairwise(steps), strict=True)
        if all(outer == inner * placed.dims[axis] for axis, (inner, outer) in pairs):
            return _rounds_up(steps[0], placed.dims[dense])
    return False


def _rounds_up(pitch: Expr, extent: Expr) -> bool:
    """``pitch`` is ``extent`` rounded up to a multiple of a power of two of elements."""
    return any(pitch == (extent + (unit - 1)) // unit * unit for unit in (1 << bit for bit in range(8)))


# -- arguments ---------------------------------------------------------------------------------------------------------
def arguments_of(kernel: t.Kernel, slots: Mapping[str, int]) -> Iterator[KernelArg]:
    """The launch arguments, in order; ``slots`` of the tensor maps by name."""
    places = places_of(kernel)
    numbered = {w.tensor.data: w.index.data for w in kernel.workspaces or ()}
    tensors: dict[str, TensorType] = {}
    scalars: dict[str, TileType] = {}
    for name, arg in zip((n.data for n in kernel.arg_names), kernel.body.block.args, strict=True):
        if not isinstance(arg.type, TensorType):
            scalars[name] = cast("TileType", arg.type)
            continue
        tensors[name] = arg.type
        users = [use.operation for use in arg.uses]
        if not users or not all(isinstance(user, a.TensorMap) for user in users):
            yield WorkspacePointer(numbered[name]) if name in numbered else TensorPointer(name)
    for name, kind in scalars.items():
        dtype = kind.dtype.dtype
        wide = dtype.bits == 64 or not dtype.signed  # of 32 bits without a sign: the integer itself
        yield FloatScalar(name) if dtype.is_float else IntScalar(Sym(name), 64 if wide else 32)
    yield from map(TensorMapArg, slots.values())
    needed = _needed(kernel) - scalars.keys()
    seen: set[str] = set()
    for kind in tensors.values():
        for extent in kind.dims:
            for name in sorted(extent.expr.symbols & needed - seen):
                seen.add(name)
                yield IntScalar(places.get(name, Sym(name)), 32)
    for tensor, kind in tensors.items():
        for axis in range(len(kind.dims)):
            name = f"{tensor}.stride{axis}"
            if name in needed:
                yield IntScalar(places.get(name, Sym(name)), kernel.index_bits.data)


def _needed(kernel: t.Kernel) -> set[str]:
    """The symbols that the body uses, except those with a fixed value in the class."""
    found: set[str] = set()
    for op in operations(kernel):
        if not isinstance(op, t.Kernel | a.TensorMap):
            found |= _strides(op).union(_extents(op), *map(_symbols, op.attributes.values()))
    return found - {name for fact in kernel.assumptions for name in _valued(fact.expr)}


def _valued(fact: Expr) -> set[str]:
    """The symbol of ``symbol == constant``."""
    if not isinstance(fact, Compare) or fact.op != "==":
        return set()
    sides = {type(side): side for side in (fact.lhs, fact.rhs)}
    return set(fact.symbols) if sides.keys() == {Sym, Const} else set()


def _symbols(attribute: Attribute) -> frozenset[str]:
    match attribute:
        case ExprAttr():
            return attribute.expr.symbols
        case ArrayAttr():
            return frozenset[str]().union(*map(_symbols, attribute.data))
        case _:
            return frozenset()


def _strides(op: Operation) -> set[str]:
    """The strides by which threads find the elements of an access: of every axis along which it may move."""
    if not isinstance(op, t.Load | t.Store | t.AtomicReduce | a.CpAsync | a.LoadStore | a.CopyOut | a.LoadCoordinate):
        return set()
    kind = op.tensor.type
    assert isinstance(kind, TensorType)
    moves = {axis for axis, coord in enumerate(op.coords) if coord.expr.constant != 0}
    moves |= {op.axis.data} if not isinstance(op, a.LoadCoordinate) and op.vector.data > 1 else set()
    return {f"{kind.tensor_name.data}.stride{axis}" for axis in moves}


def _extents(op: Operation) -> set[str]:
    """The extents by which threads test whether a tensor is long enough for a read that may lie outside its domain."""
    if not isinstance(op, t.Load) or op.guard.expr.constant == 1:
        return set()
    kind = op.tensor.type
    assert isinstance(kind, TensorType)
    return set[str]().union(*(extent.expr.symbols for extent in kind.dims))


# -- tensors -----------------------------------------------------------------------------------------------------------
def touched_by(kernel: t.Kernel) -> tuple[set[str], set[str]]:
    """The tensors that a kernel reads, and those that it writes."""
    reads: set[str] = set()
    writes: set[str] = set()
    for name, arg in zip((n.data for n in kernel.arg_names), kernel.body.block.args, strict=True):
        users = [use.operation for use in arg.uses]
        users += [use.operation for user in users if isinstance(user, a.TensorMap) for use in user.map.uses]
        for user in users:
            if not isinstance(user, _WRITES | a.TensorMap) and not _sets(user):
                reads.add(name)
            if isinstance(user, _WRITES | t.AtomicReduce):
                writes.add(name)
    return reads, writes


def stored_or_loaded(kernel: t.Kernel) -> set[str]:
    """The tensors that a kernel touches otherwise than by additions."""
    pairs = zip((n.data for n in kernel.arg_names), kernel.body.block.args, strict=True)
    return {name for name, arg in pairs if any(not _adds(use.operation) for use in arg.uses)}


def _sets(op: Operation) -> bool:
    """What leaves one of the values that come, whatever was there."""
    return isinstance(op, t.AtomicReduce) and op.fn.data is AtomicFn.SET


def _adds(op: Operation) -> bool:
    return isinstance(op, t.AtomicReduce) and not _sets(op)


_WRITES = t.Store | a.CopyOut | a.TmaStore
