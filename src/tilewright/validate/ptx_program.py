"""PTX to regions of events: a symbolic evaluation of every path at once.

Every register has one value, which may depend on conditions; blocks have the condition under which they run within an
iteration. A loop's body is evaluated once, for any iteration: integers that it advances have closed forms, what else it
carries is a variable of its own. Registers that are written once are evaluated in dominance order; the others flow
along the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from tilewright.ptx.flow import NaturalLoop
from tilewright.ptx.syntax import Address, Instruction, Register, Vector
from tilewright.validate.arithmetic import Arithmetic, bits_of
from tilewright.validate.bounds import BoundSequence
from tilewright.validate.cases import Condition
from tilewright.validate.closed_loops import ClosedLoop, LoopCall, closed_loop
from tilewright.validate.instructions.evaluate import Environment, Instructions
from tilewright.validate.instructions.opcodes import OPCODES, PURE
from tilewright.validate.loops import Iterations
from tilewright.validate.memory import SHARED
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import NOTHING, Carried, Event, LoopBody, Needs
from tilewright.validate.registers import EntryRegisters
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Choice, Value, Values

Pairing = Callable[[str, Condition, int, bool], str]
"""The name of the IR's loop that stands, in a region, where a loop of the PTX does: region, entry, line, top-tested."""

WARPGROUP = 128
"""Threads that follow one role at least."""

MOST_REMAINDER = 1 << 16
"""Above the remainders that are recognised."""

MEMORY = "@"
"""Prefix of the names of memory states, which are carried like registers."""


class PtxProgram:
    """Evaluates the entry of ``registers``. ``parameters`` are the meanings of its parameters, ``pair`` names its
    loops; ``bounds`` are those that the IR loads, ``constants`` what variables of the module hold that nothing
    writes, ``changing`` tensors that somebody writes while the kernel runs. ``known`` are texts of loops that are
    functions; None: all that may be one are. ``signed`` are lines of products that divide what may be negative."""

    def __init__(
        self,
        registers: EntryRegisters,
        values: Values,
        parameters: Mapping[str, Value],
        ctas: Value,
        element_bytes: Mapping[str, int],
        versioned: frozenset[str],
        pair: Pairing,
        bounds: BoundSequence,
        constants: Mapping[str, bytes] = MappingProxyType({}),
        changing: frozenset[str] = frozenset(),
        known: Mapping[str, object] | None = MappingProxyType({}),
        signed: frozenset[int] = frozenset(),
    ):
        self.registers, self.entry, self.flow = registers, registers.entry, registers.flow
        if self.flow.irreducible:
            raise Undecided("a loop with two entries")
        self.values, self.terms, self.cases = values, values.terms, values.cases
        self.arithmetic = Arithmetic(values, signed)
        self.iterations = Iterations(values)
        self.parameters, self.pair, self.bounds, self.constants = parameters, pair, bounds, constants
        self.known = known
        self.parameter_bytes: Mapping[str, int] = {p.name: p.bytes for p in self.entry.parameters}
        self.shared = frozenset(v.name for v in self.entry.shared)
        self.versioned, self.changing = versioned, changing
        self.fixed: dict[str, Value] = {}
        self.conditions: dict[str, Condition] = {}
        self.needs: dict[str, Needs] = {}
        self.environment: Environment = {}
        self.instructions = Instructions(self, ctas, element_bytes, OPCODES, PURE)
        self.written, self.several, self.waits = registers.written, registers.several, registers.waits
        self.counts = [i.index for i in self.entry.body if i.opcode in ("bar", "barrier") and "red" in i.modifiers]
        self.writers = {r: i for i in self.entry.body for r in self.written[i.index]}
        self.names: dict[int, str] = {}
        self.slice: set[int] | None = None
        self.pairing = True
        self.order = 0
        self.exits: dict[int | None, list[tuple[int, Condition, Environment]]] = {}

    def run(self) -> LoopBody:
        """The kernel's region."""
        region = LoopBody("kernel", self.cases.true, 0, self.entry.name, threads=self.cases.threads(self.cases.true))
        start: Environment = {MEMORY + name: self._version("start", name) for name in sorted(self.versioned)}
        self._region(region, None, start)
        return region

    def _version(self, kind: str, *args: object) -> Poly:
        return self.terms.of(0, self.terms.atom(kind, *args, low=0))

    # -- registers ------------------------------------------------------------------------------------------------
    def value(self, name: str) -> Value:
        """The value of a register."""
        found = self.environment.get(name) if name in self.several else self.fixed.get(name)
        if found is None:
            return self.values.undefined(self.width(name), name)
        assert isinstance(found, Poly | Choice)
        return found

    def condition(self, name: str) -> Condition:
        """The value of a predicate."""
        found = self.environment.get(name) if name in self.several else self.conditions.get(name)
        if found is None:
            return self._unwritten(name)
        return found  # pyright: ignore[reportReturnType]

    def width(self, name: str) -> int:
        """Bits of a register."""
        kind = self.entry.registers[name]
        return 1 if kind == "pred" else bits_of(kind)

    def is_predicate(self, name: str) -> bool:
        """Whether a register holds a condition."""
        return self.entry.registers.get(name) == "pred"

    def put(self, name: str, value: Value | Condition, needs: Needs) -> None:
        """Sets a register."""
        if name == "_":
            return
        if name in self.several:
            self.environment[name] = value
        elif self.is_predicate(name):
            self.conditions[name] = value  # pyright: ignore[reportArgumentType]
        else:
            self.fixed[name] = value  # pyright: ignore[reportArgumentType]
        if needs or name in self.needs:
            self.needs[name] = needs if name not in self.several else self.needs.get(name, NOTHING) | needs

    # -- regions --------------------------------------------------------------------------------------------------
    def _region(self, region: LoopBody, loop: int | None, start: Environment) -> Environment:
        """Evaluates the blocks of a loop's body, or of the kernel; returns what leaves by the exits, merged."""
        flow = self.flow
        inside = flow.loops[loop].blocks if loop is not None else frozenset(flow.order)
        header = flow.loops[loop].header if loop is not None else flow.order[0]
        arriving: dict[int, list[tuple[Condition, Environment]]] = {header: [(self.cases.true, start)]}
        leaving: list[tuple[Condition, Environment]] = []
        back: list[tuple[Condition, Environment]] = []
        done: set[int] = set()

        def go(target: int, holds: Condition, environment: Environment) -> None:
            if holds == 0:
                return
            if loop is not None and target == header:
                back.append((holds, environment))
            elif target == flow.exit or target not in inside:
                leaving.append((holds, environment))
                self.exits.setdefault(loop, []).append((target, holds, environment))
            else:
                arriving.setdefault(target, []).append((holds, environment))

        for block in flow.order:
            if block not in inside or block in done or block not in arriving:
                continue
            holds, environment = self._merged(arriving.pop(block), block)
            inner = self._inner_loop(block, loop)
            if inner is not None:
                done |= flow.loops[inner].blocks
                for target, condition, left in self._loop(region, inner, holds, environment):
                    go(target, condition, left)
                continue
            self.environment = dict(environment)
            self.threads = self._whole_warpgroups(self.cases.threads(holds) & region.threads)
            for instruction in flow.instructions(block):
                if self.slice is None or instruction.index in self.slice:
                    self.instructions.evaluate(instruction, holds, region)
                else:  # what it writes is not what was there
                    for r in self.written[instruction.index]:
                        self.environment.pop(r, None)
            for edge in flow.blocks[block].out:
                taken = holds
                if edge.guard is not None:
                    test = self.condition(edge.guard.register)
                    needs = self.needs.get(edge.guard.register, NOTHING)
                    if needs and self.slice is None:
                        self.instructions.require(region, needs, holds)
                    taken = self.cases.both(holds, self.cases.negate(test) if edge.guard.negated else test)
                go(edge.target, taken, self.environment)
        if loop is not None:
            region.again, latest = self._merged(back, header) if back else (0, {})
            return latest
        return {}

    def _whole_warpgroups(self, threads: int) -> int:
        """The threads of all warpgroups of which some execute: the values that a role computes are not distinguished by
        thread, and an address stays one value whichever of its threads a guard selects."""
        chosen = 0
        for first in range(0, self.terms.threads, WARPGROUP):
            group = ((1 << WARPGROUP) - 1) << first
            if threads & group:
                chosen |= group
        return chosen & self.cases.threads(self.cases.true)

    def _merged(self, arriving: Sequence[tuple[Condition, Environment]], block: int) -> tuple[Condition, Environment]:
        """The value of a live register at a block with several predecessors."""
        if len(arriving) == 1:
            return arriving[0]
        live = self.registers.live[block]
        total = self.cases.any(c for c, _ in arriving)
        arriving = [(self.cases.given(c, total), environment) for c, environment in arriving]
        merged: Environment = {}
        (_, start), *others = arriving
        for name in dict.fromkeys(name for _, environment in arriving for name in environment):
            if name not in live and not name.startswith(MEMORY):
                continue
            first = start.get(name)
            if first is not None and all(environment.get(name) is first for _, environment in others):
                merged[name] = first
                continue
            given = [(c, environment.get(name)) for c, environment in arriving]
            if self.is_predicate(name):
                ways = ((c, self._unwritten(name) if v is None else v) for c, v in given)
                merged[name] = self.cases.any(self.cases.both(c, v) for c, v in ways)  # pyright: ignore
            else:
                merged[name] = self.values.choose(
                    [
                        (c, v if isinstance(v, Poly | Choice) else self.values.undefined(self.width(name), name))
                        for c, v in given
                    ]
                )
        return total, merged

    def _unwritten(self, name: str) -> Condition:
        """A predicate on a path on which it was not written."""
        return self.arithmetic.test("undefined", name)

    def _inner_loop(self, block: int, loop: int | None) -> int | None:
        """The loop directly inside ``loop`` whose header ``block`` is."""
        for i, found in enumerate(self.flow.loops):
            if found.header == block and i != loop and found.parent == loop:
                return i
        return None

    # -- loops ----------------------------------------------------------------------------------------------------
    def _loop(
        self, parent: LoopBody, number: int, entry: Condition, start: Environment
    ) -> list[tuple[int, Condition, Environment]]:
        loop, flow = self.flow.loops[number], self.flow
        sources = [e for b in loop.blocks for e in flow.blocks[b].out if e.target not in loop.blocks]
        if number in self.registers.spins:
            wait = next(i for b in loop.blocks for i in flow.instructions(b) if i.opcode == "mbarrier")
            self.environment = dict(start)
            if self.slice is None:
                self.instructions.evaluate(wait, entry, parent)
            if len({e.target for e in sources}) != 1:
                raise Undecided("a wait with two ways out", f"line {wait.line}")
            return [(sources[0].target, entry, self.environment)]
        if len(sources) != 1:
            raise Undecided("a loop with several exits", f"line {self._line(loop)}")
        function = self._function(number)
        if function is not None:
            return [(sources[0].target, entry, self._called(parent, function, entry, start, self._line(loop)))]
        top = sources[0].source == loop.header and loop.back[0].source != loop.header
        if not self.pairing:
            name = f"unpaired{number}"
        else:
            name = self.names.get(number) or self.pair(parent.name, entry, self._line(loop), top)
            self.names[number] = name
        region = LoopBody(name, entry, parent.order, f"line {self._line(loop)}", top_tested=top)
        region.threads = self.cases.threads(entry) & parent.threads
        self.order += 1
        region.order = self.order
        written = {r for b in loop.blocks for i in flow.instructions(b) for r in self.written[i.index]}
        live = self.registers.live[loop.header]
        carried = sorted(r for r in self.several if r in written and r in start and r in live)
        bound = {r: start[r] for r in start}
        closed = (
            self._closed(number, name, carried, start, region.threads) if self.slice is None or self.pairing else {}
        )
        waiting: dict[str, Value] = {}
        for r in carried:
            if r in closed:
                bound[r] = closed[r]
            elif self.is_predicate(r):
                bound[r] = self.arithmetic.test("phi", name, r)
            else:
                width = self.width(r)
                waiting[r] = self.terms.data(width, width, "phi", name, r)
                bound[r] = waiting[r]
        states = [r for r in start if r.startswith(MEMORY)]
        for r in states:
            bound[r] = self._version("phi", name, r)
        self.exits[number] = []
        begun = {r: self.needs.get(r, NOTHING) for r in closed}  # asked for where the registers are read
        latest = self._region(region, number, bound)
        if self.slice is None:  # closed forms stand for what an iteration leaves to the next one, too
            resting = frozenset(need for r in closed for need in self.needs.get(r, NOTHING) - begun[r])
            self._rest(region, resting, region.again)
        for r in [*waiting, *states]:
            initial = start[r]
            following = initial if region.again == 0 else latest.get(r)  # never asked for where nothing follows
            assert isinstance(initial, Poly | Choice)
            region.carried[r] = Carried(initial, following if isinstance(following, Poly | Choice) else None)
        if self.slice is None:
            parent.loops.append(region)
        last = self.iterations.trips(name)
        if not top:
            last = self.terms.sub(last, self.terms.const(0, 1))
        return [
            (target, entry, self._behind(region, number, environment, written, last, target))
            for target, _, environment in self.exits[number]
        ]

    def _function(self, number: int) -> ClosedLoop | None:
        """The function that a loop is, if it is one that is known."""
        if self.known is not None and not self.known:
            return None
        only_computes = all(i.opcode == "bra" or i.opcode in PURE for i in self._body(number))
        if not only_computes or any(loop.parent == number for loop in self.flow.loops):
            return None
        found = closed_loop(self.registers, self.flow.loops[number])
        return found if found is not None and (self.known is None or found.text in self.known) else None

    def _called(
        self, region: LoopBody, loop: ClosedLoop, entry: Condition, start: Environment, line: int
    ) -> Environment:
        """Registers behind a loop that is a function."""
        self.environment = dict(start)
        operands = tuple(self.values.within(self.value(r), entry) for r in loop.operands)
        needs = NOTHING.union(*(self.needs.get(r, NOTHING) for r in loop.operands))
        if self.slice is None:
            region.calls.append(LoopCall(loop, operands, entry, f"line {line}"))
            if needs:  # that it ends rests on its operands, whether or not its results are read
                self.instructions.require(region, needs, entry)
        for k, r in enumerate(loop.results):
            self.put(r, loop.result(self.values, k, self.width(r), operands), needs)
        return self.environment

    def _behind(
        self, region: LoopBody, number: int, environment: Environment, written: set[str], last: Poly, target: int
    ) -> Environment:
        """Registers behind a loop: what they are after its last iteration."""
        left = dict(environment)
        blocks = self.flow.loops[number].blocks
        leaving = {r for r in written if not self.registers.readers.get(r, set()) <= blocks}
        resting = frozenset(need for r in leaving for need in self.needs.pop(r, NOTHING))
        if self.slice is None:  # what values rest on is proved where they are computed
            self._rest(region, resting, self.cases.true)
        none = self.terms.const(0, 0)
        runs = self.iterations.condition_left(region.again, region.name, none) if region.top_tested else 0
        live = self.registers.live[target]
        for r in written - live:  # nobody asks for what they were in the last iteration
            left.pop(r, None)
            self.fixed.pop(r, None)
        for r in sorted((written & live) | {n for n in environment if n.startswith(MEMORY)}):
            flowing = r in environment and (r in self.several or r.startswith(MEMORY))
            if not flowing and r not in self.fixed:
                continue
            value = environment[r] if flowing else self.fixed[r]
            if not isinstance(value, Poly | Choice):
                continue
            if flowing and self._stays(region, r, value):
                behind = region.carried[r].initial
            elif region.top_tested and r in region.carried:
                following, initial = region.carried[r].next, region.carried[r].initial
                assert following is not None
                before = self.terms.sub(last, self.terms.const(0, 1))
                behind = self.values.select(runs, self.iterations.left(following, region.name, before), initial)
            else:
                behind = self.iterations.left(value, region.name, last)
                if region.top_tested and behind is not value:  # where no iteration is made, none has changed it
                    behind = self.values.select(runs, behind, self.iterations.left(value, region.name, none))
            if flowing:
                left[r] = behind
            else:
                self.fixed[r] = behind
        return left

    def _stays(self, region: LoopBody, r: str, value: Value) -> bool:
        """An iteration of a loop finds ``value`` in a register, and leaves it, or what was there before the loop: no
        iteration finds, or leaves, another one."""
        atom = self.terms.single(value) if isinstance(value, Poly) else None
        if r.startswith(MEMORY) or atom is None or (atom.kind, *atom.args) != ("phi", region.name, r):
            return False
        carried = region.carried.get(r)
        return carried is not None and (carried.next is value or carried.next is carried.initial)

    def _rest(self, region: LoopBody, needs: Needs, holds: Condition) -> None:
        """Obligations of a loop's values, where they are used."""
        if needs:
            region.events.append(Event("needs", holds, (), region.where, region.order, needs))

    def _closed(self, number: int, name: str, carried: list[str], start: Environment, threads: int) -> dict[str, Value]:
        """Closed forms of the integers that the loop carries, found on the slice of the body that computes them."""
        integers = [r for r in carried if not self.is_predicate(r) and self.entry.registers[r][0] != "f"]
        before = dict(self.fixed)
        data = self._data(number) if integers else set[str]()
        integers = [r for r in integers if r not in data]
        wanted = self._sliced(number, integers) if integers else set[int]()
        self.fixed = before
        if not integers:
            return {}
        found: dict[str, Value] = {}
        saved = self.environment, self.needs, self.pairing, self.slice
        fixed, conditions = self.fixed, self.conditions
        pairing = remainders = False
        while True:
            bound: Environment = dict(start)
            for r in carried:
                if r in found:
                    bound[r] = found[r]
                elif self.is_predicate(r):
                    bound[r] = self.arithmetic.test("phi", name, r)
                else:
                    width = self.width(r)
                    high = MOST_REMAINDER - 1 if remainders else None
                    bound[r] = self.terms.of(width, self.terms.atom("unsolved", name, r, high, low=0, high=high))
            self.fixed, self.conditions, self.needs = dict(fixed), dict(conditions), {}
            self.slice, self.pairing = wanted, pairing
            self.exits[number] = []
            trial = LoopBody(name, self.cases.true, 0, "", threads=threads)
            latest = self._region(trial, number, bound)
            if trial.again == 0:  # all that an iteration finds is from before the loop
                found = {r: start[r] for r in integers if isinstance(start[r], Poly | Choice)}  # pyright: ignore
                break
            closed = self._remainder if remainders else self._closed_one
            new: dict[str, Value] = {}
            for r in integers:
                if r not in found and isinstance(latest.get(r), Poly | Choice):
                    value = closed(name, start[r], bound[r], latest[r])  # pyright: ignore[reportArgumentType]
                    if value is not None:
                        new[r] = value
            if not remainders or len(found) + len(new) == len(integers):  # remainders rest on one another's range
                found |= new
            if len(found) == len(integers) or remainders:
                break
            if not new:
                pairing, remainders = True, pairing
        self.fixed, self.conditions = fixed, conditions
        self.environment, self.needs, self.pairing, self.slice = saved
        return found

    def _closed_one(self, name: str, start: Value, present: Value, latest: Value) -> Value | None:
        """The closed form of an integer that an iteration finds as ``present`` and leaves as ``latest``; None if none
        is found."""
        drawn = self.bounds.drawn.get(name)
        if drawn is not None:
            first, following = (self.values.resize(v, start.width) for v in (drawn.first, drawn.next))
            if (start, latest) == (first, following):
                return self.values.resize(drawn.present, start.width)
        step = self.values.sub(latest, present)
        if self._settled(step):
            return self.iterations.closed(name, start, step)
        return self.iterations.following(name, start, latest) if self._settled(latest) else None

    def _remainder(self, name: str, start: Value, present: Value, latest: Value) -> Value | None:
        """The closed form of what begins below n and becomes the remainder of a sum by n: that of all that is added."""
        first, parts = self.values.number(start), list[tuple[Condition, Poly]]()
        by = set[int]()
        for holds, p in self.values.parts(self.values.unfolded(latest)):
            quotients = (self.terms.atoms[m[0]] for m, _ in p.terms if len(m) == 1)
            whole = next((a.args for a in quotients if a.kind == "fdiv"), None)
            if whole is None or not isinstance(whole[0], Poly):
                return None
            if self.terms.resize(self._modulo(whole[0], int(str(whole[1]))), p.width) is not p:
                return None
            parts.append((holds, whole[0]))
            by.add(int(str(whole[1])))
        if len(by) != 1 or first is None or not 0 <= first < max(by) <= MOST_REMAINDER:
            return None
        step = self.values.sub(self.values.choose(parts), self.values.resize(present, 0))
        total = self.iterations.closed(name, self.terms.const(0, first), step) if self._settled(step) else None
        if total is None:
            return None
        return self.values.resize(self.values.lift(lambda p: self._modulo(p, max(by)), total), start.width)

    def _modulo(self, p: Poly, n: int) -> Poly:
        return self.terms.sub(p, self.terms.scale(self.terms.floordiv(p, n), n))

    def _settled(self, value: Value) -> bool:
        """Whether a value has no open parts."""
        seen: set[int] = set()

        def open_(x: object) -> bool:
            if isinstance(x, Poly):
                return any(atom(i) for m, _ in x.terms for i in m)
            if isinstance(x, Choice):
                return any(open_(p) or any(map(open_, self.cases.quantities_of(c))) for c, p in x.parts)
            if isinstance(x, tuple):
                return any(open_(y) for y in cast("tuple[object, ...]", x))
            return False

        def atom(i: int) -> bool:
            if i in seen:
                return False
            seen.add(i)
            a = self.terms.atoms[i]
            if a.kind in ("unsolved", "undefined") or (a.args and str(a.args[0]).startswith("unpaired")):
                return True
            return any(open_(x) for x in a.args)

        return not open_(value)

    def _body(self, number: int) -> list[Instruction]:
        return [i for b in self.flow.loops[number].blocks for i in self.flow.instructions(b)]

    def _data(self, number: int) -> set[str]:
        """Registers that hold what the loop's body loads or exchanges, or what is computed from that: they have no
        closed form."""
        body, found = self._body(number), set[str]()
        before = -1
        while len(found) != before:
            before = len(found)
            for i in body:
                pure = self.instructions.is_pure(i) or self._brings_bound(i)
                if not pure or not found.isdisjoint(self.registers.read[i.index]):
                    found.update(self.written[i.index])
        return found

    def _brings_bound(self, i: Instruction) -> bool:
        """The instruction reads shared memory at a place that does not change, where the IR reads a bound."""
        if i.opcode != "ld" or i.modifiers[0] != "shared" or isinstance(i.operands[0], Vector):
            return False
        address = i.operands[1]
        assert isinstance(address, Address)
        match address.base:
            case Register(name):
                base = self._invariant(name)
            case other:
                base = self.instructions.get(other, 64)
        if not isinstance(base, Poly):
            return False
        tensor, offset = self.instructions.located(self.terms.add(base, self.terms.const(base.width, address.offset)))
        return tensor == SHARED and self.bounds.brings(offset, bits_of(i.modifiers[-1]) // 8)

    def _invariant(self, name: str) -> Value | None:
        """The value of a register that is computed from what no loop changes, also where that is done in the loop and
        not reached yet; None of others."""
        found, writer = self.fixed.get(name), self.writers.get(name)
        if found is not None or writer is None or name in self.several or self.is_predicate(name):
            return found
        if writer.guard is not None or not self.instructions.is_pure(writer):
            return None
        if any(self._invariant(r) is None for r in self.registers.read[writer.index]):
            return None
        self.instructions.evaluate(writer, self.cases.true, LoopBody("", self.cases.true, 0, ""))
        return self.fixed.get(name)

    def _sliced(self, number: int, names: list[str]) -> set[int]:
        """Instructions of the loop that the new values of some registers, and its branches, are computed by."""
        body = self._body(number)
        writers: dict[str, list[Instruction]] = {}
        for i in body:
            for r in self.written[i.index]:
                writers.setdefault(r, []).append(i)
        wanted: set[int] = set()
        pending = list(names)
        for i in body:
            if i.opcode == "bra" and i.guard is not None:
                pending.append(i.guard.register)
        seen = set(pending)
        while pending:
            for i in writers.get(pending.pop(), ()):
                if i.index in wanted:
                    continue
                if not self.instructions.is_pure(i) and not self._brings_bound(i):
                    continue
                wanted.add(i.index)
                for r in self.registers.read[i.index]:
                    if r not in seen:
                        seen.add(r)
                        pending.append(r)
        return wanted

    def _line(self, loop: NaturalLoop) -> int:
        return self.entry.body[self.flow.blocks[loop.header].first].line
