"""Counterexample-guided synthesis: while the prover reports a violation, a fix is inserted; then redundant ops are
removed.

Insertion is a depth-first search. A fix is kept if the prover gets further with it: another violation, or the same one
later. The result is then minimised: no wait, fence or barrier can be dropped and no group wait can leave one more group
in flight without losing the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tilewright.protocol import ops
from tilewright.protocol.edit import Insertion, NodePath, inserted, replaced, spots
from tilewright.protocol.model import If, Loop, Node, Protocol, Step, steps
from tilewright.schedule.synchronise.cost import is_sync, step_cost
from tilewright.schedule.synchronise.fixes import fixes
from tilewright.schedule.synchronise.types import Fix, ProtocolViolation, Prover

MOST_QUESTIONS = 2000
"""Calls of the prover before giving up."""
_WRONG_WAIT = ("MBR012", "MBR013", "MBR014")
"""Codes of a wait for the wrong barrier, slot or parity."""


@dataclass(frozen=True)
class Synchronised:
    """The result of the search: the protocol, or None with the violation that no fix resolved."""

    protocol: Protocol | None
    violation: ProtocolViolation | None
    questions: int
    """How often the prover was asked."""


@dataclass
class _CountingProver:
    """The prover, with the number of calls and the violation that was reached with most fixes."""

    prove: Prover
    questions: int = 0
    fixes: int = -1
    violation: ProtocolViolation | None = None

    def __call__(self, protocol: Protocol) -> ProtocolViolation | None:
        self.questions += 1
        return self.prove(protocol)

    def stuck(self, violation: ProtocolViolation, fixes: int) -> None:
        """Records the violation that was reached with most fixes."""
        if fixes > self.fixes:
            self.fixes, self.violation = fixes, violation

    @property
    def exhausted(self) -> bool:
        return self.questions >= MOST_QUESTIONS


def synchronised(protocol: Protocol, prove: Prover) -> Synchronised:
    """The protocol with a minimal set of inserted waits, fences and barriers that ``prove`` accepts."""
    ask = _CountingProver(prove)
    violation = ask(protocol)
    found = protocol if violation is None else _repaired(protocol, violation, ask, set(), ())
    if not isinstance(found, Protocol):
        return Synchronised(None, ask.violation, ask.questions)
    return Synchronised(_minimal(found, ask), None, ask.questions)


def _repaired(
    protocol: Protocol,
    violation: ProtocolViolation,
    ask: _CountingProver,
    seen: set[Protocol],
    put_in: tuple[Step, ...],
) -> Protocol | Step | None:
    """Depth-first search over fixes with which the prover gets further. If none helps and the violation is at a step
    ``put_in``, that step is the result, and the search returns to where it was chosen."""
    ask.stuck(violation, len(put_in))
    for fix in fixes(protocol, violation):
        if ask.exhausted:
            return None
        trial = inserted(protocol, fix)
        if trial in seen or _repeats(trial, fix):
            continue
        seen.add(trial)
        after = ask(trial)
        if after is None:
            return trial
        steps = tuple(x.step for x in fix)
        if not _further(violation, after, _step(trial, after.spot), steps):
            continue
        found = _repaired(trial, after, ask, seen, (*put_in, *steps))
        if isinstance(found, Protocol) or (isinstance(found, Step) and all(found is not x for x in steps)):
            return found
    here = _step(protocol, violation.spot)
    return here if any(here is x for x in put_in) else None


def _repeats(trial: Protocol, fix: Fix) -> bool:
    """Whether a step of the fix is next to an equal one, and so without effect."""
    return any(
        one.role == two.role and one.path[:-1] == two.path[:-1] and first == second
        for (one, first), (two, second) in pairwise(spots(trial))
        if any(x.step is first or x.step is second for x in fix)
    )


def _step(protocol: Protocol, wanted: NodePath | None) -> Step | None:
    return next((step for spot, step in spots(protocol) if spot == wanted), None)


def _further(before: ProtocolViolation, after: ProtocolViolation, at: Step | None, steps: tuple[Step, ...]) -> bool:
    """Whether the fix ``steps`` changed the violation for the better."""
    if after.code == "MBR012" != before.code:
        return False  # all arrivals are there: fewer waits never end in a deadlock, so one too many does
    if after.code in _WRONG_WAIT and any(at is x for x in steps):
        return False
    return (before.code, before.detail, before.instance) != (after.code, after.detail, after.instance)


def _minimal(protocol: Protocol, ask: _CountingProver) -> Protocol:
    """Drops or weakens ops, the most expensive first, as long as the protocol is proved."""
    done: set[int] = set()
    kept: list[Step] = []  # what ``done`` knows by identity stays alive
    while True:
        ranked = sorted(_syncs(protocol), key=lambda x: -step_cost(x[1], x[2]))
        for spot, step, _ in ranked:
            if id(step) in done:
                continue
            done.add(id(step))
            kept.append(step)
            cheaper = next((p for p in _weaker(protocol, spot, step) if ask(p) is None), None)
            if cheaper is not None:
                protocol = cheaper
                done.discard(id(step))
                break
        else:
            return protocol


def _weaker(protocol: Protocol, spot: NodePath, step: Step) -> Iterator[Protocol]:
    yield replaced(protocol, spot)
    for loop in _hoists(protocol, spot, step):
        yield inserted(replaced(protocol, spot), (Insertion(loop, step),))
    if isinstance(step.op, ops.BulkWait | ops.CpAsyncWait | ops.WgmmaWait):
        yield replaced(protocol, spot, replace(step, op=replace(step.op, pending=step.op.pending + 1)))
    if isinstance(step.op, ops.BulkWait) and not step.op.read:
        yield replaced(protocol, spot, replace(step, op=replace(step.op, read=True)))


def _hoists(protocol: Protocol, spot: NodePath, step: Step) -> Iterator[NodePath]:
    """Loops around a step out of which it can move, outermost first."""
    nodes, changing = protocol.roles[spot.role].body, step.op.symbols
    loops: list[NodePath] = []
    for i, position in enumerate(spot.path[:-1]):
        node = nodes[position]
        match node:
            case Loop():
                counters = {s.op.counter for s in steps(node.body) if isinstance(s.op, ops.Advance)}
                loops.append(NodePath(spot.role, spot.path[: i + 1]))
                if changing & {node.counter, *counters}:
                    loops.clear()
                nodes = node.body
            case If():
                loops.clear()
                nodes = node.then + node.otherwise
            case Step():
                return
    yield from loops


def _syncs(protocol: Protocol) -> Iterator[tuple[NodePath, Step, int]]:
    for spot, step in spots(protocol):
        if is_sync(protocol.roles[spot.role], step):
            yield spot, step, _depth(protocol.roles[spot.role].body, spot.path)


def _depth(nodes: tuple[Node, ...], path: tuple[int, ...]) -> int:
    depth = 0
    for position in path[:-1]:
        node = nodes[position]
        if isinstance(node, Loop):
            depth, nodes = depth + 1, node.body
        elif isinstance(node, If):
            nodes = node.then + node.otherwise
    return depth


def unneeded(protocol: Protocol, prove: Prover) -> tuple[NodePath, ...]:
    """Synchronisation ops that can be removed, each alone, without losing the proof."""
    return tuple(
        spot for spot, step in spots(protocol) if ops.only_orders(step.op) and prove(replaced(protocol, spot)) is None
    )
