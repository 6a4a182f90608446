"""From a request to planned and proved transport kernels, one per variant."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import NoReturn

from xdsl.dialects.builtin import StringAttr

from tilewright.base.cached import cached_property
from tilewright.base.expr import FALSE, TRUE, Const, Expr, all_of, conjuncts
from tilewright.compiler.alternatives import plain_schedules, product_schedules
from tilewright.compiler.collapse import Collapse, collapse
from tilewright.compiler.empty_streams import planned_rest, rests
from tilewright.compiler.gc_pause import gc_paused
from tilewright.compiler.plain import plan_kernel, refuse_pins
from tilewright.compiler.planned import PlannedKernel, PlannedProgram, PromiseChecks, StagedCopy
from tilewright.compiler.products import ProvedSchedule, search_products
from tilewright.compiler.promises import Checks, checks_of, gated, gated_roles
from tilewright.compiler.requests import Limits, Request, assume, assumptions_of, tensors_of
from tilewright.compiler.split_k import Remade, SplitClass, Wholes, added_in_cluster
from tilewright.compiler.staging import copy_request, residual, staged_facts, staged_tensors, with_staged
from tilewright.compiler.staging_price import pays
from tilewright.compiler.tracing import Tracing
from tilewright.compiler.unsupported import UnsupportedClasses
from tilewright.compiler.workspaces import StagedTensor
from tilewright.diag import TilewrightError, fail
from tilewright.lang.schedule import Schedule
from tilewright.schedule.extents import bound_ladder, choose_extents, of_long_steps, probe, unaligned_ends
from tilewright.schedule.facts import without_peers
from tilewright.schedule.product_schedules import Candidate, ProductVariant, schedules_of
from tilewright.schedule.split_k import FEW
from tilewright.schedule.split_sums import split_sum_launches
from tilewright.schedule.swapped_operands import swapped
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
    """Plans the variants of a request. A class of arguments is planned once, whichever of its extents ask for it."""

    def __init__(self, request: Request) -> None:
        self.traces = Tracing(request)
        self._kernels: dict[Hashable, PlannedKernel] = {}

    @gc_paused()
    def program(self, dims: Mapping[str, int] | None = None) -> PlannedProgram:
        """Every variant that some arguments ask for; with ``dims`` known only the variant that serves them.

        Classes of arguments for which no kernel can be planned are left out, as long as one is left.
        """
        classes = replace(self._classes, dims=dims)
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
        """Schedules that are worth timing for these extents beside the one that is chosen."""
        found = replace(self._classes, dims=dims).alternatives(lambda: self.program(dims).variants[0])
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
    """The kernels of the checks: one each for tensors of any width."""
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
    """A class of arguments, and extents to try for it, best first.

    Its kernel runs where ``predicate`` holds, no class before it does, and ``copies`` have been made.
    """

    predicate: Expr
    sizes: Limits
    choices: Sequence[Mapping[str, int]]
    remade: Remade
    candidates: tuple[Candidate, ...] = ()
    copies: tuple[StagedCopy, ...] = ()
    promised: PromiseChecks | None = None
    parts: Expr | None = None
    """Into how many the stream of its products is cut; None: it is not."""
    many: bool = False
    """These are added as many are."""
    narrow: Mapping[str, int] | None = None
    """The extents of a share, where the CTAs of a cluster add the parts."""
    swapped: bool = False
    one_row: bool = False
    one_wave: bool = False
    collapsed: Collapse | None = None
    """Its matrices are taken for single rows."""

    @property
    def key(self) -> Hashable:
        """Choices of one request with equal keys are one."""
        extents = tuple(tuple(sorted(choice.items())) for choice in self.choices)
        copies = tuple(copy.item for copy in self.copies)
        narrow = None if self.narrow is None else tuple(sorted(self.narrow.items()))
        rewritten = self.parts, self.many, narrow, self.swapped, self.collapsed is not None
        rewritten += self.one_row, self.one_wave
        return self.predicate, self.sizes, extents, self.candidates, copies, *rewritten


@dataclass(frozen=True)
class _Classes:
    """The classes of arguments of a request that get kernels of their own, in the order in which they are tried at
    launch; with known ``dims`` those that take them."""

    request: Request
    traces: Tracing
    autos: Sequence[str]
    ladder: Sequence[Limits]
    products: bool
    dims: Mapping[str, int] | None
    promised: PromiseChecks | None = None
    copies: dict[StagedTensor, StagedCopy] = field(default_factory=dict[StagedTensor, StagedCopy])
    """What copies a tensor, planned once for all classes."""

    def named(self) -> Iterator[tuple[str, _Choice]]:
        """Each with the name of its kernel; as they are asked for where only the first that can be had is wanted."""
        found = self._with_products() if self.products else self._plain()
        name = self.request.function.name
        if self.dims is not None:
            yield from ((name, choice) for choice in found if self._take(choice.predicate))
            return
        every = list(found)
        yield from ((f"{name}_{i}" if len(every) > 1 else name, choice) for i, choice in enumerate(every))

    def alternatives(self, chosen: Callable[[], PlannedKernel]) -> Iterator[Schedule]:
        """Pins beside what is chosen for the known extents, likely better ones first."""
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
        """By whether matrices are single rows, by the sizes of the ``upto`` axes and by the width of rows."""
        pinned = self.request.schedule.split_k is not None
        refuse_pins(self.request, sums=pinned and split_sum_launches(self.traces({}), self.request.target) is not None)
        structure = probe(self.autos, self.traces, self.request.facts)
        row = None if self.promised is not None else collapse(self.request, self.traces({}), structure)
        if row is not None and self._take(row.predicate):
            yield _Choice(row.predicate, self.ladder[-1], [row.choice], self.traces, collapsed=row)
        for sizes, fits, resized in self._rungs():
            choices = choose_extents(structure, dict(sizes), self.request.target)
            long = of_long_steps(structure, choices[-1].extents)
            yield from self._summed_in_parts(_Choice(fits, sizes, [long], resized))
            for choice in choices if self._pinned_parts is None else ():
                predicate = all_of([fits, choice.predicate])
                yield _Choice(predicate, sizes, [choice.extents], resized, promised=self.promised)

    def _summed_in_parts(self, whole: _Choice) -> Iterator[_Choice]:
        """Sums whose programs leave SMs idle; promises are checked before none of them."""
        pinned = self._pinned_parts
        if pinned is not None:
            yield replace(whole, parts=pinned, many=pinned.value > FEW)
        elif self.request.schedule.split_k is None and self.promised is None:
            cut = split_sum_launches(whole.remade(whole.choices[0]), self.request.target)
            predicate = FALSE if cut is None else all_of([whole.predicate, cut.predicate])
            if cut is not None and predicate != FALSE and self._take(predicate):
                yield replace(whole, predicate=predicate, parts=cut.parts, many=True)

    def _with_products(self) -> Iterator[_Choice]:
        """By the sizes of the ``upto`` axes, by which tile fills its waves better, by whether copying first pays."""
        request = self.request
        for sizes, fits, resized in self._rungs():
            variants = schedules_of(request.target).variants(self.autos, resized, request.target, request.facts)
            for _, group in groupby(variants, lambda variant: variant.applies):
                direct: list[_Choice] = []
                for variant in group:
                    predicate = all_of([fits, variant.predicate])
                    if self._excluded(variant) or not self._take(predicate):
                        continue
                    plain = _Choice(
                        predicate,
                        sizes,
                        variant.choices,
                        resized,
                        variant.candidates,
                        promised=self.promised,
                        one_row=variant.one_row,
                        one_wave=variant.one_wave,
                    )
                    if variant.rewritten or self._pinned_parts is not None:
                        rewritten = list(self._rewritten(plain, variant))
                        yield from rewritten
                        if rewritten and variant.predicate == TRUE:
                            break
                        continue
                    staged = self._staged(plain, resized(variant.choices[0]))
                    yield plain if staged is None else staged
                    if staged is not None and request.schedule.staged is None and not variant.candidates:
                        direct.append(plain)
                yield from direct  # where copying first does not pay, before tiles for more rows

    def _rungs(self) -> Iterator[tuple[Limits, Expr, Remade]]:
        """Sizes of the ``upto`` axes, smallest first, when they suffice, and the kernel with them."""
        for sizes in self.ladder:
            within = all_of(extent <= size for extent, size in sizes)
            if self._take(within):
                yield sizes, TRUE if sizes == self.ladder[-1] else within, partial(self.traces, limits=sizes)

    @property
    def _pinned_parts(self) -> Const | None:
        """Into how many parts streams are cut because somebody said so."""
        parts = self.request.schedule.split_k
        return None if parts in (None, 1) else Const(parts)

    def _rewritten(self, plain: _Choice, variant: ProductVariant) -> Iterator[_Choice]:
        """A variant whose program is cut into parts or has its operands swapped; no promise is checked before one that
        is cut, and nothing copied unless it is asked for."""
        pinned = self._pinned_parts
        if pinned is not None:
            if not variant.rewritten:
                yield replace(plain, parts=pinned, many=pinned.value > FEW)
            return
        cut = plain.promised is not None and not variant.swapped
        if cut or staged_tensors(plain.remade(variant.choices[0]), self.request.facts, self.request.target):
            return
        if variant.swapped or self.request.schedule.split_k is None:
            yield replace(plain, parts=variant.parts, many=variant.many, narrow=variant.narrow, swapped=variant.swapped)

    def _excluded(self, variant: ProductVariant) -> bool:
        """A variant whose steps are whole, or whose parts a cluster adds, is served by its candidates alone,
        which a pin may exclude."""
        own = [each for each in variant.candidates if each.whole_steps or variant.narrow is not None]
        pinned = schedules_of(self.request.target).pinned
        kept = [(candidate, pinned(candidate, self.request.schedule)) for candidate in own]
        return bool(own) and all(found is None or found.cluster != each.cluster for each, found in kept)

    def _take(self, predicate: Expr) -> bool:
        """Whether a class is wanted; not one of strides or addresses of which nothing is known."""
        known = self.dims is None or predicate.symbols <= self.dims.keys()
        return known and (self.dims is None or bool(predicate.evaluate(self.dims)))

    def _staged(self, plain: _Choice, kernel: tile.Kernel) -> _Choice | None:
        """The same after aligned copies of what tensor copies can't bring; None where there is nothing of the kind."""
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


_SINGLE_ROW = "every matrix is dense: one row of all its elements"


def _plain(request: Request, choice: _Choice, name: str) -> PlannedKernel:
    """A kernel without products at the extents of ``choice``, or at smaller ones where a CTA has not the memory or its
    text is long."""
    if choice.parts is not None:
        return _split(request, choice, choice.parts, name)
    asked = request
    (chosen,) = choice.choices
    largest = max(chosen, key=lambda auto: chosen[auto], default=None)
    halved = None
    if largest is not None and chosen[largest] > 1:
        halved = replace(choice, choices=[{**chosen, largest: chosen[largest] // 2}])
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
    """What a gated kernel may take for granted of its flags too."""
    known = ((item.name, staged_facts(item)) for item in promised.checks.read)
    return replace(request, facts=replace(request.facts, tensors=(*request.facts.tensors, *known)))


def _checked(planned: PlannedKernel, promised: PromiseChecks) -> PlannedKernel:
    """A gated kernel behind the steps that check what it relies on."""
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
    """The same kernel; where its text is long, spread over as many more threads as make it shorter."""
    request, threads = planned.request, 2 * planned.placement.home.threads
    pinned = request.schedule.threads is not None
    if pinned or threads > request.target.max_threads_per_cta or not is_long(planned.transport):
        return planned
    wider = plan_kernel(request, planned.tile, planned.predicate, name, threads)
    if instructions(wider.transport) >= instructions(planned.transport):
        return planned
    return _on_more_threads(wider, name)


def _product(request: Request, choice: _Choice, name: str) -> PlannedKernel:
    """The best schedule of a kernel with products that is proved."""
    if choice.parts is not None:
        return _split(request, choice, choice.parts, name)
    remade, promised = choice.remade, choice.promised
    wholes: Wholes = {}
    if promised is not None:
        request = _with_flags(request, promised)
        remade = _gated_roles(remade, promised.checks)
    if choice.swapped:
        remade = _swapped(remade, wholes)
    if choice.narrow is not None:
        remade = added_in_cluster(remade, choice.narrow, choice.candidates[0].cluster[1], wholes)
    own = replace(request, facts=with_staged(request.facts, [c.item for c in choice.copies]))
    reads = {"one_row": choice.one_row, "one_wave": choice.one_wave}
    search = search_products(own, choice.choices, remade, name, choice.candidates, **reads)

    def planned(found: ProvedSchedule) -> PlannedKernel:
        lowered, placement = found.scheduled.kernel, found.scheduled.placement
        assume(lowered, (*found.scheduled.guards, found.guard))
        kernel = PlannedKernel(
            choice.predicate,
            own,
            found.tile,
            lowered,
            placement,
            found.certificate,
            request.facts,
            found.scheduled.notes,
            lambda why: planned(search.next(why)),
            found.few_bytes,
            workspaces={copy.item.name: copy.item for copy in choice.copies},
            copies=choice.copies,
            wholes=wholes.get(found.tile, ()),
        )
        if promised is not None:
            kernel = _checked(kernel, promised)
        return replace(kernel, predicate=all_of([kernel.predicate, *_needs(kernel, found)]))

    return planned(search.next())


def _split(request: Request, choice: _Choice, parts: Expr, name: str) -> PlannedKernel:
    """The kernels of a stream that is cut into parts."""
    free = Tracing(replace(request, schedule=Schedule()))
    return SplitClass(
        request,
        choice.predicate,
        parts,
        choice.many,
        choice.choices,
        choice.candidates,
        choice.one_wave,
        [n for n in request.function.autos if n not in dict(request.signature.keywords)],
        choice.remade,
        partial(free, limits=choice.sizes),
    ).plan(name)


def _swapped(remade: Remade, wholes: Wholes) -> Remade:
    """The tile program at extents with swapped operands; ``wholes`` keeps the one that it was made of."""

    def made(extents: Mapping[str, int]) -> tile.Kernel:
        whole = remade(extents)
        found = swapped(whole)
        assert found is not None, "a class is only offered where operands can be swapped"
        wholes[found] = (whole,)
        return found

    return made


def _gated_roles(remade: Remade, checks: Checks) -> Remade:
    """The tile program at extents, behind the gate of its promises."""
    return lambda extents: gated_roles(remade(extents), checks.promises, judges=checks.broken is None)


def _needs(kernel: PlannedKernel, found: ProvedSchedule) -> Iterator[Expr]:
    """What its tensor maps ask of a launch, and what kernels assume of workspaces beyond what their layout gives."""
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
        required="an operand of a product that tensor copies can't bring as it lies, and could from a copy",
        help="leave the pin out",
    )


def _copy(item: StagedTensor, request: Request) -> StagedCopy:
    """The kernel for tensors of any width: one launch serves the whole class."""
    planned = plan(request).variants[-1]
    assert planned.predicate == TRUE, "the copy serves some tensors only"
    planned.transport.attributes["sym_name"] = StringAttr(request.function.name)
    return StagedCopy(item, replace(planned, workspaces={item.copy_name: item}))
