"""Accesses to the same bytes are ordered, visible and fenced; what is read was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.contract.parametric.facts import Access, Answer, Facts
from tilewright.contract.parametric.knowledge import DONE, FAR, FENCED, F, M, Rows, S, X
from tilewright.contract.parametric.matching import (
    BarrierUse,
    Piece,
    Ref,
    covering,
)
from tilewright.protocol import ops
from tilewright.protocol.graph import Place
from tilewright.protocol.word import NoWord

ASYNC_PROXY = frozenset(("tma_load", "tma_store", "wgmma", "mma"))
TENSOR = frozenset(("mma", "ld", "st"))


def check_memory(facts: Facts) -> None:
    by_memory: dict[tuple[object, ...], list[Access]] = {}
    for a in facts.accesses:
        by_memory.setdefault(a.place.memory, []).append(a)
    for memory, accesses in by_memory.items():
        for n, x in enumerate(accesses):
            for y in accesses[n:]:
                if (x.writes or y.writes) and _overlap(x.place, y.place):
                    _ordered(facts, x, y)
            if memory[0] in ("shared", "tmem") and not x.writes and not x.place.buffer.initialised:
                _written(facts, x, [w for w in accesses if w.writes])


def _ordered(facts: Facts, x: Access, y: Access) -> None:
    if x is y or x.ref == y.ref:
        if not (_answered(facts, x, y, 1) and (x is y or _answered(facts, y, x, 1))):
            raise NoWord(f"{x.engine} of {facts.name(x.ref)} on {x.place.buffer.name} may overtake itself")
        return
    later = _answered(facts, x, y, 1), _answered(facts, y, x, 1)
    if all(later) and not _coexist(facts, x, y):
        return
    if (later[1] and _answered(facts, x, y, 0)) or (later[0] and _answered(facts, y, x, 0)):
        return
    raise NoWord(f"{x.engine} of {facts.name(x.ref)} and {y.engine} of {facts.name(y.ref)} on {x.place.buffer.name}")


def _coexist(facts: Facts, x: Access, y: Access) -> bool:
    """Whether both can belong to one use of a ring."""
    if not _same_ring(x.place, y.place):
        return True
    assert x.place.index is not None
    assert y.place.index is not None
    apart = y.place.index.offset - x.place.index.offset
    if not x.place.index.unit:
        return True
    unit = facts.column[x.place.index.unit]
    a, b = (y, x) if apart >= 0 else (x, y)
    if x.ref.s == y.ref.s and apart == 0:
        return True
    if apart == 0 and facts.k.ways.link(x.ref.s, y.ref.s, unit, 0) is not None:
        return True
    return facts.k.ways.link(a.ref.s, b.ref.s, unit, abs(apart)) is not None


def _answered(facts: Facts, x: Access, y: Access, laps: int) -> bool:
    """At ``y`` every execution of ``x`` on its bytes is done that comes before: with ``laps`` 0 that of the same
    use (or turn) too, with 1 those of earlier ones."""
    if _same_ring(x.place, y.place):
        assert x.place.index is not None
        assert y.place.index is not None
        bound = x.place.index.offset - y.place.index.offset + laps * x.place.stages
        return _done(facts, x, y, facts.upto(x.place.index.unit, bound))
    if x.ref.s == y.ref.s and laps == 0:
        return _done(facts, x, y, facts.past)
    return _done(facts, x, y, lambda row: bool(row[facts.k.j] == 0))


def _done(facts: Facts, x: Access, y: Access, answer: Answer) -> bool:
    if x.engine == "dealloc":
        return answer(facts.known(y.ref, M, x.ref)) if x.ref.c is not y.ref.c else answer(facts.mine(y.ref, x.ref))
    if x.engine == "generic":
        return _sync_done(facts, x, y, answer)
    k, rows = facts.k, facts.rows(y.ref)
    register = x.place.memory[0] == "register"
    if register and x.engine == y.engine == "wgmma":
        return True
    segment = M if y.engine == "generic" else S
    if x.engine == "tma_load":
        return any(answer(row) for row in _landed(facts, x, y, segment))
    if x.engine == "cp_async":
        if y.engine == "cp_async" and x.ref.c.role == y.ref.c.role:
            return True  # each thread copies its own part
        seen = _copy_seen if y.engine in ASYNC_PROXY else _plainly(segment)
        return any(answer(row) for row in _committed(facts, x, y, ops.CpAsyncArrive, seen))
    fenced = x.place.memory[0] == "tmem" and y.engine in TENSOR
    if x.engine == "mma":
        if y.engine == "mma" and x.ref.c is y.ref.c:
            return True  # one thread's tensor-core ops are in order
        seen = _tensor_seen if fenced else _plainly(segment)
        return any(answer(row) for row in _committed(facts, x, y, ops.Tcgen05Commit, seen))
    if x.engine in ("ld", "st"):
        if y.engine in ("ld", "st") and x.ref.c is not y.ref.c and x.ref.c.role == y.ref.c.role:
            return True  # each warp reaches its own lanes
        mark = k.done[x.ref.c.index, x.ref.s, x.ref.i]
        if x.ref.c is y.ref.c:
            return answer(rows[DONE, mark])
        return answer(rows[k.handed_over if fenced else segment, mark])
    for d in k.classes:
        if d.role != x.ref.c.role or (x.engine == "tma_store" and d is not x.ref.c):
            continue
        place = facts.position.get((d.index, x.ref.site))
        if place is not None:
            mark = k.done[d.index, place[0], place[1]]
            if answer(rows[DONE if d is y.ref.c else segment, mark]):
                return True
    return False


Seen = Callable[[Facts, Ref, BarrierUse, Piece], list[Rows]]
"""What an op knows of a wait, by the classes that run it."""


def _plainly(segment: int) -> Seen:
    return lambda facts, ref, use, wait: facts.seen(ref, segment, use, wait)


def _tensor_seen(facts: Facts, ref: Ref, use: BarrierUse, wait: Piece) -> list[Rows]:
    """Behind tcgen05 fences: handed over so, or seen by the thread itself before its last after-fence."""
    return _rows_of(facts, ref, use, wait, facts.k.after_fence, facts.k.handed_over)


def _copy_seen(facts: Facts, ref: Ref, use: BarrierUse, wait: Piece) -> list[Rows]:
    """Behind a proxy fence: cp.async writes through the generic proxy."""
    return _rows_of(facts, ref, use, wait, FENCED, X)


def _rows_of(facts: Facts, ref: Ref, use: BarrierUse, wait: Piece, own: int, told: int) -> list[Rows]:
    rows, mark = facts.rows(ref), facts.k.mark
    return [rows[own if w.c is ref.c else told, mark[w.c.index, w.s, w.i]] for w in use.alike[wait.ref.site]]


def _committed(facts: Facts, x: Access, y: Access, kind: type[ops.Op], seen: Seen) -> Iterator[Rows]:
    """What waits tell of an op that a later commit (or arrival for its copies) of its threads tracks."""
    k = facts.k
    for use in facts.bars.values():
        pieces = [p for f in use.arrivals for p in f.pieces if isinstance(p.ref.op, kind)]
        for piece in pieces:
            ref = piece.ref
            if ref.c is not x.ref.c or (ref.s == x.ref.s and ref.i < x.ref.i):
                continue
            for row in _waited(facts, ref, use, piece.number, y, seen):
                if ref.s == x.ref.s:
                    yield row
                elif _covered(facts, x.ref.s, y.ref.s, ref.s, row):
                    yield k.closed_row([FAR] * k.j + [0, 1], y.ref.s, x.ref.s)


def _covered(facts: Facts, at: int, here: int, commit: int, row: Rows) -> bool:
    """Whether commits in another stretch, known by ``row``, come after all executions in stretch ``at`` until now."""
    k = facts.k
    if commit == here:
        return bool(row[k.here] == 0)
    return at != here and bool(row[k.whole] == 0) and k.ways.parted(at, here, commit)


def _landed(facts: Facts, x: Access, y: Access, segment: int) -> Iterator[Rows]:
    """What waits on the barrier of a copy tell of it."""
    assert x.landing is not None
    array, number = x.landing
    yield from _waited(facts, x.ref, facts.bars[array], number, y, _plainly(segment))


def _waited(facts: Facts, ref: Ref, use: BarrierUse, number: int, y: Access, seen: Seen) -> Iterator[Rows]:
    """What waits for a barrier tell, at ``y``, of an op that completes on it in the phase of its use ``number``."""
    k = facts.k
    for cover in use.covers:
        row = [FAR] * k.j + [1, 1]
        told = [(w, seen(facts, y.ref, use, w)) for w in cover.pieces]
        if use.unit:
            column = facts.column[use.unit]
            behind = max(min(int(r[column]) for r in rows) - w.number for w, rows in told)
            row[column] = max(behind, -facts.reached(use, cover.pieces, y.ref.s)) + number
        elif facts.passed({w.ref.s for w in cover.pieces}, y.ref.s) and all(
            any(map(facts.past, rows)) for _, rows in told
        ):
            row[k.j :] = 0, 0
        yield k.closed_row(row, y.ref.s, ref.s)


def _sync_done(facts: Facts, x: Access, y: Access, answer: Answer) -> bool:
    register = x.place.memory[0] == "register"
    same_role = x.ref.c.role == y.ref.c.role
    own = register or (same_role and x.private and y.private)
    reaches = y.engine in ASYNC_PROXY
    if own and not reaches:
        return True
    if x.writes and y.writes and same_role and x.ref.site.step is y.ref.site.step:
        return True
    mine = x.ref.c is y.ref.c and (x.ref.c.group.size == 1 or own)
    rows = facts.rows(y.ref)
    if mine and not answer(facts.mine(y.ref, x.ref)):
        return False
    if register:
        return mine
    mark = facts.k.mark[x.ref.c.index, x.ref.s, x.ref.i]
    if not mine and not answer(rows[M, mark]):
        return False
    if not reaches:
        return True
    by_writer = answer(rows[FENCED if mine else F, mark])
    by_anyone = by_writer or answer(rows[FENCED if mine else X, mark])
    if x.writes and not y.writes:
        return by_writer  # a fence of the reader's is left to the canonical runs: it is refuted, or told when lenient
    return by_anyone


def _written(facts: Facts, y: Access, writers: list[Access]) -> None:
    """Some write of the bytes comes before every read of them."""
    left = [(y.place.begin, y.place.end)] if y.place.index is not None else [y.place.span]
    if y.place.index is None:
        for w in writers:
            if w.place.index is None and _answered(facts, w, y, 0) and facts.passed({w.ref.s}, y.ref.s):
                left = _without(left, *w.place.span)
    if left and not _written_by_turns(facts, y, writers):
        raise NoWord(f"bytes of {y.place.buffer.name} that {facts.name(y.ref)} reads may never have been written")


def _written_by_turns(facts: Facts, y: Access, writers: list[Access]) -> bool:
    """Writes at several places that together cover each use of a ring."""
    if y.place.index is None:
        return False
    if _each_turn(facts, y, writers):
        return True
    left = [(y.place.begin, y.place.end)]
    spans = dict.fromkeys((w.place.begin, w.place.end) for w in writers if _same_ring(w.place, y.place))
    for begin, end in spans:
        group = [
            w
            for w in writers
            if _same_ring(w.place, y.place) and (w.place.begin, w.place.end) == (begin, end) and w.ref.c.group.primary
        ]
        if all(_answered(facts, w, y, 0) for w in group) and _everywhere(facts, group):
            left = _without(left, begin, end)
    return not left


def _each_turn(facts: Facts, y: Access, writers: list[Access]) -> bool:
    """Whether every way from where the ring's unit turned last passes a write of the same use."""
    assert y.place.index is not None
    unit = y.place.index.unit
    passed = {
        w.ref.s
        for w in writers
        if _same_ring(w.place, y.place)
        and w.place.index == y.place.index
        and (w.place.begin, w.place.end) == (y.place.begin, y.place.end)
        and w.ref.s != y.ref.s
        and _answered(facts, w, y, 0)
    }
    pending = [*facts.graph.word.starts, *(f.target for f in facts.graph.word.flows if unit.intersection(f.turns))]
    seen: set[int] = set()
    while pending:
        s = pending.pop()
        if s in seen or s in passed:
            continue
        if s == y.ref.s:
            return False
        seen.add(s)
        pending += [f.target for f in facts.graph.word.flows if f.source == s and not unit.intersection(f.turns)]
    return bool(passed)


def _everywhere(facts: Facts, group: list[Access]) -> bool:
    """Whether the accesses take every use of their ring."""
    w = group[0]
    assert w.place.index is not None
    one = [a for a in group if a.ref.c is w.ref.c]
    pieces = [Piece(a.ref, a.place.index.offset) for a in one if a.place.index is not None]
    return covering(facts.graph.word, w.place.index.unit, list(dict.fromkeys(pieces))) is not None


def _same_ring(x: Place, y: Place) -> bool:
    return (
        x.index is not None
        and y.index is not None
        and (x.index.unit, x.stages, x.stage, x.base) == (y.index.unit, y.stages, y.stage, y.base)
    )


def _overlap(x: Place, y: Place) -> bool:
    if _same_ring(x, y):
        return x.begin < y.end and y.begin < x.end
    return x.span[0] < y.span[1] and y.span[0] < x.span[1]


def _without(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for a, b in spans:
        out += [(a, min(b, begin))] if a < min(b, begin) else []
        out += [(max(a, end), b)] if max(a, end) < b else []
    return out
