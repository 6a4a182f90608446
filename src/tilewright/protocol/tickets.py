"""Who reads a ticket, as steps: whoever evaluates a condition or an operand that names it reads its buffer first.

A ticket is drawn by one thread and left in shared memory. So that the others use it only once they know that it is
there, and nobody draws the next one over it too early, each use is preceded by a read of the bytes.

    elected(AtomAdd(done[0], ticket=last))      elected(AtomAdd(done[0], ticket=last))
    all(CtaSync())                              all(CtaSync())
    if last == 2:                               all(Read(last))
        all(Read(sums))                         if last == 2: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.protocol import ops
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Step, control_of, steps, with_bodies


def with_reads(protocol: Protocol) -> Protocol:
    """The protocol with a read of each ticket before each step and branch that names it; itself without tickets."""
    if not protocol.tickets:
        return protocol
    roles = (replace(r, body=_read(protocol, r.body)) for r in protocol.roles)
    return replace(protocol, roles=tuple(roles))


def _read(p: Protocol, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        inside = node if isinstance(node, Step) else with_bodies(node, lambda body: _read(p, body))
        out += _reads(p, node)
        out.append(inside)
    return tuple(out)


def _reads(p: Protocol, node: Node) -> Iterator[Step]:
    """Reads by the threads that evaluate the node's expressions: of a branch, those that do something inside."""
    match node:
        case Step(op, by):
            named, readers = op.symbols, {by}
        case If() | Loop():
            named = frozenset[str]().union(*(e.symbols for e in control_of(node)))
            readers = {s.by for s in steps((node,))}
    by = next((x for x in (By.ALL, By.PER_WARP, By.THREAD_ZERO, By.ELECTED) if x in readers), None)
    if by is not None:
        for name in sorted(named & p.tickets):
            yield Step(ops.Read(ops.Region(name, ops.ZERO, p.buffer(name).size)), by, getattr(node, "where", None))
