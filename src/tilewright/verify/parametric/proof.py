"""The parametric proof: every rule asked once of the event graph, for all trip counts together.

First the uses of barriers are numbered (``matching``), then what each class knows where is computed (``knowledge``),
then each op puts its questions to that. Whatever is not understood, or not proved, is ``Open``: another method decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice

from tilewright.base.verdict import Discharged, Proved, Unknown
from tilewright.protocol import effects, ops
from tilewright.protocol.effects import (
    Access,
    Await,
    BarrierLife,
    BarrierScope,
    Effect,
    Fence,
    MemoryFence,
    Mode,
    Part,
    Proxy,
    Retire,
    Signal,
    Strong,
    Sync,
    TensorLife,
)
from tilewright.protocol.graph import EventGraph, graph_of
from tilewright.protocol.model import By, Loop, Node, Protocol, Step, body_of
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.protocol.rewrite import substituted
from tilewright.verify.parametric.barriers import check_barrier, check_recycled, init_sites
from tilewright.verify.parametric.ending import check_end
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.memory import check_memory
from tilewright.verify.parametric.op_constraints import check_op_constraints
from tilewright.verify.parametric.progress import check_progress
from tilewright.verify.parametric.registers import check_pool, check_wgmma_registers
from tilewright.verify.parametric.tensor_memory import check_tensor_memory
from tilewright.verify.parametric.transfer import solve
from tilewright.verify.rules import Rule

MAX_PLACEMENTS = 8
"""Orders tried for roles relative to loops in which they take no part."""


MAX_CASES = 4
"""Values of a symbol that are proved one by one."""
MAX_VALUES = 64
"""Protocols that values of several symbols make, as many as of three symbols with four each; with more it is open."""

METHOD = "event graph (all trip counts at once)"


@dataclass(frozen=True)
class GraphProof(Proved):
    """Every rule is kept; ``unfenced``: barriers of which MBR022 warns in a protocol of one CTA."""

    obligations: tuple[Discharged, ...] = tuple(Discharged(rule.obligation, METHOD) for rule in Rule)
    unfenced: frozenset[str] = frozenset()


def prove(protocol: Protocol) -> GraphProof | Unknown:
    """Whether the protocol keeps every rule, as strictly as they are read, for all trip counts; else why this method
    leaves it open."""
    return _proved(protocol, 1)


def _proved(protocol: Protocol, around: int) -> GraphProof | Unknown:
    """``prove``, of one of ``around`` protocols that values of other symbols make."""
    answers: list[GraphProof | Unknown] = []
    for early in islice(_placements(protocol), MAX_PLACEMENTS):
        graph = graph_of(protocol, early)
        answers.append(_open(graph) if isinstance(graph, str) else prove_graph(graph))
        if isinstance(answers[-1], Proved):
            return answers[-1]
    cases = _cases(protocol)
    around *= len(cases)
    if around > MAX_VALUES:
        return _TOO_MANY
    unfenced = frozenset[str]()
    for case in cases:
        answer = _proved(case, around)
        if not isinstance(answer, Proved):
            return answer if answer is _TOO_MANY else answers[0]
        unfenced |= answer.unfenced
    return GraphProof(unfenced=unfenced) if cases else answers[0]


def _cases(protocol: Protocol) -> tuple[Protocol, ...]:
    """The protocol for each value of a symbol that has the same one, of few, in the whole run. In one product graph of
    all values a loop's iterations could have different ones."""
    for s in protocol.symbols:
        if s.per is None and s.most is not None and 0 < s.most - s.least < MAX_CASES * s.multiple_of:
            values = range(s.least, s.most + 1, s.multiple_of)
            others = tuple(x for x in protocol.symbols if x is not s)
            roles = [tuple(replace(r, body=substituted(r.body, s.name, v)) for r in protocol.roles) for v in values]
            return tuple(replace(protocol, symbols=others, roles=each) for each in roles)
    return ()


def _open(reason: str) -> Unknown:
    return Unknown("event graph", reason, "canonical runs, or the fragment of docs/contracts.md")


_TOO_MANY = _open(f"the values of symbols, each by itself, make more than {MAX_VALUES} protocols")


def _placements(protocol: Protocol) -> Iterator[frozenset[str]]:
    """Which roles with fewer loops than others do their work before the loops of a tile: an epilogue does not, who
    hands out the tiles does. The order of the product is a label, so any placement that is proved will do."""
    depths = {r.name: _depth(r.body) for r in protocol.roles}
    shallow = [name for name, depth in depths.items() if 0 < depth < max(depths.values())]
    for n in range(len(shallow) + 1):
        yield from map(frozenset[str], combinations(shallow, n))


def _depth(nodes: tuple[Node, ...]) -> int:
    """Loops of a symbolic count within one another."""
    inner = [n for n in nodes if not isinstance(n, Step)]
    return max([(isinstance(n, Loop) and n.end.constant is None) + _depth(body_of(n)) for n in inner], default=0)


def prove_graph(graph: EventGraph) -> GraphProof | Unknown:
    """``prove`` for a graph already built."""
    try:
        return _prove(graph)
    except OutsideFragment as e:
        return _open(str(e))


def _prove(graph: EventGraph) -> GraphProof:
    for step in graph.steps():
        _understood(step)
    check_op_constraints(graph)
    facts = PreparedProtocol(graph)
    init_sites(facts)
    check_pool(facts)
    check_progress(facts)
    solve(facts)
    for use in facts.bars.values():
        check_barrier(facts, use)
    for ref in facts.syncs:
        check_recycled(facts, ref)
    check_memory(facts)
    check_wgmma_registers(facts)
    check_end(facts)
    check_tensor_memory(facts)
    return GraphProof(unfenced=frozenset(facts.unfenced))


def _understood(step: Step) -> None:
    """Raises ``OutsideFragment`` for an op with an effect outside the fragment."""
    for effect in step.op.effects:
        if _outside(effect, step.by):
            raise OutsideFragment(f"{type(step.op).__name__}: {_outside(effect, step.by)}")


def _outside(effect: Effect, by: By) -> str:
    """The property of an effect that the event graph does not model; empty if it models the effect."""
    match effect:
        case Access(proxy=Proxy.TENSORMAP) | Access(mode=Mode.REPLACE) | Fence(_, _, ops.Region()):
            return "descriptors"
        case Access(mode=Mode.REDUCE):
            return "reductions"
        case Access(pair=True) | TensorLife(pair=True):
            return "pairs of CTAs"
        case Access(mode=Mode.READ, until=ops.Slot()):
            return "copies that name what they read"
        case Access(part=Part.ONE):
            return "an address in shared memory"
        case Strong() | MemoryFence():
            return "counters in global memory"
        case Signal(raises_count=True):
            return "arrivals that raise the count"
        case Await(acquire=False):
            return "a relaxed wait"
        case Await(blocks=False) | Await(peeked=True):
            return "tests of barriers"
        case Retire(effects.CP_ASYNC):
            return "groups of cp.async"
        case Sync(BarrierScope.WARP) if by is not By.ALL:
            return "by some threads"
        case BarrierLife(begins=False):
            return "the end of a barrier's life"
        case _:
            return ""
