"""Tensors that a kernel reads from an aligned copy: which, where the copy lies, when it pays, and who makes it.

Tensor copies want rows at multiples of 16 bytes, and 8-bit operands of wgmma want K innermost. Where the arguments of a
class have neither, the program becomes two steps on one stream::

    copy    a[m, k] -> workspace, rows padded to whole lines        (a plain kernel, proved as any other)
    kernel  scheduled as for aligned tensors; its tensor maps lie over the workspace

The kernel's text speaks of ``a.address`` and ``a.stride0`` as always. What they are is the launch's affair: it passes
the workspace, and ``StagedTensor.binding`` says which expressions over the real arguments stand for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from xdsl.ir import SSAValue

from tilewright.artifact.schema import WORKSPACE_ALIGN_BYTES
from tilewright.base.expr import Expr, all_of, own
from tilewright.compiler.requests import Request, tensors_of
from tilewright.compiler.workspaces import StagedTensor
from tilewright.hw.target import MAX_VECTOR_BYTES, Target
from tilewright.lang.axes import Span
from tilewright.lang.builtins import grid
from tilewright.lang.enums import Numerics
from tilewright.lang.params import KernelFunction, KeywordParam, TensorParam, auto
from tilewright.lang.signature import Signature
from tilewright.lang.tensors import Tensor
from tilewright.legal.facts import Facts
from tilewright.legal.wgmma import OperandRole
from tilewright.schedule.facts import CallFacts, TensorFacts, without_peers
from tilewright.schedule.product_schedules import ProductSchedules, schedules_of
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, source_of, tensor_name


def staged_tensors(kernel: tile.Kernel, facts: CallFacts, target: Target) -> tuple[StagedTensor, ...]:
    """The tensors whose tiles TMA could bring to wgmma if they had another layout in memory."""
    uses: dict[str, list[tuple[tile.Load, SSAValue, OperandRole]]] = {}
    schedules = schedules_of(target)
    for load, value, role in _operands(kernel, schedules):
        if schedules.operands(kernel, facts, 1).copied(value, role, schedules.columns) is None:
            uses.setdefault(tensor_name(load), []).append((load, value, role))
    written = {tensor_name(op) for op in kernel.walk() if isinstance(op, tile.WRITES)}
    found: list[StagedTensor] = []
    for name, tensor in tensors_of(kernel).items():
        if name not in uses or name in written:
            continue
        dims = tuple(d.expr for d in tensor.dims)
        for axis in _axes(uses[name], facts.of(name)):
            here = StagedTensor(name, tensor.element, dims, axis, len(found))
            trial = schedules.operands(kernel, with_staged(facts, [here]), 1)
            if all(trial.copied(value, role, schedules.columns) is not None for _, value, role in uses[name]):
                found.append(here)
                break
    return tuple(found)


def _operands(kernel: tile.Kernel, schedules: ProductSchedules) -> Iterator[tuple[tile.Load, SSAValue, OperandRole]]:
    """Loaded tiles that are operands of products, of whole granules."""
    for dot in kernel.walk():
        if not isinstance(dot, tile.Dot):
            continue
        rows, columns = tile.tile_type(dot.result).shape
        for value, role, whole in (
            (dot.a, OperandRole.A, rows % schedules.rows == 0),
            (dot.b, OperandRole.B, columns % schedules.columns == 0),
        ):
            load = source_of(value)[0].owner
            if isinstance(load, tile.Load) and whole:
                yield load, value, role


def _axes(uses: Sequence[tuple[tile.Load, SSAValue, OperandRole]], facts: TensorFacts) -> Iterator[int]:
    """Candidates for the dense axis of the copy: the present one, then those along which products run."""
    if facts.unit_axis is not None:
        yield facts.unit_axis
    for load, value, role in uses:
        spans = [d for d, c in enumerate(coords_of(load)) if isinstance(c, Span)]
        yield spans[source_of(value)[1][1 if role is OperandRole.A else 0]]


def staged_facts(item: StagedTensor) -> TensorFacts:
    """The facts of the copy."""
    return TensorFacts(item.unit_axis, MAX_VECTOR_BYTES)


def with_staged(facts: CallFacts, found: Sequence[StagedTensor]) -> CallFacts:
    """The facts of a kernel that reads these tensors from their copies."""
    own = {s.name: staged_facts(s) for s in found}
    kept = ((name, replace(known, peer="") if known.peer in own else known) for name, known in facts.tensors)
    return replace(facts, tensors=tuple((name, own.get(name, known)) for name, known in kept))


# -- the copying kernel ------------------------------------------------------------------------------------------------
def copy_request(request: Request, item: StagedTensor) -> Request:
    """A kernel that copies ``item`` to its workspace: every element once, in tiles of two axes."""
    param = next(t for t in request.function.tensors if t.name == item.name)
    rank = len(param.dims)
    source_unit = request.facts.of(item.name).unit_axis
    last = max((d for d in range(rank) if d != item.unit_axis), default=item.unit_axis)
    other = source_unit if source_unit is not None and source_unit != item.unit_axis else last

    def repitch(*, bm: int, bn: int, **tensors: Tensor) -> None:
        source, target = tensors[item.name], tensors[item.copy_name]
        blocks = [None if d not in (other, item.unit_axis) else bn if d == item.unit_axis else bm for d in range(rank)]
        places = grid(source, tuple(blocks))
        at = places if rank > 1 else (places,)
        target[at] = source[at]

    function = KernelFunction(
        repitch,
        f"{request.function.name}_stage_{item.name}",
        (
            TensorParam(item.name, param.dims),
            TensorParam(item.copy_name, param.dims),
            KeywordParam("bm", auto),
            KeywordParam("bn", auto),
        ),
        Numerics.STRICT,
        request.function.where,
    )
    static = {n: v for n, v in request.signature.static if n in param.dims}
    signature = Signature.of(dict.fromkeys((item.name, item.copy_name), item.element), static=static)
    source = without_peers(request.facts).of(item.name)
    facts = CallFacts(((item.name, source), (item.copy_name, staged_facts(item))), index_bits=request.facts.index_bits)
    return Request(function, signature, facts, request.target, request.schedule.of_others)


# -- what the launch owes the kernels ----------------------------------------------------------------------------------
def residual(assumptions: Iterable[Expr], binding: Mapping[str, Expr]) -> Expr:
    """The part of a kernel's assumptions that dispatch must check once ``binding`` replaces its symbols: what follows
    from the workspace's layout and alignment is proved here and left out."""
    bound = [a.substitute(binding) for a in assumptions if not binding.keys().isdisjoint(a.symbols)]
    symbols = set[str]().union(*(a.symbols for a in bound))
    known = Facts(
        bounds={name: (0, None) for name in symbols if "." not in name},
        divisors={name: WORKSPACE_ALIGN_BYTES for name in symbols if name.startswith(own("workspace"))},
    )
    return all_of(known.residual(a) for a in bound)
