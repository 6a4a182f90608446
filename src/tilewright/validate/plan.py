"""Transport IR to regions of events: what each op says happens, in the form that PTX is brought to.

Nothing here is shared with the code generator: the meaning of an op is taken from its documentation in ``transport``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.dtypes import DType
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
from tilewright.tile.dialect import TensorType, TileType
from tilewright.tile.ops import ops_in
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.cases import Condition
from tilewright.validate.loops import Iterations
from tilewright.validate.memory import SHARED, Memory
from tilewright.validate.needs import Fact
from tilewright.validate.regions import NOTHING, Access, Carried, Event, Operand, Region
from tilewright.validate.scalars import Scalar, Scalars
from tilewright.validate.terms import Poly, Terms
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Choice, Value, Values


@dataclass(frozen=True)
class Launch:
    """What a launch gives: its grid, how many CTAs that is at most, the value of %nctaid.x, and the PTX names of static
    shared buffers."""

    grid: Expr
    most_ctas: int
    ctas: Value
    shared_names: Mapping[SSAValue, str]


class Plan:
    """Evaluates one kernel of Transport IR."""

    def __init__(
        self,
        kernel: t.Kernel,
        values: Values,
        launch: Launch,
        element_bytes: Mapping[str, int],
        versioned: frozenset[str],
        library: Callable[[str, Value], Value],
    ):
        self.kernel, self.launch = kernel, launch
        self.values, self.terms, self.cases = values, values.terms, values.cases
        self.arithmetic = Arithmetic(values)
        self.floats = self.arithmetic.floats
        self.iterations = Iterations(values)
        self.memory = Memory(values, element_bytes)
        self.scalars = Scalars(self.arithmetic, library)
        self.symbols: dict[str, Value] = {}
        self.ranges = _ranges(kernel, launch.grid)
        self.buffers: dict[SSAValue, list[Value]] = {}
        self.names: dict[SSAValue, str] = {}
        self.tensors: dict[SSAValue, str] = {}
        self.states: dict[str, Value] = {
            name: self.terms.of(0, self.terms.atom("start", name, low=0)) for name in sorted(versioned)
        }
        self.marks: dict[int, Event] = {}
        self.order = 0
        self.holds: Condition = self.cases.true
        self.role: a.Role | None = None
        self.roles = 0
        self.regions: dict[Operation, str] = {}
        self.conditions: dict[str, Condition] = {}
        """By loop: where its next iteration is made, in an iteration."""
        self.facts: dict[str, list[Fact]] = {}
        """By region, what is known in it: by the bounds that a launch keeps, of the coordinates of programs, of the
        counters of loops."""
        self.scope = "kernel"
        self.region = Region("kernel", self.cases.true, 0, kernel.sym_name.data)
        self._exprs: dict[Expr, Value] = {}
        self._predicates: dict[Expr, Condition] = {}

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> Region:
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
                case _:
                    pass
        self.bind(t.THREAD, self.terms.table(0, np.arange(self.kernel.threads.data)))
        if self.kernel.shared_bytes is not None:
            start = self.terms.of(0, self.terms.atom("shared_variable", "dynamic_shared", low=0, high=(1 << 18) - 1))
            align = t.SHARED_BASE_ALIGN_BYTES
            up = self.terms.floordiv(self.terms.add(start, self.terms.const(0, align - 1)), align)
            self.base = self.terms.scale(up, align)
        self.block(body)
        return self.region

    def block(self, block: Block) -> None:
        """Runs the ops of a block."""
        for op in ops_in(block):
            self.op(op)

    # -- symbols --------------------------------------------------------------------------------------------------
    def bind(self, name: str, value: Value) -> None:
        """Names an integer."""
        self.symbols[name] = value
        self._exprs, self._predicates = {}, {}

    def symbol(self, name: str) -> Value:
        """The integer that a symbol stands for; a parameter where nothing binds it."""
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
                return self._quotient(self.expr(x), self.expr(y))
            case Mod(x, y):
                n, d = self.expr(x), self.expr(y)
                return values.sub(n, values.mul(self._quotient(n, d), d))
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

    def _quotient(self, x: Value, y: Value) -> Value:
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
        """The condition that a predicate says."""
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
        """For messages."""
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
        """What other threads wrote may be seen from here on."""
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
            after = self.terms.of(0, self.terms.atom("stored", "ir", event.order, low=0))
            self.states[tensor] = self.values.select(holds, after, self.states[tensor])

    def word(self, value: int) -> Poly:
        """A 32-bit constant."""
        return self.terms.const(32, value)

    # -- ops ------------------------------------------------------------------------------------------------------
    def op(self, op: Operation) -> None:
        """One op."""
        handler: Callable[[Operation], None] | None = _HANDLERS.get(type(op))  # pyright: ignore
        if handler is None:
            raise Undecided(f"op {op.name}")
        handler(self, op)  # pyright: ignore

    # -- control --------------------------------------------------------------------------------------------------
    def let(self, op: t.Let) -> None:
        """A name for an integer."""
        self.bind(op.symbol.data, self.expr(op.value.expr))

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

    def branch(self, op: t.If) -> None:
        """then or else."""
        condition = self.predicate(op.condition.expr)
        self.under(condition, lambda: self.block(op.then.block))
        if not op.otherwise.block.is_empty:
            self.under(self.cases.negate(condition), lambda: self.block(op.otherwise.block))

    def in_role(self, op: a.Role) -> None:
        """Threads of one role."""
        first, threads = op.first.data, op.threads.data
        number = np.arange(self.kernel.threads.data)
        inside = self.cases.threads_where((number >= first) & (number < first + threads))
        saved = dict(self.symbols)
        self.role = op
        own = np.where((number >= first) & (number < first + threads), number - first, 0)  # others don't run the body
        self.bind(t.THREAD, self.terms.table(0, own))
        self.bind(a.WARPGROUP, self.terms.table(0, own // a.WARPGROUP_THREADS))
        self.under(inside, lambda: self.block(op.body.block))
        self.symbols = saved
        self._exprs, self._predicates = {}, {}
        self.role = None
        self.roles += 1

    def elected(self, op: a.Elected) -> None:
        """The first thread of every warpgroup of the role, or of the CTA."""
        first = 0 if self.role is None else self.role.first.data
        number = np.arange(self.kernel.threads.data) - first
        one = number % a.WARPGROUP_THREADS == 0 if self.role is not None else number == 0
        self.under(self.cases.threads_where(one), lambda: self.block(op.body.block))

    def counter(self, op: a.Counter) -> None:
        """A carried integer."""
        self.counters |= {op.symbol.data}
        self.bind(op.symbol.data, self.terms.const(0, op.start.data))

    def advance(self, op: a.Advance) -> None:
        """Adds to a carried integer."""
        name = op.symbol.data
        self.bind(name, self.values.add(self.symbol(name), self.expr(op.by.expr)))

    def programs(self, op: t.Programs) -> None:
        """The programs of a CTA."""
        names = [n.data for n in op.names]
        extents = [self.expr(e.expr) for e in op.extents]
        if not names:
            self.block(op.body.block)
            return
        (rows, columns), values, terms = op.cluster_shape, self.values, self.terms
        clusters = rows * columns
        counted = list(extents)
        if op.cluster is not None:
            counted[-2:] = [
                values.lift(lambda x, n=n: terms.floordiv(x, n), e)
                for e, n in zip(extents[-2:], op.cluster_shape, strict=True)
            ]
        total: Value = terms.const(0, 1)
        for extent in counted:
            total = values.mul(total, extent)
        high = terms.interval(total)[1] if isinstance(total, Poly) else None
        most = (1 << 31) - 2 if high is None or op.persistent.data else min(high * clusters - 1, (1 << 31) - 2)
        cta = terms.of(0, terms.atom("ctaid", low=0, high=max(min(most, self.launch.most_ctas - 1), 0)))
        cluster = values.lift(lambda x: terms.floordiv(x, clusters), cta)
        self.bounded(total, 0, MAX_EXTENT if op.persistent.data else (1 << 31) - 1)
        if not op.persistent.data:
            self.conditions["kernel"] = values.test(self.cases.less, cluster, total)
            self._named(op, cluster, counted, extents)
            self.block(op.body.block)
            return
        first, step = op.turns
        stride = values.lift(lambda x: terms.floordiv(x, clusters), values.resize(self.launch.ctas, 0))
        begin = values.add(cluster, values.scale(stride, first))
        by = values.scale(stride, step)

        def bind(program: Value) -> None:
            self._named(op, program, counted, extents)

        self.loop(op, begin, by, total, bind)

    def bounded(self, value: Value, low: int, high: int) -> None:
        """Notes what every launch keeps."""
        self.never_negative(self.values.sub(value, self.terms.const(0, low)))
        self.never_negative(self.values.sub(self.terms.const(0, high), value))
        for _, p in self.values.parts(value):  # each counts iterations of loops that run only where it holds
            self.terms.bound(p, low, high)

    def never_negative(self, value: Value) -> None:
        """Notes what holds in the present region."""
        self.facts.setdefault(self.scope, []).extend(self.values.parts(value))

    def below(self, value: Value, extent: Value) -> None:
        """Notes that 0 <= value < extent."""
        self.never_negative(value)
        self.never_negative(self.values.sub(self.values.sub(extent, self.terms.const(0, 1)), value))

    def _named(self, op: t.Programs, program: Value, counted: Sequence[Value], extents: Sequence[Value]) -> None:
        """The coordinates of a program: the last fastest, or in bands; downwards; with the place in a cluster."""
        values, count = self.values, len(counted)
        found: list[Value] = [program] * count
        rest = program
        start = count
        if op.group is not None:
            rows, columns = counted[-2:]
            matrix = values.mul(rows, columns)
            if count > 2:
                rest = self._quotient(program, matrix)
                place = values.sub(program, values.mul(rest, matrix))
            else:
                rest = place = program
            group = op.group.data
            band = self._quotient(place, values.scale(columns, group))
            first = values.scale(band, group)
            height = values.lift(
                lambda p, q: self.arithmetic.extreme("min", p, q),
                self.terms.const(0, group),
                values.sub(rows, first),
            )
            inside = values.sub(place, values.mul(first, columns))
            column = self._quotient(inside, height)
            # of 0 <= place < rows * columns: first is the last multiple of the group at or above place's row
            self.below(place, matrix)
            self.below(first, rows)
            self.below(inside, values.mul(height, columns))
            found[-2] = values.add(first, values.sub(inside, values.mul(column, height)))
            found[-1] = column
            start = count - 2
        for i in reversed(range(start)):
            if i == 0:
                found[0] = rest
                break
            above = self._quotient(rest, counted[i])
            found[i] = values.sub(rest, values.mul(above, counted[i]))
            rest = above
        if op.cluster is not None:
            rank = self.terms.of(0, self.terms.atom("cta_rank", low=0, high=15))
            self.bind(a.CTA_RANK, rank)
            row = self.terms.floordiv(rank, op.cluster_shape[1])
            column = self.terms.sub(rank, self.terms.scale(row, op.cluster_shape[1]))
            for i, size, at in ((-2, op.cluster_shape[0], row), (-1, op.cluster_shape[1], column)):
                found[i] = values.add(values.scale(found[i], size), at)
        for coordinate, extent in zip(found, counted, strict=True):
            self.below(coordinate, extent)
        for i, name in enumerate(n.data for n in op.names):
            if name in op.downwards:
                found[i] = values.sub(values.sub(extents[i], self.terms.const(0, 1)), found[i])
            self.bind(name, found[i])

    def repeat(self, op: t.For) -> None:
        """A loop."""
        begin, end, step = (self.expr(e.expr) for e in (op.begin, op.end, op.step))
        if self._once(op):
            self.bind(op.counter.data, begin)
            self.block(op.body.block)
            return
        self.loop(op, begin, step, end, lambda value: self.bind(op.counter.data, value))

    def _once(self, op: t.For) -> bool:
        """The loop makes one iteration, whatever the arguments."""
        begin, end, step = (self.values.number(self.expr(e.expr)) for e in (op.begin, op.end, op.step))
        return begin is not None and end is not None and step is not None and begin < end <= begin + step

    def loop(
        self, op: t.For | t.Programs, begin: Value, step: Value, end: Value, bind: Callable[[Value], None]
    ) -> None:
        """The region of a loop over ``begin, begin + step, ...`` below ``end``; ``bind`` names the present one."""
        values, cases, terms = self.values, self.cases, self.terms
        name = self.regions.setdefault(op, f"loop{len(self.regions)}")
        outer, outer_holds = self.region, self.holds
        saved = dict(self.symbols)
        count = self.iterations.count(name)
        present = values.add(begin, values.mul(step, count))
        following = values.add(present, step)
        runs = values.test(cases.less, begin, end)
        region = Region(name, cases.both(outer_holds, runs), self.next(), self.where(op), around=outer_holds)
        self.conditions[name] = values.test(cases.less, present, end)
        region.again = values.test(cases.less, following, end)
        outer_scope, self.scope = self.scope, name
        self.never_negative(values.sub(values.sub(end, terms.const(0, 1)), present))
        least, most = (terms.interval(v)[k] if isinstance(v, Poly) else None for k, v in enumerate((begin, end)))
        if isinstance(present, Poly) and least == 0 and most is not None and most <= MAX_EXTENT:
            terms.bound(present, 0, MAX_EXTENT)  # wider than what ends the loop, which is compared
        # counters have closed forms
        bind(present)
        steps = {c: self._advanced(op.body.block, c) for c in sorted(self.counters)}
        starts = {c: self.symbols[c] for c in steps}
        for c, by in steps.items():
            if by is None:
                continue
            closed = self.iterations.closed(name, starts[c], by)
            if closed is None:
                raise Undecided(f"counter {c}")
            self.bind(c, closed)
            self.bounded(closed, 0, MAX_EXTENT)
        # buffers and contents of memory are carried where the body writes them
        written = _written(op.body.block)
        before = {b: list(self.buffers[b]) for b in written if b in self.buffers}
        states = dict(self.states)
        for buffer, elements in before.items():
            label = len(region.carried)
            self.buffers[buffer] = [
                terms.data(e.width, e.width, "carry", name, f"{label}.{k}") for k, e in enumerate(elements)
            ]
            for k, e in enumerate(elements):
                region.carried[f"{label}.{k}"] = Carried(e)
        for state in states:
            self.states[state] = terms.of(0, terms.atom("carry", name, f"@{state}", low=0))
            region.carried[f"@{state}"] = Carried(states[state])
        labels = {b: list(self.buffers[b]) for b in before}
        self.region, self.holds = region, cases.true
        self.block(op.body.block)
        self.region, self.holds, self.scope = outer, outer_holds, outer_scope
        last = terms.sub(self.iterations.trips(name), terms.const(0, 1))
        for buffer in before:
            after: list[Value] = []
            for atom, now, old in zip(labels[buffer], self.buffers[buffer], before[buffer], strict=True):
                carried = _carried_name(self.terms, atom)
                region.carried[carried].next = now
                left = self.iterations.left(now, name, last)
                after.append(now if now is atom else values.select(runs, left, old))
                if now is atom:
                    after[-1] = old
            self.buffers[buffer] = after
        for state in states:
            region.carried[f"@{state}"].next = self.states[state]
            left = self.iterations.left(self.states[state], name, last)
            self.states[state] = values.select(runs, left, states[state])
        outer.loops.append(region)
        for c, by in steps.items():
            if by is None:
                continue
            behind = self.iterations.left(values.add(self._closed_again(name, starts[c], by), by), name, last)
            saved[c] = values.select(runs, behind, starts[c])
            self.bounded(behind, 0, MAX_EXTENT)
        self.symbols = saved
        self._exprs, self._predicates = {}, {}

    def _closed_again(self, name: str, start: Value, by: Value) -> Value:
        closed = self.iterations.closed(name, start, by)
        assert closed is not None
        return closed

    def _advanced(self, block: Block, counter: str) -> Value | None:
        """By how much one run of a block advances a counter; None where it does not."""
        total: Value | None = None
        for op in ops_in(block):
            by: Value | None = None
            if isinstance(op, a.Advance) and op.symbol.data == counter:
                by = self.expr(op.by.expr)
            elif isinstance(op, t.For):
                inner = self._advanced(op.body.block, counter)
                if inner is not None and self._once(op):
                    by = inner
                elif inner is not None:
                    name = self.regions.setdefault(op, f"loop{len(self.regions)}")
                    runs = self.values.test(self.cases.less, self.expr(op.begin.expr), self.expr(op.end.expr))
                    if self.iterations.varies(inner, name):
                        raise Undecided(f"counter {counter}")
                    times = self.values.mul(inner, self.iterations.trips(name))
                    by = self.values.select(runs, times, self.terms.const(0, 0))
            elif isinstance(op, t.Let):
                self.bind(op.symbol.data, self.expr(op.value.expr))
            elif isinstance(op, t.If | a.Elected | t.Programs):
                for region in op.regions:
                    if any(isinstance(o, a.Advance) and o.symbol.data == counter for o in region.walk()):
                        if not isinstance(op, a.Elected):
                            raise Undecided(f"counter {counter} in a branch")
                        by = self._advanced(region.block, counter)
            if by is not None:
                total = by if total is None else self.values.add(total, by)
        return total

    # -- barriers -------------------------------------------------------------------------------------------------
    def barrier(self, op: t.Barrier) -> None:
        """All threads of the CTA, in a role those of the role."""
        if self.role is None:
            number, threads = 0, self.kernel.threads.data
        else:
            number, threads = a.role_barrier(self.roles), self.role.threads.data
        self.synchronised(self.event(op, "bar.sync", self.word(number), self.word(threads)))

    def named(self, op: a.NamedBarrierSync | a.NamedBarrierArrive) -> None:
        """A named barrier."""
        kind = "bar.sync" if isinstance(op, a.NamedBarrierSync) else "bar.arrive"
        number = self.values.resize(self.expr(op.id.expr), 32)
        self.synchronised(self.event(op, kind, number, self.word(op.threads.data)))

    def warp_barrier(self, op: t.WarpBarrier) -> None:
        """The warp."""
        self.synchronised(self.event(op, "bar.warp.sync", self.word(-1)))

    def plain(self, op: Operation) -> None:
        """Ops that are one instruction without operands."""
        event = self.event(op, _PLAIN[type(op)])
        if type(op) in (a.ClusterArrive, a.ClusterWait):
            self.synchronised(event)

    def set_registers(self, op: a.SetMaxRegisters) -> None:
        """setmaxnreg: up or down from what a thread has at launch."""
        way = "dec" if op.count.data <= 65536 // self.kernel.threads.data else "inc"
        self.event(op, f"setmaxnreg.{way}", self.word(op.count.data))

    # -- mbarriers ------------------------------------------------------------------------------------------------
    def place(self, buffer: SSAValue, offset: Value) -> Value:
        """The address of a byte of a shared buffer."""
        return self.values.add(self.origin(buffer), offset)

    def origin(self, buffer: SSAValue) -> Value:
        """The address of a shared buffer, or of an array of mbarriers."""
        owner = buffer.owner
        assert isinstance(owner, t.Shared | a.Mbarriers)
        if owner.offset is None:
            name = self.launch.shared_names[buffer]
            return self.terms.of(0, self.terms.atom("shared_variable", name, low=0, high=(1 << 18) - 1))
        return self.values.add(self.base, self.terms.const(0, owner.offset.data))

    def bar(self, bars: SSAValue, index: Value) -> Value:
        """The address of an mbarrier."""
        return self.place(bars, self.values.scale(index, 8))

    def mbarrier_init(self, op: a.MbarrierInit) -> None:
        """Every barrier of the array."""
        kind = a.mbarriers_of(op.bars)
        for slot in range(kind.slots.data):
            self.event(op, "mbarrier.init", self.bar(op.bars, self.terms.const(0, slot)), self.word(kind.count.data))

    def mbarrier_arrive(self, op: a.MbarrierArrive) -> None:
        """An arrival, here or at a peer."""
        at = self.bar(op.bars, self.expr(op.index.expr))
        if op.cta is None:
            self.event(op, "mbarrier.arrive", at)
        else:
            self.event(op, "mbarrier.arrive.remote", at, self.expr(op.cta.expr))

    def mbarrier_expect(self, op: a.MbarrierArriveExpectTx) -> None:
        """An arrival that expects bytes."""
        at = self.bar(op.bars, self.expr(op.index.expr))
        self.event(op, "mbarrier.expect_tx", at, self.word(op.bytes.data))

    def mbarrier_wait(self, op: a.MbarrierWait) -> None:
        """A wait for a phase."""
        at = self.bar(op.bars, self.expr(op.index.expr))
        self.synchronised(self.event(op, "mbarrier.wait", at, self.values.resize(self.expr(op.parity.expr), 32)))

    # -- asynchronous copies --------------------------------------------------------------------------------------
    def tma_load(self, op: a.TmaLoad) -> None:
        """A box into shared memory."""
        coords = [self.values.resize(self.expr(c.expr), 32) for c in op.coords]
        to, bar = self.place(op.shared, self.expr(op.offset.expr)), self.bar(op.bars, self.expr(op.index.expr))
        mask: Value | None = None
        if op.ctas:
            total: Value = self.word(0)
            for rank in op.ctas:
                bit = self.values.lift(
                    lambda x: self.arithmetic.shift("shl", self.word(1), x, signed=True),
                    self.values.resize(self.expr(rank.expr), 32),
                )
                total = self.values.lift(lambda x, y: self.arithmetic.bitwise("or", x, y), total, bit)
            mask = self.values.field(total, 0, 16, 16)
        self.event(op, "tma.load", self._map(op), to, bar, mask, *coords)

    def tma_store(self, op: a.TmaStore) -> None:
        """A box from shared memory."""
        coords = [self.values.resize(self.expr(c.expr), 32) for c in op.coords]
        self.event(op, "tma.store", self._map(op), self.place(op.shared, self.expr(op.offset.expr)), *coords)

    def _map(self, op: a.TmaLoad | a.TmaStore) -> str:
        owner = op.map.owner
        assert isinstance(owner, a.TensorMap)
        return owner.hint.data

    def bulk_wait(self, op: a.BulkWait) -> None:
        """cp.async.bulk.wait_group."""
        read = ".read" if op.read.data else ""
        self.event(op, f"cp.async.bulk.wait_group{read}", self.word(op.pending.data))

    def thread_copies(self, op: a.CpAsync | a.LoadStore) -> None:
        """Copies into shared memory."""
        name, size = self.tensors[op.tensor], op.copy_bytes
        element = self.memory.element_bytes[name]
        loaded: list[tuple[int, Value]] = []
        order = self.next()
        for r in range(op.count.data):
            active = self.cases.both(self.holds, self.predicate(op.active.expr, r))
            guard = self.predicate(op.guard.expr, r)
            offset = self.offset(op.tensor, [self.expr(c.expr, r) for c in op.coords])
            left = self.values.sub(self.expr(op.stop.expr), self.expr(op.coords.data[op.axis.data].expr, r))
            to = self.place(op.shared, self.expr(op.offset.expr, r))
            if isinstance(op, a.CpAsync):
                read = self._read_bytes(left, op.vector.data, element)
                read = self.values.select(guard, read, self.word(0))
                base = self.terms.of(0, self.terms.atom("address", name, low=0))
                self.event(op, "cp.async", to, self.values.add(base, offset), size, read, holds=active)
                continue
            inside = self.cases.both(guard, self.values.test(lambda x: self.cases.at_least(x, 1), left))
            here = self.cases.both(active, inside)
            where = self.where(op)
            word = self.memory.load(self.region, here, name, offset, size, self.states.get(name), where, order, NOTHING)
            loaded.append((r, self.values.select(inside, word, self.terms.const(8 * size, 0))))
        for r, word in loaded:
            active = self.cases.both(self.holds, self.predicate(op.active.expr, r))
            to = self.place(op.shared, self.expr(op.offset.expr, r))
            where = self.where(op)
            self.memory.store(self.region, active, SHARED, to, size, word, where, self.next(), NOTHING)
        if loaded:
            self.stored(SHARED, self.holds)

    def _read_bytes(self, left: Value, vector: int, element: int) -> Value:
        """max(min(left, vector), 0) * element."""
        least = self.values.lift(lambda x: self.arithmetic.extreme("min", x, self.terms.const(0, vector)), left)
        least = self.values.lift(lambda x: self.arithmetic.extreme("max", x, self.terms.const(0, 0)), least)
        return self.values.resize(self.values.scale(least, element), 32)

    def zero_fill(self, op: a.ZeroFill) -> None:
        """Zeros, stored to shared memory."""
        for r in range(op.count.data):
            holds = self.cases.both(self.holds, self.predicate(op.guard.expr, r))
            to, size = self.place(op.shared, self.expr(op.offset.expr, r)), op.store_bytes
            zero = self.terms.const(8 * size, 0)
            self.memory.store(self.region, holds, SHARED, to, size, zero, self.where(op), self.next(), NOTHING)
        self.stored(SHARED, self.holds)

    def copy_out(self, op: a.CopyOut) -> None:
        """Copies from shared memory to a tensor, of the elements before ``stop``."""
        name, size = self.tensors[op.tensor], op.copy_bytes
        element = self.memory.element_bytes[name]
        words: list[Value] = []
        order = self.next()
        for r in range(op.count.data):
            at = self.place(op.shared, self.expr(op.offset.expr, r))
            words.append(
                self.memory.load(
                    self.region, self.holds, SHARED, at, size, self.states.get(SHARED), self.where(op), order, NOTHING
                )
            )
        order = self.next()
        for r, word in enumerate(words):
            guard = self.cases.both(self.predicate(op.active.expr, r), self.predicate(op.guard.expr, r))
            coords = [self.expr(c.expr, r) for c in op.coords]
            left = self.values.sub(self.expr(op.stop.expr), coords[op.axis.data])
            for k in range(op.vector.data):
                place = list(coords)
                place[op.axis.data] = self.values.add(place[op.axis.data], self.terms.const(0, k))
                inside = self.values.test(lambda x, k=k: self.cases.at_least(x, k + 1), left)
                here = self.cases.both(self.holds, self.cases.both(guard, inside))
                value = self.values.field(word, 8 * element * k, 8 * element, 8 * element)
                self._store_element(op, name, self.offset(op.tensor, place), value, here, order)
        self.stored(name, self.holds)

    def cp_async_arrive(self, op: a.CpAsyncMbarrierArrive) -> None:
        """An arrival when earlier cp.async are done."""
        self.event(op, "cp.async.mbarrier.noinc", self.bar(op.bars, self.expr(op.index.expr)))

    # -- tensors --------------------------------------------------------------------------------------------------
    def offset(self, tensor: SSAValue, coords: Sequence[Value]) -> Value:
        """The offset of an element in bytes."""
        name = self.tensors[tensor]
        total: Value = self.terms.const(0, 0)
        for i, coord in enumerate(coords):
            total = self.values.add(total, self.values.mul(coord, self.symbol(f"{name}.stride{i}")))
        return self.values.scale(total, self.memory.element_bytes[name])

    def _store_element(
        self, op: Operation, name: str, offset: Value, value: Value, holds: Condition, order: int, kind: str = "st"
    ) -> None:
        if holds != 0:
            size = self.memory.element_bytes[name]
            self.memory.store(self.region, holds, name, offset, size, value, self.where(op), order, NOTHING, kind)

    def access_offset(self, op: t.Load | t.Store | t.ReduceAdd, register: int) -> Value:
        """The offset of the element of a register."""
        return self.offset(op.tensor, [self.expr(c.expr, register) for c in op.coords])

    def load(self, op: t.Load) -> None:
        """Elements whose guard is false become 0; those that are not live are left open."""
        buffer, name = self.buffers[op.buffer], self.tensors[op.tensor]
        order = self.next()
        for r in range(len(buffer)):
            guard, live = self.predicate(op.guard.expr, r), self.predicate(op.live.expr, r)
            here = self.cases.both(self.holds, guard)
            width = buffer[r].width
            word: Value = self.terms.const(width, 0)
            if guard != 0:
                size = self.memory.element_bytes[name]
                offset = self.access_offset(op, r)
                state = self.states.get(name)
                found = self.memory.load(self.region, here, name, offset, size, state, self.where(op), order, NOTHING)
                word = self.values.select(guard, found, word)
            buffer[r] = self.values.select(live, word, self.values.anything(width))

    def store(self, op: t.Store) -> None:
        """Elements whose guard holds."""
        buffer, name = self.buffers[op.buffer], self.tensors[op.tensor]
        order, some = self.next(), 0
        for r, value in enumerate(buffer):
            here = self.cases.both(self.holds, self.predicate(op.guard.expr, r))
            self._store_element(op, name, self.access_offset(op, r), value, here, order)
            some = self.cases.either(some, here)
        self.stored(name, some)

    def reduce_add(self, op: t.ReduceAdd) -> None:
        """Atomic additions."""
        buffer, name = self.buffers[op.buffer], self.tensors[op.tensor]
        dtype = t.registers_of(op.buffer).dtype.dtype
        forms = {"f32": "add.f32", "i32": "add.u32", "i64": "add.u64", "bf16": "add.noftz.bf16", "f16": "add.noftz.f16"}
        order = self.next()
        for r, value in enumerate(buffer):
            here = self.cases.both(self.holds, self.predicate(op.guard.expr, r))
            self._store_element(op, name, self.access_offset(op, r), value, here, order, f"red.{forms[dtype.name]}")

    # -- shared memory --------------------------------------------------------------------------------------------
    def shared_write(self, op: t.SharedWrite) -> None:
        """Registers to shared memory."""
        buffer, dtype = self.buffers[op.buffer], t.shared_of(op.shared).dtype.dtype
        order, some = self.next(), 0
        for r, value in enumerate(buffer):
            first, within = r - r % op.vector.data, r % op.vector.data
            here = self.cases.both(self.holds, self.predicate(op.guard.expr, first))
            element = self.values.add(self.expr(op.offset.expr, first), self.terms.const(0, within))
            at = self.place(op.shared, self.values.scale(element, dtype.bytes))
            if here != 0:
                self.memory.store(self.region, here, SHARED, at, dtype.bytes, value, self.where(op), order, NOTHING)
            some = self.cases.either(some, here)
        self.stored(SHARED, some)

    def shared_read(self, op: t.SharedRead) -> None:
        """Shared memory to registers; those whose guard is false keep their value."""
        buffer, dtype = self.buffers[op.buffer], t.shared_of(op.shared).dtype.dtype
        order = self.next()
        for r, old in enumerate(list(buffer)):
            first, within = r - r % op.vector.data, r % op.vector.data
            guard = self.predicate(op.guard.expr, first)
            here = self.cases.both(self.holds, guard)
            if guard == 0:
                continue
            element = self.values.add(self.expr(op.offset.expr, first), self.terms.const(0, within))
            at = self.place(op.shared, self.values.scale(element, dtype.bytes))
            state = self.states.get(SHARED)
            word = self.memory.load(self.region, here, SHARED, at, dtype.bytes, state, self.where(op), order, NOTHING)
            buffer[r] = self.values.select(guard, word, old)

    # -- registers ------------------------------------------------------------------------------------------------
    def registers(self, op: t.Registers) -> None:
        """A buffer that nothing is known of."""
        kind = t.registers_of(op.buffer)
        width = storage_bits(kind.dtype.dtype)
        self.buffers[op.buffer] = [self.values.anything(width)] * kind.count.data

    def shared(self, op: t.Shared) -> None:
        """A declaration."""

    def map(self, op: t.Map) -> None:
        """Element-wise code."""
        outputs = [self.buffers[o] for o in op.outputs]
        dtypes = [t.registers_of(o).dtype.dtype for o in op.outputs]
        inputs = [
            (self.buffers[i], t.registers_of(i).dtype.dtype, read.expr)
            for i, read in zip(op.inputs, op.reads, strict=True)
        ]
        scalars = self._arguments()
        for r in range(op.count.data):
            live = self.predicate(op.live.expr, r)
            here = self.cases.both(live, self.holds)
            if here == 0:
                results: list[Value] = [self.values.anything(storage_bits(d)) for d in dtypes]
            else:
                given: dict[SSAValue, Scalar] = dict(scalars)
                for arg, (buffer, dtype, read) in zip(op.body.block.args, inputs, strict=True):
                    index = self.values.number(self.expr(read, r))
                    if index is None:
                        raise Undecided("a register that varies", self.where(op))
                    given[arg] = self.scalars.unpack(dtype, self.values.within(buffer[index], here))
                yielded = self.scalars.body(
                    op.body.block,
                    given,
                    lambda node, r=r: self.expr(node, r),
                    lambda node, r=r: self.predicate(node, r),
                )
                packed = [self.scalars.pack(d, v) for d, v in zip(dtypes, yielded, strict=True)]
                results = [self.values.select(live, v, self.values.anything(v.width)) for v in packed]
            for buffer, value in zip(outputs, results, strict=True):
                buffer[r] = value

    def _arguments(self) -> dict[SSAValue, Scalar]:
        """The kernel's scalar arguments."""
        found: dict[SSAValue, Scalar] = {}
        for arg, name in self.names.items():
            if isinstance(arg.type, TensorType):
                continue
            assert isinstance(arg.type, TileType)
            dtype = arg.type.dtype.dtype
            if dtype.is_float:
                found[arg] = scalar_parameter(self.values, name)
            else:
                found[arg] = self.values.resize(self.symbol(name), 64 if dtype.bits == 64 else 32)
        return found

    def fold(self, op: t.Fold) -> None:
        """Registers of a thread, in order."""
        sources, targets = [self.buffers[s] for s in op.sources], [self.buffers[s] for s in op.targets]
        dtypes = [t.registers_of(s).dtype.dtype for s in op.targets]
        taken = [t.registers_of(s).dtype.dtype for s in op.sources]
        for r in range(len(sources[0])):
            live = self.predicate(op.live.expr, r)
            if live == 0:
                continue
            into = self.values.number(self.expr(op.into.expr, r))
            if into is None:
                raise Undecided("a fold into a register that varies", self.where(op))
            here = self.cases.both(live, self.holds)
            new = [self.scalars.unpack(d, self.values.within(s[r], here)) for d, s in zip(taken, sources, strict=True)]
            old = [
                self.scalars.unpack(d, self.values.within(s[into], here)) for d, s in zip(dtypes, targets, strict=True)
            ]
            merged = self.combined(op.fn.data, dtypes, old, new)
            for d, target, value in zip(dtypes, targets, merged, strict=True):
                target[into] = self.values.select(live, self.scalars.pack(d, value), target[into])

    def combined(self, fn: str, dtypes: Sequence[DType], old: Sequence[Scalar], new: Sequence[Scalar]) -> list[Scalar]:
        """One step of a reduction: the new value comes second."""
        if fn != "argmax":
            value, exact = self.scalars.binary(fn, dtypes[0], old[0], new[0])
            if not exact and dtypes[0].is_int and dtypes[0].bits < 32:
                raise Undecided(f"{fn} of {dtypes[0]}")
            return [value]
        cases, compare, kind = self.cases, self.scalars.compare, dtypes[0]
        na, nb = compare("ne", kind, old[0], old[0]), compare("ne", kind, new[0], new[0])
        lower = compare("lt", dtypes[1], new[1], old[1])
        greater, same = compare("gt", kind, new[0], old[0]), compare("eq", kind, new[0], old[0])
        of_nans = cases.either(cases.negate(na), lower)
        of_numbers = cases.both(cases.negate(na), cases.either(greater, cases.both(same, lower)))
        take = cases.either(cases.both(nb, of_nans), cases.without(of_numbers, nb))
        return [self.values.select(take, n, o) for n, o in zip(new, old, strict=True)]  # pyright: ignore

    def shuffle(self, op: t.Shuffle) -> None:
        """A butterfly over lanes."""
        buffers = [self.buffers[b] for b in op.buffers]
        dtypes = [t.registers_of(b).dtype.dtype for b in op.buffers]
        for r in range(len(buffers[0])):
            for distance in (d.data for d in op.distances):
                old = [self.scalars.unpack(d, b[r]) for d, b in zip(dtypes, buffers, strict=True)]
                moved = [self.moved("bfly", b[r], self.word(distance)) for b in buffers]
                new = [self.scalars.unpack(d, m) for d, m in zip(dtypes, moved, strict=True)]
                for d, b, value in zip(dtypes, buffers, self.combined(op.fn.data, dtypes, old, new), strict=True):
                    b[r] = self.scalars.pack(d, value)

    def moved(self, mode: str, word: Value, lane: Value) -> Value:
        """shfl.sync of all lanes of a warp; words of 64 bits in halves."""
        rest = (lane, self.word(31), self.word(-1))
        if word.width == 64:
            halves = [
                self.terms.data(32, 32, f"shfl.{mode}", self.values.field(word, 32 * k, 32, 32), *rest) for k in (0, 1)
            ]
            low, high = (self.terms.resize(h, 64) for h in halves)
            return self.terms.add(low, self.terms.scale(high, 1 << 32))
        whole = self.values.field(word, 0, word.width, 32) if word.width < 32 else word
        found = self.terms.data(32, 32, f"shfl.{mode}", whole, *rest)
        return self.terms.field(found, 0, word.width, word.width)

    def pin(self, op: t.Pin) -> None:
        """Nothing happens."""

    # -- conversions ----------------------------------------------------------------------------------------------
    def picked(self, choices: Sequence[int], index: Value, of: Callable[[int], Value]) -> Value:
        """One of several by an index that depends on the thread."""
        if len(set(choices)) == 1:
            return of(choices[0])
        numbers = self.terms.per_thread(index) if isinstance(index, Poly) else None
        if numbers is None:
            raise Undecided("a pick that varies")
        by: dict[int, np.ndarray] = {}
        for place, choice in enumerate(choices):
            mask = numbers == place
            by[choice] = by.get(choice, np.zeros_like(mask)) | mask
        return self.values.choose([(self.cases.threads_where(mask), of(choice)) for choice, mask in by.items()])

    def select(self, op: t.Select) -> None:
        """Register moves."""
        source, target = self.buffers[op.source], self.buffers[op.target]
        elements = op.elements.data
        made: list[Value] = []
        for choices, index in zip(op.choices, op.indices, strict=True):
            starts = [c.data for c in choices]
            for e in range(elements):
                made.append(self.picked(starts, self.expr(index.expr), lambda first, e=e: source[first + e]))
        target[:] = made

    def exchange(self, op: t.Exchange) -> None:
        """Rounds of lane shuffles, then a select."""
        source, target, elements = self.buffers[op.source], self.buffers[op.target], op.elements.data
        bits = source[0].width
        per = max(1, 32 // bits)
        words = max(1, elements // per)
        size = bits * min(elements, per)
        rounds: list[list[Value]] = []
        home = self.terms.sub(self._thread(), self.terms.scale(self.terms.floordiv(self._thread(), 32), 32))
        for choices, index, lane in zip(op.sends, op.send_indices, op.lanes, strict=True):
            starts, at, to = [c.data for c in choices], self.expr(index.expr), self.expr(lane.expr)
            row: list[Value] = []
            for word in range(words):
                value = self.picked(starts, at, lambda first, word=word: self._word(source, first, word, elements))
                row.append(value if to is home else self._shuffled(value, to))
            rounds.append(row)
        made: list[Value] = []
        for choices, index in zip(op.taken, op.taken_indices, strict=True):
            for e in range(elements):
                word, within = (e // per, e % per) if elements >= per else (0, e)

                def element(k: int, word: int = word, within: int = within) -> Value:
                    return self.values.field(rounds[k][word], within * bits, bits, bits)

                made.append(self.picked([c.data for c in choices], self.expr(index.expr), element))
        del size
        target[:] = made

    def _shuffled(self, value: Value, lane: Value) -> Value:
        return self.moved("idx", value, self.values.resize(lane, 32))

    def _thread(self) -> Poly:
        found = self.symbols[t.THREAD]
        assert isinstance(found, Poly)
        return found

    def _word(self, source: Sequence[Value], first: int, word: int, elements: int) -> Value:
        """A word of a group of elements; a group smaller than a word in its low bits."""
        bits = source[0].width
        if bits >= 32:
            return source[first + word]
        per = 32 // bits
        count = min(per, elements)
        total: Value = self.word(0)
        for k in range(count):
            piece = self.values.field(source[first + word * per + k], 0, bits, 32)
            total = self.values.add(total, self.values.scale(piece, 1 << (k * bits)))
        return total

    # -- matrices -------------------------------------------------------------------------------------------------
    def matrices(self, op: a.StoreMatrix | a.LoadMatrix) -> None:
        """stmatrix and ldmatrix."""
        buffer, first, count = self.buffers[op.buffer], op.first.data, op.matrices.data
        form = f"x{count}{'.trans' if op.trans.data else ''}"
        at = self.place(op.shared, self.values.add(self.expr(op.base.expr), self.expr(op.offset.expr)))
        if isinstance(op, a.StoreMatrix):
            words = [self._word(buffer, first + 2 * k, 0, 2) for k in range(count)]
            self.event(op, "stmatrix", form, at, *words)
            self.stored(SHARED, self.holds)
            return
        state = self.states.get(SHARED)
        self.event(op, "ldmatrix", form, at, state)
        for k in range(count):
            word = self.terms.data(32, 32, "ldmatrix", form, k, at, state)
            for half in (0, 1):
                buffer[first + 2 * k + half] = self.terms.field(word, 16 * half, 16, 16)

    def wgmma(self, op: a.Wgmma) -> None:
        """One wgmma.mma_async."""
        n, kind = op.n.data, op.dtype.dtype
        accumulator, first = self.buffers[op.accumulator], op.first.data
        old = accumulator[first : first + n // 2]
        majors = [op.b_operand.data.major]
        if op.a_operand is not None:
            left = [self.descriptor(op.a_operand.data.template, op.a, self.expr(op.a_offset.expr))]
            majors.insert(0, op.a_operand.data.major)
        else:
            left = [self._word(self.buffers[op.a], op.a_register.data + 2 * k, 0, 2) for k in range(4)]
            if kind.bits != 16:
                raise Undecided("a left operand of bytes in registers", self.where(op))
        right = self.descriptor(op.b_operand.data.template, op.b, self.expr(op.b_offset.expr))
        flags = ["1", "1"] + ([str(m) for m in majors] if kind.bits == 16 else [])
        name = f"wgmma.m64n{n}k{256 // kind.bits}.f32.{kind.name}.{kind.name}"
        event = self.event(op, name, ",".join(flags), op.scale_d.data, right, *left, *old)
        if event is None:
            return
        self.marks[event.order] = event
        for k in range(n // 2):
            accumulator[first + k] = self.terms.data(32, 32, "result", "ir", event.order, k)

    def descriptor(self, template: int, buffer: SSAValue, offset: Value) -> Value:
        """A matrix descriptor: the address in 16 bytes in its low bits."""
        start = self.values.lift(lambda x: self.terms.floordiv(x, 16), self.place(buffer, offset))
        return self.values.add(self.terms.const(64, template), self.values.resize(start, 64))

    def wgmma_wait(self, op: a.WgmmaWait) -> None:
        """wgmma.wait_group."""
        self.event(op, "wgmma.wait_group", op.pending.data)

    def nothing(self, op: Operation) -> None:
        """Declarations."""


_PLAIN: dict[type[Operation], str] = {
    a.FenceProxyAsync: "fence.proxy.async.shared::cta",
    a.FenceMbarrierInit: "fence.mbarrier_init.release.cluster",
    a.ClusterArrive: "barrier.cluster.arrive.release",
    a.ClusterWait: "barrier.cluster.wait.acquire",
    a.BulkCommit: "cp.async.bulk.commit_group",
    a.WgmmaFence: "wgmma.fence",
    a.WgmmaCommit: "wgmma.commit_group",
}

_HANDLERS: dict[type[Operation], Callable[..., None]] = {
    t.Let: Plan.let,
    t.If: Plan.branch,
    t.For: Plan.repeat,
    t.Programs: Plan.programs,
    t.Barrier: Plan.barrier,
    t.WarpBarrier: Plan.warp_barrier,
    t.Registers: Plan.registers,
    t.Shared: Plan.shared,
    t.Load: Plan.load,
    t.Store: Plan.store,
    t.ReduceAdd: Plan.reduce_add,
    t.Map: Plan.map,
    t.Fold: Plan.fold,
    t.Pin: Plan.pin,
    t.Shuffle: Plan.shuffle,
    t.SharedWrite: Plan.shared_write,
    t.SharedRead: Plan.shared_read,
    t.Select: Plan.select,
    t.Exchange: Plan.exchange,
    a.Role: Plan.in_role,
    a.Elected: Plan.elected,
    a.Counter: Plan.counter,
    a.Advance: Plan.advance,
    a.SetMaxRegisters: Plan.set_registers,
    a.NamedBarrierSync: Plan.named,
    a.NamedBarrierArrive: Plan.named,
    a.Mbarriers: Plan.nothing,
    a.TensorMap: Plan.nothing,
    a.MbarrierInit: Plan.mbarrier_init,
    a.MbarrierArrive: Plan.mbarrier_arrive,
    a.MbarrierArriveExpectTx: Plan.mbarrier_expect,
    a.MbarrierWait: Plan.mbarrier_wait,
    a.TmaLoad: Plan.tma_load,
    a.TmaStore: Plan.tma_store,
    a.BulkWait: Plan.bulk_wait,
    a.CpAsync: Plan.thread_copies,
    a.LoadStore: Plan.thread_copies,
    a.ZeroFill: Plan.zero_fill,
    a.CopyOut: Plan.copy_out,
    a.CpAsyncMbarrierArrive: Plan.cp_async_arrive,
    a.StoreMatrix: Plan.matrices,
    a.LoadMatrix: Plan.matrices,
    a.Wgmma: Plan.wgmma,
    a.WgmmaWait: Plan.wgmma_wait,
    **dict.fromkeys(_PLAIN, Plan.plain),
}


def storage_bits(dtype: DType) -> int:
    """Bits of an element as a buffer holds it."""
    return max(8, dtype.bits)


def parameter(values: Values, name: str, low: int, high: int) -> Value:
    """An integer that a launch gives: an extent, a stride, a scalar, an address."""
    terms = values.terms
    if name.endswith(".address"):
        return terms.of(0, terms.atom("address", name.removesuffix(".address"), low=0))
    return terms.of(0, terms.atom("parameter", name, low=low, high=high))


def _ranges(kernel: t.Kernel, grid: Expr) -> dict[str, tuple[int, int]]:
    """What integers a launch may give: strides of the class's width, scalars of their dtype; extents from 0 on, or from
    1 where the grid has no programs for 0."""
    found: dict[str, tuple[int, int]] = dict.fromkeys(_at_least_one(grid), (1, MAX_EXTENT))
    wide = 1 << (kernel.index_bits.data - 1)
    for arg, name in zip(kernel.body.block.args, (n.data for n in kernel.arg_names), strict=True):
        if isinstance(arg.type, TensorType):
            found |= {f"{name}.stride{axis}": (-wide, wide - 1) for axis in range(len(arg.type.dims))}
        elif isinstance(arg.type, TileType) and arg.type.dtype.dtype.is_int:
            half = 1 << (arg.type.dtype.dtype.bits - 1)
            found[name] = (-half, half - 1)
    for fact in kernel.assumptions:
        match fact.expr:
            case Compare("<=" | "<" as op, Sym(name), Const(most)) if not name.endswith(".address"):
                low, high = found.get(name, (0, MAX_EXTENT))
                found[name] = low, min(high, most if op == "<=" else most - 1)
            case Compare("<=" | "<" as op, Const(least), Sym(name)) if not name.endswith(".address"):
                low, high = found.get(name, (0, MAX_EXTENT))
                found[name] = max(low, least if op == "<=" else least + 1), high
            case _:
                pass
    return found


def _at_least_one(grid: Expr) -> set[str]:
    """Extents that are not 0 where a number of programs made of them is not."""
    match grid:
        case Sym(name):
            return {name}
        case Product(args) | Min(args):
            return set[str]().union(*map(_at_least_one, args))
        case FloorDiv(Sum(offset, ((Sym(name), 1),)), Const(by)) if 0 <= offset < by:
            return {name}
        case _:
            return set()


def scalar_parameter(values: Values, name: str) -> Value:
    """A float that a launch gives."""
    return values.terms.data(32, 32, "scalar", name)


def _written(block: Block) -> dict[SSAValue, None]:
    """Register buffers that a block writes and doesn't declare."""
    found: dict[SSAValue, None] = {}
    declared: set[SSAValue] = set()
    for op in block.walk():
        match op:
            case t.Registers():
                declared.add(op.buffer)
            case t.Load() | t.SharedRead() | a.LoadMatrix():
                found[op.buffer] = None
            case t.Map():
                found |= dict.fromkeys(op.outputs)
            case t.Fold():
                found |= dict.fromkeys(op.targets)
            case t.Shuffle():
                found |= dict.fromkeys(op.buffers)
            case t.Select() | t.Exchange():
                found[op.target] = None
            case a.Wgmma():
                found[op.accumulator] = None
            case _:
                pass
    return {b: None for b in found if b not in declared}


def _carried_name(terms: Terms, value: Value) -> str:
    """What a region calls a variable that its loop carries."""
    atom = terms.single(value) if isinstance(value, Poly) else None
    assert atom is not None
    return str(atom.args[1])


__all__ = ["Access", "Choice", "Launch", "Plan"]
