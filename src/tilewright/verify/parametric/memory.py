"""Accesses to the same bytes are ordered, visible and fenced; what is read was written."""

from __future__ import annotations

from itertools import pairwise

from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.parametric.accesses import ClassAccess, Series, overlap, same_stages
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.matching import PhaseUse, covering
from tilewright.verify.parametric.order import AccessOrder


def check_memory(facts: PreparedProtocol) -> None:
    """The rules of memory; raises ``OutsideFragment``."""
    order = AccessOrder(facts)
    proved: set[tuple[int, ...]] = set()  # pairs of accesses of which all is the same but the bytes
    for xs, ys in facts.accesses.clashing():
        alike = _alike(order, xs, ys)
        if alike is not None and alike in proved:
            continue
        if not _never_overlap(facts, xs[0], ys[0]) and not _in_order(order, xs, ys):
            for i, x in enumerate(xs):
                for y in xs[i:] if ys is xs else ys:
                    _ordered(order, x, y)
        if alike is not None:
            proved.add(alike)
    for memory, places in facts.accesses.memories.items():
        if memory[0] in ("shared", "tmem"):
            writers = [w for place in places for series in place for w in series if w.writes]
            for y in (series[0] for place in places for series in place):
                if not y.writes and not y.place.buffer.initialised:
                    _written(order, y, writers)


def _alike(order: AccessOrder, xs: Series, ys: Series) -> tuple[int, ...] | None:
    """A key such that ``_in_order`` and ``_ordered`` give the same answer for all pairs of accesses with the same key;
    None if they need the stage of a ring buffer, or more than two accesses."""
    x, y = xs[0], ys[0]
    if len(xs) > 1 or len(ys) > 1 or (x.place.index is not None and y.place.index is not None):
        return None
    if x.ref.c.party != y.ref.c.party:
        return order.alike(x), order.alike(y)
    later = (x.ref.i > y.ref.i) - (x.ref.i < y.ref.i)
    return order.alike(x), order.alike(y), later, x.ref.site.step is y.ref.site.step


def _never_overlap(facts: PreparedProtocol, x: ClassAccess, y: ClassAccess) -> bool:
    """Whether two accesses to a ring always have different stages, such as those of its even and odd users."""
    one, two = x.place.index, y.place.index
    if one is None or two is None or not same_stages(x.place, y.place) or not one.iv:
        return False
    iv = facts.column[one.iv]
    period, a = facts.k.paths.residue(x.ref.s, iv, x.place.stages)
    _, b = facts.k.paths.residue(y.ref.s, iv, x.place.stages)
    return period > 1 and (a + one.offset - b - two.offset) % period != 0


def _in_order(order: AccessOrder, xs: Series, ys: Series) -> bool:
    """Whether all of two series are ordered, by few of the questions that ``_ordered`` asks of each pair; it may be
    that they are even if this does not tell."""
    before = order.before
    if not (all(before(x, ys[0], 1) for x in xs) and (ys is xs or all(before(y, xs[0], 1) for y in ys))):
        return False
    if ys is xs:
        return all(before(x, y, 0) for x, y in pairwise(xs))
    behind = len(xs) * [0]  # per x the first y that it comes before in their iteration
    j = 0
    for i, x in enumerate(xs):
        while j < len(ys) and not before(x, ys[j], 0):
            j += 1
        behind[i] = j
    i = 0
    for j, y in enumerate(ys):
        # behind y come all x of its iteration that y is not behind
        while i < len(xs) and behind[i] <= j:
            i += 1
        open_ = [x for x in xs[i : i + 2] if not _one(x, y)]
        if open_ and not before(y, open_[0], 0):
            return False
    return True


def _one(x: ClassAccess, y: ClassAccess) -> bool:
    """Whether both are the same op, or one write that threads of a role share."""
    shared = x.ref.site.step is y.ref.site.step and x.ref.c.party == y.ref.c.party
    return x.ref == y.ref or (shared and x.generic and y.generic and x.writes and y.writes)


def _ordered(order: AccessOrder, x: ClassAccess, y: ClassAccess) -> None:
    before = order.before
    if _one(x, y):
        alone = x.ref != y.ref or (x is y and x.generic and x.writes)
        if not (alone or (before(x, y, 1) and (x is y or before(y, x, 1)))):
            raise OutsideFragment(f"{x.engine} of {x.ref.name} on {x.place.buffer.name} may overtake itself")
        return
    y_earlier = before(y, x, 1)
    if y_earlier and before(x, y, 0):
        return
    if before(x, y, 1) and ((y_earlier and not _coexist(order.facts, x, y)) or before(y, x, 0)):
        return
    raise OutsideFragment(f"{x.engine} of {x.ref.name} and {y.engine} of {y.ref.name} on {x.place.buffer.name}")


def _coexist(facts: PreparedProtocol, x: ClassAccess, y: ClassAccess) -> bool:
    """Whether both can belong to one use of a ring."""
    one, two = x.place.index, y.place.index
    if one is None or two is None or not same_stages(x.place, y.place) or not one.iv:
        return True
    apart, iv, linked = two.offset - one.offset, facts.column[one.iv], facts.k.paths.linked
    a, b = (y, x) if apart >= 0 else (x, y)
    if x.ref.s == y.ref.s and apart == 0:
        return True
    if apart == 0 and linked(x.ref.s, y.ref.s, iv, 0):
        return True
    return linked(a.ref.s, b.ref.s, iv, abs(apart))


# -- written before read -----------------------------------------------------------------------------------------------
def _written(order: AccessOrder, y: ClassAccess, writers: list[ClassAccess]) -> None:
    """Some write of the bytes comes before every read of them."""
    if y.place.index is not None:
        if _beside(order, y, writers) or _each_iteration(order, y, writers) or _by_places(order, y, writers):
            return
    else:
        near = (w for w in writers if w.place.index is None and overlap(w.place, y.place))
        begin, end = y.place.span
        for w in sorted(near, key=lambda w: w.place.begin):
            if w.place.begin > begin or begin >= end:
                break
            if w.place.end > begin and _comes_first(order, w, y):
                begin = w.place.end
        if begin >= end:
            return
    raise OutsideFragment(f"bytes of {y.place.buffer.name} that {y.ref.name} reads may never have been written")


def _comes_first(order: AccessOrder, w: ClassAccess, y: ClassAccess) -> bool:
    return order.written(w, y) and order.facts.passed({w.ref.s}, y.ref.s)


def _speaks(order: AccessOrder, w: ClassAccess, y: ClassAccess) -> bool:
    """Whether a write by one class tells of all that ``y`` reads: of its threads' own parts they have to write."""
    return w.ref.c is y.ref.c if order.unasked(w, y) else w.ref.c.group.primary


def _by_places(order: AccessOrder, y: ClassAccess, writers: list[ClassAccess]) -> bool:
    """Writes at several places that together cover each use of a ring."""
    left = [(y.place.begin, y.place.end)]
    alike = [w for w in writers if same_stages(w.place, y.place)]
    for begin, end in dict.fromkeys((w.place.begin, w.place.end) for w in alike):
        group = [w for w in alike if (w.place.begin, w.place.end) == (begin, end) and _speaks(order, w, y)]
        if all(order.written(w, y) for w in group) and _everywhere(order.facts, group):
            left = _without(left, begin, end)
    return not left


def _beside(order: AccessOrder, y: ClassAccess, writers: list[ClassAccess]) -> bool:
    """Whether writes in the same iteration of the same block, which the product passes as often, cover the use."""
    left = [(y.place.begin, y.place.end)]
    for w in writers:
        beside = w.ref.s == y.ref.s and w.place.index == y.place.index and same_stages(w.place, y.place)
        if left and beside and _speaks(order, w, y) and order.written(w, y):
            left = _without(left, w.place.begin, w.place.end)
    return not left


def _each_iteration(order: AccessOrder, y: ClassAccess, writers: list[ClassAccess]) -> bool:
    """Whether every path since the pipeline's induction variable last advanced passes a write of the same use."""
    product, index = order.facts.graph.product, y.place.index
    assert index is not None
    passed = {
        w.ref.s
        for w in writers
        if w.ref.s != y.ref.s
        and w.place.index == index
        and same_stages(w.place, y.place)
        and (w.place.begin, w.place.end) == (y.place.begin, y.place.end)
        and order.written(w, y)
    }
    if not passed:
        return False
    advanced = [f.target for f in product.edges if index.iv.intersection(f.advances)]
    return order.facts.passed_since([*product.starts, *advanced], passed, y.ref.s, index.iv)


def _everywhere(facts: PreparedProtocol, group: list[ClassAccess]) -> bool:
    """Whether the accesses take every use of their ring."""
    if not group:
        return False
    index = group[0].place.index
    assert index is not None
    one = [a for a in group if a.ref.c is group[0].ref.c]
    pieces = [PhaseUse(a.ref, a.place.index.offset) for a in one if a.place.index is not None]
    return covering(facts.graph.product, index.iv, list(dict.fromkeys(pieces))) is not None


def _without(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for a, b in spans:
        out += [(a, min(b, begin))] if a < min(b, begin) else []
        out += [(max(a, end), b)] if max(a, end) < b else []
    return out
