"""From a planned program to an artifact: CUDA C++, PTX, cubins, and the launch recipe."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

from tilewright.artifact.schema import (
    Artifact,
    FloatScalar,
    IntScalar,
    KernelArg,
    KernelImage,
    Launch,
    TensorPointer,
    Toolchain,
    Variant,
)
from tilewright.base.expr import Const, Sym
from tilewright.codegen.assemble import Assembled, assemble, defects
from tilewright.codegen.cuda import Emitted, Parameter, emit_kernel
from tilewright.compiler.program import PlannedKernel, Program, plan_kernel
from tilewright.compiler.requests import Request, interface
from tilewright.diag import fail

_TOOLS = ("tilewright", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "xdsl", "islpy")


def build(program: Program) -> Artifact:
    """Compile every variant; a kernel that spills is planned again on more threads."""
    request = program.request
    kernels: list[KernelImage] = []
    variants: list[Variant] = []
    for planned in program.variants:
        planned, emitted, assembled = _assembled(planned, request)
        kernels.append(_image(planned, emitted, assembled))
        step = Launch(emitted.entry, (planned.grid, Const(1), Const(1)), tuple(map(_argument, emitted.parameters)))
        variants.append(Variant(emitted.entry, planned.predicate, (step,), plan="\n".join(planned.placement.notes)))
    return replace(
        interface(request, program.variants[-1].tile),
        variants=tuple(variants),
        kernels=tuple(kernels),
        toolchain=tuple(Toolchain(name, version(name)) for name in _TOOLS),
        plan=tuple(f"{v.name}: {line}" for v in variants for line in v.plan.splitlines()),
        tile_ir=str(program.variants[-1].tile),
    )


def _assembled(planned: PlannedKernel, request: Request) -> tuple[PlannedKernel, Emitted, Assembled]:
    """Emit and assemble; on spills try again with twice the threads, up to what a CTA may have."""
    while True:
        emitted = emit_kernel(planned.transport)
        numerics = planned.transport.numerics.data
        assembled = assemble(emitted.source, request.target.name, emitted.entry, numerics)
        found = defects(assembled)
        if not found:
            return planned, emitted, assembled
        name, threads = planned.transport.sym_name.data, planned.placement.home.threads
        if planned.placement.min_ctas > 1:  # fewer CTAs per SM leave each thread more registers
            planned = plan_kernel(request, planned.tile, planned.predicate, name, threads, 1)
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
        threads=planned.placement.home.threads,
        cubin=assembled.cubin,
        source=emitted.source,
        ptx=assembled.ptx,
        transport_ir=str(planned.transport),
        static_shared_bytes=assembled.shared_bytes,
        registers=assembled.registers,
        spill_bytes=assembled.spill_bytes,
        certificate=planned.certificate,
    )


def _argument(parameter: Parameter) -> KernelArg:
    match parameter.kind:
        case "tensor":
            return TensorPointer(parameter.symbol)
        case "float":
            return FloatScalar(parameter.symbol)
        case _:
            return IntScalar(Sym(parameter.symbol), parameter.bits)
