"""Whether strong operations on several words may be taken one after another, as canonical runs do.

On one word they have an order, coherence. Across words the memory model promises none: of two CTAs each may see, in a
word, what the other wrote after it looked at another word (load buffering; PTX ISA 9.1, 8.10.4 forbids that only where
values depend on each other). Such a circle goes from word to word: in each CTA from an operation that reads one word to
a later one that writes the next. It can't be if each of these writes releases and each of these reads acquires, since
then causality order would have the circle (8.9.5). So it is enough that no circle of words has a pair that is less.

A word that is set, not added to, has besides to be ordered with its other writes, and where its value falls with all
operations on it: then nobody reads a value from before (``words.strong``).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tilewright.base.expr import Expr
from tilewright.protocol import ops
from tilewright.protocol.effects import Strong
from tilewright.protocol.operands import Scope
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.threads import BackEdge, RunStep

Node: TypeAlias = tuple[str, int | None]
"""A word, or all words of a counter."""


class Operation(NamedTuple):
    """A strong operation in the code of an agent; ``again``: in a loop."""

    agent: int
    pc: int
    effect: Strong
    word: Node
    again: bool


def unordered(agents: tuple[CompiledAgent, ...], found: list[Operation]) -> str:
    """Which words are read and written in a circle that causality order does not rule out; empty if none are."""
    mixed = {name for name, index in (o.word for o in found) if index is None}
    found = [o._replace(word=(o.word[0], None)) if o.word[0] in mixed else o for o in found]
    edges: dict[Node, set[Node]] = {}
    weak: set[tuple[Node, Node]] = set()
    for agent in agents:
        mine = [o for o in found if agents[o.agent].cta == agent.cta]
        for read in (o for o in mine if o.agent == agent.index and o.effect.reads):
            for write in (o for o in mine if o.effect.writes and _later(agents, read, o)):
                if read.word != write.word or read.word[1] is None:
                    edges.setdefault(read.word, set()).add(write.word)
                    if not _synchronise(read.effect, write.effect):
                        weak.add((read.word, write.word))
    for read, write in sorted(weak, key=str):
        if read in _reached(edges, write):
            words = " and ".join(dict.fromkeys(_name(x) for x in (read, write)))
            return f"{words} are read and written in a circle by operations that do not all acquire and release"
    return ""


def operations(agents: tuple[CompiledAgent, ...]) -> list[Operation]:
    """The strong operations of all agents."""
    out: list[Operation] = []
    for agent in agents:
        for pc, ins in enumerate(agent.code):
            for effect in ins.step.op.of(Strong) if isinstance(ins, RunStep) else ():
                word = effect.word.counter, _index(effect.word.index, agent.cta)
                again = any(first <= pc < last for _, first, last in agent.loops)
                out.append(Operation(agent.index, pc, effect, word, again))
    return out


def _index(e: Expr, cta: int) -> int | None:
    return e.substitute({ops.CTA_RANK: ops.Const(cta)}).constant


def _later(agents: tuple[CompiledAgent, ...], read: Operation, write: Operation) -> bool:
    """Whether the write may follow the read: in another thread, later in the code, or in a loop around both."""
    if read.agent != write.agent or write.pc >= read.pc:
        return True
    back = (ins.back for pc, ins in enumerate(agents[read.agent].code) if isinstance(ins, BackEdge) and pc > read.pc)
    return any(first <= write.pc for first in back)


def _synchronise(read: Strong, write: Strong) -> bool:
    wide = read.scope is Scope.GPU and write.scope is Scope.GPU
    return wide and read.sem.acquires and write.sem.releases


def _reached(edges: dict[Node, set[Node]], start: Node) -> set[Node]:
    seen, todo = {start}, [start]
    while todo:
        for following in edges.get(todo.pop(), set()) - seen:
            seen.add(following)
            todo.append(following)
    return seen


def _name(node: Node) -> str:
    return f"the words of {node[0]}" if node[1] is None else f"{node[0]}[{node[1]}]"
