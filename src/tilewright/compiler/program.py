"""From a request to planned and proved transport kernels, one per variant."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import NoReturn

from xdsl.dialects.builtin import StringAttr

from tilewright.base.cached import cached_property
from tilewright.base.expr import FALSE, TRUE, Assignment, Const, Expr, all_of, conjuncts
from tilewright.compiler.alternatives import plain_schedules, product_schedules
from tilewright.compiler.collapse_dimensions import Collapse, collapse
from tilewright.compiler.empty_streams import planned_rest, rests
from tilewright.compiler.gc_pause import gc_paused
from tilewright.compiler.index_promises import Checks, checks_of, gated, gated_roles
from tilewright.compiler.partial_sums import Originals, Remade, SplitClass, added_in_cluster
from tilewright.compiler.plain import plan_kernel, refuse_pins
from tilewright.compiler.planned import PlannedKernel, PlannedProgram, PromiseChecks, StagedCopy
from tilewright.compiler.products import ProvedSchedule, plan_products
from tilewright.compiler.requests import Limits, Request, assume, assumptions_of, tensors_of
from tilewright.compiler.staging import copy_request, residual, staged_facts, staged_tensors, with_staged
from tilewright.compiler.staging_price import pays
from tilewright.compiler.tracing import Tracing
from tilewright.compiler.unsupported import UnsupportedClasses
from tilewright.compiler.workspaces import StagedTensor
from tilewright.diag import TilewrightError, fail
from tilewright.lang.schedule import Schedule
from tilewright.schedule.extents import bound_ladder, choose_extents, of_long_steps, probe, unaligned_ends
from tilewright.schedule.facts import without_peers
from tilewright.schedule.product_schedules import ProductVariant, schedules_of
from tilewright.schedule.transforms.split_k import FEW
from tilewright.schedule.transforms.split_sums import split_sum_launches
from tilewright.schedule.transforms.swapped_operands import swapped
from tilewright.schedule.unrolled import instructions, is_long
from tilewright.tile import dialect as tile
from tilewright.tile.queries import has_products


def traced(request: Request) -> tile.Kernel:
    """The kernel's tile IR with default extents."""
    return Tracing(request)({})


def plan(request: Request, dims: Mapping[str, int] | None = None) -> PlannedProgram:
    """Trace, choose extents, and plan every variant; with ``dims`` known only the variant that serves them."""
    return Planner(request).program(dims)


class Planner:
    """Plans the variants of a request. Each class of arguments is planned once, for all of its extents."""

    def __init__(self, request: Request) -> None:
        self.traces = Tracing(request)
        self._kernels: dict[Hashable, PlannedKernel] = {}

    @gc_paused()
    def program(self, dims: Mapping[str, int] | None = None) -> PlannedProgram:
        """Every variant of the request; with ``dims`` known only the one that serves them.

        Classes of arguments for which no kernel can be planned are left out, as long as one remains.
        """
        classes = self._classes.of(dims)
        request, products = classes.request, classes.products
        unsupported = UnsupportedClasses(request)
        variants: tuple[PlannedKernel, ...] = ()
        for name, choice in classes.named():
            if choice.predicate == FALSE:  # of extents that are static
                continue
            with unsupported.trying(choice.predicate, choice.sizes):
                planned = self._kernels.get((name, choice.key))
                if planned is None:
                    planned = replace((_product if products else _plain)(request, choice, name), sizes=choice.sizes)
                    self._kernels[name, choice.key] = planned
                variants += (planned,)
                if dims is not None:
                    break
        unsupported.require_one(variants)
        whole = next(reversed(variants)).tile
        for number, (rest, predicate) in enumerate(rests(variants) if products and dims is None else ()):
            with unsupported.trying(predicate, ()):
                variants += (planned_rest(request, whole, rest, predicate, number),)
        return PlannedProgram(request, variants, unsupported.left_out, self.traces)

    def alternatives(self, dims: Mapping[str, int]) -> Iterator[Schedule]:
        """Schedules other than the chosen one that are worth timing for these extents."""
        found = self._classes.of(dims).alternatives(lambda: self.program(dims).variants[0])
        return iter(dict.fromkeys(found))

    @cached_property
    def _classes(self) -> _Classes:
        """The classes of all arguments."""
        request = self.traces.request
        pinned = dict(request.schedule.extents)
        autos = [n for n in request.function.autos if n not in dict(request.signature.keywords) and n not in pinned]
        smallest = self.traces(dict.fromkeys(autos, 1))
        products = has_products(smallest)
        checks = checks_of(request, smallest, roles=products)
        if products:
            request = replace(request, facts=without_peers(request.facts))
        unaligned = {} if products else unaligned_ends(smallest, request.facts)
        ladder = bound_ladder([b.data for b in smallest.bounds], unaligned)
        promised = None if checks is None else _promised(checks)
        return _Classes(request, self.traces, autos, ladder, products=products, dims=None, promised=promised)


def _promised(checks: Checks) -> PromiseChecks:
    """Plans the kernels of the checks, each of which serves tensors of any width."""
    kernels: list[PlannedKernel] = []
    for step in checks.steps:
        planned = plan(step.request).variants[-1]
        assert planned.predicate == TRUE, "a check serves some tensors only"
        planned.transport.attributes["sym_name"] = StringAttr(step.request.function.name)
        dims = {name for kind in tensors_of(planned.tile).values() for d in kind.dims for name in d.expr.symbols}
        assume(planned.transport, (fact for fact in conjuncts(checks.asked) if fact.symbols <= dims))
        kernels.append(replace(planned, workspaces=step.workspaces))
    return PromiseChecks(checks, tuple(kernels))


@dataclass(frozen=True)
class _Choice:
    """A class of arguments, and how it is scheduled.

    Its kernel runs where ``predicate`` holds, no class before it does, and ``copies`` have been made.
    """

    predicate: Expr
    sizes: Limits
    variant: ProductVariant
    remade: Remade
    copies: tuple[StagedCopy, ...] = ()
    promised: PromiseChecks | None = None
    collapsed: Collapse | None = None
    """Set where its matrices are flattened."""

    def split(self, parts: Expr, *, many: bool) -> _Choice:
        """The same with the stream cut into ``parts``."""
        return replace(self, variant=replace(self.variant, parts=parts, many=many))

    @property
    def key(self) -> Hashable:
        """Equal for equal choices of one request."""
        own = self.variant
        extents = tuple(tuple(sorted(choice.items())) for choice in own.choices)
        narrow = None if own.narrow is None else tuple(sorted(own.narrow.items()))
        scheduled = extents, own.candidates, own.parts, own.many, narrow, own.swapped
        launches, copied = (own.one_row, own.one_wave, own.whole_stores), tuple(c.item for c in self.copies)
        return self.predicate, self.sizes, scheduled, launches, copied, self.collapsed is not None


@dataclass(frozen=True)
class _Classes:
    """The classes of arguments of a request that get kernels of their own, in dispatch order; with known ``dims`` only
    those that serve them."""

    request: Request
    traces: Tracing
    autos: Sequence[str]
    ladder: Sequence[Limits]
    products: bool
    dims: Mapping[str, int] | None
    promised: PromiseChecks | None = None
    copies: dict[StagedTensor, StagedCopy] = field(default_factory=dict[StagedTensor, StagedCopy])
    """The kernel that copies each staged tensor, planned once for all classes."""

    def of(self, dims: Mapping[str, int] | None) -> _Classes:
        """Those that serve these extents, if they are known."""
        return replace(self, dims=None if dims is None else Assignment(dims))

    def named(self) -> Iterator[tuple[str, _Choice]]:
        """The classes with the names of their kernels; lazily where ``dims`` are known and the first suffices."""
        found = self._with_products() if self.products else self._plain()
        name = self.request.function.name
        if self.dims is not None:
            yield from ((name, choice) for choice in found if self._take(choice.predicate))
            return
        every = list(found)
        yield from ((f"{name}_{i}" if len(every) > 1 else name, choice) for i, choice in enumerate(every))

    def alternatives(self, chosen: Callable[[], PlannedKernel]) -> Iterator[Schedule]:
        """Schedules other than ``chosen`` for the known extents, in order of expected time."""
        request = self.request
        sizes, _, resized = next(self._rungs())
        if self.products:
            asked = (self.autos, resized, request.target, request.facts)
            schedules = schedules_of(request.target)
            variants = [*schedules.variants(*asked), *schedules.other_widths(*asked)]
            yield from product_schedules(variants, self.dims or {}, request.schedule)
            return
        choices = choose_extents(probe(self.autos, self.traces, request.facts), dict(sizes), request.target)
        extents = next(each.extents for each in choices if self._take(each.predicate))
        threads = chosen().placement.home.threads
        yield from plain_schedules(extents, threads, request.schedule, request.target.max_threads_per_cta)

    def _plain(self) -> Iterator[_Choice]:
        """Classes by whether matrices can be flattened, by the sizes of ``upto`` axes and by the width of rows."""
        pinned = self.request.schedule.split_k is not None
        refuse_pins(self.request, sums=pinned and split_sum_launches(self.traces({}), self.request.target) is not None)
        structure = probe(self.autos, self.traces, self.request.facts)
        row = None if self.promised is not None else collapse(self.request, self.traces({}), structure)
        if row is not None and self._take(row.predicate):
            yield _Choice(row.predicate, self.ladder[-1], _alone(row.choice), self.traces, collapsed=row)
        for sizes, fits, resized in self._rungs():
            choices = choose_extents(structure, dict(sizes), self.request.target)
            long = of_long_steps(structure, choices[-1].extents)
            yield from self._summed_in_parts(_Choice(fits, sizes, _alone(long), resized))
            for choice in choices if self._pinned_parts is None else ():
                predicate = all_of([fits, choice.predicate])
                yield _Choice(predicate, sizes, _alone(choice.extents), resized, promised=self.promised)

    def _summed_in_parts(self, whole: _Choice) -> Iterator[_Choice]:
        """Classes whose sums are split because their programs leave SMs idle; not for kernels with promises."""
        pinned = self._pinned_parts
        if pinned is not None:
            yield whole.split(pinned, many=pinned.value > FEW)
        elif self.request.schedule.split_k is None and self.promised is None:
            cut = split_sum_launches(whole.remade(whole.variant.choices[0]), self.request.target)
            predicate = FALSE if cut is None else all_of([whole.predicate, cut.predicate])
            if cut is not None and predicate != FALSE and self._take(predicate):
                yield replace(whole, predicate=predicate).split(cut.parts, many=True)

    def _with_products(self) -> Iterator[_Choice]:
        """Classes by the sizes of ``upto`` axes, by the quickest tile, and by whether staging copies pay."""
        request = self.request
        for sizes, fits, resized in self._rungs():
            variants = schedules_of(request.target).variants(self.autos, resized, request.target, request.facts)
            for _, group in groupby(variants, lambda variant: variant.applies):
                direct: list[_Choice] = []
                for variant in group:
                    predicate = all_of([fits, variant.predicate])
                    if self._excluded(variant) or not self._take(predicate):
                        continue
                    plain = _Choice(predicate, sizes, variant, resized, promised=self.promised)
                    if variant.rewritten or self._pinned_parts is not None:
                        rewritten = self._rewritten(plain)
                        if rewritten is not None:
                            yield rewritten
                            if variant.predicate == TRUE:
                                break
                        continue
                    staged = self._staged(plain, resized(variant.choices[0]))
                    yield plain if staged is None else staged
                    if staged is not None and request.schedule.staged is None and not variant.candidates:
                        direct.append(plain)
                yield from direct  # where copying first does not pay, before tiles for more rows

    def _rungs(self) -> Iterator[tuple[Limits, Expr, Remade]]:
        """Sizes of the ``upto`` axes, smallest first, with the predicate under which they suffice and the traces."""
        for sizes in self.ladder:
            within = all_of(extent <= size for extent, size in sizes)
            if self._take(within):
                yield sizes, TRUE if sizes == self.ladder[-1] else within, partial(self.traces, limits=sizes)

    @property
    def _pinned_parts(self) -> Const | None:
        """The pinned number of split-K parts."""
        parts = self.request.schedule.split_k
        return None if parts in (None, 1) else Const(parts)

    def _rewritten(self, plain: _Choice) -> _Choice | None:
        """The class for a variant with split-K or swapped operands, if it is allowed: split-K excludes promises and
        staging copies."""
        pinned, variant = self._pinned_parts, plain.variant
        if pinned is not None:
            return None if variant.rewritten else plain.split(pinned, many=pinned.value > FEW)
        cut = plain.promised is not None and not variant.swapped
        if cut or staged_tensors(plain.remade(variant.choices[0]), self.request.facts, self.request.target):
            return None
        return plain if variant.swapped or self.request.schedule.split_k is None else None

    def _excluded(self, variant: ProductVariant) -> bool:
        """Whether pins exclude all candidates of a variant that only its candidates can serve: one for whole steps, or
        whose parts a cluster adds."""
        own = [each for each in variant.candidates if each.whole_steps or variant.narrow is not None]
        pinned = schedules_of(self.request.target).pinned
        kept = [(candidate, pinned(candidate, self.request.schedule)) for candidate in own]
        return bool(own) and all(found is None or found.cluster != each.cluster for each, found in kept)

    def _take(self, predicate: Expr) -> bool:
        """Whether a class serves the known ``dims``; not one that depends on strides or addresses."""
        known = self.dims is None or predicate.symbols <= self.dims.keys()
        return known and (self.dims is None or bool(predicate.evaluate(self.dims)))

    def _staged(self, plain: _Choice, kernel: tile.Kernel) -> _Choice | None:
        """The class with staging copies of the tensors that TMA cannot address; None where there are none."""
        request = self.request
        pin = request.schedule.staged
        items = (
            () if pin is False or plain.promised is not None else staged_tensors(kernel, request.facts, request.target)
        )
        if not items:
            if pin is True:
                _nothing_to_stage(request)
            return None
        for item in items:
            if item not in self.copies:
                self.copies[item] = _copy(item, copy_request(request, item))
        worth = TRUE if pin is True else pays(kernel, request.facts, items, request.target)
        predicate, copies = all_of([plain.predicate, worth]), tuple(self.copies[item] for item in items)
        return replace(plain, predicate=predicate, copies=copies)


def _alone(extents: Mapping[str, int]) -> ProductVariant:
    """The variant of a program without products, which has one choice of extents."""
    return ProductVariant(TRUE, (extents,))


_SINGLE_ROW = "every matrix is dense: one row of all its elements"


def _plain(request: Request, choice: _Choice, name: str) -> PlannedKernel:
    """A kernel without products at the extents of ``choice``, or at smaller ones where shared memory does not suffice
    or the code is too long."""
    if choice.variant.parts is not None:
        return _split(request, choice, name)
    asked = request
    (chosen,) = choice.variant.choices
    largest = max(chosen, key=lambda auto: chosen[auto], default=None)
    halved = None
    if largest is not None and chosen[largest] > 1:
        halved = replace(choice, variant=_alone({**chosen, largest: chosen[largest] // 2}))
    promised = choice.promised
    traced = choice.remade(chosen)
    if choice.collapsed is not None:
        request = replace(request, facts=choice.collapsed.facts)
    if promised is not None:
        checks = promised.checks
        request = _with_flags(request, promised)
        traced = gated(traced, len(checks.promises), reports=not checks.reported)
    try:
        planned = plan_kernel(request, traced, choice.predicate, name)
    except TilewrightError as error:
        if halved is None or error.code != "CGN003":
            raise
        return _plain(asked, halved, name)
    planned = _on_more_threads(planned, name)
    if halved is not None and is_long(planned.transport):
        return _plain(asked, halved, name)
    if promised is not None:
        planned = _checked(planned, promised)
    if choice.collapsed is not None:
        planned = replace(planned, collapsed=choice.collapsed.extents, notes=(_SINGLE_ROW,))
    return planned if halved is None else replace(planned, smaller=lambda: _plain(asked, halved, name))


def _with_flags(request: Request, promised: PromiseChecks) -> Request:
    """The request with facts about the flags of a gated kernel."""
    known = ((item.name, staged_facts(item)) for item in promised.checks.read)
    return replace(request, facts=replace(request.facts, tensors=(*request.facts.tensors, *known)))


def _checked(planned: PlannedKernel, promised: PromiseChecks) -> PlannedKernel:
    """A gated kernel with the steps that check its promises, and their requirements in its predicate."""
    items = {item.name: item for item in promised.checks.read}
    planned = replace(planned, workspaces=items, promises=promised)
    needs = (
        assumption.substitute(kernel.binding)
        for kernel in promised.kernels
        for assumption in assumptions_of(kernel.tile, kernel.request.facts)
        if kernel.binding.keys().isdisjoint(assumption.symbols)
    )
    bound = (
        residual(assumptions_of(kernel.tile, kernel.request.facts), kernel.binding)
        for kernel in (*promised.kernels, planned)
    )
    known = set(assumptions_of(planned.tile, planned.request.facts))
    asked = dict.fromkeys(need for need in needs if need not in known)
    return replace(planned, predicate=all_of([planned.predicate, promised.checks.asked, *asked, *bound]))


def _on_more_threads(planned: PlannedKernel, name: str) -> PlannedKernel:
    """The kernel; if its code is long, planned for more threads as long as that shortens it."""
    request, threads = planned.request, 2 * planned.placement.home.threads
    pinned = request.schedule.threads is not None
    if pinned or threads > request.target.max_threads_per_cta or not is_long(planned.transport):
        return planned
    wider = plan_kernel(request, planned.tile, planned.predicate, name, threads)
    if instructions(wider.transport) >= instructions(planned.transport):
        return planned
    return _on_more_threads(wider, name)


def _product(request: Request, choice: _Choice, name: str) -> PlannedKernel:
    """The first proved schedule of a kernel with products."""
    variant = choice.variant
    if variant.parts is not None:
        return _split(request, choice, name)
    remade, promised = choice.remade, choice.promised
    originals: Originals = {}
    if promised is not None:
        request = _with_flags(request, promised)
        remade = _gated_roles(remade, promised.checks)
    if variant.swapped:
        remade = _swapped(remade, originals)
    if variant.narrow is not None:
        remade = added_in_cluster(remade, variant.narrow, variant.candidates[0].cluster[1], originals)
    own = replace(request, facts=with_staged(request.facts, [c.item for c in choice.copies]))

    def complete(kernel: PlannedKernel, found: ProvedSchedule) -> PlannedKernel:
        kernel = replace(
            kernel,
            predicate=choice.predicate,
            facts=request.facts,
            workspaces={copy.item.name: copy.item for copy in choice.copies},
            copies=choice.copies,
            originals=originals.get(found.tile, ()),
        )
        if promised is not None:
            kernel = _checked(kernel, promised)
        return replace(kernel, predicate=all_of([kernel.predicate, *_needs(kernel, found)]))

    return plan_products(own, variant, remade, name, complete)


def _split(request: Request, choice: _Choice, name: str) -> PlannedKernel:
    """The two kernels of split-K."""
    free = Tracing(replace(request, schedule=Schedule()))
    return SplitClass(
        request,
        choice.predicate,
        choice.variant,
        [n for n in request.function.autos if n not in dict(request.signature.keywords)],
        choice.remade,
        partial(free, limits=choice.sizes),
    ).plan(name)


def _swapped(remade: Remade, originals: Originals) -> Remade:
    """Traces the program and swaps its operands; ``originals`` records the original."""

    def made(extents: Mapping[str, int]) -> tile.Kernel:
        whole = remade(extents)
        found = swapped(whole)
        assert found is not None, "a class is only offered where operands can be swapped"
        originals[found] = (whole,)
        return found

    return made


def _gated_roles(remade: Remade, checks: Checks) -> Remade:
    """Traces the program and adds the gate of its promises."""
    return lambda extents: gated_roles(remade(extents), checks.promises, judges=checks.broken is None)


def _needs(kernel: PlannedKernel, found: ProvedSchedule) -> Iterator[Expr]:
    """The requirements of its tensor maps at launch, and assumptions about workspaces beyond their layout."""
    guards, binding = found.scheduled.guards, kernel.binding
    yield residual((*assumptions_of(found.tile, kernel.request.facts), *guards), binding)
    for copy in kernel.copies:
        yield residual(assumptions_of(copy.planned.tile, copy.planned.request.facts), copy.planned.binding)
    yield from (g for g in guards if binding.keys().isdisjoint(g.symbols))
    yield found.guard.substitute(binding)


def _nothing_to_stage(request: Request) -> NoReturn:
    fail(
        "SCH002",
        where=request.function.where,
        found="staged=True",
        required="an operand of a product that TMA cannot address in place, and could in an aligned copy",
        help="leave the pin out",
    )


def _copy(item: StagedTensor, request: Request) -> StagedCopy:
    """Plans the kernel that copies a staged tensor; it serves tensors of any width."""
    planned = plan(request).variants[-1]
    assert planned.predicate == TRUE, "the copy serves some tensors only"
    planned.transport.attributes["sym_name"] = StringAttr(request.function.name)
    return StagedCopy(item, replace(planned, workspaces={item.copy_name: item}))
