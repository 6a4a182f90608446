"""Mutations of a protocol, one small change each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, cast

from tilewright.base.expr import Const, Expr, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.edit import NodePath, replaced, spots, without
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step
from tilewright.protocol.well_formed import problems

TX_BYTES = 16


def mutants(name: str, protocol: Protocol) -> Iterator[tuple[str, Protocol]]:
    """All single mutants of good form, with a name each."""
    for word, mutant in _all(protocol):
        if mutant != protocol and not any(problems(mutant)):
            yield f"{name}: {word}", mutant


def _all(p: Protocol) -> Iterator[tuple[str, Protocol]]:
    number: dict[int, int] = {}
    for spot, step in spots(p):
        at = number[spot.role] = number.get(spot.role, -1) + 1
        for word, nodes in _step_edits(p, step):
            label = f"{word} {type(step.op).__name__} #{at} of {p.roles[spot.role].name}"
            yield label, replaced(p, spot, *nodes)
    yield from _moves(p)
    yield from _kinds(p)
    yield from _loops(p)
    yield from _joins(p)
    yield from _buffers(p)
    for i, b in enumerate(p.barriers):
        for count in (b.count - 1, b.count + 1):
            if count > 0:
                changed = (*p.barriers[:i], replace(b, count=count), *p.barriers[i + 1 :])
                yield f"count {b.count} -> {count} of {b.name}", replace(p, barriers=changed)
    for i, role in enumerate(p.roles):
        for j, (counter, start) in enumerate(role.counters):
            counters = (*role.counters[:j], (counter, start + 1), *role.counters[j + 1 :])
            yield f"{counter} starts at {start + 1} in {role.name}", _with_role(p, i, replace(role, counters=counters))


def _with_role(p: Protocol, i: int, role: Role) -> Protocol:
    return replace(p, roles=(*p.roles[:i], role, *p.roles[i + 1 :]))


# -- one step ------------------------------------------------------------------------------------------------------
def _step_edits(p: Protocol, step: Step) -> Iterator[tuple[str, tuple[Step, ...]]]:
    op = step.op
    if isinstance(op, ops.Advance):
        yield "advance by one more", (replace(step, op=replace(op, by=op.by + 1)),)
        yield "drop", ()
        return
    yield "drop", ()
    yield "duplicate", (step, step)
    for word, changed in (*_op_edits(p, op), *_index_edits(p, op)):
        yield word, (replace(step, op=changed),)
    for by in (By.ALL, By.ELECTED):
        if by is not step.by:
            yield f"by {by.value}", (replace(step, by=by),)


def _op_edits(p: Protocol, op: ops.Op) -> Iterator[tuple[str, Any]]:
    match op:
        case ops.Wait() | ops.TestWait():
            yield "xor parity", replace(op, parity=(op.parity + 1) % 2)
            if op.acquire:
                yield "relaxed", replace(op, acquire=False)
            yield from _scopes(p, op, op.scope)
        case ops.Arrive():
            yield "count + 1", replace(op, count=op.count + 1)
            if op.count > 1:
                yield "count - 1", replace(op, count=op.count - 1)
            if op.release:
                yield "relaxed", replace(op, release=False)
            yield from _scopes(p, op, op.scope)
        case ops.ArriveExpectTx() | ops.ExpectTx():
            yield "bytes + 16", replace(op, bytes=op.bytes + TX_BYTES)
            yield "bytes - 16", replace(op, bytes=op.bytes - TX_BYTES)
        case ops.TmaLoad():
            yield "box - 16", replace(op, dst=replace(op.dst, size=op.dst.size - TX_BYTES))
            if op.ctas:
                yield "no multicast", replace(op, ctas=())
        case ops.WgmmaWait() | ops.BulkWait() | ops.CpAsyncWait():
            yield "pending + 1", replace(op, pending=op.pending + 1)
            if op.pending:
                yield "pending - 1", replace(op, pending=op.pending - 1)
            if isinstance(op, ops.BulkWait):
                yield "read", replace(op, read=not op.read)
        case ops.BarSync() | ops.BarArrive():
            yield "id + 1", replace(op, id=op.id + 1)
            yield "id + 15", replace(op, id=op.id + 15)
            yield "threads + 32", replace(op, threads=op.threads + 32)
            yield "threads - 32", replace(op, threads=op.threads - 32)
        case ops.FenceProxyAsync():
            for space in ops.FenceSpace:
                if space is not op.space:
                    yield f"of {space.value} space", replace(op, space=space)
        case ops.TmaStore():
            yield "without a tensor map", replace(op, tensor=not op.tensor)
        case ops.ClusterArrive() if op.release:
            yield "relaxed", replace(op, release=False)
        case ops.Setmaxnreg():
            yield "registers + 8", replace(op, registers=op.registers + 8)
        case ops.MbarrierInit():
            slots = p.barrier(op.barrier).slots
            if slots > 1:
                yield "one slot less", replace(op, slots=slots - 1)
        case _:
            pass


def _scopes(p: Protocol, op: Any, scope: ops.Scope) -> Iterator[tuple[str, Any]]:
    if p.cluster > 1:
        other = ops.Scope.CLUSTER if scope is ops.Scope.CTA else ops.Scope.CTA
        yield f"scope {other.value}", replace(op, scope=other)


def _index_edits(p: Protocol, op: ops.Op) -> Iterator[tuple[str, Any]]:
    """Another slot, another stage, another CTA, the turn before."""
    for f in fields(op):
        value = getattr(op, f.name)
        if isinstance(value, ops.Slot):
            slots = p.barrier(value.barrier).slots
            if slots > 1:
                yield "next slot", replace(op, **{f.name: replace(value, index=(value.index + 1) % slots)})
        if isinstance(value, ops.Slot | ops.Region) and p.cluster > 1:
            of = sym(ops.CTA_RANK) if value.cta is None else value.cta
            yield f"other CTA of {f.name}", replace(op, **{f.name: replace(value, cta=(of + 1) % p.cluster)})
        if isinstance(value, ops.Region):
            size = p.buffer(value.buffer).size
            if size >= 2 * value.size:
                moved = replace(value, begin=(value.begin + value.size) % size)
                yield f"next stage of {f.name}", replace(op, **{f.name: moved})
    names = sorted({n for e in expressions(op) for n in e.symbols} - {s.name for s in p.symbols} - {ops.CTA_RANK})
    for counter in names:
        for step, word in ((-1, "turn before"), (1, "turn after")):
            yield f"{word} by {counter}", _substituted(op, {counter: sym(counter) + step})


def expressions(item: Any) -> list[Expr]:
    if isinstance(item, Expr):
        return [item]
    if isinstance(item, tuple):
        return [e for x in cast(tuple[Any, ...], item) for e in expressions(x)]
    if hasattr(item, "__dataclass_fields__"):
        return [e for f in fields(item) for e in expressions(getattr(item, f.name))]
    return []


def _substituted(item: Any, env: dict[str, Expr]) -> Any:
    if isinstance(item, Expr):
        return item.substitute(env)
    if isinstance(item, tuple):
        return tuple(_substituted(x, env) for x in cast(tuple[Any, ...], item))
    if hasattr(item, "__dataclass_fields__"):
        return replace(item, **{f.name: _substituted(getattr(item, f.name), env) for f in fields(item)})
    return item


# -- several steps -------------------------------------------------------------------------------------------------
def _bodies(
    nodes: tuple[Node, ...], put: Callable[[tuple[Node, ...]], tuple[Node, ...]]
) -> Iterator[tuple[tuple[Node, ...], Callable[[tuple[Node, ...]], tuple[Node, ...]]]]:
    """Every list of nodes of a program, with a function that puts another in its place."""
    yield nodes, put
    for i, node in enumerate(nodes):

        def back(new: Node, i: int = i) -> tuple[Node, ...]:
            return put((*nodes[:i], new, *nodes[i + 1 :]))

        match node:
            case Loop():
                yield from _bodies(node.body, lambda b, node=node, back=back: back(replace(node, body=b)))
            case If():
                yield from _bodies(node.then, lambda b, node=node, back=back: back(replace(node, then=b)))
                yield from _bodies(node.otherwise, lambda b, node=node, back=back: back(replace(node, otherwise=b)))
            case Step():
                pass


def _moves(p: Protocol) -> Iterator[tuple[str, Protocol]]:
    """Each step moved behind the node after it, and behind the one after that."""
    for i, role in enumerate(p.roles):
        number = 0
        for nodes, put in _bodies(role.body, lambda b: b):
            for at, node in enumerate(nodes):
                number += isinstance(node, Step)
                if not isinstance(node, Step) or isinstance(node.op, ops.Advance):
                    continue
                for far in (1, 2):
                    if at + far < len(nodes) and nodes[at + 1] != node:
                        moved = (*nodes[:at], *nodes[at + 1 : at + far + 1], node, *nodes[at + far + 1 :])
                        word = f"move {type(node.op).__name__} #{number} of {role.name} {far} later"
                        yield word, _with_role(p, i, replace(role, body=put(moved)))


def _joins(p: Protocol) -> Iterator[tuple[str, Protocol]]:
    """A meeting of the cluster left out: its arrive and its wait."""
    for at, (spot, step) in enumerate(found := list(spots(p))):
        if isinstance(step.op, ops.ClusterArrive):
            waits = [s for s, x in found[at:] if s.role == spot.role and isinstance(x.op, ops.ClusterWait)]
            nth = sum(isinstance(x.op, ops.ClusterArrive) and s.role == spot.role for s, x in found[:at])
            yield f"drop join {nth} of {p.roles[spot.role].name}", without(p, frozenset((spot, *waits[:1])))
    arrives = [s for s, x in found if isinstance(x.op, ops.ClusterArrive)]
    waits = [s for s, x in found if isinstance(x.op, ops.ClusterWait)]
    for word, pick in (("first", 0), ("last", -1)):
        roles = {s.role for s in arrives}
        dropped = {[s for s in each if s.role == r][pick] for r in roles for each in (arrives, waits)}
        if dropped and all(any(s.role == r for s in waits) for r in roles):
            yield f"drop the {word} join of every role", without(p, frozenset(dropped))


def _buffers(p: Protocol) -> Iterator[tuple[str, Protocol]]:
    """Buffers of tensor memory half as large, twice, or three halves; shared ones moved, and swizzled."""
    for i, b in enumerate(p.buffers):
        changes: list[tuple[str, Any]] = []
        if b.space is Space.TMEM:
            changes = [(f"{n} columns", replace(b, size=n)) for n in (b.size // 2, b.size * 2, b.size * 3 // 2)]
            changes.append(("512 columns on", replace(b, offset=b.offset + 512)))
        elif b.space is Space.SHARED:
            changes = [
                ("16 on", replace(b, offset=b.offset + 16)),
                ("220 KiB on", replace(b, offset=b.offset + 225280)),
            ]
            changes.append(("swizzled", replace(b, swizzle=128)))
        for word, changed in changes:
            yield f"{b.name} {word}", replace(p, buffers=(*p.buffers[:i], changed, *p.buffers[i + 1 :]))


def _kinds(p: Protocol) -> Iterator[tuple[str, Protocol]]:
    """All ops of one kind dropped from one role."""
    found: dict[tuple[int, type[object]], set[NodePath]] = {}
    for spot, step in spots(p):
        found.setdefault((spot.role, type(step.op)), set()).add(spot)
    for (i, kind), dropped in found.items():
        if len(dropped) > 1:
            yield f"drop every {kind.__name__} of {p.roles[i].name}", without(p, frozenset(dropped))


def _loops(p: Protocol) -> Iterator[tuple[str, Protocol]]:
    """A loop of one role that ends early, late, at once, or begins late."""
    for i, role in enumerate(p.roles):
        for nodes, put in _bodies(role.body, lambda b: b):
            for at, node in enumerate(nodes):
                if not isinstance(node, Loop):
                    continue
                for word, changed in (
                    ("one turn less", replace(node, end=node.end - 1)),
                    ("one turn more", replace(node, end=node.end + 1)),
                    ("no turn", replace(node, end=Const(0))),
                    ("begins a turn late", replace(node, begin=node.begin + 1)),
                ):
                    body = put((*nodes[:at], changed, *nodes[at + 1 :]))
                    yield f"{word} of {node.counter} in {role.name}", _with_role(p, i, replace(role, body=body))
