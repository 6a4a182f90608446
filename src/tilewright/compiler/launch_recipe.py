"""The launch recipe of a program: what its kernels' texts say that a launch must do, and nothing else.

``validate.launch_recipe`` works out the same with code of its own and compares every field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, UnitAttr

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    EncodeTensorMap,
    Fill,
    FloatScalar,
    IntScalar,
    KernelArg,
    Launch,
    Step,
    TensorMapArg,
    TensorPointer,
    WorkspacePointer,
    workspace_address,
)
from tilewright.base.dtypes import i32
from tilewright.base.expr import OWN, Const, Expr, Sym, maximum, minimum
from tilewright.compiler.workspaces import StagedTensor
from tilewright.tile.attributes import ExprAttr, TensorType
from tilewright.tile.ops import integer, operations, string, tensor_type
from tilewright.transport import dialect as transport
from tilewright.transport.asynchronous import TensorMap
from tilewright.transport.ops.base import exprs
from tilewright.transport.parameters import Kind, Parameter, parameters_of


@dataclass(frozen=True)
class LaunchConfig:
    """Threads, cluster shape and dynamic shared memory of a launch."""

    threads: int
    cluster: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True)
class Recipe:
    """The launch recipe of kernels in order: a launch configuration for each, the steps, and the bytes of each
    workspace."""

    shapes: tuple[LaunchConfig, ...]
    steps: tuple[Step, ...]
    workspace: tuple[Expr, ...]


def recipe(kernels: Sequence[transport.Kernel]) -> Recipe:
    """The recipe that launches ``kernels`` one after the other."""
    sizes = {w.index.data: w.size_bytes.expr for kernel in kernels for w in kernel.workspaces or ()}
    steps: list[Step] = [fill for kernel in kernels for fill in _counters(kernel)]
    slots = 0
    for kernel in kernels:
        known = _bound(kernel)
        maps = {op.hint.data: op for op in kernel.body.block.ops if isinstance(op, TensorMap)}
        steps += (EncodeTensorMap(slots + i, _tensor_map(op, known)) for i, op in enumerate(maps.values()))
        numbered = {name: slots + i for i, name in enumerate(maps)}
        args = tuple(_argument(p, kernel, known, numbered) for p in parameters_of(kernel))
        early = kernel.dependent is not None or (kernel is not kernels[0] and kernel.waits is not None)
        steps.append(Launch(kernel.entry, (_grid(kernel), Const(1), Const(1)), args, early))
        slots += len(maps)
    return Recipe(tuple(map(_shape, kernels)), tuple(steps), tuple(sizes[i] for i in sorted(sizes)))


def _counters(kernel: transport.Kernel) -> Iterator[Fill]:
    """Steps that set the counters of program queues to 0 before the launches that draw from them."""
    placed = {w.tensor.data: w.index.data for w in kernel.workspaces or ()}
    for op, where in queue_draws(kernel):
        yield Fill(WorkspacePointer(placed[tensor_type(op.tensor).tensor_name.data]), 0, i32.bytes, where)


def queue_draws(kernel: transport.Kernel) -> Iterator[tuple[transport.Draw, Expr]]:
    """The ops that draw programs from a queue, each with the condition under which a launch does: more programs than
    CTAs."""
    for op in operations(kernel):
        if isinstance(op, transport.Draw):
            at_once = ctas_at_once(kernel)
            assert at_once is not None, "programs are drawn by CTAs that do several"
            yield op, op.programs.expr > at_once


def declare_workspaces(kernel: transport.Kernel, workspaces: Mapping[str, StagedTensor]) -> None:
    """Records in ``kernel`` which of its tensors lie in workspaces."""
    found = [
        transport.Workspace(
            string(name), integer(item.index), exprs(item.strides), ExprAttr.of(item.size_bytes), exprs(item.extents)
        )
        for name, item in workspaces.items()
    ]
    if found:
        kernel.attributes["workspaces"] = ArrayAttr(found)


def declare_order(kernel: transport.Kernel, *, waits: bool, releases: bool, dependent: bool = False) -> None:
    """Records in ``kernel`` whether its CTAs may start before the preceding kernel ends (programmatic dependent
    launch), and whether it lets the CTAs of the next kernel start early."""
    order = {"waits": waits or dependent, "releases": releases or dependent, "dependent": dependent}
    for name, holds in order.items():
        if holds:
            kernel.attributes[name] = UnitAttr()


def declare_collapsed(kernel: transport.Kernel, extents: Mapping[str, Expr]) -> None:
    """Records in ``kernel`` the extents that a launch passes for flattened matrices."""
    if extents:
        found = [transport.Extent(string(name), ExprAttr.of(value)) for name, value in extents.items()]
        kernel.attributes["collapsed"] = ArrayAttr(found)


def _shape(kernel: transport.Kernel) -> LaunchConfig:
    shared = 0 if kernel.shared_bytes is None else kernel.shared_bytes.data
    return LaunchConfig(kernel.threads.data, (_cluster(kernel), 1, 1), shared)


def _cluster(kernel: transport.Kernel) -> int:
    return 1 if kernel.cluster is None else kernel.cluster.data


def _grid(kernel: transport.Kernel) -> Expr:
    """The CTAs of a launch: one per program, or as many as run at one time; whole clusters in a cluster kernel."""
    at_once, total = ctas_at_once(kernel), programs_of(kernel).substitute(_bound(kernel))
    return total if at_once is None else minimum(total, at_once)


def programs_of(kernel: transport.Kernel) -> Expr:
    """The number of programs of a launch."""
    total: Expr = Const(1)
    for extent in _programs(kernel).extents:
        total = total * extent.expr
    return total


def ctas_at_once(kernel: transport.Kernel) -> int | None:
    """The most CTAs of a persistent kernel, in whole clusters; None where every program has a CTA of its own."""
    if not _programs(kernel).persistent.data:
        return None
    at_once, cluster = kernel.target.sm_count * kernel.min_ctas.data, _cluster(kernel)
    return at_once // cluster * cluster


def _programs(kernel: transport.Kernel) -> transport.Programs:
    return next(op for op in operations(kernel) if isinstance(op, transport.Programs))


def _bound(kernel: transport.Kernel) -> dict[str, Expr]:
    """Values for the symbols of tensors that lie in a workspace or are flattened."""
    known: dict[str, Expr] = {extent.symbol.data: extent.value.expr for extent in kernel.collapsed or ()}
    named = zip((n.data for n in kernel.arg_names), kernel.body.block.args, strict=True)
    kinds = {name: kind for name, arg in named if isinstance(kind := arg.type, TensorType)}
    for placed in kernel.workspaces or ():
        name = placed.tensor.data
        known[f"{name}.address"] = Sym(workspace_address(placed.index.data))
        known |= {f"{name}.stride{i}": stride.expr for i, stride in enumerate(placed.strides)}
        pairs = zip(kinds[name].dims, placed.extents, strict=True)
        known |= {dim.expr.name: extent.expr for dim, extent in pairs if isinstance(dim.expr, Sym) and OWN in dim.text}
    return known


def _tensor_map(op: TensorMap, known: Mapping[str, Expr]) -> TensorMapRecipe:
    """The tensor map that a launch encodes. An extent of zero (a product over no elements) is never read through its
    map, but the driver requires a positive one."""
    numbers = op.numbers
    return TensorMapRecipe(
        element=numbers.data_type,
        address=numbers.address.substitute(known),
        dims=tuple(maximum(d.substitute(known), 1) for d in numbers.dims),
        strides_bytes=tuple(s.substitute(known) for s in numbers.strides_bytes),
        box=numbers.box,
        element_strides=(1,) * len(numbers.box),
        swizzle=numbers.swizzle,
        l2_promotion=numbers.l2_promotion,
    )


def _argument(
    parameter: Parameter, kernel: transport.Kernel, known: Mapping[str, Expr], slots: Mapping[str, int]
) -> KernelArg:
    match parameter.kind:
        case Kind.TENSOR:
            placed = {w.tensor.data: w.index.data for w in kernel.workspaces or ()}
            index = placed.get(parameter.symbol)
            return TensorPointer(parameter.symbol) if index is None else WorkspacePointer(index)
        case Kind.TENSOR_MAP:
            return TensorMapArg(slots[parameter.symbol])
        case Kind.FLOAT:
            return FloatScalar(parameter.symbol)
        case Kind.INTEGER:
            return IntScalar(Sym(parameter.symbol).substitute(known), parameter.bits)
