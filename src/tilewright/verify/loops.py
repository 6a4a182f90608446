"""Loops written otherwise, where a protocol is not proved as it stands: the same steps in the same order.

    for k in range(lo, hi): use(k)          for k in range(0, n): use(k + lo)      n stands for hi - lo
    for k in range(0, 64): use(k)           for k in range(0, n): use(k)           beside i += 64, which is i += n
    for k in range(0, a + z): use(k)        for k in range(0, a): use(k)           beside loops to a, to z
                                            for k in range(0, z): use(k + a)
    for k in range(n, n + 2): use(k)        use(n); use(n + 1)
    for k in range(0, 2 * n): use(k)        for k in range(0, n):                  beside a loop to n
                                                use(2 * k); use(2 * k + 1)
    for i in range(0, m * n): use(i)        for j in range(0, m):                  beside a loop to m around one to n
                                                for k in range(0, n): use(g); g += 1
    for j in range(0, m):                   the same                               use(g) for use(j * n + k)
        for k in range(0, n): use(j * n + k)

A count is replaced by a symbol of its own only if nothing else in the protocol asks for what it is made of. The symbol
may be any count, so what is proved holds of the protocol; a breach may be none, so only proofs may use the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import prod

from tilewright.base.expr import Const, Expr, Interval, Sum, sym
from tilewright.protocol import ops
from tilewright.protocol.model import By, Loop, Node, Protocol, Role, Step, Symbol, walk, with_bodies
from tilewright.protocol.rewrite import substituted, used, with_expressions
from tilewright.protocol.unroll import MAX_GROUP, counted
from tilewright.verify.fold import at_most

MOST_TURNS = 8
"""Of loops that are spelled out."""


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


def of_any_count(protocol: Protocol) -> Protocol:
    """Loops of a known count past which another role moves a counter, as loops to a symbol that is that count or more:
    of a number nothing tells what it counts."""
    steps = [n for role in protocol.roles for n in walk(role.body) if isinstance(n, Step)]
    moved = {step.op.by for step in steps if isinstance(step.op, ops.Advance)}
    ends = dict.fromkeys(x.end for x in _loops(protocol) if _from_zero(x) and x.end in moved)
    least = {end: n for end in ends if (n := end.constant) is not None and n > 1}
    names = {end: _fresh(protocol, f"of_{n}") for end, n in least.items()}

    def counts(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(map(of, nodes))

    def of(node: Node) -> Node:
        match node:
            case Step(ops.Advance(_, by) as op) if by in names:
                return replace(node, op=replace(op, by=sym(names[by])))
            case Loop(end=end) if end in names and _from_zero(node):
                return replace(node, end=sym(names[end]), body=counts(node.body))
            case _:
                return with_bodies(node, counts)

    symbols = (*protocol.symbols, *(Symbol(names[end], least=n) for end, n in least.items()))
    return replace(protocol, symbols=symbols, roles=tuple(replace(r, body=counts(r.body)) for r in protocol.roles))


def spelled_out(protocol: Protocol) -> Protocol:
    """Loops of a few turns that begin at a count as their turns one after another, as in the tail of a pipeline."""

    def turns(loop: Loop) -> Iterator[Node]:
        count = (loop.end - loop.begin).constant
        plain = loop.begin.constant is None and loop.step == 1 and not _varies(protocol, loop.counter)
        if not plain or count is None or count > MOST_TURNS:
            yield loop
            return
        for i in range(count):
            yield from substituted(loop.body, loop.counter, loop.begin + i)

    return _with_loops(protocol, turns)


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


def nested(protocol: Protocol) -> Protocol:
    """Loops to a product of counts as loops to each, one in another as another role has them; what is numbered there by
    all their counters is numbered by one that is carried."""
    nests = {_turns(nest): nest for role in protocol.roles for nest in _nests(protocol, role.body)}
    if not nests:
        return protocol

    def split(role: Role, loop: Loop) -> Iterator[Node]:
        nest = nests.get(loop.end, ())
        if not nest or not _from_zero(loop) or loop.counter in used(loop.body) or _varies(protocol, loop.counter):
            yield loop
            return
        known = used(role.body) | {name for name, _ in role.counters}
        body = loop.body
        for outer in reversed(nest):  # by the same names, where they are free: symbols that vary follow names
            name = _fresh(protocol, outer.counter) if outer.counter in known else outer.counter
            body = (replace(loop, counter=name, end=outer.end, body=body),)
        yield from body

    numbered = (_numbered(protocol, role, nests.keys()) for role in protocol.roles)
    roles = tuple(replace(r, body=_divided_within(r.body, partial(split, r))) for r in numbered)
    return replace(protocol, roles=roles)


def _numbered(protocol: Protocol, role: Role, products: Collection[Expr]) -> Role:
    """A role whose outermost loops carry the number of the turn, where it is the counter of a loop to one of the
    products, or ``j * n + k`` in loops of such a nest."""
    body: list[Node] = []
    counters = list(role.counters)
    for node in role.body:
        name = _fresh(protocol, f"turn_{len(counters)}")
        new = _with_number(protocol, node, name, products, ())
        if new is not None:
            counters.append((name, 0))
        body.append(node if new is None else new)
    return replace(role, body=tuple(body), counters=tuple(counters))


def _with_number(
    protocol: Protocol, node: Node, name: str, products: Collection[Expr], around: tuple[Loop, ...]
) -> Loop | None:
    """A loop that advances ``name`` in its innermost turns, and uses it for their number; None where none is used."""
    if not isinstance(node, Loop) or not _from_zero(node) or _varies(protocol, node.counter):
        return None
    nest = (*around, node)
    for place, inside in enumerate(node.body):
        inner = _with_number(protocol, inside, name, products, nest)
        if inner is not None:
            return replace(node, body=(*node.body[:place], inner, *node.body[place + 1 :]))
    if _turns(nest) not in products:
        return None
    before: Expr = Const(0)
    for outer, inner in pairwise(nest):
        before = (before + sym(outer.counter)) * inner.end
    body = with_expressions(node.body, lambda e: _by_number(e, before, node.counter, name))
    return None if body == node.body else replace(node, body=(*body, Step(ops.Advance(name), By.ALL, node.where)))


def _by_number(e: Expr, before: Expr, counter: str, name: str) -> Expr:
    """An expression of the turn's number, ``before + counter``; itself where it is of something else."""
    new = e.substitute({counter: sym(name) - before}) if counter in e.symbols else e
    return e if new.symbols & {*before.symbols, counter} else new


def flattened(protocol: Protocol) -> Protocol:
    """Loops that are all of another one's body as one loop to the product of their counts."""

    def flat(loop: Loop) -> Iterator[Node]:
        match loop.body:
            case (Loop() as inner,) if any(_nests(protocol, (loop,))) and not _counted(protocol, loop, inner):
                yield replace(loop, end=loop.end * inner.end, body=inner.body)
            case _:
                yield loop

    return _with_loops(protocol, flat)


def _counted(protocol: Protocol, *loops: Loop) -> bool:
    """Whether the counter of a loop is asked for in the last one, or by symbols."""
    return any(loop.counter in used(loops[-1].body) or _varies(protocol, loop.counter) for loop in loops)


def _nests(protocol: Protocol, nodes: tuple[Node, ...]) -> Iterator[tuple[Loop, ...]]:
    """Loops that lie one directly in another, from 0 to counts that are the same in each turn."""
    bounds: dict[str, Interval] = {s.name: (s.least, s.most) for s in protocol.symbols}

    def begun(loop: Loop) -> Iterator[tuple[Loop, ...]]:
        if _from_zero(loop) and not _varies(protocol, loop.counter) and at_most(Const(0), loop.end, bounds):
            yield (loop,)
            for inner in loop.body:
                if isinstance(inner, Loop):
                    yield from ((loop, *nest) for nest in begun(inner))

    for node in walk(nodes):
        if isinstance(node, Loop):
            yield from (nest for nest in begun(node) if len(nest) > 1)


def _turns(nest: tuple[Loop, ...]) -> Expr:
    return prod((loop.end for loop in nest), start=Const(1))


def _from_zero(loop: Loop) -> bool:
    return loop.begin.constant == 0 and loop.step == 1


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
    general = of_any_count(protocol)
    if general != protocol:
        yield general
    first = divided(counted_from_zero(spelled_out(protocol)))
    if first != protocol:
        yield first
    second = unrolled(first)
    if second != first:
        yield second
    third = nested(protocol)
    if third != protocol:
        yield third
    fourth = flattened(third)
    if fourth != third:
        yield fourth
