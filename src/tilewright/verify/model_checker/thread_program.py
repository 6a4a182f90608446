"""The program of one thread: flat code, positions in it, and trip counts that are fixed or open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from tilewright.base.expr import All, Any_, Compare, Const, Expr, Interval, Not, interval, sym
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Protocol, Step, Symbol
from tilewright.verify.model_checker.threads import Thread

Sizes: TypeAlias = Callable[[str, int], int]
"""The value of a trip symbol, given the value of the counter it varies with (-1 without one)."""

Position: TypeAlias = tuple[int, tuple[int, ...]]
"""An instruction and the values of the thread's counters."""

TripKey: TypeAlias = tuple[str, int]
Trips: TypeAlias = dict[TripKey, tuple[int, bool]]
"""Knowledge of a trip count: its least value, and whether that is exact."""


class TooLong(Exception):
    """The instance has more steps than allowed."""


@dataclass
class Open(Exception):
    """The thread's next position depends on the open trip count ``key``; it is at ``at``."""

    key: TripKey
    at: Position


@dataclass(frozen=True)
class ExecuteStep:
    """Execute a step."""

    step: Step


@dataclass(frozen=True)
class Set:
    """Set a counter."""

    counter: int
    value: Expr


@dataclass(frozen=True)
class Add:
    """Add to a counter."""

    counter: int
    value: Expr


@dataclass(frozen=True)
class Unless:
    """Jump to ``out`` where the condition does not hold."""

    condition: Expr
    out: int


@dataclass(frozen=True)
class JumpTo:
    """Jump to ``out``."""

    out: int


Instruction = ExecuteStep | Set | Add | Unless | JumpTo


@dataclass(frozen=True, eq=False)
class BoundOp:
    """One op with its expressions replaced by numbers; the same object at every visit of its position."""

    op: Any
    step: Step
    env: tuple[tuple[str, int], ...]


class ThreadProgram:
    """The flat code of a thread and the walk through it."""

    def __init__(self, protocol: Protocol, thread: Thread, sizes: Sizes | None, limit: int):
        """``sizes`` fixes all trip counts; without it they are open and decided as a run goes along."""
        self.symbols: dict[str, Symbol] = {s.name: s for s in protocol.symbols}
        self.sizes, self.limit = sizes, limit
        self.names: list[str] = [ops.CTA_RANK, *(name for name, _ in thread.counters)]
        self.start: tuple[int, ...] = (thread.cta, *(value for _, value in thread.counters))
        self.names += sorted(protocol.tickets)
        self.code: list[Instruction] = []
        self.loops: list[tuple[int, int, int, Expr]] = []
        """Counter, first and one-past-last instruction of the body, end expression of each loop, outer before inner."""
        self._emit(thread.body)
        self.start += (0,) * (len(self.names) - len(self.start))
        self._calls: dict[Position, BoundOp] = {}
        self._next: dict[Position, Position] = {}

    def _emit(self, nodes: tuple[Node, ...]) -> None:
        code = self.code
        for node in nodes:
            match node:
                case Step(op=ops.Advance(counter, by)):
                    code.append(Add(self.names.index(counter), by))
                case Step():
                    code.append(ExecuteStep(node))
                case Loop():
                    self._emit_loop(node)
                case If():
                    branch = len(code)
                    code.append(JumpTo(0))
                    self._emit(node.then)
                    code.append(JumpTo(0))
                    code[branch] = Unless(node.condition, len(code))
                    last = len(code) - 1
                    self._emit(node.otherwise)
                    code[last] = JumpTo(len(code))

    def _emit_loop(self, node: Loop) -> None:
        code = self.code
        if node.counter not in self.names:
            self.names.append(node.counter)
        counter = self.names.index(node.counter)
        code.append(Set(counter, node.begin))
        test, number = len(code), len(self.loops)
        code.append(JumpTo(0))
        self.loops.append((counter, test, test, node.end))
        self._emit(node.body)
        code.append(Add(counter, Const(node.step)))
        code.append(JumpTo(test))
        code[test] = Unless(sym(node.counter) < node.end, len(code))
        self.loops[number] = (counter, test, len(code), node.end)
        code.append(Set(counter, Const(0)))

    def env(self, at: Position) -> dict[str, int]:
        """The counters by name."""
        return dict(zip(self.names, at[1], strict=True))

    def ended(self, at: Position) -> bool:
        """Whether the thread has nothing left to do."""
        return at[0] >= len(self.code)

    def call(self, at: Position) -> BoundOp | None:
        """The op at a position that ``settle`` found; None at the end and at an open decision."""
        found = self._calls.get(at)
        if found is None and at[0] < len(self.code):
            ins = self.code[at[0]]
            if isinstance(ins, ExecuteStep):
                env = self.env(at)
                found = self._calls[at] = BoundOp(concrete(ins.step.op, env), ins.step, tuple(env.items()))
        return found

    def after(self, at: Position, trips: Trips) -> Position:
        """The position of the op after the one at ``at``."""
        found = self._next.get(at)
        if found is None:
            found = self.settle((at[0] + 1, at[1]), trips)
            if self.sizes is not None:
                self._next[at] = found
                if len(self._next) > self.limit:
                    raise TooLong
        return found

    def settle(self, at: Position, trips: Trips) -> Position:
        """Runs control up to the next op or the end; raises ``Open`` at a decision that ``trips`` leaves open."""
        pc, env = at
        values = list(env)
        iterations = 0
        while pc < len(self.code):
            ins = self.code[pc]
            here = (pc, tuple(values))
            match ins:
                case ExecuteStep(step):
                    names = step.op.symbols & self.symbols.keys()
                    if names and self.sizes is None:
                        raise TooLong  # an op that names a trip count has no finite set of positions
                    if names and here not in self._calls:
                        known = self._known(here, trips, names)
                        self._calls[here] = BoundOp(concrete(step.op, known), step, tuple(self.env(here).items()))
                    return here
                case Set(counter, value):
                    values[counter] = int(value.evaluate(self._known(here, trips, value.symbols)))
                    pc += 1
                case Add(counter, value):
                    values[counter] += int(value.evaluate(self._known(here, trips, value.symbols)))
                    pc += 1
                case Unless(condition, out):
                    pc = pc + 1 if self._holds(here, trips, condition) else out
                case JumpTo(out):
                    pc = out
                    iterations += 1
                    if iterations > self.limit:
                        raise TooLong
        return pc, tuple(values)

    def key(self, name: str, env: Mapping[str, int]) -> TripKey:
        """The instance of a trip symbol for these counters."""
        per = self.symbols[name].per
        return name, -1 if per is None else env.get(per, -1)

    def _known(self, at: Position, trips: Trips, names: frozenset[str] | set[str]) -> dict[str, int]:
        """Counters and the values of the trip symbols among ``names``."""
        env = self.env(at)
        for name in names & self.symbols.keys():
            key = self.key(name, env)
            if self.sizes is not None:
                env[name] = self.sizes(*key)
                continue
            low, exact = trips.get(key) or self.unseen(key)
            if not exact:
                raise Open(key, at)
            env[name] = low
        return env

    def unseen(self, key: TripKey) -> tuple[int, bool]:
        """The knowledge of a trip count from its declaration."""
        symbol = self.symbols[key[0]]
        return symbol.least, symbol.least == symbol.most

    def _holds(self, at: Position, trips: Trips, condition: Expr) -> bool:
        names = condition.symbols & self.symbols.keys()
        if self.sizes is not None or not names:
            return bool(condition.evaluate(self._known(at, trips, names)))
        env = self.env(at)
        bounds: dict[str, Interval] = {name: (value, value) for name, value in env.items()}
        undecided: list[TripKey] = []
        for name in sorted(names):
            key = self.key(name, env)
            low, exact = trips.get(key) or self.unseen(key)
            bounds[name] = (low, low if exact else self.symbols[name].most)
            if not exact:
                undecided.append(key)
        found = truth(condition, bounds)
        if found is None:
            if not undecided:
                return bool(condition.evaluate({n: low for n, (low, _) in bounds.items() if low is not None}))
            raise Open(undecided[0], at)
        return found


def truth(e: Expr, bounds: Mapping[str, Interval]) -> bool | None:
    """The truth of a predicate for all values within bounds, if it is one."""
    match e:
        case Compare(op, lhs, rhs):
            low, high = interval(lhs - rhs, bounds)
            match op:
                case "<":
                    return True if high is not None and high < 0 else False if low is not None and low >= 0 else None
                case "<=":
                    return True if high is not None and high <= 0 else False if low is not None and low > 0 else None
                case _:
                    apart = (high is not None and high < 0) or (low is not None and low > 0)
                    same = low == high == 0
                    found = False if apart else True if same else None
                    return found if op == "==" or found is None else not found
        case All(args):
            parts = [truth(a, bounds) for a in args]
            return False if False in parts else None if None in parts else True
        case Any_(args):
            parts = [truth(a, bounds) for a in args]
            return True if True in parts else None if None in parts else False
        case Not(arg):
            found = truth(arg, bounds)
            return None if found is None else not found
        case _:
            low, high = interval(e, bounds)
            return bool(low) if low is not None and low == high else None


def concrete(item: Any, env: Mapping[str, int]) -> Any:
    """The op with each expression replaced by its value."""
    if isinstance(item, Expr):
        return Const(int(item.evaluate(env)))
    if isinstance(item, tuple):
        return tuple(concrete(x, env) for x in cast(tuple[Any, ...], item))
    names: Mapping[str, object] | None = getattr(item, "__dataclass_fields__", None)
    if names is None or isinstance(item, type):
        return item
    return type(item)(**{n: concrete(getattr(item, n), env) for n in names})
