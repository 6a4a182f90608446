"""Which arrivals, bytes and waits belong together, for every trip count: numbering the uses of a barrier.

The uses of a barrier by one class (or by classes that alternate) form a *family* if, along every product, they come as
use 0, 1, 2, ... in this order: the number of uses made so far minus the iterations of the ring's iv is then a
constant of the place. Families of one barrier run in parallel: each gives every phase the same arrivals, and the phase
of an arrival is its number, whatever its slot expression leaves open modulo the ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tilewright.protocol.effects import TENSOR, Await, Signal
from tilewright.protocol.graph import EventGraph, InductionVariable, IterationIndex, Site
from tilewright.protocol.product_graph import OutsideFragment, ProductGraph, behind_all, numbered
from tilewright.verify.parametric.classes import Ref
from tilewright.verify.parametric.happens_before import HappensBefore

_USES = Signal, Await

Array = tuple[int, str]
"""A barrier array of a CTA."""


class PhaseUse(NamedTuple):
    """A use of a barrier: in the phase of use ``iv + number``."""

    ref: Ref
    number: int


@dataclass(frozen=True)
class PhaseFamily:
    """Uses that take the phases of a barrier in order, each once. ``lead``: the uses made before a block minus its
    iterations so far; a block after all uses of the barrier has none if the number depends on the path."""

    pieces: tuple[PhaseUse, ...]
    lead: dict[int, int]
    weight: int = 0
    bytes: int = 0

    def at(self, s: int) -> list[PhaseUse]:
        """The family's pieces in a block."""
        return [p for p in self.pieces if p.ref.s == s]


@dataclass
class BarrierUse:
    """All uses of one barrier array."""

    array: Array
    slots: int
    count: int
    iv: InductionVariable
    arrivals: list[PhaseFamily] = field(default_factory=list[PhaseFamily])
    landings: list[PhaseFamily] = field(default_factory=list[PhaseFamily])
    expects: list[PhaseFamily] = field(default_factory=list[PhaseFamily])
    waits: list[PhaseUse] = field(default_factory=list[PhaseUse])
    alike: dict[Site, list[Ref]] = field(default_factory=dict[Site, list[Ref]])
    """The classes that run one wait."""
    covers: list[PhaseFamily] = field(default_factory=list[PhaseFamily])
    """Families of waits: someone waits for every phase."""
    users: list[Ref] = field(default_factory=list[Ref])
    """Everything that refers to the barrier."""

    @property
    def signals(self) -> list[PhaseFamily]:
        """The signals that complete a phase."""
        return [*self.arrivals, *self.landings]

    @property
    def releasing(self) -> list[PhaseFamily]:
        """The signals that release something: who issues a copy and arrives releases by the arrival."""
        arriving = {p.ref.c.index for f in self.arrivals for p in f.pieces}
        return [*self.arrivals, *(f for f in self.landings if any(p.ref.c.index not in arriving for p in f.pieces))]


class _Use(NamedTuple):
    """A use of a barrier before it is numbered: its slot, and what it adds to its phase."""

    ref: Ref
    slot: IterationIndex | None
    arrivals: int = 0
    bytes: int = 0


@dataclass
class _Raw:
    signals: dict[str, list[_Use]] = field(default_factory=lambda: {"arrive": [], "expect": [], "land": []})
    waits: list[tuple[Ref, IterationIndex]] = field(default_factory=list[tuple[Ref, IterationIndex]])
    users: list[Ref] = field(default_factory=list[Ref])


def barrier_uses(graph: EventGraph, k: HappensBefore) -> dict[Array, BarrierUse]:
    """Every barrier array with its uses, numbered; raises ``OutsideFragment``."""
    raw: dict[Array, _Raw] = {}
    for c in k.classes:
        for s, code in enumerate(c.ops):
            for i, op in enumerate(code):
                for effect in op.effects:
                    if isinstance(effect, _USES):
                        _collect(graph, Ref(c, s, i), effect, raw)
    return {array: _numbered(graph, array, found) for array, found in raw.items()}


def _collect(graph: EventGraph, ref: Ref, effect: Signal | Await, raw: dict[Array, _Raw]) -> None:
    array, index = graph.slot(ref.site, effect.bar)
    match effect:
        case Await():
            if array[0] != ref.c.cta:
                raise OutsideFragment("a wait on a peer's barrier")
            raw.setdefault(array, _Raw()).waits.append((ref, graph.awaited(ref.site, effect)))
            raw[array].users.append(ref)
        case Signal(lands=0):
            found, size = raw.setdefault(array, _Raw()), ref.c.group.size
            if effect.after is TENSOR and (size > 1 or effect.ranks):
                raise OutsideFragment("a multicast commit")
            kind = "arrive" if effect.arrivals else "expect"
            found.signals[kind].append(_Use(ref, index, effect.arrivals * size, effect.expects * size))
            if ref not in found.users:
                found.users.append(ref)
        case Signal():
            if ref.c.group.size > 1:
                raise OutsideFragment("a copy issued by many threads")
            for rank in {e.constant for e in effect.ranks} or {ref.c.cta}:
                if rank is None or not 0 <= rank < graph.protocol.cluster:
                    raise OutsideFragment("a multicast to computed ranks")
                found = raw.setdefault((rank, array[1]), _Raw())
                found.signals["land"].append(_Use(ref, index, bytes=effect.lands))
                found.users.append(ref)


def _numbered(graph: EventGraph, array: Array, raw: _Raw) -> BarrierUse:
    barrier = graph.protocol.barrier(array[1])
    ivs = {u.slot.iv for uses in raw.signals.values() for u in uses if u.slot is not None} | {
        x.iv for _, x in raw.waits
    }
    if len(ivs) > 1:
        raise OutsideFragment(f"uses of {array[1]} follow different counters")
    iv = ivs.pop() if ivs else frozenset[int]()
    use = BarrierUse(array, barrier.slots, barrier.count, iv, users=raw.users)
    numbering = _Numbering(graph.product, iv, barrier.slots, frozenset(r.s for r in raw.users))
    for kind, target in (("arrive", use.arrivals), ("expect", use.expects), ("land", use.landings)):
        target += _families(numbering, raw.signals[kind])
    if sum(f.weight for f in use.arrivals) != barrier.count:
        raise OutsideFragment(f"arrivals on {array[1]} do not sum to {barrier.count} by families")
    if sum(f.bytes for f in use.expects) != sum(f.bytes for f in use.landings):
        raise OutsideFragment(f"bytes of {array[1]} do not balance by families")
    for one, other in pairwise([*use.signals, *use.expects]):
        if not _end_together(graph.product, one, other):
            raise OutsideFragment(f"some phase of {array[1]} stays incomplete")
    use.waits = [PhaseUse(ref, _latest(use, ref.s, x.offset)) for ref, x in raw.waits]
    for p in use.waits:
        use.alike.setdefault(p.ref.site, []).append(p.ref)
    use.covers = _covers(graph.product, iv, use.waits)
    return use


def _latest(use: BarrierUse, s: int, number: int) -> int:
    """Of the phases that a wait's parity may mean the latest whose arrivals are not later in the product than the wait.
    That it is this one is proved by the order of phases at waits."""
    reached = min((f.lead[s] + len(f.at(s)) for f in use.signals), default=1)
    return reached - 1 - (reached - 1 - number) % (2 * use.slots)


def _end_together(product: ProductGraph, one: PhaseFamily, other: PhaseFamily) -> bool:
    """Whether, wherever the product ends, both have taken as many phases."""
    ends = [-1 - e for e in product.ends]
    if all(e in one.lead and e in other.lead for e in ends):
        return all(one.lead[e] == other.lead[e] for e in ends)
    more = {s.index: len(one.at(s.index)) - len(other.at(s.index)) for s in product.blocks}
    apart = numbered(product, frozenset(), more, 0)
    return apart is not None and not any(apart[e] for e in ends)


class _Numbering(NamedTuple):
    """How the uses of a barrier are numbered; ``used``: the blocks with any."""

    product: ProductGraph
    iv: InductionVariable
    slots: int
    used: frozenset[int]

    def lead(self, uses: dict[int, int]) -> dict[int, int] | None:
        """``PhaseFamily.lead`` of so many uses by block; None where the number of a use depends on the way."""
        found = numbered(self.product, self.iv, uses, 0)
        if found is None:
            found = numbered(self.product, self.iv, uses, 0, behind_all(self.product, self.used))
        return found


def _families(numbering: _Numbering, uses: list[_Use]) -> list[PhaseFamily]:
    """Splits uses into families: by class, by order within a block, or over classes that alternate."""
    out: list[PhaseFamily] = []
    left: list[_Use] = []
    for c in dict.fromkeys(u.ref.c.index for u in uses):
        mine = [u for u in uses if u.ref.c.index == c]
        found = _by_order(numbering, mine)
        if found is None:
            left += mine
        else:
            out += found
    if left:
        # classes of one kind that alternate, such as the elected threads of the consumers
        kinds: dict[tuple[str, int], list[_Use]] = {}
        for u in left:
            kinds.setdefault((u.ref.c.group.kind.value, u.ref.c.cta), []).append(u)
        for group in kinds.values():
            found = _by_order(numbering, group)
            if found is None or not _one_class_a_block(group):
                raise OutsideFragment("uses of a barrier that do not take its phases in turn")
            out += found
    return out


def _one_class_a_block(uses: list[_Use]) -> bool:
    return all(a.ref.c is b.ref.c for a in uses for b in uses if a.ref.s == b.ref.s)


def _by_order(numbering: _Numbering, uses: list[_Use]) -> list[PhaseFamily] | None:
    """One family, or as many as the most uses in one block: the first ones, the second ones, ..."""
    by_block: dict[int, list[_Use]] = {}
    for u in uses:
        by_block.setdefault(u.ref.s, []).append(u)
    for count in dict.fromkeys((1, max(map(len, by_block.values())))):
        if count > 1 and len(set(map(len, by_block.values()))) > 1:
            return None
        out: list[PhaseFamily] = []
        for w in range(count):
            mine = [u for us in by_block.values() for n, u in enumerate(us) if n % count == w]
            if len({(x.arrivals, x.bytes) for x in mine}) > 1:
                break
            lead = numbering.lead({s: len(us) // count for s, us in by_block.items()})
            if lead is None:
                break
            pieces = _pieces(lead, numbering.slots, mine)
            if pieces is None:
                break
            out.append(PhaseFamily(pieces, lead, mine[0].arrivals, mine[0].bytes))
        else:
            return out
    return None


def _pieces(lead: dict[int, int], slots: int, uses: list[_Use]) -> tuple[PhaseUse, ...] | None:
    out: list[PhaseUse] = []
    seen: dict[int, int] = {}
    for ref, index, *_ in uses:
        number = lead[ref.s] + seen.get(ref.s, 0)
        seen[ref.s] = seen.get(ref.s, 0) + 1
        if index is not None and (index.offset - number) % slots:
            return None
        out.append(PhaseUse(ref, number))
    return tuple(out)


def _covers(product: ProductGraph, iv: InductionVariable, waits: Sequence[PhaseUse]) -> list[PhaseFamily]:
    """Families among the waits, of one party or of several that alternate; of the classes that run one wait any."""
    sites = {p.ref.site: p for p in reversed(waits)}
    groups: dict[object, list[PhaseUse]] = {}
    for site, p in sites.items():
        groups.setdefault(site.party, []).append(p)
        groups.setdefault(f"CTA {p.ref.c.cta}", []).append(p)
        groups.setdefault("all", []).append(p)
    out: list[PhaseFamily] = []
    for pieces in groups.values():
        family = covering(product, iv, pieces)
        if family is not None and all(set(f.pieces) != set(family.pieces) for f in out):
            out.append(family)
    return out


def covering(product: ProductGraph, iv: InductionVariable, pieces: Sequence[PhaseUse]) -> PhaseFamily | None:
    """The pieces as a family that takes every number from its first one on, if they do."""
    by_block: dict[int, list[PhaseUse]] = {}
    for p in sorted(pieces, key=lambda p: p.ref.i):
        by_block.setdefault(p.ref.s, []).append(p)
    if any(a.ref.c is not b.ref.c for group in by_block.values() for a in group for b in group):
        return None
    uses = {s: len(group) for s, group in by_block.items()}
    lead = numbered(product, iv, uses, 0)
    if lead is None:
        return None
    shifts = {p.number - lead[s] - n for s, group in by_block.items() for n, p in enumerate(group)}
    if len(shifts) != 1 or min(shifts) > 0:
        return None
    (shift,) = shifts
    return PhaseFamily(tuple(pieces), {s: x + shift for s, x in lead.items()})
