"""The interface of a requested kernel (parameters, facts and bounds), read from its Tile IR."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from xdsl.ir import BlockArgument

from tilewright.artifact.schema import AccessMode, ArgumentBound, Artifact, ScalarArgument, TensorArgument
from tilewright.base.expr import OWN, TRUE, Expr, Sym, conjuncts
from tilewright.compiler.specialisation import CallFacts, Observed, Request, default_facts, observe_facts
from tilewright.schedule.facts import offsets_fit, predicates
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as transport
from tilewright.transport.ops.base import exprs

Limits: TypeAlias = tuple[tuple[Expr, int], ...]
"""Sizes of ``upto`` axes, by extent."""

__all__ = [
    "CallFacts",
    "Limits",
    "Observed",
    "Request",
    "assume",
    "assumptions_of",
    "default_facts",
    "interface",
    "observe_facts",
    "tensors_of",
]


def tensors_of(kernel: tile.Kernel) -> dict[str, tile.TensorType]:
    """Tensor parameters by name, in order."""
    names = [n.data for n in kernel.arg_names]
    pairs = zip(names, kernel.body.block.args, strict=True)
    return {name: arg.type for name, arg in pairs if isinstance(arg.type, tile.TensorType)}


def assumptions_of(kernel: tile.Kernel, facts: CallFacts, *, workspaces: bool = True) -> tuple[Expr, ...]:
    """The predicates of the specialisation class, as the dispatcher checks them; ``workspaces``: including those about
    tensors in workspaces."""
    found: dict[Expr, None] = {}
    for name, tensor in tensors_of(kernel).items():
        if OWN in name and not workspaces:
            continue
        dims = tuple(d.expr for d in tensor.dims)
        for predicate in predicates(name, tensor.element, dims, facts.of(name)):
            found[predicate] = None
        if facts.index_bits == 32:
            found[offsets_fit(name, dims)] = None
    found.update(dict.fromkeys(required_of(kernel, workspaces=workspaces)))
    found.pop(TRUE, None)
    return tuple(found)


def required_of(kernel: tile.Kernel, *, workspaces: bool = False) -> tuple[Expr, ...]:
    """The predicates that the tracer requires at launch; ``workspaces``: including those about tensors in
    workspaces."""
    asked = (predicate.expr for predicate in kernel.requires)
    return tuple(each for each in asked if workspaces or not any(OWN in symbol for symbol in each.symbols))


def assume(lowered: transport.Kernel, facts: Iterable[Expr]) -> None:
    """Records in a lowered kernel what dispatch guarantees beyond the facts of its class."""
    known = [x.expr for x in lowered.assumptions]
    found = (c for fact in facts for c in conjuncts(fact) if c != TRUE)
    lowered.attributes["assumptions"] = exprs(list(dict.fromkeys((*known, *found))))


def interface(request: Request, kernel: tile.Kernel, sizes: Limits = ()) -> Artifact:
    """The artifact of a kernel without its programs: parameters, facts and bounds, enough to check a call.

    ``sizes`` are those of the widest tiles, where they are narrower than the kernel's axes.
    """
    bounds: list[ArgumentBound] = []
    names = [n.data for n in kernel.arg_names]
    facts = list(assumptions_of(kernel, request.facts, workspaces=False))
    for attr in kernel.bounds:
        extent, upto = attr.data
        upto = dict(sizes).get(extent, upto)
        if isinstance(extent, Sym):
            bounds.append(ArgumentBound(extent.name, upto))
        else:
            facts.append(extent <= upto)
    return Artifact(
        name=request.function.name,
        target=request.target.name,
        parameters=tuple(
            _parameter(name, arg) for name, arg in zip(names, kernel.body.block.args, strict=True) if OWN not in name
        ),
        variants=(),
        kernels=(),
        facts=tuple(facts),
        bounds=tuple(bounds),
        schedule=str(request.schedule),
    )


def _parameter(name: str, arg: BlockArgument) -> TensorArgument | ScalarArgument:
    if not isinstance(arg.type, tile.TensorType):
        assert isinstance(arg.type, tile.TileType)
        return ScalarArgument(name, arg.type.element.name)
    users = [use.operation for use in arg.uses]
    reads = any(isinstance(op, tile.Load | tile.Gather | tile.AtomicReduce | tile.ScatterReduce) for op in users)
    writes = any(isinstance(op, tile.WRITES) for op in users)
    access = AccessMode.READ_WRITE if reads and writes else AccessMode.WRITE if writes else AccessMode.READ
    return TensorArgument(name, arg.type.element.name, tuple(d.expr for d in arg.type.dims), access)
