"""Aligns the roles of a protocol: its common product (``protocol.product_graph``).

Loops are matched by their bounds, branches are split by their guards, short loops are unrolled. Roles that can't be
aligned raise ``OutsideFragment`` with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm

from tilewright.base.expr import Const, sym
from tilewright.protocol import ops
from tilewright.protocol.guards import Context, Guards, UndecidedError, conditions_of, distinguished
from tilewright.protocol.model import If, Loop, Node, Protocol, Role, Step
from tilewright.protocol.product_graph import Block, Edge, OutsideFragment, ProductGraph, ProductLoop
from tilewright.protocol.rewrite import substituted, used
from tilewright.protocol.strides import first_of, unstrided
from tilewright.protocol.unroll import counted, stretched

MAX_BLOCKS = 64
MAX_UNROLLED = 8
MAX_PEELED = 4
MAX_RESIDUES = 4
MAX_STEPS = 100_000
"""Steps written out while a product is laid, of all tries."""


def product_graph_of(protocol: Protocol, early: frozenset[str] = frozenset()) -> ProductGraph:
    """The product of ``protocol``; raises ``OutsideFragment``.

    A role that has no part in a loop does its own work after it, if named in ``early`` before it.
    """
    builder = _Builder(protocol, early)
    programs = [unstrided(substituted(role.body, ops.CTA_RANK, cta), builder.symbols) for role, cta in builder.parties]
    alternatives = builder.body(programs, Context(), ())
    return ProductGraph(
        builder.parties,
        tuple(builder.blocks),
        tuple(dict.fromkeys(builder.edges)),
        tuple(a for a, _ in alternatives),
        tuple(b for _, b in alternatives),
        tuple(replace(x, before=frozenset(builder.before[x.index])) for x in builder.loops.values()),
    )


@dataclass
class _Builder:
    protocol: Protocol
    early: frozenset[str]
    blocks: list[Block] = field(default_factory=list[Block])
    edges: list[Edge] = field(default_factory=list[Edge])
    loops: dict[tuple[str, ...], ProductLoop] = field(default_factory=dict[tuple[str, ...], ProductLoop])
    written: int = 0
    before: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """Per loop, the blocks from which it is entered or left out."""

    def __post_init__(self) -> None:
        self.symbols = {s.name: s for s in self.protocol.symbols}
        self.guards = Guards(self.symbols)
        if any(s.least < 0 for s in self.protocol.symbols):
            raise OutsideFragment("a symbol that may be negative")
        self.parties = tuple(
            (role, cta)
            for cta in range(self.protocol.cluster)
            for role in self.protocol.roles
            if role.ctas is None or cta in role.ctas
        )

    # -- one body -----------------------------------------------------------------------------------------------------
    def body(
        self, programs: Sequence[tuple[Node, ...]], context: Context, path: tuple[str, ...]
    ) -> list[tuple[int, int]]:
        """First and last block of every way to go through one body."""
        marks = len(self.blocks), len(self.edges)
        try:
            return [self.chain(programs, context, path)]
        except UndecidedError as need:
            if need.level and (not path or need.level != path[-1].partition(" ")[0]):
                raise
            del self.blocks[marks[0] :]
            del self.edges[marks[1] :]
            self.before = {loop: {s for s in found if s < marks[0]} for loop, found in self.before.items()}
            found: list[tuple[int, int]] = []
            for value in (True, False):
                found += self.body(programs, context.with_fact(need.name, value), path)
            return found

    def chain(self, programs: Sequence[tuple[Node, ...]], context: Context, path: tuple[str, ...]) -> tuple[int, int]:
        items, groups = stretched(self.named_alike([list(self.resolved(p, context)) for p in programs]))
        loops = {_key(n): n for x in items for n in x if isinstance(n, Loop)}
        items = [_with_skipped(x, loops) for x in items]
        longest = max(items, key=lambda x: sum(isinstance(n, Loop) for n in x))
        keys = _merged([_keys(longest), *map(_keys, items)])
        rendezvous = _rendezvous_between(longest, keys)
        gaps = [self.placed(r, x, keys, rendezvous) for (r, _), x in zip(self.parties, items, strict=True)]
        first = last = self.block(path, "before" if keys else "body", [g.code[0] for g in gaps])
        for i, key in enumerate(keys):
            after = self.block(path, f"after {i}", [g.code[i + 1] for g in gaps])
            self.loop([g.loops[i] for g in gaps], key, i, last, after, context, path, groups.get(key, 1))
            last = after
        return first, last

    def named_alike(self, roles: list[list[Step | Loop]]) -> list[list[Step | Loop]]:
        """Loops of one count with one counter's name, that of the first role; not where a role uses it otherwise, or
        symbols vary with the counter and thereby with its name."""
        names: dict[str, str] = {}
        for items in roles:
            for n in items:
                if isinstance(n, Loop):
                    names.setdefault(counted(n.end)[1].text, n.counter)
        varying = {s.per for s in self.symbols.values()}

        def named(n: Step | Loop) -> Step | Loop:
            if not isinstance(n, Loop) or n.counter == (name := names[counted(n.end)[1].text]):
                return n
            if name in used(n.body) or varying & {name, n.counter}:
                return n
            return replace(n, counter=name, body=substituted(n.body, n.counter, sym(name)))

        return [[named(n) for n in items] for items in roles]

    def block(self, path: tuple[str, ...], what: str, code: list[list[Step]]) -> int:
        if len(self.blocks) >= MAX_BLOCKS:
            raise OutsideFragment(f"more than {MAX_BLOCKS} blocks")
        inside = tuple(self.loops[path[: i + 1]].index for i in range(len(path)))
        label = " ".join((*path, what))
        self.blocks.append(Block(len(self.blocks), label, inside, tuple(map(tuple, code))))
        return len(self.blocks) - 1

    # -- loops --------------------------------------------------------------------------------------------------------
    def loop(
        self, loops: Sequence[Loop | None], key: str, position: int, before: int, after: int, context: Context,
        path: tuple[str, ...], group: int,
    ) -> None:  # fmt: skip
        """Adds the copies of a loop's body; its iterations are a multiple of ``group``."""
        there = [x for x in loops if x is not None]
        counter = there[0].counter
        if any(x.counter != counter for x in there) and any(
            s.per in {x.counter for x in there} for s in self.symbols.values()
        ):
            raise OutsideFragment(f"roles count the loop to {key} by different names")
        if not there[0].end.symbols <= {*self.symbols, *(c for c, _ in context.counters)}:
            raise OutsideFragment(f"a loop to {key}")
        least = self.guards.runs(there[0].end, context)
        name = f"{counter} {position}"
        number = self.loops.setdefault((*path, name), ProductLoop(len(self.loops), counter, not path, key)).index
        self.before.setdefault(number, set()).add(before)
        if least is False:
            self.edges.append(Edge(before, after, ()))
            return
        begins = [0 if x is None else first_of(x.begin) for x in loops]
        if max(begins) > 0 and not least:
            raise OutsideFragment(f"a loop to {key} starts late, and may be empty")
        cut, modulus = max(begins), group
        for x in there:
            for condition in conditions_of(x.body):
                c, m = distinguished(condition, x.counter)
                cut, modulus = max(cut, c), lcm(modulus, m)
        if cut > MAX_PEELED or modulus > MAX_RESIDUES:
            raise OutsideFragment(f"the guards of the loop to {key} tell {cut} + {modulus} iterations apart")
        moved = [self.unpeeled(before, r, x) for r, x in enumerate(loops)]
        states = [*range(cut), *(cut + j for j in range(modulus))]
        bodies: list[list[tuple[int, int]]] = []
        for i in states:
            inner = context
            for c in {x.counter for x in there}:
                inner = inner.with_counter(c, i)
            programs = [
                () if x is None else x.body if i >= b else moved[r] if i == 0 else ()
                for r, (x, b) in enumerate(zip(loops, begins, strict=True))
            ]
            bodies.append(self.body(programs, inner, (*path, name)))
        for first, _ in bodies[0]:
            self.edges.append(Edge(before, first, ()))
        for i, body in enumerate(bodies):
            following = bodies[i + 1] if i + 1 < len(bodies) else bodies[cut]
            for _, last in body:
                self.edges += [Edge(last, first, (number,)) for first, _ in following]
                if (states[i] + 1) % group == 0:
                    self.edges.append(Edge(last, after, (number,)))
        if not least:
            self.edges.append(Edge(before, after, ()))

    def unpeeled(self, before: int, role: int, x: Loop | None) -> tuple[Step, ...]:
        """Takes from the block before a loop that starts late what belongs to the iteration left out: everything from
        the first op on that uses a counter the loop advances."""
        if x is None or first_of(x.begin) == 0:
            return ()
        advanced = {n.op.counter for n in x.body if isinstance(n, Step) and isinstance(n.op, ops.Advance)}
        block = self.blocks[before]
        code = block.code[role]
        first = next((i for i, s in enumerate(code) if s.op.symbols & advanced), len(code))
        codes = tuple(c[:first] if r == role else c for r, c in enumerate(block.code))
        self.blocks[before] = replace(block, code=codes)
        return code[first:]

    def placed(self, role: Role, items: list[Step | Loop], keys: list[str], rendezvous: list[int]) -> _Gaps:
        """The role's loops matched with those of the body, its other steps in the gaps between them. A role without
        loops runs after them, except for barriers of all threads before: ``rendezvous`` in each gap."""
        gaps = _Gaps([[] for _ in range(len(keys) + 1)], [None] * len(keys))
        at, pending, first = 0, list[Step](), True
        for n in items:
            if isinstance(n, Step):
                pending.append(n)
                continue
            try:
                found = keys.index(_key(n), at)
            except ValueError:
                raise OutsideFragment(
                    f"role {role.name} has a loop to {_key(n)} that others order differently"
                ) from None
            if first:
                gaps.spread(pending, 0, found, rendezvous, late=True)
            else:
                gaps.code[at] += pending
            gaps.loops[found] = n
            at, pending, first = found + 1, [], False
        gaps.spread(pending, at, len(keys), rendezvous, late=first and role.name not in self.early)
        return gaps

    def resolved(self, nodes: tuple[Node, ...], context: Context) -> Iterator[Step | Loop]:
        """The body without branches; short loops of constant count are unrolled."""
        for node in nodes:
            self.written += 1
            if self.written > MAX_STEPS:
                raise OutsideFragment(f"more than {MAX_STEPS} steps, loops of few iterations written out")
            match node:
                case Step():
                    yield node
                case If():
                    chosen = node.then if self.guards.holds(node.condition, context) else node.otherwise
                    yield from self.resolved(chosen, context)
                case Loop():
                    begin, end = node.begin.constant, node.end.constant
                    if node.step == 1 and (begin is None or end is None or end - begin > MAX_UNROLLED):
                        yield node
                    elif begin is None or end is None or len(range(begin, end, node.step)) > MAX_UNROLLED:
                        raise OutsideFragment(f"a loop to {node.end} in steps of {node.step}")
                    else:
                        for i in range(begin, end, node.step):
                            yield from self.resolved(substituted(node.body, node.counter, i), context)


def _with_skipped(items: list[Step | Loop], loops: Mapping[str, Loop]) -> list[Step | Loop]:
    """A role that leaves one of the ``loops`` to others and advances its counter by the loop's count walks it without
    ops."""
    mine = {_key(n) for n in items if isinstance(n, Loop)}
    out: list[Step | Loop] = []
    for n in items:
        by = n.op.by if isinstance(n, Step) and isinstance(n.op, ops.Advance) else None
        loop = None if by is None or by.text in mine else loops.get(by.text)
        if loop is None or not isinstance(n, Step) or not isinstance(n.op, ops.Advance):
            out.append(n)
            continue
        out.append(Loop(loop.counter, Const(0), loop.end, 1, (replace(n, op=ops.Advance(n.op.counter)),)))
    return out


def _is_rendezvous(step: Step) -> bool:
    return isinstance(step.op, ops.CtaSync | ops.ClusterWait)


def _merged(sequences: Sequence[list[str]]) -> list[str]:
    """Loops of all roles in one order, the first sequence's and what others have besides; no order if they differ.

    A role may go as often through several loops: each counts.
    """
    out: list[str] = []
    for keys in sequences:
        at = 0
        for i, key in enumerate(keys):
            if key in out[at:]:
                at = out.index(key, at)
            elif keys[:i].count(key) == out.count(key):
                out.insert(at, key)
            at += 1
    return out


def _rendezvous_between(items: list[Step | Loop], keys: list[str]) -> list[int]:
    """How often all threads meet before the first loop, between it and the second, and so on."""
    out, at = [0] * (len(keys) + 1), 0
    last = max((i for i, n in enumerate(items) if isinstance(n, Loop)), default=-1)
    for i, n in enumerate(items):
        if isinstance(n, Loop):
            at = keys.index(_key(n), at) + 1
        else:
            out[at if i < last or last < 0 else -1] += _is_rendezvous(n)
    return out


@dataclass
class _Gaps:
    code: list[list[Step]]
    loops: list[Loop | None]

    def spread(self, pending: list[Step], low: int, high: int, rendezvous: list[int], late: bool) -> None:
        """Distributes steps over the gaps ``low`` to ``high``: those up to the last barrier of all threads at these
        barriers, the others after them, or (``late``) as late as possible."""
        gap = low
        last = max((i for i, step in enumerate(pending) if _is_rendezvous(step)), default=-1)
        for i, step in enumerate(pending):
            if i <= last:
                while gap < high and rendezvous[gap] <= sum(map(_is_rendezvous, self.code[gap])):
                    gap += 1
            elif late:
                gap = high
            self.code[gap].append(step)


def _keys(items: list[Step | Loop]) -> list[str]:
    return [_key(n) for n in items if isinstance(n, Loop)]


def _key(loop: Loop) -> str:
    return loop.end.text
