"""From a planned program to an artifact: CUDA C++, PTX, cubins, and the launch recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version

from tilewright.artifact.schema import (
    EXECUTION,
    Artifact,
    KernelImage,
    Launch,
    Obligation,
    OriginalProgram,
    PromiseReport,
    Toolchain,
    Variant,
)
from tilewright.base.expr import Expr
from tilewright.codegen.assemble import SPILL_TOLERANCE_BYTES, Assembled, assemble, defects
from tilewright.codegen.cuda import Emitted, emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.assembling import Attempts, assemble_all
from tilewright.compiler.counter_bounds import counters_fit
from tilewright.compiler.gc_pause import gc_paused
from tilewright.compiler.launch_recipe import LaunchConfig, declare_collapsed, declare_order, declare_workspaces, recipe
from tilewright.compiler.plain import plan_kernel
from tilewright.compiler.planned import PlannedKernel, PlannedProgram
from tilewright.compiler.products import MOST_SPILLED
from tilewright.compiler.proofs.collapsed_dimensions import certify_collapsed
from tilewright.compiler.proofs.obligations import assumed_of, require
from tilewright.compiler.proofs.rewritten import certify_rewritten
from tilewright.compiler.proofs.steps import certify_steps
from tilewright.compiler.reliance import PROMISES, promises_of
from tilewright.compiler.requests import assume, interface, required_of
from tilewright.compiler.timing import timed
from tilewright.compiler.unsupported import UnsupportedClasses
from tilewright.compiler.validated import NOT_ASKED, PTX, Validated, validated
from tilewright.diag import TilewrightError, fail
from tilewright.tile import dialect as tile
from tilewright.tile.ops import unchanged
from tilewright.transport import dialect as transport
from tilewright.validate.launch_recipe import require_recipe

_TOOLS = ("tilewright", "nvidia-cuda-nvrtc", "xdsl", "islpy")


@gc_paused()
def build(program: PlannedProgram, *, validate: bool = False) -> Artifact:
    """Compile every variant; a kernel that spills is planned again on more threads.

    Classes of arguments whose kernels can't be compiled are left out, as long as one remains. With ``validate`` each
    kernel's Tile IR, Transport IR and PTX are compared, and its image records the result.
    """
    request = program.request
    before: dict[object, PlannedKernel] = {}  # variants that stage the same tensor share the kernel that copies it
    for same, kernel in (pair for planned in program.variants for pair in planned.before):
        before.setdefault(same, kernel)
    made = assemble_all([_assembled(planned, validate) for planned in (*before.values(), *program.variants)])
    shared = dict(zip(before, made, strict=False))
    unsupported = UnsupportedClasses(request, program.left_out)
    images: dict[str, KernelImage] = {}
    programs: dict[str, OriginalProgram] = {}
    texts: dict[str, transport.Kernel] = {}
    tiles: dict[str, tile.Kernel] = {}
    variants: tuple[Variant, ...] = ()
    asked: tuple[Expr, ...] = ()  # tiles of other extents may reach other elements
    widest, shown = program.variants[-1], ""
    for planned, own in zip(program.variants, made[len(before) :], strict=True):
        with unsupported.trying(planned.predicate, planned.sizes):
            kernels = [_compiled(each) for each in (*(shared[same] for same, _ in planned.before), own)]
            with unchanged(*(root for each in kernels for root in (each.planned.tile, each.planned.transport))):
                variant, launched = _variant(kernels, request.target.name, programs)
            variants += (variant,)
            images |= {image.symbol: image for image in launched}
            texts |= {each.emitted.entry: each.planned.transport for each in kernels}
            tiles |= {each.emitted.entry: each.planned.tile for each in kernels}
            originals = kernels[-1].planned.originals
            widest, shown = planned, str(originals[0]) if originals else launched[-1].tile_ir
            asked += (*required_of(kernels[-1].planned.tile), *counters_fit(kernels[-1].planned))
    unsupported.require_one(variants)
    found = interface(request, widest.tile, widest.sizes)
    artifact = replace(
        found,
        facts=tuple(dict.fromkeys((*found.facts, *asked))),
        variants=variants,
        kernels=tuple(images.values()),
        left_out=unsupported.left_out,
        programs=tuple(programs.values()),
        toolchain=tuple(Toolchain(name, version(name)) for name in _TOOLS),
        plan=tuple(f"{v.name}: {line}" for v in variants for line in v.plan.splitlines()),
        tile_ir=shown,
    )
    with timed("validate"):
        with unchanged(*texts.values()):
            require_recipe(artifact, texts)
        if validate and not request.debug and any(map(promises_of, tiles.values())):
            artifact = _with_promises(artifact, texts, tiles)
    return artifact


def _with_promises(
    artifact: Artifact, texts: Mapping[str, transport.Kernel], tiles: Mapping[str, tile.Kernel]
) -> Artifact:
    """The artifact, with the number of tested launches in the certificates of kernels that rely on promises; CGN005
    where a launch shows that the steps before them do not check a promise."""
    from tilewright.compiler.index_promise_tests import (  # noqa: PLC0415 - the simulator loads with it, which few kernels need
        PROMISES_TESTED,
        run_promise_tests,
    )

    images = {image.symbol: image for image in artifact.kernels}
    for variant in artifact.variants:
        found = run_promise_tests(replace(artifact, variants=(variant,)), texts, tiles)
        for difference in found.differences:
            fail("CGN005", found=difference, required="what the promise says")
        for launches in found.launches:
            last = [step.kernel for step in variant.steps if isinstance(step, Launch)][-1]
            tested = Obligation(PROMISES_TESTED, EXECUTION, launches)
            images[last] = replace(images[last], certificate=(*images[last].certificate, tested))
    return replace(artifact, kernels=tuple(images.values()))


@dataclass(frozen=True)
class _Kernel:
    """A planned kernel with its emitted source, machine code and validation result."""

    planned: PlannedKernel
    emitted: Emitted
    assembled: Assembled
    validated: Validated


def _compiled(kernel: _Kernel | TilewrightError) -> _Kernel:
    if isinstance(kernel, TilewrightError):
        raise kernel
    return kernel


def _variant(
    kernels: Sequence[_Kernel], target: str, programs: dict[str, OriginalProgram]
) -> tuple[Variant, tuple[KernelImage, ...]]:
    """The variant that launches ``kernels`` in order, and their images. The last kernel computes the results, those
    before it prepare its inputs. The programs that kernels were derived from are added to ``programs``, by text."""
    planned = kernels[-1].planned
    launch = recipe([each.planned.transport for each in kernels])
    by_symbol = {each.emitted.entry: each.planned for each in kernels}
    reports = ()
    if planned.promises is not None:
        checks = planned.promises.checks
        reports = (PromiseReport(checks.failed.index, tuple(map(str, checks.promises))),)
    variant = Variant(
        name=planned.transport.sym_name.data,
        predicate=planned.predicate,
        steps=launch.steps,
        workspace=launch.workspace,
        certificate=(
            *certify_steps(launch.steps, by_symbol, planned.predicate, planned.promises),
            *certify_rewritten([each.planned for each in kernels], planned.predicate),
            *certify_collapsed(planned, planned.predicate),
        ),
        plan="\n".join(planned.remarks(target)),
        reports=reports,
    )
    return variant, tuple(_image(each, shape, programs) for each, shape in zip(kernels, launch.shapes, strict=True))


def _assembled(planned: PlannedKernel, validate: bool) -> Attempts[_Kernel]:
    """Emits and assembles a kernel; on spills tries again with fewer CTAs per SM, smaller tiles or twice the threads.
    If all schedules with roles spill, the one that spills least is kept; of two ways to store, too."""
    least: _Kernel | None = None
    stored: _Kernel | None = None
    request, workspaces, sizes, promises = planned.request, planned.workspaces, planned.sizes, planned.promises
    originals, collapsed, notes = planned.originals, planned.collapsed, planned.notes
    while True:
        originals = planned.originals or originals
        planned = replace(planned, workspaces=workspaces, sizes=sizes, promises=promises, originals=originals)
        if collapsed:
            planned = replace(planned, collapsed=collapsed, notes=notes)
        emitted = _emitted(planned)
        try:
            assembled = yield partial(assemble, emitted.source, request.target.name, emitted.entry)
        except TilewrightError as error:  # raised in a worker thread, where the location is not known
            located = (replace(d, where=d.where or request.function.where) for d in error.diagnostics)
            raise TilewrightError(tuple(located)) from error
        against = defects(assembled, planned.spill_tolerance_bytes)
        spills = planned.other_stores is not None and assembled.spill_bytes > SPILL_TOLERANCE_BYTES
        asked = validate and assembled.cubin and not request.debug and not spills and stored is None
        checked = _validated(planned, assembled) if asked and not against else NOT_ASKED
        with timed("guard"):
            guarded = planned.next_schedule and assembled.cubin and PTX not in checked.certificate
            unlike = mismatches(planned.transport, assembled.ptx) if guarded else ()
        found = (*against, *map(str, unlike))
        # a debug build's reports cost registers, and calls between wgmmas
        if not found or (request.debug and assembled.cubin):
            kernel = _Kernel(planned, emitted, assembled, checked)
            other = _stored_otherwise(kernel) if spills and stored is None else None
            if other is not None:
                stored, planned = kernel, other
                continue
            best = min(filter(None, (stored, kernel)), key=lambda each: each.assembled.spill_bytes)
            return _compared(best) if validate else best
        if stored is not None:
            return _compared(stored) if validate else stored
        if planned.next_schedule is not None:
            only_spills = bool(assembled.cubin) and not unlike and not defects(assembled, MOST_SPILLED)
            if only_spills and (least is None or assembled.spill_bytes < least.assembled.spill_bytes):
                least = _Kernel(planned, emitted, assembled, checked)
            try:
                planned = planned.next_schedule("; ".join(found))
            except TilewrightError:
                if least is None:
                    raise
                return _compared(least) if validate else least
            continue
        planned = _planned_again(planned, "; ".join(found))


def _emitted(planned: PlannedKernel) -> Emitted:
    """A proved kernel's text, with what it is told of its launch."""
    workspaces, promises = planned.workspaces, planned.promises
    declare_workspaces(planned.transport, workspaces)
    declare_collapsed(planned.transport, planned.collapsed)
    checks = any(name.startswith(PROMISES) for name in workspaces) and promises is None
    waits = checks or (promises is not None and bool(promises.kernels))
    dependent = bool(planned.request.schedule.dependent)
    declare_order(planned.transport, waits=waits, releases=checks, dependent=dependent)
    assume(planned.transport, (extent <= size for extent, size in planned.sizes))
    with unchanged(planned.tile, planned.transport):
        require(planned.certificate, planned.tile, planned.transport)
        with timed("emit"):
            return emit_kernel(planned.transport, debug=planned.request.debug)


def _stored_otherwise(kernel: _Kernel) -> PlannedKernel | None:
    """A kernel that spills, with other stores: ptxas allots registers by the whole text. Gradients of keys and values
    over packed sequences (H200, 4 x 4,096 of 16 heads of 128): 964 us with 76 bytes spilled by stores that the hardware
    clips, 926 with 44 by the others."""
    other = kernel.planned.other_stores
    return None if other is None else other(f"{kernel.assembled.spill_bytes} bytes spilled")


def _planned_again(planned: PlannedKernel, found: str) -> PlannedKernel:
    """Plans a kernel without roles that spills for fewer CTAs per SM, else for smaller tiles, else for twice the
    threads. CGN002, with the defects ``found``, where nothing is left to try."""
    request, threads = planned.request, planned.placement.home.threads
    name = planned.transport.sym_name.data
    if planned.placement.min_ctas > 1:  # fewer CTAs per SM leave each thread more registers
        alone = plan_kernel(request, planned.tile, planned.predicate, name, threads, 1)
        return replace(alone, smaller=planned.smaller)
    if planned.smaller is not None:
        return planned.smaller()
    if request.schedule.threads is not None or 2 * threads > request.target.max_threads_per_cta:
        fail(
            "CGN002",
            where=request.function.where,
            found=f"{found} with {threads} threads a CTA",
            required="every value in registers",
            help="use smaller tiles, or stream over the long axis with tw.stream",
        )
    return plan_kernel(request, planned.tile, planned.predicate, name, 2 * threads)


def _compared(kernel: _Kernel) -> _Kernel:
    """A kernel with its validation result, but in debug builds."""
    if kernel.planned.request.debug or kernel.validated is not NOT_ASKED:
        return kernel
    return replace(kernel, validated=_validated(kernel.planned, kernel.assembled))


def _validated(planned: PlannedKernel, assembled: Assembled) -> Validated:
    """The validation result of a kernel; CGN005 where it is refuted."""
    checked = validated(planned.tile, planned.transport, assembled.ptx)
    if checked.refuted:
        fail(
            "CGN005",
            where=planned.request.function.where,
            found=checked.refuted,
            required="what the Transport IR stores",
        )
    return checked


def _image(kernel: _Kernel, shape: LaunchConfig, programs: dict[str, OriginalProgram]) -> KernelImage:
    planned, assembled = kernel.planned, kernel.assembled
    texts = [str(whole) for whole in planned.originals]
    made_of = tuple(programs.setdefault(text, OriginalProgram(f"program{len(programs)}", text)).name for text in texts)
    return KernelImage(
        symbol=kernel.emitted.entry,
        threads=shape.threads,
        cluster=shape.cluster,
        cubin=assembled.cubin,
        source=kernel.emitted.source,
        ptx=assembled.ptx,
        transport_ir=str(planned.transport),
        tile_ir=str(planned.tile),
        shared_bytes=shape.shared_bytes,
        static_shared_bytes=assembled.shared_bytes,
        registers=assembled.registers,
        spill_bytes=assembled.spill_bytes,
        certificate=(*planned.certificate, *assumed_of(planned.tile), *kernel.validated.certificate),
        undecided=kernel.validated.undecided,
        made_of=made_of,
    )
