"""Static single assignment for the registers of an entry: which definition reaches each read.

Pruned SSA: phis are placed at iterated dominance frontiers (Cytron et al., 1991) of the definitions where the register
is live. A guarded write may keep the old value, so it also depends on the previous definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.ptx.flow import Flow
from tilewright.ptx.opcodes import reads, writes


@dataclass(frozen=True, slots=True)
class Definition:
    """One value of a register: written by an instruction, or by a phi (``instruction`` None), or by nothing.

    ``block`` is None for the value that a register has before anything wrote it: undefined.
    """

    register: str
    block: int | None
    instruction: int | None = None

    @property
    def undefined(self) -> bool:
        """The register was never written."""
        return self.block is None


@dataclass(frozen=True, slots=True)
class Phi:
    """At the head of a block: ``arguments`` has the definition that comes along from each predecessor block."""

    result: int
    arguments: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Ssa:
    """``definitions`` by number; ``phis`` per block; per instruction, register to number: what it reads, what it
    writes.

    ``before`` gives, for each guarded write of an instruction, the definition that stays where the guard doesn't hold.
    ``live`` has the registers that are live where a block begins. Blocks that can't be reached have empty maps.
    """

    flow: Flow
    definitions: tuple[Definition, ...]
    phis: Mapping[int, tuple[Phi, ...]]
    reads: tuple[Mapping[str, int], ...]
    writes: tuple[Mapping[str, int], ...]
    before: tuple[Mapping[str, int], ...]
    live: tuple[frozenset[str], ...]


def ssa(flow: Flow) -> Ssa:
    """The SSA form of all registers that the reachable blocks name."""
    return _SsaBuilder(flow).built()


class _SsaBuilder:
    def __init__(self, flow: Flow):
        self.flow = flow
        self.used = [reads(i) for i in flow.entry.body]
        self.written = [writes(i) for i in flow.entry.body]
        self.live = self._liveness()
        self.definitions: list[Definition] = []
        self.undefined: dict[str, int] = {}
        count = len(flow.entry.body)
        self.reads: list[dict[str, int]] = [{} for _ in range(count)]
        self.writes: list[dict[str, int]] = [{} for _ in range(count)]
        self.before: list[dict[str, int]] = [{} for _ in range(count)]
        self.heads: dict[int, dict[str, int]] = {}
        self.arguments: dict[int, list[tuple[int, int]]] = {}

    def built(self) -> Ssa:
        """Place phis, then rename along the dominator tree."""
        self._place()
        self._rename()
        phis = {
            block: tuple(Phi(number, tuple(self.arguments.get(number, ()))) for number in heads.values())
            for block, heads in self.heads.items()
        }
        live = tuple(frozenset(names) for names in self.live)
        found = (tuple(self.reads), tuple(self.writes), tuple(self.before))
        return Ssa(self.flow, tuple(self.definitions), phis, *found, live)

    def _liveness(self) -> list[set[str]]:
        """Registers live at the head of each block, to a fixed point."""
        flow = self.flow
        need: list[set[str]] = []
        sure: list[set[str]] = []
        for block in flow.blocks:
            wanted, made = set[str](), set[str]()
            for i in range(block.first, block.last):
                wanted.update(r for r in self.used[i] if r not in made)
                if flow.entry.body[i].guard is None:
                    made.update(self.written[i])
                else:
                    wanted.update(r for r in self.written[i] if r not in made)
            need.append(wanted)
            sure.append(made)
        live = [set(n) for n in need]
        pending = list(flow.order)
        while pending:
            block = pending.pop()
            after = set[str]().union(*(live[e.target] for e in flow.blocks[block].out if e.target < flow.exit))
            new = after - sure[block] - live[block]
            if new:
                live[block] |= new
                pending += [e.source for e in flow.blocks[block].into]
        return live

    def _frontiers(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        rank = self.flow.rank
        for block in self.flow.order:
            sources = {e.source for e in self.flow.blocks[block].into if e.source in rank}
            if len(sources) < 2 and block != self.flow.order[0]:
                continue
            for source in sources:
                at: int | None = source
                while at is not None and at != self.flow.idom[block]:
                    found.setdefault(at, set()).add(block)
                    at = self.flow.idom[at]
        return found

    def _place(self) -> None:
        """Insert phis for the live registers whose definitions merge at a block."""
        frontiers = self._frontiers()
        defined: dict[str, set[int]] = {}
        for block in self.flow.order:
            for i in range(self.flow.blocks[block].first, self.flow.blocks[block].last):
                for register in self.written[i]:
                    defined.setdefault(register, set()).add(block)
        first = self.flow.order[0] if self.flow.order else 0
        for register, blocks in defined.items():
            pending, placed = [*blocks, first], set[int]()
            while pending:
                for block in frontiers.get(pending.pop(), ()):
                    if block not in placed and register in self.live[block]:
                        placed.add(block)
                        self.heads.setdefault(block, {})[register] = self._new(Definition(register, block))
                        pending.append(block)

    def _new(self, definition: Definition) -> int:
        self.definitions.append(definition)
        return len(self.definitions) - 1

    def _rename(self) -> None:
        """Walk the dominator tree with the definitions that hold at the end of each block."""
        children: dict[int, list[int]] = {}
        for block in self.flow.order[1:]:
            parent = self.flow.idom[block]
            assert parent is not None
            children.setdefault(parent, []).append(block)
        stack: list[tuple[int, dict[str, int]]] = [(self.flow.order[0], {})] if self.flow.order else []
        while stack:
            block, holding = stack.pop()
            holding = {**holding, **self.heads.get(block, {})}
            self._run(block, holding)
            self._pass_on(block, holding)
            stack += [(child, holding) for child in children.get(block, ())]

    def _run(self, block: int, holding: dict[str, int]) -> None:
        for i in range(self.flow.blocks[block].first, self.flow.blocks[block].last):
            self.reads[i] = {r: self._held(r, holding) for r in self.used[i]}
            if self.flow.entry.body[i].guard is not None:
                self.before[i] = {r: self._held(r, holding) for r in self.written[i]}
            for register in self.written[i]:
                holding[register] = self.writes[i][register] = self._new(Definition(register, block, i))

    def _pass_on(self, block: int, holding: Mapping[str, int]) -> None:
        for target in {e.target: None for e in self.flow.blocks[block].out}:
            for register, number in self.heads.get(target, {}).items():
                self.arguments.setdefault(number, []).append((block, self._held(register, holding)))

    def _held(self, register: str, holding: Mapping[str, int]) -> int:
        found = holding.get(register)
        if found is None:
            found = self.undefined.get(register)
            if found is None:
                found = self.undefined[register] = self._new(Definition(register, None))
        return found
