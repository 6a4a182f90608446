"""The control-flow graph of an entry: basic blocks, dominators, post-dominators, natural loops.

Dominators by Cooper, Harvey and Kennedy (A Simple, Fast Dominance Algorithm, 2001). A call is an instruction like
others; ``trap`` leaves like ``exit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from tilewright.base.cached import cached_property
from tilewright.diag import Location, fail
from tilewright.ptx.syntax import Entry, Guard, Identifier, Instruction

_LEAVES = frozenset(("ret", "exit", "trap"))
_ENDS = _LEAVES | {"bra", "brx"}


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """An edge from block ``source`` to ``target``, which is ``Flow.exit`` where the thread ends.

    Taken where ``guard`` holds (always, without one), and, behind ``brx.idx``, where the index is ``case``.
    """

    source: int
    target: int
    guard: Guard | None = None
    case: int | None = None


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions ``[first, last)`` of the body, with edges out and in."""

    first: int
    last: int
    out: tuple[FlowEdge, ...]
    into: tuple[FlowEdge, ...]


@dataclass(frozen=True, slots=True)
class NaturalLoop:
    """A natural loop: ``header`` dominates all ``blocks``, ``back`` lead to it.

    ``parent`` is the place of the loop around it in ``Flow.loops``; ``depth`` is 1 where there is none.
    """

    header: int
    blocks: frozenset[int]
    back: tuple[FlowEdge, ...]
    parent: int | None
    depth: int


@dataclass(frozen=True)
class Flow:
    """``blocks`` in the order of the text; ``order`` has those that can be reached, in reverse post-order.

    ``idom[b]`` is the immediate dominator of block b (None for the first and for what can't be reached), ``ipdom[b]``
    its immediate post-dominator (``exit`` where only the end is, None where no path leads to the end). ``irreducible``
    are the retreating edges whose target doesn't dominate their source: loops of two entries, which ``loops`` has not.
    """

    entry: Entry
    blocks: tuple[BasicBlock, ...]
    order: tuple[int, ...]
    idom: tuple[int | None, ...]
    ipdom: tuple[int | None, ...]
    loops: tuple[NaturalLoop, ...]
    irreducible: tuple[FlowEdge, ...]

    @property
    def exit(self) -> int:
        """The number of the virtual block behind the end."""
        return len(self.blocks)

    @cached_property
    def rank(self) -> dict[int, int]:
        """The place of each reachable block in ``order``."""
        return {b: i for i, b in enumerate(self.order)}

    @cached_property
    def block_of(self) -> tuple[int, ...]:
        """The block of each instruction."""
        return tuple(i for i, b in enumerate(self.blocks) for _ in range(b.first, b.last))

    def instructions(self, block: int) -> tuple[Instruction, ...]:
        """The instructions of a block."""
        return self.entry.body[self.blocks[block].first : self.blocks[block].last]

    def dominates(self, a: int, b: int) -> bool:
        """Whether every path from the entry to ``b`` passes ``a``."""
        first, end = self._spans[a]
        return first <= self._spans[b][0] < end if b in self._spans else a == b

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """Numbers of reachable blocks such that those which a block dominates have the ones from its own to an end."""
        count = dict.fromkeys(self.order, 1)
        for b in reversed(self.order):
            above = self.idom[b]
            if above is not None:
                count[above] += count[b]
        spans: dict[int, tuple[int, int]] = {}
        free: dict[int, int] = {}
        for b in self.order:
            above = self.idom[b]
            first = 0 if above is None else free[above]
            if above is not None:
                free[above] += count[b]
            free[b] = first + 1
            spans[b] = first, first + count[b]
        return spans


def graph(entry: Entry) -> Flow:
    """The control-flow graph of ``entry``; a branch to what is no label raises PTX002."""
    body = entry.body
    starts = {0} | set(entry.labels.values()) | {i.index + 1 for i in body if i.opcode in _ENDS}
    leaders = sorted(s for s in starts if s < len(body)) if body else []
    number = {first: i for i, first in enumerate(leaders)}
    ends = [*leaders[1:], len(body)]
    out = [_edges(entry, i, body[end - 1], number, len(leaders)) for i, end in enumerate(ends) if leaders]
    into: list[list[FlowEdge]] = [[] for _ in leaders]
    for edge in (e for edges in out for e in edges):
        if edge.target < len(leaders):
            into[edge.target].append(edge)
    blocks = tuple(BasicBlock(f, e, tuple(o), tuple(i)) for f, e, o, i in zip(leaders, ends, out, into, strict=False))
    return _analysed(entry, blocks)


def _edges(entry: Entry, block: int, last: Instruction, number: dict[int, int], end: int) -> list[FlowEdge]:
    """The edges out of a block, from its last instruction."""
    behind = number.get(last.index + 1, end)
    if last.opcode not in _ENDS:
        return [FlowEdge(block, behind)]
    if last.opcode == "bra":
        taken = [FlowEdge(block, number.get(_label(entry, last, 0), end), last.guard)]
    elif last.opcode == "brx":
        listed = entry.targets[_name(entry, last, 1)]
        if not all(label in entry.labels for label in listed):
            _refuse(entry, last, "labels of the body in the list of targets")
        taken = [
            FlowEdge(block, number.get(entry.labels[label], end), last.guard, case) for case, label in enumerate(listed)
        ]
    else:
        taken = [FlowEdge(block, end, last.guard)]
    if last.guard is None:
        return taken
    return [*taken, FlowEdge(block, behind, Guard(last.guard.register, not last.guard.negated))]


def _label(entry: Entry, branch: Instruction, operand: int) -> int:
    return entry.labels[_name(entry, branch, operand)]


def _name(entry: Entry, branch: Instruction, operand: int) -> str:
    """The label, or list of labels, that operand ``operand`` names."""
    named = branch.operands[operand] if operand < len(branch.operands) else None
    known = entry.labels if branch.opcode == "bra" else entry.targets
    if not isinstance(named, Identifier) or named.name not in known:
        _refuse(entry, branch, "a label of the body as the target of a branch")
    return named.name


def _refuse(entry: Entry, branch: Instruction, required: str) -> NoReturn:
    fail("PTX002", where=Location(f"<ptx {entry.name}>", branch.line), found=branch.name, required=required)


def _analysed(entry: Entry, blocks: tuple[BasicBlock, ...]) -> Flow:
    n = len(blocks)
    forward = [[e.target for e in b.out] for b in blocks] + [[]]
    backward: list[list[int]] = [[] for _ in range(n + 1)]
    for source, targets in enumerate(forward):
        for target in targets:
            backward[target].append(source)
    order = _reverse_post_order(forward, 0) if blocks else [n]
    idom = _dominators(order, backward, n + 1)
    ipdom = _dominators(_reverse_post_order(backward, n), forward, n + 1)
    rank = {b: i for i, b in enumerate(order)}
    retreating = [e for b in order if b < n for e in blocks[b].out if rank[e.target] <= rank[b]]
    back = [e for e in retreating if _dominates(idom, rank, e.target, e.source)]
    return Flow(
        entry,
        blocks,
        tuple(b for b in order if b < n),
        tuple(idom[:n]),
        tuple(ipdom[:n]),
        _loops(blocks, back, rank),
        tuple(e for e in retreating if e not in back),
    )


def _reverse_post_order(successors: Sequence[Sequence[int]], root: int) -> list[int]:
    seen, stack, found = {root}, [(root, iter(successors[root]))], list[int]()
    while stack:
        block, rest = stack[-1]
        for target in rest:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(successors[target])))
                break
        else:
            stack.pop()
            found.append(block)
    return found[::-1]


def _dominators(order: Sequence[int], predecessors: Sequence[Sequence[int]], count: int) -> list[int | None]:
    """Immediate dominators of the blocks in ``order``, whose first is the root."""
    rank = {b: i for i, b in enumerate(order)}
    above: dict[int, int] = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [p for p in predecessors[block] if p in above]
            new = known[0]
            for other in known[1:]:
                while new != other:
                    if rank[new] > rank[other]:
                        new = above[new]
                    else:
                        other = above[other]
            if above.get(block) != new:
                above[block] = new
                changed = True
    return [above.get(b) if b != order[0] else None for b in range(count)]


def _dominates(idom: Sequence[int | None], rank: dict[int, int], a: int, b: int) -> bool:
    at: int | None = b
    while at is not None and rank[at] > rank[a]:
        at = idom[at]
    return at == a


def _loops(blocks: Sequence[BasicBlock], back: Sequence[FlowEdge], rank: dict[int, int]) -> tuple[NaturalLoop, ...]:
    """Natural loops, outer before inner: the blocks that reach a back edge without passing its header."""
    members: dict[int, set[int]] = {}
    for edge in back:
        inside = members.setdefault(edge.target, {edge.target})
        stack = [edge.source]
        while stack:
            block = stack.pop()
            if block not in inside and block in rank:
                inside.add(block)
                stack += [e.source for e in blocks[block].into]
    found: list[NaturalLoop] = []
    for header in sorted(members, key=lambda h: (-len(members[h]), rank[h])):
        around = [i for i, loop in enumerate(found) if header in loop.blocks]
        parent = max(around, key=lambda i: found[i].depth, default=None)
        own = tuple(e for e in back if e.target == header)
        depth = found[parent].depth + 1 if parent is not None else 1
        found.append(NaturalLoop(header, frozenset(members[header]), own, parent, depth))
    return tuple(found)
