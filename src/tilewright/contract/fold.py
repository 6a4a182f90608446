"""Loop fusion: adjacent loops with equal bodies become one loop, the form in which a protocol is proved.

    for k in range(0, kt // 2): body          for k in range(0, kt): body
    for k in range(kt // 2, kt): body

Both run the same steps in the same order. Which threads make which part of a shared write might differ between the two
loops, so a body with such a write is not fused. A loop that only reads becomes one read of all bytes that it may touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilewright.base.expr import Const, Expr, FloorDiv, Interval, Max, Min, Sum, interval, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import By, Loop, Node, Protocol, Step, steps, with_bodies


def folded(protocol: Protocol) -> Protocol:
    """The protocol with such loops fused, in all roles and at all depths."""
    bounds: dict[str, Interval] = {s.name: (s.least, s.most) for s in protocol.symbols}
    roles = tuple(replace(r, body=_folded(protocol, r.body, bounds)) for r in protocol.roles)
    return replace(protocol, roles=roles) if roles != protocol.roles else protocol


def drop_partial_private(protocol: Protocol) -> Protocol:
    """The protocol with private accesses left to steps that all threads of a role execute: where some do, those that
    do not have no part, and an access is plain."""

    def plain(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(map(of, nodes))

    def of(node: Node) -> Node:
        match node:
            case Step(ops.Read(private=True) | ops.Write(private=True) as op) if node.by is not By.ALL:
                return replace(node, op=replace(op, private=False))
            case _:
                return with_bodies(node, plain)

    roles = tuple(replace(r, body=plain(r.body)) if r.threads > 1 else r for r in protocol.roles)
    return replace(protocol, roles=roles) if roles != protocol.roles else protocol


def hulled(protocol: Protocol) -> Protocol:
    """The protocol with each loop of constant bounds that only reads shared memory replaced by one read of the hull of
    each of its regions.

    Between the same two synchronisations it reads at least the same bytes, so that what is proved of it holds of the
    protocol. A breach of it may be none of the protocol: only proofs may use it.

        for d in range(0, 32):                        all(Read(Region("a", 0, 31 * 4 + 64)))
            all(Read(Region("a", d * 4, 64)))
    """

    def hulls(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(n for node in nodes for n in _hull(protocol, with_bodies(node, hulls)))

    roles = tuple(replace(r, body=hulls(r.body)) for r in protocol.roles)
    return replace(protocol, roles=roles) if roles != protocol.roles else protocol


def _hull(protocol: Protocol, node: Node) -> tuple[Node, ...]:
    match node:
        case Loop(counter, Const(begin), Const(end), step, body) if begin < end and step > 0:
            last = end - 1 - (end - 1 - begin) % step
            reads = [_hull_of_read(protocol, each, counter, begin, last) for each in body]
            found = tuple(r for r in reads if r is not None)
            return found if len(found) == len(reads) else (node,)
        case _:
            return (node,)


def _hull_of_read(protocol: Protocol, node: Node, counter: str, first: int, last: int) -> Step | None:
    """The read of all bytes from the least to the greatest that a read touches; None where there is no such read."""
    match node:
        case Step(ops.Read(region, private=False)) if protocol.buffer(region.buffer).space is Space.SHARED:
            of_zero, of_one = (region.begin.substitute({counter: value}) for value in (0, 1))
            stride = (of_one - of_zero).constant
            if stride is None or region.begin != of_zero + sym(counter) * stride:
                return None
            if region.cta is not None and counter in region.cta.symbols:
                return None
            begin = of_zero + stride * (first if stride >= 0 else last)
            size = abs(stride) * (last - first) + region.size
            return replace(node, op=ops.Read(replace(region, begin=begin, size=size)))
        case _:
            return None


def _folded(protocol: Protocol, nodes: tuple[Node, ...], bounds: Mapping[str, Interval]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        new = node if isinstance(node, Step) else with_bodies(node, lambda body: _folded(protocol, body, bounds))
        before = out[-1] if out else None
        match before, new:
            case Loop(), Loop() if _one(before, new, bounds) and not _shares(protocol, new.body):
                out[-1] = replace(before, end=new.end)
            case _:
                out.append(new)
    return tuple(out)


def _one(first: Loop, second: Loop, bounds: Mapping[str, Interval]) -> bool:
    """Whether the second loop continues where the first one ends, for all values of the symbols."""
    return (
        first.counter == second.counter
        and first.step == second.step == 1
        and first.end == second.begin
        and first.body == second.body
        and at_most(first.begin, first.end, bounds)
        and at_most(second.begin, second.end, bounds)
    )


def at_most(x: Expr, y: Expr, bounds: Mapping[str, Interval]) -> bool:
    """Whether ``x <= y`` follows from the bounds of their symbols."""
    low, _ = interval(y - x, bounds)
    if low is not None and low >= 0:
        return True
    match x, y:
        case _, FloorDiv(a, Const(d)) if d > 0:
            return at_most(x * d, a, bounds)
        case FloorDiv(a, Const(d)), _ if d > 0:
            return at_most(a, y * d + (d - 1), bounds)
        case Sum(_, terms), _ if rounded := next((t for t in terms if isinstance(t[0], FloorDiv) and t[1] > 0), None):
            quotient, factor = rounded
            assert isinstance(quotient, FloorDiv)
            d = quotient.denominator.constant
            rest = x - quotient * factor
            return d is not None and d > 0 and at_most(quotient.numerator * factor + rest * d, y * d, bounds)
        case Max(args), _:
            return all(at_most(a, y, bounds) for a in args)
        case _, Min(args):
            return all(at_most(x, a, bounds) for a in args)
        case Min(args), _:
            return any(at_most(a, y, bounds) for a in args)
        case _, Max(args):
            return any(at_most(x, a, bounds) for a in args)
        case _:
            return False


def _shares(protocol: Protocol, body: tuple[Node, ...]) -> bool:
    """Whether threads of the role share a write among them."""
    return any(protocol.buffer(w.region.buffer).space is not Space.REGISTER for w in _shared(body))


def _shared(body: tuple[Node, ...]) -> Iterator[ops.Write]:
    for step in steps(body):
        if isinstance(step.op, ops.Write) and not step.op.private and step.by in (By.ALL, By.PER_WARP):
            yield step.op
