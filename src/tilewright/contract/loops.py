"""Loops written otherwise, where a protocol is not proved as it stands: the same steps in the same order.

    for k in range(lo, hi): use(k)          for k in range(0, n): use(k + lo)      n stands for hi - lo
    for k in range(0, a + z): use(k)        for k in range(0, a): use(k)           beside loops to a, to z
                                            for k in range(0, z): use(k + a)
    for k in range(0, 2 * n): use(k)        for k in range(0, n):                  beside a loop to n
                                                use(2 * k); use(2 * k + 1)

A count is replaced by a symbol of its own only if nothing else in the protocol asks for what it is made of. The symbol
may be any count, so what is proved holds of the protocol; a breach may be none, so only proofs may use the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilewright.base.expr import Const, Expr, Interval, Sum, sym
from tilewright.contract.fold import at_most
from tilewright.protocol import ops
from tilewright.protocol.model import By, Loop, Node, Protocol, Role, Step, Symbol, walk, with_bodies
from tilewright.protocol.rewrite import substituted, used
from tilewright.protocol.unroll import MAX_GROUP, counted


def counted_from_zero(protocol: Protocol) -> Protocol:
    """Loops from one symbol to another as loops from 0 to a symbol that is their count."""
    for begin, end in dict.fromkeys((x.begin, x.end) for x in _loops(protocol) if x.begin.constant is None):
        protocol = _rebased(protocol, begin, end) or protocol
    return protocol


def _rebased(protocol: Protocol, begin: Expr, end: Expr) -> Protocol | None:
    """The protocol with all loops between two bounds rebased to 0; None where the bounds are used elsewhere."""
    names = begin.symbols | end.symbols
    known = {s.name: s for s in protocol.symbols}
    if not names <= known.keys():
        return None
    varying = {known[n].per for n in names} - {None}
    if len(varying) > 1:
        return None
    count = _fresh(protocol, f"{'_'.join(sorted(names))}_count")

    def moved(loop: Loop) -> Iterator[Node]:
        if (loop.begin, loop.end, loop.step) != (begin, end, 1):
            yield loop
            return
        body = substituted(loop.body, loop.counter, sym(loop.counter) + begin)
        yield replace(loop, begin=Const(0), end=sym(count), body=body)

    new = _with_loops(protocol, moved)
    if names & frozenset[str]().union(*(used(r.body) for r in new.roles)):
        return None
    symbols = (*(s for s in new.symbols if s.name not in names), Symbol(count, per=next(iter(varying), None)))
    return replace(new, symbols=symbols)


def divided(protocol: Protocol) -> Protocol:
    """Loops to a sum of counts as one loop to each, in the order in which another role has them."""
    bounds: dict[str, Interval] = {s.name: (s.least, s.most) for s in protocol.symbols}
    found = (ends for role in protocol.roles for ends in _rows(role.body))
    rows = [ends for ends in found if all(at_most(Const(0), end, bounds) for end in ends)]

    def parts(loop: Loop) -> Iterator[Node]:
        ends = next((x for row in rows if (x := _summing(row, loop.end))), None)
        if ends is None or loop.begin.constant != 0 or loop.step != 1 or _varies(protocol, loop.counter):
            yield loop
            return
        before: Expr = Const(0)
        for end in ends:
            yield replace(loop, end=end, body=substituted(loop.body, loop.counter, sym(loop.counter) + before))
            before = before + end

    return replace(protocol, roles=tuple(_carried(protocol, r, parts) for r in protocol.roles))


def _carried(protocol: Protocol, role: Role, parts: Callable[[Loop], Iterator[Node]]) -> Role:
    """A role with its outermost loops divided, the counter of which is carried from part to part."""
    body: list[Node] = []
    counters = list(role.counters)
    for node in role.body:
        found = list(parts(node)) if isinstance(node, Loop) else [node]
        if len(found) > 1 and isinstance(node, Loop) and node.counter in used(node.body):
            name = _fresh(protocol, f"{node.counter}_{len(counters)}")
            counters.append((name, 0))
            inside = substituted(node.body, node.counter, sym(name))
            turn = (*inside, Step(ops.Advance(name), By.ALL, node.where))
            found = [replace(x, body=turn) for x in found if isinstance(x, Loop)]
        body += found
    whole = tuple(with_bodies(node, lambda inner: _divided_within(inner, parts)) for node in body)
    return replace(role, body=whole, counters=tuple(counters))


def _divided_within(nodes: tuple[Node, ...], parts: Callable[[Loop], Iterator[Node]]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        inner = with_bodies(node, lambda body: _divided_within(body, parts))
        out += parts(inner) if isinstance(inner, Loop) else [inner]
    return tuple(out)


def _rows(nodes: tuple[Node, ...]) -> Iterator[tuple[Expr, ...]]:
    """The ends of the loops from 0 of each body, in order."""
    loops = [n for n in nodes if isinstance(n, Loop)]
    if len(loops) > 1 and all(x.begin.constant == 0 and x.step == 1 for x in loops):
        yield tuple(x.end for x in loops)
    for node in nodes:
        if isinstance(node, Loop):
            yield from _rows(node.body)


def _summing(row: tuple[Expr, ...], total: Expr) -> tuple[Expr, ...] | None:
    """The neighbours in a row that sum to a total."""
    if not isinstance(total, Sum):
        return None
    for first in range(len(row)):
        for last in range(first + 2, len(row) + 1):
            if sum(row[first:last], Const(0)) == total:
                return row[first:last]
    return None


def unrolled(protocol: Protocol) -> Protocol:
    """Loops to a multiple of another one's count as loops to that count, a few iterations in each."""
    units = {x.end.text for x in _loops(protocol) if x.begin.constant == 0}

    def grouped(loop: Loop) -> Iterator[Node]:
        width, unit = counted(loop.end)
        plain = loop.begin.constant == 0 and loop.step == 1 and not _varies(protocol, loop.counter)
        if not plain or not 1 < width <= MAX_GROUP or unit.text not in units:
            yield loop
            return
        copies = (substituted(loop.body, loop.counter, sym(loop.counter) * width + i) for i in range(width))
        yield replace(loop, end=unit, body=tuple(node for copy in copies for node in copy))

    return _with_loops(protocol, grouped)


def _with_loops(protocol: Protocol, change: Callable[[Loop], Iterator[Node]]) -> Protocol:
    roles = tuple(replace(r, body=_divided_within(r.body, change)) for r in protocol.roles)
    return replace(protocol, roles=roles)


def _loops(protocol: Protocol) -> Iterator[Loop]:
    return (n for role in protocol.roles for n in walk(role.body) if isinstance(n, Loop))


def _varies(protocol: Protocol, counter: str) -> bool:
    """Whether a symbol has a new value in each iteration of a loop."""
    return any(s.per == counter for s in protocol.symbols)


def _fresh(protocol: Protocol, name: str) -> str:
    """A name that the protocol does not use."""
    taken = {s.name for s in protocol.symbols} | {b.name for b in protocol.buffers}
    for role in protocol.roles:
        taken |= used(role.body) | {n for n, _ in role.counters}
    while name in taken:
        name += "_"
    return name


def otherwise_written(protocol: Protocol) -> Iterator[Protocol]:
    """Other forms of a protocol that has such loops, each of which may be proved in its place."""
    first = divided(counted_from_zero(protocol))
    if first != protocol:
        yield first
    second = unrolled(first)
    if second != first:
        yield second
