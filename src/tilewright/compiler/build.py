"""From a planned program to an artifact: CUDA C++, PTX, cubins, and the launch recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version

from tilewright.artifact.descriptor import TensorMapRecipe
from tilewright.artifact.schema import (
    Artifact,
    EncodeTensorMap,
    FloatScalar,
    IntScalar,
    KernelArg,
    KernelImage,
    Launch,
    Step,
    TensorMapArg,
    TensorPointer,
    Toolchain,
    Variant,
    WorkspacePointer,
)
from tilewright.base.expr import Const, Expr, Sym, maximum
from tilewright.codegen.assemble import Assembled, assemble, defects
from tilewright.codegen.cuda import Emitted, Parameter, emit_kernel
from tilewright.codegen.guard import mismatches
from tilewright.compiler.collector import collector_resting
from tilewright.compiler.obligations import require
from tilewright.compiler.passes import timed
from tilewright.compiler.program import PlannedKernel, Program, plan_kernel, with_products
from tilewright.compiler.requests import Request, interface
from tilewright.compiler.staging import Staged
from tilewright.compiler.steps import certify_steps
from tilewright.diag import fail
from tilewright.schedule.facts import Facts
from tilewright.transport import dialect as transport
from tilewright.transport.asynchronous import TensorMap

_TOOLS = ("tilewright", "nvidia-cuda-nvrtc", "xdsl", "islpy")


@collector_resting()
def build(program: Program) -> Artifact:
    """Compile every variant; a kernel that spills is planned again on more threads."""
    request = program.request
    images: dict[str, KernelImage] = {}
    copying: dict[Staged, _Launched] = {}  # variants that stage the same tensor share the kernel that copies it
    variants: list[Variant] = []
    for planned in program.variants:
        for copy in planned.copies:
            if copy.item not in copying:
                copying[copy.item] = _launched(copy.planned, copy.request)
        own = planned.later.request if planned.later is not None else request
        launched = [*(copying[copy.item] for copy in planned.copies), _launched(planned, own)]
        images |= {each.image.symbol: each.image for each in launched}
        main, steps = launched[-1], tuple(step for each in launched for step in each.steps)
        variants.append(
            Variant(
                name=main.image.symbol,
                predicate=main.planned.predicate,
                steps=steps,
                workspace=tuple(item.size_bytes for item in planned.workspaces.values()),
                certificate=certify_steps(
                    steps, {each.image.symbol: (each.planned, each.facts) for each in launched}, main.planned.predicate
                ),
                plan="\n".join(main.planned.remarks(request.target.name)),
            )
        )
    return replace(
        interface(request, program.variants[-1].tile),
        variants=tuple(variants),
        kernels=tuple(images.values()),
        toolchain=tuple(Toolchain(name, version(name)) for name in _TOOLS),
        plan=tuple(f"{v.name}: {line}" for v in variants for line in v.plan.splitlines()),
        tile_ir=str(program.variants[-1].tile),
    )


@dataclass(frozen=True)
class _Launched:
    """A kernel as it was assembled, and the steps that launch it."""

    planned: PlannedKernel
    facts: Facts
    image: KernelImage
    steps: tuple[Step, ...]


def _launched(planned: PlannedKernel, request: Request) -> _Launched:
    planned, emitted, assembled = _assembled(planned, request)
    maps = tensor_maps(planned.transport, planned.binding)
    args = tuple(_argument(p, maps, planned) for p in emitted.parameters)
    encodes = (EncodeTensorMap(slot, recipe) for slot, recipe in enumerate(maps.values()))
    launch = Launch(emitted.entry, (planned.grid, Const(1), Const(1)), args)
    return _Launched(planned, request.facts, _image(planned, emitted, assembled), (*encodes, launch))


def _assembled(planned: PlannedKernel, request: Request) -> tuple[PlannedKernel, Emitted, Assembled]:
    """Emit and assemble; on spills try again with fewer CTAs per SM, with smaller tiles, with twice the threads."""
    workspaces = planned.workspaces
    while True:
        planned = replace(planned, workspaces=workspaces)
        require(planned.certificate, planned.tile, planned.transport)
        with timed("emit"):
            emitted = emit_kernel(planned.transport, debug=request.debug)
        numerics = planned.transport.numerics.data
        with timed("assemble"):
            assembled = assemble(emitted.source, request.target.name, emitted.entry, numerics)
        with timed("guard"):
            unlike = mismatches(planned.transport, assembled.ptx) if planned.later else ()
        found = (*defects(assembled), *map(str, unlike))
        if not found or request.debug:  # a debug build's reports cost registers, and calls between wgmmas
            return planned, emitted, assembled
        if planned.later is not None:
            later = planned.later.next("; ".join(found))
            planned = with_products(request, planned.predicate, later, planned.facts, planned.copies)
            continue
        name, threads = planned.transport.sym_name.data, planned.placement.home.threads
        if planned.placement.min_ctas > 1:  # fewer CTAs per SM leave each thread more registers
            alone = plan_kernel(request, planned.tile, planned.predicate, name, threads, 1)
            planned = replace(alone, smaller=planned.smaller)
            continue
        if planned.smaller is not None:
            planned = planned.smaller()
            continue
        threads *= 2
        if request.schedule.threads is not None or threads > request.target.max_threads_per_cta:
            fail(
                "CGN002",
                where=request.function.where,
                found=f"{'; '.join(found)} with {planned.placement.home.threads} threads a CTA",
                required="every value in registers",
                help="use smaller tiles, or stream over the long axis with tw.stream",
            )
        planned = plan_kernel(request, planned.tile, planned.predicate, name, threads)


def _image(planned: PlannedKernel, emitted: Emitted, assembled: Assembled) -> KernelImage:
    return KernelImage(
        symbol=emitted.entry,
        threads=planned.transport.threads.data,
        cluster=(planned.cluster, 1, 1),
        cubin=assembled.cubin,
        source=emitted.source,
        ptx=assembled.ptx,
        transport_ir=str(planned.transport),
        shared_bytes=planned.transport.shared_bytes.data if planned.transport.shared_bytes is not None else 0,
        static_shared_bytes=assembled.shared_bytes,
        registers=assembled.registers,
        spill_bytes=assembled.spill_bytes,
        certificate=planned.certificate,
    )


def tensor_maps(kernel: transport.Kernel, binding: Mapping[str, Expr] | None = None) -> dict[str, TensorMapRecipe]:
    """The tensor maps that a launch of the kernel encodes, by name, in order of their slots; ``binding`` stands for
    the symbols of tensors that lie in a workspace.

    An extent of zero (a product over no elements) is never read through its map, but the driver wants one.
    """
    known = binding or {}
    return {
        op.hint.data: TensorMapRecipe(
            element=numbers.data_type,
            address=numbers.address.substitute(known),
            dims=tuple(maximum(d, 1) for d in numbers.dims),
            strides_bytes=tuple(s.substitute(known) for s in numbers.strides_bytes),
            box=numbers.box,
            element_strides=(1,) * len(numbers.box),
            swizzle=numbers.swizzle,
            l2_promotion=numbers.l2_promotion,
        )
        for op in kernel.body.block.ops
        if isinstance(op, TensorMap)
        for numbers in (op.numbers,)
    }


def _argument(parameter: Parameter, maps: Mapping[str, TensorMapRecipe], planned: PlannedKernel) -> KernelArg:
    match parameter.kind:
        case "tensor" if parameter.symbol in planned.workspaces:
            return WorkspacePointer(planned.workspaces[parameter.symbol].index)
        case "tensor":
            return TensorPointer(parameter.symbol)
        case "tensor_map":
            return TensorMapArg(list(maps).index(parameter.symbol))
        case "float":
            return FloatScalar(parameter.symbol)
        case _:
            return IntScalar(Sym(parameter.symbol).substitute(planned.binding), parameter.bits)
