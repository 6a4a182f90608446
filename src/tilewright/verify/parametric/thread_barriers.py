"""Barriers of threads: which ops of which classes match, for every trip count."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.base.cached import cached_property
from tilewright.protocol.effects import BarrierScope, Sync
from tilewright.protocol.graph import EventGraph
from tilewright.protocol.product_graph import OutsideFragment, ProductGraph, repeats
from tilewright.verify.parametric.classes import Ref
from tilewright.verify.parametric.happens_before import HappensBefore


@dataclass
class ThreadBarrier:
    """A named barrier (or the cluster barrier): in every use each participating class takes part once."""

    label: str
    ops: dict[int, dict[int, list[Ref]]]
    """Per class and block: its ops in order."""
    ahead: dict[int, dict[int, int]]
    """Per class and block: uses it has begun before the block, compared with the first class."""
    _beside: dict[Ref, tuple[Ref, ...]] = field(default_factory=dict[Ref, tuple[Ref, ...]])

    @cached_property
    def _number(self) -> dict[Ref, int]:
        """Per op, the number of earlier ops of its class in its block."""
        return {r: n for by_block in self.ops.values() for refs in by_block.values() for n, r in enumerate(refs)}

    @cached_property
    def waiting(self) -> frozenset[int]:
        """Classes all of whose ops return only when the use is complete."""
        return frozenset(
            c for c, by_block in self.ops.items() if all(sync_of(r).waits for refs in by_block.values() for r in refs)
        )

    def beside(self, ref: Ref) -> tuple[Ref, ...]:
        """The ops of the use that ``ref`` begins that are in the same iteration of the same block, one of a class."""
        found = self._beside.get(ref)
        if found is None:
            partners = (self.partner(ref, other) for other in self.ops)
            found = tuple(refs[0] for refs, same in partners if same)
            self._beside |= dict.fromkeys(found if len(found) == len(self.ops) else (ref,), found)
        return found

    def partner(self, ref: Ref, other: int, back: int = 0) -> tuple[list[Ref], bool]:
        """The op of class ``other`` in the use that ``ref`` begins (or in that many uses before), and whether it is in
        the same iteration of the same block; else where it may stand: the other's last op before this block."""
        q = self._number[ref] + self.ahead[ref.c.index][ref.s] - self.ahead[other][ref.s] - back
        here = self.ops[other].get(ref.s, [])
        if 0 <= q < len(here):
            return [here[q]], True
        if q >= len(here):
            raise OutsideFragment(f"{self.label}: {ref.c.group.label} meets what comes later")
        if q < -1 and not back:
            raise OutsideFragment(f"{self.label}: partners are more than one use apart")
        return [refs[-1] if q == -1 else refs[0] for refs in self.ops[other].values() if refs], False


def thread_barriers(graph: EventGraph, k: HappensBefore) -> tuple[dict[Ref, ThreadBarrier], list[ThreadBarrier]]:
    """The barrier of every sync and arrive; raises ``OutsideFragment``."""
    found: dict[tuple[object, ...], list[Ref]] = {}
    for ref, sync in k.effects.of(Sync):
        if sync.arrives and sync.scope is not BarrierScope.WARP:
            found.setdefault(_barrier_key(ref, sync), []).append(ref)
    out: dict[Ref, ThreadBarrier] = {}
    barriers: list[ThreadBarrier] = []
    for key, refs in found.items():
        whole = sum(c.group.size for c in k.classes if c.cta == key[1])
        threads = {sync_of(r).threads or whole for r in refs}
        members = {r.c.index for r in refs}
        if key[0] == "cluster":
            complete = members == {c.index for c in k.classes}
        else:
            complete = threads == {sum(c.group.size for c in k.classes if c.index in members)}
        if not complete and _stays_open(graph.product, refs, threads):
            continue
        if not complete or any(sync_of(r).aligned for r in refs):
            raise OutsideFragment(f"{key[0]} barrier {key[-1]}: not all uses have the same threads")
        barrier = _thread_barrier(graph.product, f"{key[0]} barrier {key[-1]}", refs)
        barriers.append(barrier)
        out |= dict.fromkeys(refs, barrier)
    return out, barriers


def _stays_open(product: ProductGraph, refs: list[Ref], threads: set[int]) -> bool:
    """Nobody waits, and fewer threads arrive, each once in a run, than the first use has: it orders nothing."""
    arriving = {r.c.index: r.c.group.size for r in refs}
    once_each = len(arriving) == len(refs) and not any(repeats(product, r.s) for r in refs)
    alike = len(threads) == 1 and not any(sync_of(r).waits or sync_of(r).aligned for r in refs)
    return once_each and alike and sum(arriving.values()) < min(threads)


def sync_of(ref: Ref) -> Sync:
    """The sync effect of an op."""
    return next(ref.op.of(Sync))


def _barrier_key(ref: Ref, sync: Sync) -> tuple[object, ...]:
    if sync.number is None:
        return "cluster", "arrivals"
    if sync.number.constant is None:
        raise OutsideFragment(f"named barrier {sync.number}")
    return "named", ref.c.cta, sync.number.constant


def _thread_barrier(product: ProductGraph, label: str, refs: list[Ref]) -> ThreadBarrier:
    by_class: dict[int, dict[int, list[Ref]]] = {}
    for r in refs:
        by_class.setdefault(r.c.index, {}).setdefault(r.s, []).append(r)
    first = next(iter(by_class.values()))
    ahead: dict[int, dict[int, int]] = {}
    leads: dict[tuple[tuple[int, int], ...], dict[int, int]] = {}
    for c, mine in by_class.items():
        difference = {s: len(mine.get(s, [])) - len(first.get(s, [])) for s in sorted(first.keys() | mine.keys())}
        key = tuple(difference.items())
        lead = leads.get(key) or leads.setdefault(key, _paced(product, difference))
        if not difference.keys() <= lead.keys():
            raise OutsideFragment(f"{label}: classes use it at different paces")
        ahead[c] = lead
    return ThreadBarrier(label, by_class, ahead)


def _paced(product: ProductGraph, difference: dict[int, int]) -> dict[int, int]:
    """The sum of ``difference`` before each block, where it is the same on every path."""
    found: dict[int, set[int]] = {s: {0} for s in product.starts}
    pending = list(product.starts)
    while pending:
        at = pending.pop()
        values = {v + difference.get(at, 0) for v in found[at]}
        for f in product.leaving[at]:
            known = found.setdefault(f.target, set())
            if not values <= known and len(known) < 2:  # two values are as bad as many
                known |= values
                pending.append(f.target)
    return {s: min(values) for s, values in found.items() if len(values) == 1}
