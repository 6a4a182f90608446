"""Tensor memory: allocated once and known to be before any use, freed once after all uses."""

from __future__ import annotations

from tilewright.hw.rules.tcgen05 import TMEM_COLUMNS
from tilewright.hw.spaces import Space
from tilewright.protocol.effects import Relinquish, TensorLife
from tilewright.protocol.graph import TouchedBytes
from tilewright.protocol.product_graph import OutsideFragment, repeats
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.marks import Segment


def check_tensor_memory(facts: PreparedProtocol) -> None:
    """The rules of allocation; raises ``OutsideFragment``."""
    for buffer in facts.protocol.buffers:
        if buffer.space is Space.TMEM:
            for cta in range(facts.protocol.cluster):
                _lifetime(facts, buffer.name, cta)
    for cta in range(facts.protocol.cluster):
        _columns(facts, cta)


def _columns(facts: PreparedProtocol, cta: int) -> None:
    """All allocations of a CTA fit at once, and none requests more columns than the one before it."""
    size = {
        r: facts.protocol.buffer(life.buffer).size
        for r, life in facts.k.effects.of(TensorLife)
        if life.begins and r.c.cta == cta and r.c.group.primary
    }
    allocs = list(size)
    for x in allocs:
        if sum(size[y] for y in allocs if y.s == x.s) > TMEM_COLUMNS:
            raise OutsideFragment("allocations of tensor memory that may have to wait for columns")
        if any(y.s == x.s and size[y] < size[x] and (y.c is not x.c or y.i < x.i) for y in allocs):
            raise OutsideFragment("an allocation of tensor memory that may follow a smaller one")


def _lifetime(facts: PreparedProtocol, buffer: str, cta: int) -> None:
    product, lives = facts.graph.product, facts.k.effects.of(TensorLife)
    mine = [(r, life) for r, life in lives if life.buffer == buffer and r.c.cta == cta and r.c.group.primary]
    touching = [a for series in facts.accesses.series() for a in series if _is_of(a.place, buffer, cta)]
    if not mine and not touching:
        return
    allocs, frees = [r for r, life in mine if life.begins], [r for r, life in mine if not life.begins]
    if sorted(r.s for r in allocs) != sorted(product.starts) or sorted(r.s for r in frees) != sorted(product.ends):
        raise OutsideFragment(f"{buffer} is not allocated once at the start and freed once at the end")
    if any(repeats(product, r.s) for r in [*allocs, *frees]):
        raise OutsideFragment(f"{buffer} is allocated or freed in a loop")
    for ref, _ in facts.k.effects.of(Relinquish):
        if ref.c.cta == cta and not all(a.c.role == ref.c.role and (a.s, a.i) < (ref.s, ref.i) for a in allocs):
            raise OutsideFragment("the right to allocate may be given up too early")
    for access in touching:
        for alloc in allocs:
            past = facts.k.levels.past
            if alloc.c is access.ref.c and (alloc.c.group.size == 1 or access.frees):
                known = past.holds(facts.mine(access.ref, alloc))
            else:
                known = facts.knows(access.ref, Segment.MEMORY, alloc, past)
            if not known:
                raise OutsideFragment(f"{access.ref.name} may come before {buffer} is allocated")
        for free in frees:
            after = access.ref.s == free.s and (access.ref.c is not free.c or access.ref.i > free.i)
            if (after and access.ref != free) or facts.k.paths.reaches[free.s, access.ref.s]:
                raise OutsideFragment(f"{access.ref.name} may come after {buffer} is freed")


def _is_of(place: TouchedBytes, buffer: str, cta: int) -> bool:
    return place.memory == ("tmem", cta) and place.buffer.name == buffer
