"""The event graph of a protocol: its events, named by iterations of the loops, for any trip count.

An event is an op of a block of the product graph (``protocol.product_graph``). Which of its executions is meant is told
by *induction variables* (``iv``): one counts the iterations of a set of loops since the start, alike for all parties.
A pipeline's carried counter is an iv plus a constant of the place alone, which is checked here, not assumed:

    slot (g + c) % S, parity ((g + c) // S + d) % 2   at a place where g = iv + o    ->   phase  iv + o + c + d S

so an arrival and a wait of one pipeline are compared by a difference of ivs, across tiles and whatever the trip counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

from tilewright.base.expr import Const, Expr, Sum, Sym, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.align_roles import product_graph_of
from tilewright.protocol.edit import apart
from tilewright.protocol.effects import Await
from tilewright.protocol.model import Buffer, By, Protocol, Step
from tilewright.protocol.product_graph import OutsideFragment, ProductGraph, finished_loop
from tilewright.protocol.recover import phase_use, slot_use, stage_use

MAX_LOOPS = 10
"""The most loops of a product whose counters are tracked: every set of them is tried."""

InductionVariable = frozenset[int]
"""The loops of the product whose iterations are counted."""


@dataclass(frozen=True)
class IterationIndex:
    """``iv + offset``: the iterations of the iv's loops so far, plus a constant. Without loops a constant."""

    iv: InductionVariable
    offset: int


@dataclass(frozen=True, eq=False)
class Site:
    """One op at its position: ``party`` executes it as number ``position`` of its code in ``block``."""

    party: int
    block: int
    position: int
    step: Step


@dataclass(frozen=True)
class TouchedBytes:
    """Bytes an op touches: ``begin .. end`` of a memory, or of one stage of a ring in it.

    A ring has ``stages`` of ``stage`` bytes from ``base`` on; the op touches ``begin .. end`` of stage
    ``index % stages``.
    """

    memory: tuple[object, ...]
    buffer: Buffer
    begin: int
    end: int
    index: IterationIndex | None = None
    stages: int = 1
    stage: int = 0
    base: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """First byte and end of what any execution may touch."""
        if self.index is None:
            return self.begin, self.end
        return self.base + self.begin, self.base + (self.stages - 1) * self.stage + self.end


@dataclass
class EventGraph:
    """Sites of a protocol on its product, with the meaning of their indices."""

    protocol: Protocol
    product: ProductGraph
    sites: tuple[tuple[tuple[Site, ...], ...], ...]
    """Per party and block, in program order."""
    ivs: list[InductionVariable] = field(default_factory=list[InductionVariable])
    """All induction variables in use."""
    advancing: dict[tuple[int, str], set[By]] = field(default_factory=dict[tuple[int, str], set[By]])
    """Per party and carried counter: which threads advance it."""
    _offsets: dict[tuple[int, str], tuple[InductionVariable, dict[int, int]]] = field(
        default_factory=dict[tuple[int, str], tuple[InductionVariable, dict[int, int]]]
    )

    def steps(self, cta: int | None = None) -> Iterable[Step]:
        """The steps of all parties, or of those in one CTA, each once: blocks may share them."""
        mine = [x for x, (_, rank) in zip(self.sites, self.product.parties, strict=True) if cta in (None, rank)]
        return {id(site.step): site.step for blocks in mine for code in blocks for site in code}.values()

    # -- indices ------------------------------------------------------------------------------------------------------
    def index(self, site: Site, e: Expr) -> IterationIndex:
        """``e`` as it stands at ``site``; raises ``OutsideFragment`` where it is not a counter plus a constant."""
        match e:
            case Const(value):
                return IterationIndex(frozenset(), value)
            case Sym(name):
                return self._counter(site, name)
            case Sum(offset, ((Sym(name), 1),)):
                found = self._counter(site, name)
                return IterationIndex(found.iv, found.offset + offset)
            case Sum(offset, ((Sym(name), factor),)) if self._is_count(name):
                return IterationIndex(self._iterations_of(site, sym(name) * factor).iv, offset)
            case _:
                raise OutsideFragment(f"an index {e}")

    def _counter(self, site: Site, name: str) -> IterationIndex:
        around = [x for x in self.product.loops if x.index in self.product.blocks[site.block].loops]
        loop = next((x for x in around if x.counter == name), None)
        if loop is not None:
            if not loop.outermost:
                raise OutsideFragment(f"the inner loop counter {name} as an index")
            return self._known(IterationIndex(frozenset((loop.index,)), 0))
        if self._is_count(name):
            return self._iterations_of(site, sym(name))
        iv, entries = self._carried(site.party, name)
        if not self.advancing[site.party, name] <= {By.ALL, site.step.by}:
            raise OutsideFragment(f"counter {name} is advanced by other threads than use it")
        code = self.sites[site.party][site.block]
        moved = sum(_advance(s.step, name) for s in code[: site.position])
        return self._known(IterationIndex(iv, entries[site.block] + moved))

    def _is_count(self, name: str) -> bool:
        return any(s.name == name and s.per is None for s in self.protocol.symbols)

    def _iterations_of(self, site: Site, count: Expr) -> IterationIndex:
        """A count, where a loop of as many iterations is over: its iterations."""
        over = finished_loop(self.product, site.block, count.text)
        if over is None:
            raise OutsideFragment(f"{count} as an index where no loop of as many iterations is over")
        return self._known(IterationIndex(frozenset((over.index,)), 0))

    def _known(self, index: IterationIndex) -> IterationIndex:
        if index.iv not in self.ivs:
            self.ivs.append(index.iv)
        return index

    def _carried(self, party: int, name: str) -> tuple[InductionVariable, dict[int, int]]:
        """The induction variable a carried counter follows, and its distance from it on entry to each block."""
        found = self._offsets.get((party, name))
        if found is not None:
            return found
        role, _ = self.product.parties[party]
        start = dict(role.counters).get(name)
        if start is None:
            raise OutsideFragment(f"an index over {name}")
        loops = [x.index for x in self.product.loops]
        if len(loops) > MAX_LOOPS:
            raise OutsideFragment(f"more than {MAX_LOOPS} loops")
        moved = [sum(_advance(s.step, name) for s in code) for code in self.sites[party]]
        self.advancing[party, name] = {s.step.by for code in self.sites[party] for s in code if _advance(s.step, name)}
        advanced = {t for f in self.product.edges if moved[f.source] for t in f.advances}
        subsets = [frozenset(c) for n in range(len(loops) + 1) for c in combinations(loops, n)]
        for iv in sorted(subsets, key=lambda u: (u not in self.ivs, len(u ^ advanced))):
            entries = self._offsets_along(iv, moved, start)
            if entries is not None:
                found = self._offsets[party, name] = (iv, entries)
                return found
        raise OutsideFragment(f"counter {name} of {role.name} follows no loops")

    def _offsets_along(self, iv: InductionVariable, moved: list[int], start: int) -> dict[int, int] | None:
        entries = dict.fromkeys(self.product.starts, start)
        pending = list(self.product.starts)
        while pending:
            at = pending.pop()
            for f in self.product.leaving[at]:
                value = entries[at] + moved[at] - len(iv.intersection(f.advances))
                if f.target not in entries:
                    entries[f.target] = value
                    pending.append(f.target)
                elif entries[f.target] != value:
                    return None
        return entries

    # -- barriers -----------------------------------------------------------------------------------------------------
    def slot(self, site: Site, slot: ops.Slot) -> tuple[tuple[int, str], IterationIndex | None]:
        """The barrier array (CTA and name) and the index whose residue is the slot; None for an array of one slot."""
        barrier = self.protocol.barrier(slot.barrier)
        cta = self.product.parties[site.party][1] if slot.cta is None else slot.cta.constant
        if cta is None or not 0 <= cta < self.protocol.cluster:
            raise OutsideFragment(f"CTA {slot.cta}")
        key = (cta, slot.barrier)
        use = slot_use(slot.index, barrier.slots)
        if use is not None:
            return key, self.index(site, use)
        if barrier.slots == 1 and slot.index.constant == 0:
            return key, None
        raise OutsideFragment(f"slot {slot.index} of {slot.barrier}")

    def awaited(self, site: Site, wait: Await) -> IterationIndex:
        """The phase that a wait is for, as the use of the ring that it follows, up to two laps (which parity hides)."""
        slots = self.protocol.barrier(wait.bar.barrier).slots
        _, slot = self.slot(site, wait.bar)
        phase = phase_use(wait.parity, slots)
        if phase is None:
            raise OutsideFragment(f"parity {wait.parity}")
        use = self.index(site, phase.use)
        offset = use.offset + phase.laps * slots
        if slot is not None and (slot.iv != use.iv or (slot.offset - offset) % slots):
            raise OutsideFragment(f"a wait whose slot {wait.bar.index} and parity {wait.parity} are of different uses")
        return IterationIndex(use.iv, offset % (2 * slots))

    # -- bytes --------------------------------------------------------------------------------------------------------
    def place(self, site: Site, region: ops.Region, cta: int | None = None) -> TouchedBytes:
        """The bytes of a region at its site; raises ``OutsideFragment`` where they may leave the buffer."""
        role, own = self.product.parties[site.party]
        buffer = self.protocol.buffer(region.buffer)
        if region.cta is not None:
            cta = region.cta.constant
        elif cta is None:
            cta = own
        if cta is None or not 0 <= cta < self.protocol.cluster:
            raise OutsideFragment(f"CTA {region.cta}")
        match buffer.space:
            case Space.REGISTER:
                memory: tuple[object, ...] = ("register", role.name, own)
            case Space.GLOBAL:
                memory = ("global",)
            case Space.TMEM:
                memory = ("tmem", cta)
            case _:
                memory = ("shared", cta)
        offset, index, stages, stage = self._begin(site, region.begin)
        end = offset + region.size
        if offset < 0 or end + (stages - 1) * stage > buffer.size or (index is not None and end > stage):
            raise OutsideFragment(f"bytes {region.begin} of {buffer.name}")
        if index is None:
            return TouchedBytes(memory, buffer, buffer.offset + offset, buffer.offset + end)
        return TouchedBytes(memory, buffer, offset, end, index, stages, stage, buffer.offset)

    def _begin(self, site: Site, begin: Expr) -> tuple[int, IterationIndex | None, int, int]:
        """A byte position as an offset in a stage, its use, how many stages there are, and their size."""
        if begin.constant is not None:
            return begin.constant, None, 1, 0
        stage = stage_use(begin)
        if stage is None or stage.offset.constant is None:
            raise OutsideFragment(f"byte position {begin}")
        return stage.offset.constant, self.index(site, stage.use), stage.stages, stage.stage_bytes


def _advance(step: Step, name: str) -> int:
    if not isinstance(step.op, ops.Advance) or step.op.counter != name:
        return 0
    by = step.op.by.constant
    if by is None:
        raise OutsideFragment(f"counter {name} advances by {step.op.by}")
    return by


def graph_of(protocol: Protocol, early: frozenset[str] = frozenset()) -> EventGraph | str:
    """The event graph, or why there is none. ``early``: as in ``product_graph_of``."""
    if protocol.grid > 1:
        return "CTAs of a grid"
    protocol = apart(protocol)
    try:
        product = product_graph_of(protocol, early)
        sites = tuple(
            tuple(tuple(Site(p, s.index, i, step) for i, step in enumerate(s.code[p])) for s in product.blocks)
            for p in range(len(product.parties))
        )
        return EventGraph(protocol, product, sites)
    except OutsideFragment as e:
        return str(e)
