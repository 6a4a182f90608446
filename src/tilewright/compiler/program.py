"""From a request to planned and proved transport kernels, one per variant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NoReturn, TypeAlias

from xdsl.dialects.builtin import StringAttr

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import TRUE, Const, Expr, all_of, minimum
from tilewright.base.verdict import Proved
from tilewright.compiler.certify import certified, prove_stores
from tilewright.compiler.collector import collector_resting
from tilewright.compiler.passes import timed
from tilewright.compiler.products import Found, Search, search_products
from tilewright.compiler.requests import Request, assumptions_of
from tilewright.compiler.staging import Staged, copy_request, residual, staged_tensors, with_staged
from tilewright.compiler.staging_price import pays
from tilewright.compiler.verdicts import AccessVerdict, operand_verdicts, verdicts
from tilewright.diag import fail
from tilewright.hw.target import TARGETS, Target
from tilewright.lang.schedule import Mode
from tilewright.schedule.conflicts import shared_uses
from tilewright.schedule.extents import bound_ladder, choose_extents, probe, unaligned_ends
from tilewright.schedule.facts import Facts, without_peers
from tilewright.schedule.hopper.candidates import Candidate, has_products
from tilewright.schedule.hopper.extents import product_variants
from tilewright.schedule.lower import Lowering
from tilewright.schedule.plan import Placement, place
from tilewright.schedule.relayout import separated
from tilewright.schedule.shared_memory import place_shared
from tilewright.simulate.steps import Scratch, Step
from tilewright.tile import dialect as tile
from tilewright.tile.tracer import trace
from tilewright.transport import dialect as transport


@dataclass(frozen=True)
class PlannedKernel:
    """One variant before code generation: when it applies, its IRs, and its certificate."""

    predicate: Expr
    tile: tile.Kernel
    transport: transport.Kernel
    placement: Placement
    certificate: tuple[Obligation, ...]
    facts: Facts
    """Those of the arguments; of a tensor in a workspace the kernel assumes more."""
    notes: tuple[str, ...] = ()
    ctas: int | None = None
    """Most CTAs of a launch, for kernels whose CTAs walk the programs."""
    later: Search | None = None
    """Further schedules, should the assembler spoil this one."""
    smaller: Callable[[], PlannedKernel] | None = None
    """The same with half the largest extent that the schedule chose; None where all are pinned or 1."""
    workspaces: Mapping[str, Staged] = field(default_factory=dict[str, Staged])
    """The kernel's tensors that lie in a workspace of the program."""
    copies: tuple[StagedCopy, ...] = ()
    """What runs before, on the same stream: kernels that fill the workspaces."""

    @property
    def grid(self) -> Expr:
        """CTAs of a launch: one a program, or as many as run at once; in a cluster kernel whole clusters."""
        total: Expr = Const(1)
        for extent in next(op for op in self.transport.walk() if isinstance(op, transport.Programs)).extents:
            total = total * extent.expr
        return total if self.ctas is None else minimum(total, self.ctas // self.cluster * self.cluster)

    def remarks(self, target: str) -> tuple[str, ...]:
        """What the plan says of this kernel, of each of its accesses, and how those to shared memory meet the banks."""
        lines = (line for verdict in self.verdicts(TARGETS[target]) for line in verdict.lines)
        operands = operand_verdicts(self.transport)
        return (*self.notes, *self.placement.notes, *lines, *operands, *map(str, shared_uses(self.transport, target)))

    def verdicts(self, target: Target) -> tuple[AccessVerdict, ...]:
        """The verdict of the legality rules on every access, in order."""
        return verdicts(self.tile, self.transport, self.facts, self.workspaces, target)

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return 1 if self.transport.cluster is None else self.transport.cluster.data

    @property
    def binding(self) -> dict[str, Expr]:
        """What stands for the symbols of tensors that lie in a workspace."""
        parts = (item.binding(name) for name, item in self.workspaces.items())
        return {symbol: value for part in parts for symbol, value in part.items()}

    @property
    def steps(self) -> tuple[Step, ...]:
        """The kernels in order, for the simulator."""
        kernels = (*(copy.planned for copy in self.copies), self)
        return tuple(Step(k.transport, {n: i.copy_name for n, i in k.workspaces.items()}) for k in kernels)

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        """The workspaces of the steps, for the simulator."""
        items = self.workspaces.values()
        return tuple(Scratch(i.copy_name, i.element, i.dims, i.strides, i.size_bytes) for i in items)


@dataclass(frozen=True)
class StagedCopy:
    """The kernel that copies one tensor to its workspace, with the request it answers."""

    item: Staged
    request: Request
    planned: PlannedKernel


@dataclass(frozen=True)
class Program:
    """All variants of one request, in dispatch order: the first whose predicate holds runs."""

    request: Request
    variants: tuple[PlannedKernel, ...]


Limits: TypeAlias = tuple[tuple[Expr, int], ...]
"""Sizes that a variant narrows ``upto`` axes to, by extent."""


def traced(request: Request) -> tile.Kernel:
    """The kernel's tile IR with default extents."""
    return Tracing(request)({})


class Tracing:
    """The tile programs of a request, each traced once. They differ in sizes alone: the first is verified."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._traced: dict[tuple[frozenset[tuple[str, int]], Limits], tile.Kernel] = {}

    @timed("trace")
    def __call__(self, extents: Mapping[str, int], limits: Limits = ()) -> tile.Kernel:
        """The program with the given extents for its autos, over those that are pinned, and sizes for its ``upto``
        axes. It is shared: whoever changes it, changes a copy."""
        whole = {**extents, **dict(self.request.schedule.extents)}
        key = (frozenset(whole.items()), limits)
        found = self._traced.get(key)
        if found is None:
            signature = self.request.signature.with_extents(whole, limits)
            (found,) = trace(self.request.function, signature, verify=not self._traced).body.block.ops
            assert isinstance(found, tile.Kernel)
            self._traced[key] = found
        return found


@collector_resting()
def plan(request: Request, dims: Mapping[str, int] | None = None) -> Program:
    """Trace, choose extents, and plan every variant; with ``dims`` known only the variant that serves them."""
    pinned = dict(request.schedule.extents)
    autos = [n for n in request.function.autos if n not in dict(request.signature.keywords) and n not in pinned]
    traces = Tracing(request)
    smallest = traces(dict.fromkeys(autos, 1))
    products = has_products(smallest)
    if products:
        request = replace(request, facts=without_peers(request.facts))
    unaligned = {} if products else unaligned_ends(smallest, request.facts)
    ladder = bound_ladder([b.data for b in smallest.bounds], unaligned)
    widest = ladder[-1]
    if dims is not None:
        ladder = [next(sizes for sizes in ladder if all(e.evaluate(dims) <= n for e, n in sizes))]
    if products:
        return Program(request, tuple(_with_products(request, traces, autos, ladder, widest, dims)))
    refuse_pins(request)
    structure = probe(autos, traces, request.facts)
    found: list[tuple[Expr, dict[str, int], Limits]] = []
    for sizes in ladder:
        fits = TRUE if sizes == widest else all_of(extent <= size for extent, size in sizes)
        for choice in choose_extents(structure, dict(sizes)):
            if dims is None or choice.predicate.evaluate(dims):
                found.append((all_of([fits, choice.predicate]), dict(choice.extents), sizes))
                if dims is not None:
                    break
    names = [request.function.name + (f"_{i}" if len(found) > 1 else "") for i in range(len(found))]
    variants = [_variant(traces, p, name, e, sizes) for (p, e, sizes), name in zip(found, names, strict=True)]
    return Program(request, tuple(variants))


def _variant(traces: Tracing, predicate: Expr, name: str, chosen: Mapping[str, int], sizes: Limits) -> PlannedKernel:
    """The variant with the extents ``chosen`` for its autos."""
    planned = plan_kernel(traces.request, traces(chosen, sizes), predicate, name)
    largest = max(chosen, key=lambda auto: chosen[auto], default=None)
    if largest is None or chosen[largest] == 1:
        return planned
    halved = {**chosen, largest: chosen[largest] // 2}
    return replace(planned, smaller=lambda: _variant(traces, predicate, name, halved, sizes))


@timed("schedule")
def plan_kernel(
    request: Request,
    kernel: tile.Kernel,
    predicate: Expr,
    name: str,
    threads: int | None = None,
    min_ctas: int | None = None,
) -> PlannedKernel:
    """Lower one variant and prove it; ``threads`` and ``min_ctas`` (per SM) override the schedule's choice.

    A tile laid from boundaries that can't be proved is laid from its first element, which always can.
    """
    assumptions = assumptions_of(kernel, request.facts)
    apart = separated(kernel)
    pins = request.schedule
    for skewed in (True, False):
        placement = place(
            apart,
            request.facts,
            pins,
            assumptions,
            request.target,
            threads=threads,
            min_ctas=min_ctas,
            skewed=skewed,
        )
        lowered = Lowering(apart, placement, request.facts).run()
        lowered.attributes["sym_name"] = StringAttr(name)
        place_shared(lowered, request.function.where)
        answer = prove_stores(kernel, lowered)
        if placement.skew is None or isinstance(answer, Proved):
            break
    certificate = certified(kernel, answer)
    _check_vector(request, lowered)
    ctas = request.target.sm_count * placement.min_ctas if placement.persistent else None
    return PlannedKernel(predicate, kernel, lowered, placement, certificate, request.facts, ctas=ctas)


def _check_vector(request: Request, lowered: transport.Kernel) -> None:
    """SCH002 if no access moves as many elements as pinned."""
    if request.schedule.vector is None:
        return
    accesses = (transport.Load, transport.Store, transport.ReduceAdd)
    widest = max((op.vector.data for op in lowered.walk() if isinstance(op, accesses)), default=1)
    if request.schedule.vector != widest:
        fail(
            "SCH002",
            where=request.function.where,
            found=f"vector={request.schedule.vector}; the widest access that tiles and alignment allow has {widest}",
            required="a power of two up to what the tensors' alignment, strides and the tile's extent allow",
            help="leave the pin out",
        )


def refuse_pins(request: Request) -> None:
    """SCH002 for decisions that kernels without matrix products do not have."""
    pins = request.schedule
    found = [
        f"{name}={value}"
        for name, value in (
            ("stages", pins.stages),
            ("consumers", pins.consumers),
            ("cluster", pins.cluster),
            ("rows_per_cta", pins.rows_per_cta),
            ("registers", pins.registers),
            ("staged", pins.staged or None),
            ("mode", None if pins.mode is Mode.PLAIN else pins.mode),
        )
        if value is not None
    ]
    if found:
        fail(
            "SCH002",
            where=request.function.where,
            found=", ".join(found),
            required="warps, persistent, vector or extents: this kernel multiplies no matrices",
            help="leave the pin out",
        )


def _with_products(
    request: Request,
    traces: Tracing,
    autos: Sequence[str],
    ladder: Sequence[Limits],
    widest: Limits,
    dims: Mapping[str, int] | None,
) -> Iterator[PlannedKernel]:
    """Variants by the sizes of the ``upto`` axes and by which tile fills its waves better; one for known ``dims``."""
    choices = _choices(request, traces, autos, ladder, widest, dims)
    found = list(choices) if dims is None else [next(c for c in choices if c.predicate.evaluate(dims))]
    for i, choice in enumerate(found):
        name = request.function.name + (f"_{i}" if len(found) > 1 else "")
        own = replace(request, facts=with_staged(request.facts, [c.item for c in choice.copies]))
        search = search_products(own, choice.choices, choice.remade, name, choice.candidates)
        yield with_products(own, choice.predicate, search.next(), request.facts, choice.copies)


def _choices(
    request: Request,
    traces: Tracing,
    autos: Sequence[str],
    ladder: Sequence[Limits],
    widest: Limits,
    dims: Mapping[str, int] | None,
) -> Iterator[_Choice]:
    """In the order in which they are tried at launch; with known ``dims`` none that those do not admit."""
    for sizes in ladder:

        def resized(extents: Mapping[str, int], limits: Limits = sizes) -> tile.Kernel:
            return traces(extents, limits)

        fits = TRUE if sizes == widest else all_of(extent <= size for extent, size in sizes)
        variants = product_variants(autos, resized, request.target, request.facts)
        for _, group in groupby(variants, lambda variant: variant.applies):
            direct: list[_Choice] = []
            for variant in group:
                plain = _Choice(all_of([fits, variant.predicate]), variant.choices, resized, variant.candidates)
                if dims is not None and not plain.predicate.evaluate(dims):
                    continue
                staged = _staged(request, plain, resized(variant.choices[0]))
                yield plain if staged is None else staged
                if staged is not None and request.schedule.staged is None and not variant.candidates:
                    direct.append(plain)
            yield from direct  # where copying first does not pay, before tiles for more rows


@dataclass(frozen=True)
class _Choice:
    """Extents to try, best first, for the launches in which ``predicate`` holds, after ``copies`` have been made."""

    predicate: Expr
    choices: Sequence[Mapping[str, int]]
    remade: Callable[[Mapping[str, int]], tile.Kernel]
    candidates: tuple[Candidate, ...] = ()
    copies: tuple[StagedCopy, ...] = ()


def _staged(request: Request, plain: _Choice, kernel: tile.Kernel) -> _Choice | None:
    """The same after aligned copies of what tensor copies can't bring; None where there is nothing of the kind."""
    pin = request.schedule.staged
    items = () if pin is False else staged_tensors(kernel, request.facts)
    if not items:
        if pin is True:
            _nothing_to_stage(request)
        return None
    copies = tuple(_copy(item, copy_request(request, item)) for item in items)
    worth = TRUE if pin is True else pays(kernel, request.facts, items, request.target)
    return replace(plain, predicate=all_of([plain.predicate, worth]), copies=copies)


def _nothing_to_stage(request: Request) -> NoReturn:
    fail(
        "SCH002",
        where=request.function.where,
        found="staged=True",
        required="an operand of a product that tensor copies can't bring as it lies, and could from a copy",
        help="leave the pin out",
    )


def _copy(item: Staged, request: Request) -> StagedCopy:
    """The kernel for tensors of any width: one launch serves the whole class."""
    planned = plan(request).variants[-1]
    planned.transport.attributes["sym_name"] = StringAttr(request.function.name)
    return StagedCopy(item, request, replace(planned, workspaces={item.copy_name: item}))


def with_products(
    request: Request, predicate: Expr, found: Found, facts: Facts, copies: tuple[StagedCopy, ...] = ()
) -> PlannedKernel:
    """A variant that multiplies matrices, for arguments of ``facts``; its tensor maps' needs join the predicate, and
    what the kernels assume of workspaces beyond what their layout gives."""
    planned = PlannedKernel(
        predicate,
        found.tile,
        found.scheduled.kernel,
        found.scheduled.placement,
        found.certificate,
        facts,
        found.scheduled.notes,
        request.target.sm_count if found.scheduled.placement.persistent else None,
        found.later,
        workspaces={copy.item.name: copy.item for copy in copies},
        copies=copies,
    )
    needs = [residual((*assumptions_of(found.tile, request.facts), *found.scheduled.guards), planned.binding)]
    needs += [residual(assumptions_of(c.planned.tile, c.request.facts), c.planned.binding) for c in copies]
    needs += [g for g in found.scheduled.guards if planned.binding.keys().isdisjoint(g.symbols)]
    needs.append(found.guard.substitute(planned.binding))
    return replace(planned, predicate=all_of([predicate, *needs]))
