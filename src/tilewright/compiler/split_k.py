"""Split-K: one kernel computes partial sums of products or of other reductions, the next one adds them.

The kernel that adds (``schedule.split_k``) comes last; it has no products and chooses its own tiles. Partial sums are
passed in workspaces. ``proofs.rewritten`` compares both with the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import StringAttr

from tilewright.base.expr import TRUE, Expr, all_of
from tilewright.compiler.counter_bounds import counters_fit
from tilewright.compiler.plain import plan_kernel
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.products import ProvedSchedule, search_products
from tilewright.compiler.requests import Request, assume, assumptions_of
from tilewright.compiler.staging import residual, staged_facts
from tilewright.compiler.workspaces import StagedTensor
from tilewright.diag import TilewrightError, fail
from tilewright.schedule.extents import choose_extents, probe
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.product_schedules import Candidate
from tilewright.schedule.split_k import MOST_ADDED, PARTS, NotSplitError, Split, split
from tilewright.tile import dialect as tile
from tilewright.tile.queries import has_products

Remade = Callable[[Mapping[str, int]], tile.Kernel]
"""A class's tile program with other extents for its autos."""
Wholes = dict[tile.Kernel, tuple[tile.Kernel, ...]]
"""The programs that a rewritten program was derived from."""


def added_in_cluster(remade: Remade, narrow: Mapping[str, int], parts: int, wholes: Wholes) -> Remade:
    """The tile program at extents whose parts the CTAs of a cluster add, for a share each, of extents ``narrow``."""

    def made(extents: Mapping[str, int]) -> tile.Kernel:
        whole, shares = remade(extents), remade(narrow)
        found = split(whole, many=False).clustered(shares, parts)
        wholes[found] = (whole, shares)
        return found

    return made


@dataclass(frozen=True)
class SplitClass:
    """A class of arguments whose stream is cut into ``parts``: what serves it.

    ``many`` is how they are added. ``remade`` is the program at extents of the products' tiles, ``free`` with no extent
    pinned; ``autos`` are those that a schedule chooses.
    """

    request: Request
    predicate: Expr
    parts: Expr
    many: bool
    choices: Sequence[Mapping[str, int]]
    candidates: Sequence[Candidate]
    one_wave: bool
    autos: Sequence[str]
    remade: Remade
    free: Remade

    def plan(self, name: str) -> PlannedKernel:
        """The kernel that adds, behind the one that multiplies; SCH001 where either has no schedule."""
        first = self._split(self.remade(self.choices[0]))
        items = {
            sums.name: StagedTensor(
                sums.name, sums.element, sums.dims, len(sums.dims) - 1, index, ((PARTS.name, self.parts),)
            )
            for index, sums in enumerate(first.sums)
        }
        product = self._product(f"{name}_parts", items)
        combine = self._combine(name, items)
        needs = [
            *_needs(product),
            *_needs(combine),
            *(count.substitute(product.binding) for count in counters_fit(product)),
        ]
        predicate = all_of([self.predicate, *needs])
        many = "as many parts as there are SMs for each tile" if self.parts.constant is None else f"{self.parts} parts"
        notes = (f"split-K: {many}, added in order", *product.notes, *combine.notes)
        return replace(combine, predicate=predicate, notes=notes, product=product)

    def _split(self, kernel: tile.Kernel) -> Split:
        try:
            return split(kernel, many=self.many)
        except NotSplitError as why:
            where = self.request.function.where
            fail("SCH001", where=where, found=str(why), required="one stream, which only adds to fragments")

    def _own(self, items: Mapping[str, StagedTensor]) -> Request:
        """What the two kernels may assume: of the sums what their layout gives."""
        tensors = (*self.request.facts.tensors, *((name, staged_facts(item)) for name, item in items.items()))
        return replace(self.request, facts=CallFacts(tensors, self.request.facts.index_bits))

    def _product(self, name: str, items: Mapping[str, StagedTensor]) -> PlannedKernel:
        own = self._own(items)
        if not has_products(self.remade(self.choices[0])):
            own = replace(own, schedule=own.schedule.of_others)
            return self._plain(own, name, items, self.remade, self.choices[0], Split.product)
        return self._multiplied(own, name, items)

    def _multiplied(self, own: Request, name: str, items: Mapping[str, StagedTensor]) -> PlannedKernel:
        """The parts of products, by the best schedule that is proved."""
        wholes: dict[tile.Kernel, tile.Kernel] = {}

        def parts(extents: Mapping[str, int]) -> tile.Kernel:
            whole = self.remade(extents)
            made = self._split(whole).product()
            wholes[made] = whole
            return made

        search = search_products(own, self.choices, parts, name, self.candidates, one_wave=self.one_wave)

        def planned(found: ProvedSchedule) -> PlannedKernel:
            lowered, placement = found.scheduled.kernel, found.scheduled.placement
            guards = (*found.scheduled.guards, found.guard)
            assume(lowered, guards)
            return PlannedKernel(
                all_of(guards),
                own,
                found.tile,
                lowered,
                placement,
                found.certificate,
                own.facts,
                found.scheduled.notes,
                lambda why: planned(search.next(why)),
                found.few_bytes,
                workspaces=items,
                wholes=(wholes[found.tile],),
            )

        return planned(search.next())

    def _combine(self, name: str, items: Mapping[str, StagedTensor]) -> PlannedKernel:
        """The adding kernel at the extents that kernels without products take."""
        own = self._own(items)
        own = replace(own, schedule=own.schedule.of_others)

        def traced(extents: Mapping[str, int]) -> tile.Kernel:
            return self._split(self.free(extents)).combine()

        extents = dict(choose_extents(probe(self.autos, traced, own.facts), {}, own.target)[-1].extents)
        if self.many and extents:
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
        """One of the two kernels where it has no products: at ``extents``, halved until a CTA has the memory."""
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
        return replace(planned, workspaces=items, wholes=(whole,), smaller=halved)


def _needs(kernel: PlannedKernel) -> Iterator[Expr]:
    """What a kernel assumes of a launch beyond what the layout of its workspaces gives."""
    yield residual((*assumptions_of(kernel.tile, kernel.request.facts), kernel.predicate), kernel.binding)
    yield kernel.predicate.substitute(kernel.binding)
