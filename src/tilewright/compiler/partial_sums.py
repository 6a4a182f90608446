"""Split-K: one kernel computes partial sums of products or of other reductions, the next one adds them.

The kernel that adds (``schedule.transforms.split_k``) comes last; it has no products and chooses its own tiles. Partial
sums are passed in workspaces. ``proofs.rewritten`` compares both with the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import StringAttr

from tilewright.base.expr import TRUE, Expr, all_of
from tilewright.compiler.counter_bounds import counters_fit
from tilewright.compiler.plain import plan_kernel
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.products import ProvedSchedule, plan_products
from tilewright.compiler.requests import Request, assumptions_of
from tilewright.compiler.staging import residual, staged_facts
from tilewright.compiler.workspaces import StagedTensor
from tilewright.diag import TilewrightError, fail
from tilewright.schedule.extents import choose_extents, probe
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.product_schedules import ProductVariant
from tilewright.schedule.transforms.split_k import MOST_ADDED, PARTS, NotSplitError, Split, split
from tilewright.tile import dialect as tile
from tilewright.tile.queries import has_products

Remade = Callable[[Mapping[str, int]], tile.Kernel]
"""A class's tile program with other extents for its autos."""
Originals = dict[tile.Kernel, tuple[tile.Kernel, ...]]
"""The programs that a rewritten program was derived from."""


def added_in_cluster(remade: Remade, narrow: Mapping[str, int], parts: int, originals: Originals) -> Remade:
    """Traces the program with its stream split into ``parts`` that the CTAs of a cluster add; each CTA finishes a share
    with the extents ``narrow``."""

    def made(extents: Mapping[str, int]) -> tile.Kernel:
        whole, shares = remade(extents), remade(narrow)
        found = split(whole, many=False).clustered(shares, parts)
        originals[found] = (whole, shares)
        return found

    return made


@dataclass(frozen=True)
class SplitClass:
    """A class of arguments whose stream is split into parts, as ``variant`` says. ``remade`` traces the program at
    extents for products, ``free`` at any extents; ``autos`` are the extents that the schedule chooses."""

    request: Request
    predicate: Expr
    variant: ProductVariant
    autos: Sequence[str]
    remade: Remade
    free: Remade

    def plan(self, name: str) -> PlannedKernel:
        """The kernel that adds partial sums, with the one that computes them as its ``product``; SCH001 where either
        has no schedule."""
        parts = self.variant.parts
        assert parts is not None
        first = self._split(self.remade(self.variant.choices[0]))
        items = {
            sums.name: StagedTensor(sums.name, sums.element, sums.dims, len(sums.dims) - 1, i, ((PARTS.name, parts),))
            for i, sums in enumerate(first.sums)
        }
        product = self._product(f"{name}_parts", items)
        combine = self._combine(name, items)
        needs = [
            *_needs(product),
            *_needs(combine),
            *(count.substitute(product.binding) for count in counters_fit(product)),
        ]
        predicate = all_of([self.predicate, *needs])
        many = "as many parts as there are SMs for each tile" if parts.constant is None else f"{parts} parts"
        notes = (f"split-K: {many}, added in order", *product.notes, *combine.notes)
        return replace(combine, predicate=predicate, notes=notes, product=product)

    def _split(self, kernel: tile.Kernel) -> Split:
        try:
            return split(kernel, many=self.variant.many)
        except NotSplitError as why:
            where = self.request.function.where
            fail("SCH001", where=where, found=str(why), required="one stream, which only adds to fragments")

    def _own(self, items: Mapping[str, StagedTensor]) -> Request:
        """The request of the two kernels, with facts about the partial sums from their layout."""
        tensors = (*self.request.facts.tensors, *((name, staged_facts(item)) for name, item in items.items()))
        return replace(self.request, facts=CallFacts(tensors, self.request.facts.index_bits))

    def _product(self, name: str, items: Mapping[str, StagedTensor]) -> PlannedKernel:
        own = self._own(items)
        extents = self.variant.choices[0]
        if not has_products(self.remade(extents)):
            own = replace(own, schedule=own.schedule.of_others)
            return self._plain(own, name, items, self.remade, extents, Split.product)
        return self._multiplied(own, name, items)

    def _multiplied(self, own: Request, name: str, items: Mapping[str, StagedTensor]) -> PlannedKernel:
        """The kernel for the partial products, by the first proved schedule."""
        originals: dict[tile.Kernel, tile.Kernel] = {}

        def parts(extents: Mapping[str, int]) -> tile.Kernel:
            whole = self.remade(extents)
            made = self._split(whole).product()
            originals[made] = whole
            return made

        def complete(kernel: PlannedKernel, found: ProvedSchedule) -> PlannedKernel:
            guards = all_of([*found.scheduled.guards, found.guard])
            return replace(kernel, predicate=guards, workspaces=items, originals=(originals[found.tile],))

        return plan_products(own, self.variant, parts, name, complete)

    def _combine(self, name: str, items: Mapping[str, StagedTensor]) -> PlannedKernel:
        """The kernel that adds, at extents chosen as for kernels without products."""
        own = self._own(items)
        own = replace(own, schedule=own.schedule.of_others)

        def traced(extents: Mapping[str, int]) -> tile.Kernel:
            return self._split(self.free(extents)).combine()

        extents = dict(choose_extents(probe(self.autos, traced, own.facts), {}, own.target)[-1].extents)
        if self.variant.many and extents:
            longest = max(extents, key=lambda auto: extents[auto])
            extents = {**dict.fromkeys(extents, 1), longest: min(extents[longest], MOST_ADDED)}
        return self._plain(own, name, items, self.free, extents, Split.combine)

    def _plain(
        self,
        own: Request,
        name: str,
        items: Mapping[str, StagedTensor],
        remade: Remade,
        extents: Mapping[str, int],
        kernel: Callable[[Split], tile.Kernel],
    ) -> PlannedKernel:
        """One of the two kernels where it has no products: at ``extents``, halved until shared memory suffices."""
        whole = remade(extents)
        largest = max(extents, key=lambda auto: extents[auto], default=None)
        halved: Callable[[], PlannedKernel] | None = None
        if largest is not None and extents[largest] > 1:
            smaller = {**extents, largest: extents[largest] // 2}
            halved = lambda: self._plain(own, name, items, remade, smaller, kernel)  # noqa: E731
        try:
            planned = plan_kernel(own, kernel(self._split(whole)), TRUE, name)
        except TilewrightError as error:
            if halved is None or error.code != "CGN003":
                raise
            return halved()
        planned.transport.attributes["sym_name"] = StringAttr(name)
        return replace(planned, workspaces=items, originals=(whole,), smaller=halved)


def _needs(kernel: PlannedKernel) -> Iterator[Expr]:
    """Requirements of a kernel at launch, beyond what the layout of its workspaces implies."""
    yield residual((*assumptions_of(kernel.tile, kernel.request.facts), kernel.predicate), kernel.binding)
    yield kernel.predicate.substitute(kernel.binding)
