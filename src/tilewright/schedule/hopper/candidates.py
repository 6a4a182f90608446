"""The candidate schedules of a kernel with matrix products, best first, and their lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TypeAlias

from tilewright.base.expr import Expr
from tilewright.hw.target import InstructionSet, Target
from tilewright.lang.schedule import RoleMode, Schedule
from tilewright.schedule.classes import Classes, classify
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.accumulator_placement import (
    MAX_REGISTERS,
    Refused,
    fragment_registers,
    place_from_products,
)
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.clusters import Cluster, Share
from tilewright.schedule.hopper.configuration import ScheduleConfiguration
from tilewright.schedule.hopper.epilogue_tiles import epilogue_bytes
from tilewright.schedule.hopper.loaded_bounds import LoadedBounds
from tilewright.schedule.hopper.lower import RoleLowering
from tilewright.schedule.hopper.memory import lay_out
from tilewright.schedule.hopper.operands import (
    ROWS,
    Analysis,
    AsyncOperand,
    DotPlan,
    RegisterOperand,
    ThreadCopiedOperand,
    TmaOperand,
)
from tilewright.schedule.hopper.ping_pong import equal_uses, ordered_streams
from tilewright.schedule.hopper.products_in_flight import streams_in_flight
from tilewright.schedule.hopper.program_sums import program_sums, summed_alike
from tilewright.schedule.hopper.register_staged import has_mma
from tilewright.schedule.hopper.shared_memory_epilogue import shared_memory_epilogues
from tilewright.schedule.hopper.software_pipeline import reordered, software_pipelines
from tilewright.schedule.hopper.stage_vectors import StageVector, named, stage_vectors, through_map
from tilewright.schedule.hopper.tile_pipelines import TilePipeline, group
from tilewright.schedule.placement import Placement
from tilewright.schedule.relayout import classified
from tilewright.tile import dialect as tile
from tilewright.tile.ops import unchanged
from tilewright.tile.queries import source_of, tensor_name
from tilewright.transport import dialect as transport
from tilewright.transport.asynchronous import WARPGROUP_THREADS

STAGES = 5
"""Stages of a pipeline of large tiles, which hold some 3 microseconds of copies; more have gained nothing on H200."""
IN_FLIGHT_BYTES = 160 * 1024
"""Bytes that pipelines of small tiles keep in flight (64 x 4096 x 4096: 12 stages of 12 KB 0.99 of cuBLAS, 5 stages
0.69)."""
PROGRAMS_AHEAD = 2
"""Stages of tiles that are loaded once per program, where streams end at loaded bounds and may be short, and of those
of software-pipelined streams: the next program's tiles are copied while one ends, before those of its streams
(attention of 512 keys, H200: 202.6 to 191.2 us for heads of 64, 137.6 to 132.2 for heads of 128)."""
ENOUGH_STAGES = 4
"""Stages of streams beyond which stages of the next program's tiles gain more."""
MOST_CTAS = 4
"""CTAs of a cluster at most: the protocol of a matmul in a cluster of 8 is not proved within minutes."""


@dataclass(frozen=True)
class Scheduled:
    """A lowered kernel with its placement and a note on what was chosen."""

    kernel: transport.Kernel
    placement: Placement
    notes: tuple[str, ...]
    guards: tuple[Expr, ...] = ()
    """Predicates over sizes that the tensor maps require at launch."""


CANDIDATES = (
    Candidate(1, ping_pong=2),
    Candidate(4, software_pipelined=True),
    Candidate(3, software_pipelined=True),
    Candidate(3),
    Candidate(2, software_pipelined=True),
    Candidate(2),
    Candidate(1, resident=2),
    Candidate(1),
    Candidate(2, matrix_stores=False),
    Candidate(2, copies=False),
    Candidate(1, copies=False),
    Candidate(1, copies=False, matrix_stores=False),
    Candidate(2, copies=False, matrix_stores=False, ordinary=True),
    Candidate(1, copies=False, matrix_stores=False, ordinary=True),
)


Attempt: TypeAlias = tuple[tile.Kernel, Mapping[str, int], Candidate]
"""A program, its extents, and how it is scheduled."""


def candidates(kernel: tile.Kernel, pins: Schedule) -> Iterator[Candidate]:
    """The candidates for a kernel, best first.

    Three and four warpgroups are for tiles of their number of rows, or where pinned: of three, two would waste a
    quarter of the work, and no other tile with them was faster than the best of two by more than the spread (H200,
    benchmarks/results/schedules.json).
    """
    rows = {tile.tile_type(op.result).shape[0] for op in kernel.walk() if isinstance(op, tile.Dot)}
    waits = rows == {ROWS} and has_dependent_products(kernel)
    for candidate in CANDIDATES:
        own = candidate.warpgroups
        fits = own <= 2 or pins.consumers == own or rows == {own * ROWS}
        if fits and (candidate.resident == 1 or waits):
            yield candidate


def has_dependent_products(kernel: tile.Kernel) -> bool:
    """Whether the products of a step depend on one another in a stream with a loaded bound, as in decode: one warpgroup
    leaves tensor cores and memory idle in between."""
    streams = [op for op in kernel.walk() if isinstance(op, tile.StreamLoop) and LoadedBounds(kernel).binds]
    inner = [[op for op in stream.walk() if isinstance(op, tile.Dot)] for stream in streams]
    return any(not isinstance(source_of(dot.a)[0].owner, tile.Load | tile.Gather) for dots in inner for dot in dots[1:])


def pinned(candidate: Candidate, pins: Schedule) -> Candidate | None:
    """The candidate with the user's pins applied; None if the pins exclude it."""
    if pins.consumers is not None and candidate.warpgroups * candidate.ping_pong != pins.consumers:
        return None
    if pins.mode is not None and (candidate.ping_pong > 1) != (pins.mode is RoleMode.PINGPONG):
        return None
    cluster = pins.cluster or candidate.cluster
    return replace(candidate, stages=pins.stages, cluster=cluster)


def attempts(
    target: Target,
    choices: Sequence[Mapping[str, int]],
    retrace: Callable[[Mapping[str, int]], tile.Kernel],
    pins: Schedule,
    first: Sequence[Candidate],
) -> Iterator[Attempt]:
    """The candidates for a variant: ``first`` with its first extents, then extents by extents all candidates in
    order."""
    has_wgmma = InstructionSet.WGMMA in target.instructions
    for candidate in first if has_wgmma else ():
        if (kept := pinned(candidate, pins)) is not None:
            yield retrace(choices[0]), choices[0], kept
    for copies, ordinary in ((True, False), (False, False), (False, True))[0 if has_wgmma else 2 :]:
        for extents in _small_first(choices, retrace) if ordinary else choices:
            for candidate in candidates(retrace(extents), pins):
                kept = pinned(candidate, pins) if candidate.ping_pong == 1 or pins.mode is RoleMode.PINGPONG else None
                if kept is not None and candidate.copies is copies and candidate.ordinary is ordinary:
                    yield retrace(extents), extents, kept


def _small_first(
    choices: Sequence[Mapping[str, int]], retrace: Callable[[Mapping[str, int]], tile.Kernel]
) -> Sequence[Mapping[str, int]]:
    """Extents for products without wgmma. Ordinary arithmetic wants the smallest, mma the next: on an H200 f16 takes
    65 us in 64 x 64 at 1024^3 where 64 x 32 takes 111, at 4096^3 3331 and 5885, at 512 x 384 x 640 24 and 22."""
    small = [*reversed(choices)]
    if any(isinstance(op, tile.Dot) and has_mma(op) for op in retrace(small[0]).walk()):
        small.append(small.pop(0))
    return small


def unknown_pins(pins: Schedule) -> str:
    """The pins that no schedule of this folder supports, as text."""
    found = [
        f"{name}={value}"
        for name, value in (
            ("warps", pins.warps),
            ("persistent", None if pins.persistent in (None, True) else pins.persistent),
            ("vector", pins.vector),
            ("mode", pins.mode if pins.mode is RoleMode.PLAIN else None),
        )
        if value is not None
    ]
    if pins.consumers not in (None, 1, 2, 3):
        found.append(f"consumers={pins.consumers}")
    return ", ".join(found)


def schedule(
    kernel: tile.Kernel, facts: CallFacts, target: Target, candidate: Candidate, assumptions: tuple[Expr, ...]
) -> Scheduled | Refused:
    """Lowers the kernel with one candidate, with as many stages as shared memory holds; or why it does not apply."""
    if not (candidate.ordinary or InstructionSet.WGMMA in target.instructions):
        return Refused(f"{target} has no wgmma")
    kernel, classes = classified(kernel)
    if candidate.software_pipelined:
        moved = reordered(kernel)
        if moved is None:
            return Refused("no stream with two products of which the last can wait a step")
        kernel, classes = moved, classify(moved)
    with unchanged(kernel):
        dots = Analysis(kernel, facts, candidate.warpgroups, candidate.copies, candidate.ordinary).dots()
        if isinstance(dots, str):
            return Refused(dots)
        placement = placed(kernel, classes, dots, facts, target, candidate, assumptions)
        if isinstance(placement, Refused):
            return placement
        configuration = configured(kernel, dots, facts, candidate, placement)
        if isinstance(configuration, Refused):
            return configuration
        return deepest(kernel, placement, facts, candidate, configuration)


def placed(
    kernel: tile.Kernel,
    classes: Classes,
    dots: Sequence[DotPlan],
    facts: CallFacts,
    target: Target,
    candidate: Candidate,
    assumptions: tuple[Expr, ...],
) -> Placement | Refused:
    """The placement of the kernel's values, if the warpgroups have rows and registers for them."""
    blocks = {-(-p.shape[0] // ROWS) for p in dots}
    if min(blocks) < candidate.warpgroups:
        return Refused(f"no rows for {candidate.warpgroups} warpgroups")
    if candidate.ordinary and any(count % candidate.warpgroups for count in blocks):
        return Refused(f"{candidate.warpgroups} warpgroups take tiles of {ROWS * candidate.warpgroups} rows")
    sums = program_sums(kernel)
    placement = place_from_products(
        kernel,
        classes,
        dots,
        facts,
        candidate.warpgroups,
        assumptions,
        target,
        persistent=not sums,
        ctas=candidate.resident,
    )
    if isinstance(placement, Refused):
        return placement
    for op in sums:
        if (refused := summed_alike(op, placement)) is not None:
            return refused
    words = fragment_registers(kernel, dots, placement)
    if words > MAX_REGISTERS[candidate.warpgroups * candidate.ping_pong]:
        return Refused(f"accumulators take {words} registers of each thread")
    return placement


def configured(
    kernel: tile.Kernel, dots: tuple[DotPlan, ...], facts: CallFacts, candidate: Candidate, placement: Placement
) -> ScheduleConfiguration | Refused:
    """The candidate's cluster, ping-pong, stores and software-pipelined streams, its pipelines still empty; or what the
    kernel lacks."""
    cluster = None
    for op in program_sums(kernel):
        if candidate.cluster != (1, op.parts.data) or op.axis.data != len(kernel.grid) - 1:
            return Refused("parts are added up by the CTAs of a cluster along the grid's last axis")
    if candidate.cluster != (1, 1):
        cluster = clustered(kernel, dots, candidate.cluster)
        if isinstance(cluster, Refused):
            return cluster
    bounds = LoadedBounds(kernel)
    if bounds.binds and group(dots, 1) and (reason := bounds.refusal()):
        return Refused(reason)
    if bounds.binds and (cluster is not None or candidate.ping_pong > 1):
        return Refused("loaded bounds are shared by the roles of one CTA that walk the same programs")
    if candidate.ping_pong > 1 and not ping_pong_fits(kernel, dots):
        return Refused("ping-pong needs tiles of tensor copies alone, as many for every program")
    pipelined_streams = software_pipelines(kernel, dots) if candidate.software_pipelined else {}
    if candidate.software_pipelined and not pipelined_streams:
        return Refused("no stream with two products of copied tiles of which the last can wait a step")
    return ScheduleConfiguration(
        candidate,
        dots,
        cluster=cluster,
        stores=shared_memory_epilogues(kernel, facts, placement, candidate) if candidate.matrix_stores else {},
        software_pipelines=pipelined_streams,
        ordered=ordered_streams(kernel, dots) if candidate.ping_pong == 1 < candidate.warpgroups else frozenset(),
        in_flight=streams_in_flight(
            kernel, dots, placement, MAX_REGISTERS[candidate.warpgroups * candidate.ping_pong], pipelined_streams
        ),
    )


def deepest(
    kernel: tile.Kernel,
    placement: Placement,
    facts: CallFacts,
    candidate: Candidate,
    configuration: ScheduleConfiguration,
) -> Scheduled | Refused:
    """Lowers the kernel with the most stages, or those pinned, that fit into shared memory."""
    limit = placement.target.shared_bytes_of(candidate.resident)
    single = tuple(
        replace(r, vectors=vectors_of(r, kernel, facts, placement, configuration)) for r in group(configuration.dots, 1)
    )
    streamed = [r for r in single if r.in_stream]
    if candidate.stages is not None and not streamed:
        return Refused(f"no pipeline to have {candidate.stages} stages")
    adds_up = bool(program_sums(kernel))
    shares = {} if configuration.cluster is None else shared_tiles(configuration.cluster, single, adds_up=adds_up)
    if isinstance(shares, Refused):
        return shares
    most = max(STAGES, IN_FLIGHT_BYTES // sum(r.stage_bytes for r in streamed)) if streamed else STAGES
    tried = range(most, 0, -1) if candidate.stages is None else (candidate.stages,)
    beside = epilogue_bytes(configuration.consumers) if configuration.stores else 0
    reason = ""
    ahead = PROGRAMS_AHEAD if LoadedBounds(kernel).binds or configuration.software_pipelines else 1
    depths = product(tried, range(ahead, 0, -1))
    for stages, programs in sorted(
        depths, key=lambda each: (min(each[0], ENOUGH_STAGES), *reversed(each)), reverse=True
    ):
        pipelines = tuple(r.with_stages(stages, programs) for r in single)
        estimate = sum(r.stages * r.stage_bytes for r in pipelines)
        if estimate > limit or (estimate + beside > limit and stages > tried[-1]):
            reason = f"{stages} stages take {estimate} bytes of shared memory"
            continue
        lowering = RoleLowering(kernel, placement, facts, replace(configuration, pipelines=pipelines, shares=shares))
        lowered = lowering.run()
        size = lay_out(lowered)
        if size <= limit:
            depth = ", ".join(f"{r.name}: {r.stages} x {r.stage_bytes} bytes" for r in pipelines)
            notes = (f"pipelines {depth or 'none'}; {size} bytes of shared memory",)
            notes += tuple(store.note for store in configuration.stores.values() if store.note)
            vectors = [vector for pipeline in pipelines for vector in pipeline.vectors]
            for way, those in (("cp.async", False), ("tensor copies", True)):
                of = [v for v in vectors if (v.map is not None) == those]
                notes += (f"in stages of their own, by {way}: {named(of)}",) if of else ()
            copied = [slot.copied for pipeline in pipelines for slot in pipeline.thread_copied]
            gathered = [
                tensor_name(x.load) for x in copied if isinstance(x, ThreadCopiedOperand) and x.rows is not None
            ]
            notes += (f"rows gathered by cp.async: {', '.join(gathered)}",) if gathered else ()
            return Scheduled(lowered, placement, notes, tuple(dict.fromkeys(lowering.guards)))
        reason = f"{stages} stages take {size} bytes of shared memory"
        if not pipelines:
            break
    return Refused(reason)


def vectors_of(
    pipeline: TilePipeline,
    kernel: tile.Kernel,
    facts: CallFacts,
    placement: Placement,
    configuration: ScheduleConfiguration,
) -> tuple[StageVector, ...]:
    """The vectors that are copied to a pipeline's stages beside its tiles, where warpgroups are ordered or a step has
    several products. Of the pipelines of a stream the one that is awaited first has them."""
    stream = pipeline.block.parent_op()
    if (
        configuration.cluster is not None
        or configuration.candidate.ping_pong > 1
        or not isinstance(stream, tile.StreamLoop)
    ):
        return ()
    own = [r for r in group(configuration.dots, 1) if r.block is pipeline.block]
    if pipeline.name != min(own, key=lambda r: r.block.get_operation_index(r.first)).name:
        return ()
    several = len([p for p in configuration.dots if stream.is_ancestor(p.dot)]) > 1
    if len(own) > 1 if stream in configuration.ordered else not several or stream in configuration.software_pipelines:
        return ()
    vectors = stage_vectors(stream, kernel, facts, placement, configuration.candidate.warpgroups * WARPGROUP_THREADS)
    if stream in configuration.ordered:
        return tuple(vectors)
    known = Analysis(kernel, facts, configuration.candidate.warpgroups).known
    return tuple(through_map(vector, known) for vector in vectors)


def ping_pong_fits(kernel: tile.Kernel, dots: Sequence[DotPlan]) -> bool:
    """Whether warpgroups can alternate over programs: all products read one pipeline of copies, and registers."""
    brought = all(isinstance(p.a, AsyncOperand | RegisterOperand) and isinstance(p.b, AsyncOperand) for p in dots)
    return bool(dots) and brought and equal_uses(kernel, group(dots, 1))


def clustered(kernel: tile.Kernel, dots: Sequence[DotPlan], shape: tuple[int, int]) -> Cluster | Refused:
    """The cluster of a kernel whose CTAs all execute the same steps; or why there is none."""
    if len(kernel.grid) < 2:
        return Refused("clusters lie along the last two axes of the grid")
    if prod(shape) > MOST_CTAS:
        return Refused(f"a cluster of {prod(shape)} CTAs: protocols of more than {MOST_CTAS} are not proved in minutes")
    cluster = Cluster(*shape, len(kernel.grid))
    if not any(isinstance(operand, TmaOperand) for plan in dots for operand in (plan.a, plan.b)):
        return Refused("no tile is brought by tensor copies, so a cluster has nothing to share")
    for stream in kernel.walk():
        if isinstance(stream, tile.StreamLoop) and cluster.varies(stream.trip.expr.symbols):
            return Refused("CTAs of a cluster would go round a stream a different number of times")
    return cluster


def shared_tiles(
    cluster: Cluster, pipelines: Sequence[TilePipeline], *, adds_up: bool
) -> dict[tile.Load | tile.Gather, Share] | Refused:
    """Each CTA's share of every copied tile. A cluster that ``adds_up`` split-K parts need not share any."""
    found: dict[tile.Load | tile.Gather, Share] = {}
    for slot in (slot for pipeline in pipelines for slot in pipeline.slots):
        copied, load = slot.copied, slot.copied.load
        share = None
        if isinstance(copied, TmaOperand) and isinstance(load, tile.Load):
            share = cluster.share(load, copied.map)
        if share is None:
            return Refused(f"a tile of {tensor_name(slot.copied.load)} can't be cut into parts for a cluster")
        found[slot.copied.load] = share
    if not adds_up and not any(share.receivers for share in found.values()):
        return Refused("no tile is the same for the CTAs of a cluster")
    return found
