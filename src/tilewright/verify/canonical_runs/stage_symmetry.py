"""The symmetry of multi-stage pipelines: renaming the stages of a counter cyclically changes nothing but names.

Where each use of a counter is a slot ``(v + c) % S``, the parity ``((v + c) // S + d) % 2`` of an array of S, or a
stage of a buffer of S stages, shifting ``v`` in all roles and renaming slots and parities maps runs onto runs. States
that differ by such a shift have the same future, so only one of them is visited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.base.expr import Expr, Sum, Sym
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.effects import Await
from tilewright.protocol.model import Loop, Node, Protocol, control_of, steps, walk
from tilewright.protocol.recover import phase_use, slot_use, stage_use


@dataclass(frozen=True)
class StageSymmetry:
    """The counter that indexes each barrier array and each buffer (with its stage size)."""

    arrays: dict[str, str]
    buffers: dict[str, tuple[str, int]]


def stage_symmetry(protocol: Protocol) -> StageSymmetry:
    """The arrays and buffers whose counters have no other uses."""
    arrays: dict[str, set[str]] = {}
    buffers: dict[str, set[tuple[str, int]]] = {}
    slots = {b.name: b.slots for b in protocol.barriers}
    sizes = {b.name: b.size for b in protocol.buffers}
    bad: set[str] = set()
    for role in protocol.roles:
        for step in steps(role.body):
            rest = {id(e): e for e in step.op.expressions}
            for value in step.op.values:
                for item in value if isinstance(value, tuple) else (value,):  # pyright: ignore
                    if isinstance(item, ops.Slot):
                        found = _counter(slot_use(item.index, slots[item.barrier]))
                        if found is not None:
                            arrays.setdefault(item.barrier, set()).add(found)
                            rest.pop(id(item.index), None)
                    elif isinstance(item, ops.Region):
                        stage = _stage(item, sizes[item.buffer], protocol.ctas)
                        if stage is not None:
                            buffers.setdefault(item.buffer, set()).add(stage)
                            rest.pop(id(item.begin), None)
                        elif item.buffer in sizes and item.begin.constant is not None:
                            buffers.setdefault(item.buffer, set()).add(("", 0))
            for wait in step.op.of(Await):
                phase = phase_use(wait.parity, slots[wait.bar.barrier])
                found = None if phase is None else _counter(phase.use)
                arrays.setdefault(wait.bar.barrier, set()).add(found or "")
                if found is not None:
                    rest.pop(id(wait.parity), None)
            bad |= {n for e in rest.values() for n in e.symbols}
        bad |= {n for e in _control(role.body) for n in e.symbols}
    shared = [b for b in protocol.buffers if b.space in (Space.SHARED, Space.TMEM)]
    for b in shared:
        if any(
            x is not b and x.space is b.space and x.offset < b.offset + b.size and b.offset < x.offset + x.size
            for x in shared
        ):
            bad |= {v for v, _ in buffers.get(b.name, ())}
    while True:
        mixed = {v for found in arrays.values() if len(found) > 1 or found & bad for v in found}
        mixed |= {v for found in buffers.values() if len(found) > 1 or {v for v, _ in found} & bad for v, _ in found}
        if mixed <= bad:
            break
        bad |= mixed
    return StageSymmetry(
        {name: v for name, found in arrays.items() for v in found if v and v not in bad},
        {name: (v, size) for name, found in buffers.items() for v, size in found if v and v not in bad},
    )


def _control(nodes: tuple[Node, ...]) -> Iterator[Expr]:
    for node in walk(nodes):
        yield from control_of(node)
        if isinstance(node, Loop):
            yield Sym(node.counter)


def _counter(use: Expr | None) -> str | None:
    """``v`` if a use is ``v + c``."""
    match use:
        case Sym(name) | Sum(_, ((Sym(name), 1),)):
            return name
        case _:
            return None


def _stage(region: ops.Region, size: int, cluster: int) -> tuple[str, int] | None:
    """Counter and stage size of a region ``(v + c) % S * stage + offset``; the offset may grow with the CTA's rank."""
    stage = stage_use(region.begin)
    name = None if stage is None else _counter(stage.use)
    if stage is None or name is None:
        return None
    first, last = (stage.offset.substitute({ops.CTA_RANK: rank}).constant for rank in (0, cluster - 1))
    if first is None or last is None or first > last:
        return None
    inside = stage.stages * stage.stage_bytes == size and first >= 0 and last + region.size <= stage.stage_bytes
    return (name, stage.stage_bytes) if inside else None
