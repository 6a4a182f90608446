"""The parametric proof: every rule asked once of the event graph, for all trip counts together.

First the uses of barriers are numbered (``matching``), then what each class knows where is computed (``knowledge``),
then each op puts its questions to that. Whatever is not understood, or not proved, is ``Open``: another method decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice

from tilewright.base.verdict import Obligation, Proved, Unknown
from tilewright.contract.parametric.barriers import check_barrier, check_recycled, init_sites
from tilewright.contract.parametric.ending import check_end
from tilewright.contract.parametric.facts import Facts
from tilewright.contract.parametric.forms import check_forms
from tilewright.contract.parametric.learning import learn
from tilewright.contract.parametric.memory import check_memory
from tilewright.contract.parametric.progress import check_progress
from tilewright.contract.parametric.registers import check_pool, check_wgmma_registers
from tilewright.contract.parametric.tensor_memory import check_tensor_memory
from tilewright.contract.rules import Rule
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph, graph_of
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Step
from tilewright.protocol.word import NoWord

UNDERSTOOD: dict[type[object], frozenset[str]] = {
    ops.MbarrierInit: frozenset(("barrier", "slots")),
    ops.Arrive: frozenset(("bar", "count", "scope", "release")),
    ops.ArriveExpectTx: frozenset(("bar", "bytes", "scope")),
    ops.ExpectTx: frozenset(("bar", "bytes")),
    ops.Wait: frozenset(("bar", "parity", "scope")),
    ops.TmaLoad: frozenset(("dst", "bar", "ctas", "tensor")),
    ops.TmaStore: frozenset(("src", "dst", "tensor")),
    ops.TmaPrefetch: frozenset(),
    ops.BulkCommit: frozenset(),
    ops.BulkWait: frozenset(("pending", "read")),
    ops.Read: frozenset(("region", "private")),
    ops.Write: frozenset(("region", "private")),
    ops.FenceProxyAsync: frozenset(("space",)),
    ops.FenceMbarrierInit: frozenset(),
    ops.WgmmaFence: frozenset(),
    ops.Wgmma: frozenset(("accumulator", "operands")),
    ops.WgmmaCommit: frozenset(),
    ops.WgmmaWait: frozenset(("pending",)),
    ops.BarSync: frozenset(("id", "threads", "aligned", "site")),
    ops.BarArrive: frozenset(("id", "threads")),
    ops.CtaSync: frozenset(),
    ops.WarpSync: frozenset(),
    ops.ClusterArrive: frozenset(("release",)),
    ops.ClusterWait: frozenset(),
    ops.Setmaxnreg: frozenset(("registers",)),
    ops.CpAsync: frozenset(("dst",)),
    ops.CpAsyncArrive: frozenset(("bar", "noinc")),
    ops.Tcgen05Alloc: frozenset(("buffer",)),
    ops.Tcgen05Dealloc: frozenset(("buffer",)),
    ops.Tcgen05Relinquish: frozenset(),
    ops.Tcgen05Mma: frozenset(("accumulator", "operands")),
    ops.Tcgen05Commit: frozenset(("bar", "ctas")),
    ops.Tcgen05Ld: frozenset(("region",)),
    ops.Tcgen05St: frozenset(("region",)),
    ops.Tcgen05WaitLd: frozenset(),
    ops.Tcgen05WaitSt: frozenset(),
    ops.Tcgen05FenceBefore: frozenset(),
    ops.Tcgen05FenceAfter: frozenset(),
    ops.Advance: frozenset(("counter", "by")),
}
"""The ops of the fragment with the fields that are modelled; any other field must have its default."""


MAX_PLACEMENTS = 8
"""Ways tried to lay roles beside the loops that they have no part in."""


METHOD = "event graph (all trip counts at once)"


def prove(protocol: Protocol) -> Proved | Unknown:
    """Whether the protocol keeps every rule, as strictly as they are read, for all trip counts; else why this method
    leaves it open."""
    answers: list[Proved | Unknown] = []
    for early in islice(_placements(protocol), MAX_PLACEMENTS):
        graph = graph_of(protocol, early)
        answers.append(_open(graph) if isinstance(graph, str) else prove_graph(graph))
        if isinstance(answers[-1], Proved):
            return answers[-1]
    return answers[0]


def _open(reason: str) -> Unknown:
    return Unknown("event graph", reason, "canonical runs, or the fragment of docs/contracts.md")


def _placements(protocol: Protocol) -> Iterator[frozenset[str]]:
    """Which roles with fewer loops than others do their work before the loops of a tile: an epilogue does not, who
    hands out the tiles does. The order of the word is a label, so any placement that is proved will do."""
    depths = {r.name: _depth(r.body) for r in protocol.roles}
    shallow = [name for name, depth in depths.items() if 0 < depth < max(depths.values())]
    for n in range(len(shallow) + 1):
        yield from map(frozenset[str], combinations(shallow, n))


def _depth(nodes: tuple[Node, ...]) -> int:
    """Loops of a symbolic count within one another."""
    depth = 0
    for node in nodes:
        match node:
            case Loop():
                depth = max(depth, (node.end.constant is None) + _depth(node.body))
            case If():
                depth = max(depth, _depth(node.then), _depth(node.otherwise))
            case Step():
                pass
    return depth


def prove_graph(graph: EventGraph) -> Proved | Unknown:
    """``prove`` for a graph already built."""
    try:
        _prove(graph)
    except NoWord as e:
        return _open(str(e))
    return Proved(tuple(Obligation(rule.value.obligation, METHOD) for rule in Rule))


def _prove(graph: EventGraph) -> None:
    for site in graph.all_sites():
        _understood(site.step)
    check_forms(graph)
    facts = Facts(graph)
    init_sites(facts)
    check_pool(facts)
    check_progress(facts)
    learn(facts)
    for use in facts.bars.values():
        check_barrier(facts, use)
    for ref in facts.syncs:
        check_recycled(facts, ref)
    check_memory(facts)
    check_wgmma_registers(facts)
    check_end(facts)
    check_tensor_memory(facts)


def _understood(step: Step) -> None:
    known = UNDERSTOOD.get(type(step.op))
    if known is None or (isinstance(step.op, ops.WarpSync) and step.by is not By.ALL):
        raise NoWord(f"{type(step.op).__name__}")
    for name, field in step.op.__dataclass_fields__.items():
        told = field.compare  # what takes no part in equality is told to prices alone
        if told and name not in known and getattr(step.op, name) != field.default:
            raise NoWord(f"{type(step.op).__name__} with {name}")
