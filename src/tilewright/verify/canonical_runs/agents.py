"""The agents of a canonical run: classes of threads with their flat code, and how it depends on trip counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.base.expr import Expr, Sym, sym
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Protocol, Step
from tilewright.verify.canonical_runs.values import Usage, usage
from tilewright.verify.threads import (
    BackEdge,
    Branch,
    Instruction,
    Jump,
    LoopEntry,
    LoopTest,
    RunStep,
    ThreadClass,
    expressions,
    flatten,
    groups_of,
    program_of,
    ranks,
)


class TripUse(NamedTuple):
    """How an instruction depends on a trip symbol: by its difference to a loop's counter, modulo a period, up to a
    cutoff, or in full."""

    pc: int
    counter: str = ""
    period: int = 1
    cutoff: int = 0
    raw: bool = False


@dataclass(frozen=True)
class CompiledAgent:
    """A class of threads in one CTA, with its compiled code. ``index`` is also its clock component."""

    index: int
    group: ThreadClass
    label: str
    """Name for people."""
    cta: int
    role: tuple[object, ...]
    code: tuple[Instruction, ...]
    active: tuple[tuple[str, ...], ...]
    """Per instruction: counters of the symbolic loops around it."""
    usage: Usage
    uses: dict[str, tuple[TripUse, ...]]
    """Per trip symbol: the instructions that depend on it."""
    loops: tuple[tuple[str, int, int], ...]
    """All loops, outer before inner: counter, test, end."""


def agents_of(protocol: Protocol, trips: frozenset[str]) -> tuple[CompiledAgent, ...]:
    """All agents, CTA after CTA in the order of the protocol's roles. ``trips`` are the names of its trip symbols."""
    out: list[CompiledAgent] = []
    for cta in range(protocol.ctas):
        for role in protocol.roles:
            if cta not in ranks(protocol, role):
                continue
            for group in groups_of(role):
                program = program_of(role, group)
                code = flatten(program)
                found = expressions(program)
                out.append(
                    CompiledAgent(
                        len(out),
                        group,
                        f"{group.label} of CTA {cta}" if protocol.ctas > 1 else group.label,
                        cta,
                        (role.name, cta),
                        code,
                        _active(code, trips),
                        usage(found, trips),
                        _uses(code, usage(found, trips), trips),
                        tuple((x.loop.counter, pc, x.out) for pc, x in enumerate(code) if isinstance(x, LoopTest)),
                    )
                )
    return tuple(out)


def _active(code: tuple[Instruction, ...], trips: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    out: list[tuple[str, ...]] = []
    open_loops: list[tuple[str, int]] = []
    for pc, ins in enumerate(code):
        out.append(tuple(c for c, end in open_loops if pc < end))
        if isinstance(ins, LoopTest) and ins.loop.end.symbols & trips:
            open_loops.append((ins.loop.counter, ins.out))
    return (*out, ())


def _uses(code: tuple[Instruction, ...], found: Usage, trips: frozenset[str]) -> dict[str, tuple[TripUse, ...]]:
    uses: dict[str, tuple[TripUse, ...]] = {}
    for pc, ins in enumerate(code):
        match ins:
            case RunStep():
                exprs = ins.step.op.expressions
            case LoopEntry():
                exprs = [ins.loop.begin]
            case LoopTest():
                exprs = [ins.loop.end]
            case Branch():
                exprs = [ins.node.condition]
            case BackEdge() | Jump():
                exprs = []
        for name in frozenset[str]().union(*(e.symbols for e in exprs)) & trips:
            uses[name] = (*uses.get(name, ()), _trip_use(pc, ins, name, found))
    return uses


def _trip_use(pc: int, ins: Instruction, name: str, found: Usage) -> TripUse:
    match ins:
        case LoopTest(Loop(counter, _, Sym(bound))) if bound == name:
            return TripUse(pc, counter)
        case RunStep(Step(op=ops.Advance(counter, Sym(by)))) if (
            by == name and counter not in found.raw | found.cutoff.keys()
        ):
            return TripUse(pc, period=found.period.get(counter, 1))
        case Branch(If(condition)) if (
            condition.symbols == frozenset((name,)) and not usage([condition], frozenset()).raw
        ):
            alone = usage([condition], frozenset())
            return TripUse(pc, period=alone.period.get(name, 1), cutoff=alone.cutoff.get(name, 0))
        case LoopTest(Loop(counter, _, end)):
            return _compared(pc, sym(counter) < end, name)
        case Branch(If(condition)):
            return _compared(pc, condition, name)
        case RunStep(step):
            alone = usage(step.op.expressions, frozenset())
            raw = name in alone.raw or isinstance(step.op, ops.Advance)
            return TripUse(pc, "", alone.period.get(name, 1), alone.cutoff.get(name, 0), raw)
        case _:
            return TripUse(pc, raw=True)


def _compared(pc: int, predicate: Expr, name: str) -> TripUse:
    alone = usage([predicate], frozenset((name,)))
    counters = [v for v, s in alone.related if s == name]
    plain = len(counters) == 1 and not alone.raw and predicate.symbols == frozenset((name, *counters))
    return TripUse(pc, counters[0]) if plain else TripUse(pc, raw=True)
