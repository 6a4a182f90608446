"""From a planned program to an artifact: CUDA C++, PTX, cubins, and the launch recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from tilewright.compiler.assembling import Attempts, assemble_all
from tilewright.compiler.collector import collector_resting
from tilewright.compiler.left_out import Remainder
from tilewright.compiler.obligations import require
from tilewright.compiler.passes import timed
from tilewright.compiler.plain import plan_kernel
from tilewright.compiler.planned import PlannedKernel, Program
from tilewright.compiler.requests import interface
from tilewright.compiler.staging import Staged
from tilewright.compiler.steps import certify_steps
from tilewright.diag import TilewrightError, fail
from tilewright.transport import dialect as transport
from tilewright.transport.asynchronous import TensorMap

_TOOLS = ("tilewright", "nvidia-cuda-nvrtc", "xdsl", "islpy")


@collector_resting()
def build(program: Program) -> Artifact:
    """Compile every variant; a kernel that spills is planned again on more threads.

    Classes of arguments whose kernels can't be compiled are left out, as long as one is left.
    """
    request = program.request
    copying: dict[Staged, PlannedKernel] = {}  # variants that stage the same tensor share the kernel that copies it
    for copy in (copy for planned in program.variants for copy in planned.copies):
        copying.setdefault(copy.item, copy.planned)
    launched = assemble_all([_launched(planned) for planned in (*copying.values(), *program.variants)])
    copies = dict(zip(copying, launched, strict=False))
    remainder = Remainder(request, program.left_out)
    images: dict[str, KernelImage] = {}
    variants: tuple[Variant, ...] = ()
    widest = program.variants[-1]
    for planned, own in zip(program.variants, launched[len(copying) :], strict=True):
        with remainder.trying(planned.predicate, planned.sizes):
            kernels = [_compiled(each) for each in (*(copies[copy.item] for copy in planned.copies), own)]
            variants += (_variant(kernels, request.target.name),)
            images |= {each.image.symbol: each.image for each in kernels}
            widest = planned
    remainder.require_one(variants)
    return replace(
        interface(request, widest.tile, widest.sizes),
        variants=variants,
        kernels=tuple(images.values()),
        left_out=remainder.left_out,
        toolchain=tuple(Toolchain(name, version(name)) for name in _TOOLS),
        plan=tuple(f"{v.name}: {line}" for v in variants for line in v.plan.splitlines()),
        tile_ir=str(widest.tile),
    )


@dataclass(frozen=True)
class _Launched:
    """A kernel as it was assembled, and the steps that launch it."""

    planned: PlannedKernel
    image: KernelImage
    steps: tuple[Step, ...]


def _compiled(kernel: _Launched | TilewrightError) -> _Launched:
    if isinstance(kernel, TilewrightError):
        raise kernel
    return kernel


def _variant(kernels: Sequence[_Launched], target: str) -> Variant:
    """What launches ``kernels`` in order, the last of which the others serve."""
    planned, steps = kernels[-1].planned, tuple(step for each in kernels for step in each.steps)
    by_symbol = {each.image.symbol: each.planned for each in kernels}
    return Variant(
        name=kernels[-1].image.symbol,
        predicate=planned.predicate,
        steps=steps,
        workspace=tuple(item.size_bytes for item in planned.workspaces.values()),
        certificate=certify_steps(steps, by_symbol, planned.predicate),
        plan="\n".join(planned.remarks(target)),
    )


def _launched(planned: PlannedKernel) -> Attempts[_Launched]:
    planned, emitted, assembled = yield from _assembled(planned)
    maps = tensor_maps(planned.transport, planned.binding)
    args = tuple(_argument(p, maps, planned) for p in emitted.parameters)
    encodes = (EncodeTensorMap(slot, recipe) for slot, recipe in enumerate(maps.values()))
    launch = Launch(emitted.entry, (planned.grid, Const(1), Const(1)), args)
    return _Launched(planned, _image(planned, emitted, assembled), (*encodes, launch))


def _assembled(planned: PlannedKernel) -> Attempts[tuple[PlannedKernel, Emitted, Assembled]]:
    """Emit and assemble; on spills try again with fewer CTAs per SM, with smaller tiles, with twice the threads."""
    request, workspaces = planned.request, planned.workspaces
    while True:
        planned = replace(planned, workspaces=workspaces)
        require(planned.certificate, planned.tile, planned.transport)
        with timed("emit"):
            emitted = emit_kernel(planned.transport, debug=request.debug)
        numerics = planned.transport.numerics.data
        try:
            assembled = yield partial(assemble, emitted.source, request.target.name, emitted.entry, numerics)
        except TilewrightError as error:  # from a thread in which nobody calls us
            located = (replace(d, where=d.where or request.function.where) for d in error.diagnostics)
            raise TilewrightError(tuple(located)) from error
        with timed("guard"):
            unlike = mismatches(planned.transport, assembled.ptx) if planned.later and assembled.cubin else ()
        found = (*defects(assembled), *map(str, unlike))
        # a debug build's reports cost registers, and calls between wgmmas
        if not found or (request.debug and assembled.cubin):
            return planned, emitted, assembled
        if planned.later is not None:
            planned = planned.later("; ".join(found))
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
