"""Transport IR to regions of events: what each op says happens, in the form that PTX is brought to.

Nothing here is shared with the code generator: the meaning of an op is taken from its documentation in ``transport``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import (
    All,
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
)
from tilewright.tile.dialect import TensorType
from tilewright.tile.ops import ops_in
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.bounds import BoundSequence
from tilewright.validate.cases import Condition
from tilewright.validate.loops import Iterations
from tilewright.validate.memory import Memory
from tilewright.validate.needs import Fact
from tilewright.validate.polynomials import Interval, Poly, extreme_interval, narrower
from tilewright.validate.ptx_declarations import DYNAMIC
from tilewright.validate.regions import NOTHING, Event, LoopBody, Operand
from tilewright.validate.scalars import Scalars
from tilewright.validate.transport_ir.parameters import parameter, ranges
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value, Values
from tilewright.validate.words import without_upper


@dataclass(frozen=True)
class LaunchGrid:
    """The launch grid: its size and greatest size, the value of %nctaid.x, and the PTX names of static shared
    buffers that it declares."""

    grid: Expr
    most_ctas: int
    ctas: Value
    shared_names: Mapping[SSAValue, str]


@dataclass(frozen=True)
class BranchedLoop:
    """A loop of at most one iteration that is evaluated as a branch: the region that it stands in, where it is asked
    there whether it makes one, and where it does."""

    region: str
    around: Condition
    entry: Condition


class Plan:
    """Evaluates one kernel of Transport IR."""

    def __init__(
        self,
        kernel: t.Kernel,
        values: Values,
        launch: LaunchGrid,
        element_bytes: Mapping[str, int],
        versioned: frozenset[str],
        library: Callable[..., Value],
        handlers: Mapping[type[Operation], Callable[[Plan, Any], None]],
        unswitched: Mapping[t.For, Expr] = MappingProxyType({}),
        kept: Collection[t.For] = (),
    ):
        self.kernel, self.launch, self.handlers = kernel, launch, handlers
        self.unswitched, self.kept = unswitched, kept
        self.branched: dict[t.For, BranchedLoop] = {}
        self.values, self.terms, self.cases = values, values.terms, values.cases
        self.arithmetic = Arithmetic(values)
        self.floats = self.arithmetic.floats
        self.iterations = Iterations(values)
        self.memory = Memory(values, element_bytes)
        self.scalars = Scalars(self.arithmetic, library)
        self.symbols: dict[str, Value] = {}
        self.bound: set[str] = set()
        """Names that the text binds; others are arguments."""
        self.ranges = ranges(kernel, launch.grid)
        self.buffers: dict[SSAValue, list[Value]] = {}
        self.names: dict[SSAValue, str] = {}
        self.tensors: dict[SSAValue, str] = {}
        self.states: dict[str, Value] = {
            name: self.terms.of(0, self.terms.atom("start", name, low=0)) for name in sorted(versioned)
        }
        self.marks: dict[int, Event] = {}
        self.before: dict[int, Value] = {}
        """By mark of a store, what stands for the contents of what it writes before."""
        self.order = 0
        self.op_of: dict[int, Operation] = {}
        """By the order of events: the innermost op that they are part of."""
        self.holds: Condition = self.cases.true
        self.role: a.Role | None = None
        self.roles = 0
        self.regions: dict[Operation, str] = {}
        self.conditions: dict[str, Condition] = {}
        """By loop: where its next iteration is made, in an iteration."""
        self.facts: dict[str, list[Fact]] = {}
        """By region, what is known in it: by the bounds that a launch keeps, of the coordinates of programs, of the
        counters of loops."""
        self.loops: tuple[str, ...] = ()
        """Those around the present op, the outermost first."""
        self.branches: dict[Condition, None] = {}
        """Conditions of branches, and their negations."""
        self.bounds = BoundSequence(values)
        self.vectors: dict[tuple[str, Poly], int] = {}
        """Bytes that the IR moves at once, by tensor (or shared memory) and offset."""
        self.named: dict[SSAValue, Poly] = {}
        """By buffer, the integers that were loaded to be named."""
        self.region = LoopBody("kernel", self.cases.true, 0, kernel.sym_name.data)
        self._ends: dict[Value, Interval] = {}
        """Bounds that the form of an expression implies, by the value that it is named for."""
        self._operands: dict[Value, tuple[str, list[Value]]] = {}
        """By the value that is named for it, the integers of which an expression is the least or the greatest."""
        self._exprs: dict[Expr, Value] = {}
        self._predicates: dict[Expr, Condition] = {}

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> LoopBody:
        """The kernel's region."""
        body = self.kernel.body.block
        for arg, name in zip(body.args, (n.data for n in self.kernel.arg_names), strict=True):
            if isinstance(arg.type, TensorType):
                self.tensors[arg] = name
            self.names[arg] = name
        for placed in self.kernel.workspaces or ():
            for axis, stride in enumerate(placed.strides):
                self.symbols[f"{placed.tensor.data}.stride{axis}"] = self.expr(stride.expr)
        for assumption in self.kernel.assumptions:
            match assumption.expr:
                case Compare("==", Sym(name), other) | Compare("==", other, Sym(name)) if other.constant is not None:
                    self.symbols[name] = self.terms.const(0, other.constant)
                case Compare("<" | "<=" as op, x, y) if x.polynomial and y.polynomial:
                    apart = self.values.sub(self.expr(y), self.expr(x))
                    self.never_negative(self.values.sub(apart, self.terms.const(0, int(op == "<"))))
                case Compare("<=", FloorDiv(x, Const(n)) as quotient, y) if x.polynomial and y.polynomial:
                    self.never_negative(self.values.sub(self.expr(y), self.expr(quotient)))
                    most = self.values.add(self.values.scale(self.expr(y), int(n)), self.terms.const(0, int(n) - 1))
                    self.never_negative(self.values.sub(most, self.expr(x)))
                case Compare("<", x, Const(end)):
                    self._kept_below(self.expr(x), int(end))
                case _:
                    pass
        self.bind(t.THREAD, self.terms.table(0, np.arange(self.kernel.threads.data)))
        if self.kernel.shared_bytes is not None:
            start = self.terms.shared_variable(DYNAMIC)
            align = t.SHARED_BASE_ALIGN_BYTES
            up = self.terms.floordiv(self.terms.add(start, self.terms.const(0, align - 1)), align)
            self.base = self.terms.scale(up, align)
        self.block(body)
        return self.region

    def _kept_below(self, value: Value, end: int) -> None:
        """Notes that a launch keeps a sum of extents, each at least 0, below a number: how far a tensor reaches that
        has numbers for strides."""
        total = value
        while isinstance(total, Poly):
            if any(len(monomial) > 1 for monomial, _ in total.terms):
                return None
            greater = next(((m, c) for m, c in total.terms if m and self.terms.atoms[m[0]].kind == "max"), None)
            if greater is None:
                return self.never_negative(self.values.sub(self.terms.const(0, end - 1), total))
            (monomial, c), args = greater, self.terms.atoms[greater[0][0]].args
            extent = next((x for x in args if isinstance(x, Poly) and self.terms.number(x) is None), None)
            if extent is None or not isinstance(c, int) or c < 0:
                return None
            rest = self.terms.make(0, {m: k for m, k in total.terms if m != monomial})
            total = self.terms.add(rest, self.terms.scale(extent, c))  # the greater of two is not less than either

    def block(self, block: Block) -> None:
        """Runs the ops of a block."""
        for op in ops_in(block):
            before = self.order
            self.op(op)
            for order in range(before + 1, self.order + 1):
                self.op_of.setdefault(order, op)

    # -- symbols --------------------------------------------------------------------------------------------------
    def bind(self, name: str, value: Value) -> None:
        """Names an integer."""
        self.symbols[name] = value
        self.bound.add(name)
        self._exprs, self._predicates = {}, {}

    def let(self, name: str, e: Expr) -> None:
        """Names the value of an expression."""
        value = self.expr(e)
        self._ends[value] = narrower(self._ends.get(value, (None, None)), self.ends(e))
        if isinstance(e, Min | Max):
            self._operands[value] = "min" if isinstance(e, Min) else "max", [self.expr(arg) for arg in e.args]
        self.bind(name, value)

    def beside_numbers(self, value: Value, holds: Condition) -> Value:
        """What is named for the least, or the greatest, of several integers, without the numbers that it is not where
        ``holds``."""
        name, operands = self._operands.get(value, ("min", [value]))
        others: list[Value] = []
        for operand in operands:
            apart = self.values.sub(operand, value) if name == "min" else self.values.sub(value, operand)
            beyond = self.values.test(lambda p: self.cases.at_least(p, 1), apart)
            if self.values.number(operand) is None or not self.cases.implies(holds, beyond):
                others.append(operand)
        if not others or len(others) == len(operands):
            return value
        return reduce(lambda x, y: self.values.lift(partial(self.arithmetic.extreme, name), x, y), others)

    def ends(self, e: Expr) -> Interval:
        """Bounds of an expression that its form implies, whatever the arguments are: what LLVM knows of it, too."""
        match e:
            case Min(args) | Max(args):
                name = "min" if isinstance(e, Min) else "max"
                return reduce(lambda x, y: extreme_interval(name, x, y), map(self.ends, args))
            case Mod(_, n) if (n.constant or 0) > 0:
                return 0, (n.constant or 0) - 1
            case Sym(name):
                return self._ends.get(self.symbol(name), (None, None))
            case _:
                return e.constant, e.constant

    def restore(self, symbols: dict[str, Value]) -> None:
        """Names stand again for what they stood for."""
        self.symbols = symbols
        self._exprs, self._predicates = {}, {}

    def symbol(self, name: str) -> Value:
        """The integer bound to a symbol; a parameter where it is unbound."""
        found = self.symbols.get(name)
        if found is None:
            found = self.symbols[name] = parameter(self.values, name, *self.ranges.get(name, (0, MAX_EXTENT)))
        return found

    def expr(self, node: Expr, register: int | None = None) -> Value:
        """The value of an expression over the integers; ``register`` stands for ``r``."""
        if register is not None and t.REGISTER in node.symbols:
            node = node.substitute({t.REGISTER: Const(register)})
        found = self._exprs.get(node)
        if found is None:
            found = self._exprs[node] = self._evaluated(node)
        return found

    def _evaluated(self, node: Expr) -> Value:
        terms, values = self.terms, self.values
        match node:
            case Const(value):
                return terms.const(0, int(value))
            case Sym(name):
                return self.symbol(name)
            case Sum(offset, parts):
                total: Value = terms.const(0, offset)
                for part, c in parts:
                    total = values.add(total, values.scale(self.expr(part), c))
                return total
            case Product(factors):
                total = self.expr(factors[0])
                for factor in factors[1:]:
                    total = values.mul(total, self.expr(factor))
                return total
            case FloorDiv(x, y):
                return self.quotient(self.expr(x), self.expr(y))
            case Mod(x, y):
                n, d = self.expr(x), self.expr(y)
                rest = values.sub(n, values.mul(self.quotient(n, d), d))
                return values.lift(lambda p: without_upper(terms, p), rest)
            case Min(args) | Max(args):
                name = "min" if isinstance(node, Min) else "max"
                total = self.expr(args[0])
                for arg in args[1:]:
                    total = values.lift(lambda p, q: self.arithmetic.extreme(name, p, q), total, self.expr(arg))
                return total
            case Xor(args):
                total = self.expr(args[0])
                for arg in args[1:]:
                    total = values.lift(self._xor, total, self.expr(arg))
                return total
            case Compare() | All() | Any_() | Not():
                return self.arithmetic.as_word(self.predicate(node), 0)
            case _:
                raise Undecided(f"expression {node}")

    def quotient(self, x: Value, y: Value) -> Value:
        def divide(p: Poly, q: Poly) -> Poly:
            number = self.terms.number(q)
            if number is not None and number > 0:
                return self.terms.floordiv(p, number)
            return self.arithmetic.divided(p, q)

        return self.values.lift(divide, x, y)

    def _xor(self, x: Poly, y: Poly) -> Poly:
        words = (self.terms.resize(x, 32), self.terms.resize(y, 32))
        return self.terms.resize(self.arithmetic.bitwise("xor", *words), 0)

    def predicate(self, node: Expr, register: int | None = None) -> Condition:
        """The condition of a predicate."""
        if register is not None and t.REGISTER in node.symbols:
            node = node.substitute({t.REGISTER: Const(register)})
        found = self._predicates.get(node)
        if found is None:
            found = self._predicates[node] = self._tested(node)
        return found

    def _tested(self, node: Expr) -> Condition:
        cases, values = self.cases, self.values
        match node:
            case Const(value):
                return cases.true if value else 0
            case Compare(op, x, y):
                p, q = self.expr(x), self.expr(y)
                if op in (">", "<="):
                    p, q = q, p
                if op in ("==", "!="):
                    found = values.test(cases.equal, p, q)
                    return found if op == "==" else cases.negate(found)
                found = values.test(cases.less, p, q)
                return found if op in ("<", ">") else cases.negate(found)
            case All(args):
                return cases.all(self.predicate(x) for x in args)
            case Any_(args):
                return cases.any(self.predicate(x) for x in args)
            case Not(x):
                return cases.negate(self.predicate(x))
            case _:
                return values.test(lambda p: cases.negate(cases.zero(p)), self.expr(node))

    # -- events ---------------------------------------------------------------------------------------------------
    def where(self, op: Operation) -> str:
        """The source line, for messages."""
        loc = getattr(op, "loc", None)
        return f"{op.name}{f' at {loc.data}' if loc is not None else ''}"

    def next(self) -> int:
        """The place of the next event."""
        self.order += 1
        return self.order

    def event(self, op: Operation, kind: str, *operands: Operand, holds: Condition | None = None) -> Event | None:
        """Adds an event; None where it never happens."""
        condition = self.holds if holds is None else self.cases.both(self.holds, holds)
        if condition == 0:
            return None
        made = Event(kind, condition, operands, self.where(op), self.next(), NOTHING)
        self.region.events.append(made)
        return made

    def synchronised(self, event: Event | None) -> None:
        """From here on writes of other threads may be visible: writes before the synchronisation, or writes that an
        arrival of this thread permitted by signalling that it has read the old contents."""
        if event is None:
            return
        self.marks[event.order] = event
        for name in self.states:
            after = self.terms.of(0, self.terms.atom("after", "ir", event.order, low=0))
            self.states[name] = self.values.select(self.holds, after, self.states[name])

    def stored(self, tensor: str, holds: Condition) -> None:
        """A tensor has other contents from here on, where ``holds``."""
        if tensor in self.states and self.region.events and holds != 0:
            event = self.region.events[-1]
            self.marks[event.order] = event
            self.before[event.order] = self.states[tensor]
            after = self.terms.of(0, self.terms.atom("stored", "ir", event.order, low=0))
            self.states[tensor] = self.values.select(holds, after, self.states[tensor])

    def word(self, value: int) -> Poly:
        """A 32-bit constant."""
        return self.terms.const(32, value)

    # -- ops ------------------------------------------------------------------------------------------------------
    def op(self, op: Operation) -> None:
        """One op."""
        handler = self.handlers.get(type(op))
        if handler is None:
            raise Undecided(f"op {op.name}")
        handler(self, op)

    def under(self, condition: Condition, run: Callable[[], None]) -> None:
        """Runs what only happens where ``condition`` holds."""
        outer = self.holds
        inner = self.cases.both(outer, condition)
        if inner == 0:
            return
        buffers, states = {b: list(v) for b, v in self.buffers.items()}, dict(self.states)
        symbols = dict(self.symbols)
        self.holds = inner
        run()
        self.holds = outer
        if condition == self.cases.true:
            return
        for buffer, before in buffers.items():
            now = self.buffers[buffer]
            self.buffers[buffer] = [
                n if n is o else self.values.select(condition, n, o) for n, o in zip(now, before, strict=True)
            ]
        for name, before in states.items():
            self.states[name] = self.values.select(condition, self.states[name], before)
        for name, before in symbols.items():
            now = self.symbols[name]
            if now is not before and name in self.counters:
                self.symbols[name] = self.values.select(condition, now, before)
        self._exprs, self._predicates = {}, {}

    counters: frozenset[str] = frozenset()
    periodic: frozenset[str] = frozenset()
    """Counters of which the text keeps a remainder between programs that are drawn."""

    def bounded(self, value: Value, low: int, high: int) -> None:
        """Notes what every launch keeps."""
        self.never_negative(self.values.sub(value, self.terms.const(0, low)))
        self.never_negative(self.values.sub(self.terms.const(0, high), value))
        for _, p in self.values.parts(value):  # each counts iterations of loops that run only where it holds
            self.terms.bound(p, low, high)

    def never_negative(self, value: Value) -> None:
        """Notes what holds in the present region."""
        self.facts.setdefault(self.loops[-1] if self.loops else "kernel", []).extend(self.values.parts(value))

    def below(self, value: Value, extent: Value) -> None:
        """Notes that 0 <= value < extent."""
        self.never_negative(value)
        self.never_negative(self.values.sub(self.values.sub(extent, self.terms.const(0, 1)), value))
        most = self.values.number(extent)
        if most is not None and isinstance(value, Poly):
            self.terms.bound(value, 0, most - 1)

    def moved(self, tensor: str, offset: Value, size: int) -> None:
        """Notes that an op moves some bytes at once, which the IR's proofs show to be aligned."""
        for _, base in self.values.parts(offset):
            self.vectors[tensor, base] = max(size, self.vectors.get((tensor, base), 0))

    # -- mbarriers ------------------------------------------------------------------------------------------------
    def place(self, buffer: SSAValue, offset: Value) -> Value:
        """The address of a byte of a shared buffer."""
        return self.values.add(self.origin(buffer), offset)

    def origin(self, buffer: SSAValue) -> Value:
        """The address of a shared buffer, or of an array of mbarriers."""
        owner = buffer.owner
        assert isinstance(owner, t.Shared | a.Mbarriers)
        if owner.offset is None:
            return self.terms.shared_variable(self.launch.shared_names.get(buffer, f"{owner.hint.data} of the IR"))
        return self.values.add(self.base, self.terms.const(0, owner.offset.data))

    def is_declared(self, buffer: SSAValue) -> bool:
        """Whether the PTX has memory for a shared buffer."""
        owner = buffer.owner
        return buffer in self.launch.shared_names or (isinstance(owner, t.Shared) and owner.offset is not None)

    def bar(self, bars: SSAValue, index: Value) -> Value:
        """The address of an mbarrier."""
        return self.place(bars, self.values.scale(index, 8))

    # -- tensors --------------------------------------------------------------------------------------------------
    def offset(self, tensor: SSAValue, coords: Sequence[Value]) -> Value:
        """The offset of an element in bytes."""
        name = self.tensors[tensor]
        total: Value = self.terms.const(0, 0)
        for i, coord in enumerate(coords):
            total = self.values.add(total, self.values.mul(coord, self.symbol(f"{name}.stride{i}")))
        joined = self.values.lift(lambda p: self.terms.make(0, self.terms.joined(0, dict(p.terms))), total)
        return self.values.scale(joined, self.memory.element_bytes[name])  # a quotient and what it leaves are the whole
