"""Transport IR of threads that all do the same: their registers and shared memory, as terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import (
    OWN,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Sym,
    all_of,
    conjuncts,
    maximum,
    minimum,
    negate,
)
from tilewright.lang.enums import Numerics
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import TensorType, TileType
from tilewright.tile.dialect import index_symbol
from tilewright.tile.ops import OPEN_COUNTER, OPEN_TRIP, operations, ops_in
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.arithmetic import Combined, ElementFunctions, of_reals
from tilewright.validate.tile_to_transport.bounded_states import BoundedStates
from tilewright.validate.tile_to_transport.facts import SymbolFacts
from tilewright.validate.tile_to_transport.fingerprints import (
    COUNTED,
    Fingerprints,
    bins_of,
    fingerprints,
    key,
    mix,
    term,
    word,
)
from tilewright.validate.tile_to_transport.integers import ALWAYS, Bounds, Integers, Number, Numbers, merged
from tilewright.validate.tile_to_transport.recurrence import Claims, run_loop
from tilewright.validate.tile_to_transport.scalars import Body, Scalar, Widened
from tilewright.validate.tile_to_transport.segments import LoopSegment, StoredElements
from tilewright.validate.tile_to_transport.states import StateFunction
from tilewright.validate.tile_to_transport.values import Atoms, GuardedTerms, chosen, same, weight, where, without
from tilewright.validate.undecided import Undecided

_NOT_TOLD = key("not told")
"""A bound that nothing implies."""
MOST_REMAINDERS = 16
"""Of a division whose remainder is taken value by value."""
MOST_STEPS = 256
"""Of a loop that is taken step by step."""


def loaded(tensor: str, version: frozenset[str], coords: Sequence[Number]) -> Fingerprints:
    """The elements of a tensor at some coordinates, after the stores of ``version``."""
    total = fingerprints(key("tensor", tensor, tuple(sorted(version)))).reshape(())
    for axis, at in enumerate(coords):
        total = total + at.fingerprints * word(key("axis", axis))
    return mix(total, key("element"))


def is_gate(op: t.For) -> bool:
    """The loop of one step in which a kernel does what it does, of none where a promise is broken: that it is so, and
    that nothing is written outside, is proved of the text (``promise_gate``)."""
    return op.counter.data == OPEN_COUNTER and op.begin.expr == _ZERO and op.end.expr == OPEN_TRIP


def guard_of(op: t.Load | t.Store | t.AtomicReduce | a.ThreadCopies | a.CopyOut) -> Expr:
    """The guard of an access; at computed and loaded coordinates without the tests that they lie in the tensor: there
    an element outside is 0, and is not written, in either IR."""
    if op.within is None:
        return op.guard.expr
    kind = op.tensor.type
    assert isinstance(kind, TensorType)
    dims, coords = [d.expr for d in kind.dims], [c.expr for c in op.coords]
    tests = {test for c, dim in zip(coords, dims, strict=True) for test in (c >= 0, c < dim)}
    domain, guard = set(conjuncts(op.within.expr)), set(conjuncts(op.guard.expr))
    if not domain <= guard <= domain | tests:
        raise Undecided(f"the guard {op.guard.expr} of an access at computed coordinates", place_of(op))
    return op.within.expr


class Path:
    """Which branch is taken at each condition of the launch and its programs, and what small remainders are.

    ``taken`` are the choices in the order in which they come up, those at the end still open; other ones are left in
    ``more`` for other paths. ``inside``: what loops carry is asked for inside of the bounds alone under which their
    steps load, where these stay the same; otherwise what lies beyond them is carried, too.
    """

    def __init__(self, taken: list[int], more: list[list[int]], *, inside: bool = False):
        self.taken, self.more, self.inside = taken, more, inside
        self.chosen: dict[Expr, int] = {}

    def choose(self, what: Expr, count: int) -> int:
        """One of ``count`` choices for ``what``, the same on every call."""
        if what not in self.chosen:
            place = len(self.chosen)
            if place == len(self.taken):
                self.more.extend([*self.taken, other] for other in range(1, count))
                self.taken.append(0)
            self.chosen[what] = self.taken[place]
        return self.chosen[what]

    def holds(self, condition: Expr) -> bool:
        """Whether a condition holds on this path."""
        opposite = negate(condition)
        if opposite in self.chosen:
            return not self.holds(opposite)
        return self.choose(condition, 2) == 0


@dataclass(frozen=True)
class SourceFacts:
    """What the evaluation of threads is told of the Tile IR: the counters of its streams, and the user's functions of
    scans."""

    streams: frozenset[str]
    functions: tuple[BoundedStates, ...]

    @staticmethod
    def of(source: tile.Kernel, *, reals: bool = False) -> SourceFacts:
        """Of a kernel; arithmetic may be that of ``reals``."""
        scalars: dict[SSAValue, str] = {
            a: n.data for n, a in zip(source.arg_names, source.body.block.args, strict=True)
        }
        scans = [op for op in operations(source) if isinstance(op, tile.Scan) and op.function is None]
        streams = (op.counter.data for op in operations(source) if isinstance(op, tile.StreamLoop))
        functions = (StateFunction(op, scalars, reals=reals) for op in scans)
        return SourceFacts(frozenset(streams), tuple(map(BoundedStates, functions)))


class Threads:
    """One evaluation of a kernel's body: all threads' registers, along one path."""

    def __init__(self, kernel: t.Kernel, program: SourceFacts, facts: SymbolFacts, path: Path, count: int):
        self.kernel, self.program, self.facts, self.path, self.count = kernel, program, facts, path, count
        self.inner = False
        """Inside of a loop that is no part of a stream: the steps of a product of matrices by ordinary arithmetic."""
        self.arithmetic = ElementFunctions(reals=of_reals(kernel), accurate=kernel.numerics.data == Numerics.ACCURATE)
        self.widened = Widened(self.arithmetic)
        self.tid = np.arange(self.count).reshape(-1, 1)
        self.integers = Integers({t.THREAD: self.tid, t.REGISTER: np.zeros((1, 1), np.int64)})
        self.held: dict[SSAValue, GuardedTerms] = {}
        self.scalars: dict[object, Scalar] = {}
        for name, arg in zip(kernel.arg_names, kernel.body.block.args, strict=True):
            if isinstance(arg.type, TileType):
                self.scalars[arg] = GuardedTerms(fingerprints(key("symbol", name.data)).reshape(1, 1))
        self.stores: list[StoredElements] = []
        self.parts: list[LoopSegment] = []
        self.around: tuple[int, ...] = ()
        self.written: dict[str, frozenset[str]] = {}
        self.claims = Claims()
        self.counts: bool = True
        self.told: list[Expr] = []
        """Conditions of the launch that hold on this path, also those that come up in a loop."""

    @property
    def visits(self) -> Mapping[type[Operation], Callable[[Any, Any], None]]:
        """The handler of each kind of op."""
        return VISITS

    # -- walk ---------------------------------------------------------------------------------------------------------
    def block(self, block: Block) -> None:
        """The ops of a block, in order."""
        for op in ops_in(block):
            visit = self.visits.get(type(op))
            if visit is None:
                raise Undecided(op.name, place_of(op))
            visit(self, op)

    def skip(self, op: Operation) -> None:
        """Ops that move no values."""

    def let(self, op: t.Let) -> None:
        """A name; a small remainder is a choice, for it decides what a thread holds, and so is whether a first step is
        among others."""
        value = op.value.expr
        if self.around:
            pass
        elif isinstance(value, Mod) and (n := value.denominator.constant) and n <= MOST_REMAINDERS:
            value = Const(self.path.choose(self.inlined(value), n))
        elif isinstance(least := self.inlined(value), Min) and Const(1) in least.args:
            value = self._one_or_none(least)
        self.integers.bind(op.symbol.data, self.integers(value))

    def _one_or_none(self, least: Min) -> Expr:
        """What the minimum of 1 and other expressions is on this path: 1, or what is known not to be above 0."""
        needs = [
            e.numerator >= e.denominator if isinstance(e, FloorDiv) and (e.denominator.constant or 0) > 0 else e >= 1
            for e in least.args
            if e != Const(1)
        ]
        needed = all_of(needs)
        if self.path.holds(needed):
            self.facts = self.facts.when([needed])
            return Const(1)
        none = self.facts.never_negative(least)
        others = minimum(*(e for e in least.args if e != Const(1)))
        self.facts = self.facts.when([negate(needed)] if none else [others <= 0, least <= 0])
        return Const(0) if none else least

    def programs(self, op: t.Programs) -> None:
        """One program, whichever it is: of the text it is proved that drawn ones are done once each (``queue``)."""
        for name, extent in zip(op.names, op.extents, strict=True):
            self.facts = self.facts.within(name.data, _ZERO, self.inlined(extent.expr))
        self.block(op.body.block)

    def branch(self, op: t.If) -> None:
        condition = op.condition.expr
        known = self.truth(condition)
        if known is not None:
            return self.block((op.then if known else op.otherwise).block)
        inner = [[each for o in ops_in(r.block) for each in operations(o)] for r in op.regions]
        kinds = {type(o) for several in inner for o in several}
        if kinds.isdisjoint(DATA):
            return None
        condition = self.inlined(condition)
        if not self.around or not any(name.startswith(OWN) for name in condition.symbols):  # one of the launch
            taken = self.path.holds(condition)
            self.told.append(condition if taken else negate(condition))
            self.facts = self.facts.when(self.told[-1:])
            return self.block((op.then if taken else op.otherwise).block)
        if kinds & DATA == {a.ZeroFill} and not inner[1] and self._fills_nothing_else(inner[0], condition):
            return self.block(op.then.block)
        if not kinds.isdisjoint({t.For, *_COPIES}):
            raise Undecided("a branch in a loop", place_of(op))
        return self.joined(op)

    def _fills_nothing_else(self, ops: Sequence[Operation], condition: Expr) -> bool:
        """Where a condition does not hold nothing would be filled with zeros: it may as well be taken for true."""
        outer, self.facts = self.facts, self.facts.when([negate(condition)])
        kept: list[Bounds] = []
        for fill in (o for o in ops if isinstance(o, a.ZeroFill)):
            self.place(fill.count.data)
            kept.append(self.resolved(self.integers.bounds(negate(fill.guard.expr))))
        self.facts = outer
        return all(bounds.decided and bounds.mask.all() for bounds in kept)

    def truth(self, condition: Expr) -> bool | None:
        """The value of a condition of constants."""
        if condition.symbols - self.integers.values.keys():
            return None
        bounds = self.integers.bounds(condition)
        return bool(bounds.mask.all()) if bounds.decided and bounds.mask.size == 1 else None

    def joined(self, op: t.If) -> None:
        """Both branches: a sum of what each leaves, one part for each truth of the condition."""
        odds = fingerprints(key("condition", op.condition.expr.text, int(self._factor(op.condition.expr).flat[0])))
        before = dict(self.held)
        self.block(op.then.block)
        then, self.held = self.held, dict(before)
        self.block(op.otherwise.block)
        for buffer in before:
            if then[buffer] is not self.held[buffer]:
                kind = kind_of(buffer)
                x, y = (side[buffer].folded(self.arithmetic, kind) for side in (then, self.held))
                terms = self.arithmetic.between(kind, odds, x.terms, y.terms)
                self.held[buffer] = GuardedTerms(terms, need=merged(x.need, y.need))

    def _factor(self, condition: Expr) -> Fingerprints:
        parts = (
            [self.integers(side).fingerprints for side in (condition.lhs, condition.rhs)]
            if isinstance(condition, Compare)
            else []
        )
        if not parts or any(p.size != 1 for p in parts):
            raise Undecided(f"the condition {condition}")
        return term("condition", *parts)

    def loop(self, op: t.For) -> None:
        """A part of a stream."""
        if op.step.expr.constant != 1:
            raise Undecided("a loop that does not go step by step", place_of(op))
        if op.counter.data not in self.program.streams and is_gate(op):
            return self.block(op.body.block)
        if op.counter.data not in self.program.streams:
            return self.unrolled(op)
        steps = self._steps_of(op)
        part = LoopSegment(op.counter.data, self.integers(steps[0]), self.integers(steps[1]), steps)
        if part.empty or self.facts.never_negative(steps[0] - steps[1]):
            return None
        if self._is_again(part):
            self.integers.bind(op.counter.data, part.begin)
            self.block(op.body.block)
            return self.integers.bind(op.counter.data, None)
        if self.counts:
            self.parts.append(part)
        if part.single:
            self.integers.bind(op.counter.data, part.begin)
            self.block(op.body.block)
            return self.integers.bind(op.counter.data, None)
        carried = self._carried(op)
        kinds = [kind_of(b) for b in carried]
        first = [self._unguarded(self.held[b], kind_of(b), op.counter.data) for b in carried]
        shapes = [(self.count, size_of(b)) if isinstance(b.type, t.RegistersType) else (1, size_of(b)) for b in carried]
        needs: list[Atoms] = [v.need for v in first]
        outer = self.facts, self.parts, self.counts, self.around
        told = len(self.told)
        self.facts = self.facts.within(op.counter.data, *steps)
        self.parts = []

        restart = self.entered(op, steps)

        def step(states: Sequence[Fingerprints], counts: bool) -> list[Fingerprints]:
            self.counts = counts and outer[2]
            restart()
            part.inside = self.parts = []
            written = dict(self.written)
            for place, (buffer, state) in enumerate(zip(carried, states, strict=True)):
                self.held[buffer] = GuardedTerms(state, need=needs[place])
            self.block(op.body.block)
            if not counts:
                self.written = written
            after = [self._unguarded(self.held[b], kind_of(b), op.counter.data) for b in carried]
            for place, value in enumerate(after):
                grown = merged(needs[place], self._beyond_step(value.need, op.counter.data))
                if counts and without(grown, needs[place]):
                    raise Undecided("what is carried becomes unknown step by step", place_of(op))
                needs[place] = grown
            return [np.broadcast_to(v.terms, s) for v, s in zip(after, shapes, strict=True)]

        self.around = (*self.around, part.loop)
        begin = [np.broadcast_to(v.terms, s) for v, s in zip(first, shapes, strict=True)]
        self.integers.bind(op.counter.data, None)
        finals = run_loop(part.loop, self.arithmetic, kinds, begin, step, self.claims)
        self.facts, self.parts, self.counts, self.around = outer
        self.facts = self.facts.when(self.told[told:])
        for place, (buffer, final) in enumerate(zip(carried, finals, strict=True)):
            self.held[buffer] = GuardedTerms(final, need=needs[place])
        self.left(op)

    def _steps_of(self, op: t.For) -> tuple[Expr, Expr]:
        """Where a loop begins and ends: whether a stream has a first step, in a loop before others, is a choice."""
        begin, end = self.inlined(op.begin.expr), self.inlined(op.end.expr)
        alike = [o for o in ops_in(op.parent) if isinstance(o, t.For) and o.counter == op.counter] if op.parent else []
        if self.around or len(alike) == 1:
            return begin, end
        if isinstance(begin, Max):
            begin = self._greatest(begin)
        if begin == _ZERO and isinstance(end, Min) and Const(1) in end.args and self.facts.never_negative(end):
            end = self._one_or_none(end)
        last = end - 1
        if begin == maximum(last, _ZERO) and self.facts.never_negative(last):
            begin = last
        return begin, end

    def _greatest(self, e: Max) -> Expr:
        """A number, if none of the others is ever above it."""
        numbers = (part for part in e.args if part.constant is not None)
        return next((n for n in numbers if all(self.facts.never_negative(n - other) for other in e.args)), e)

    def _is_again(self, part: LoopSegment) -> bool:
        """The last step once more, of a stream whose steps have all been: what is left of it to do."""
        begin, end = part.range
        before = self.parts[-1] if self.parts else None
        done = before is not None and before.counter == part.counter and before.range[1] == end
        return done and end - begin == Const(1)

    def unrolled(self, op: t.For) -> None:
        """A loop that is no part of a stream: all of its steps, of an epilogue's panels or of a product."""
        begin, end = self.integers(op.begin.expr), self.integers(op.end.expr)
        if not begin.known or not end.known or int(end.number.flat[0]) - int(begin.number.flat[0]) > MOST_STEPS:
            raise Undecided("a loop that is no part of a stream", place_of(op))
        outer, self.inner = self.inner, not any(isinstance(o, a.StoreMatrix) for o in operations(op))
        for step in range(int(begin.number.flat[0]), int(end.number.flat[0])):
            self.integers.bind(op.counter.data, self.integers(Const(step)))
            self.block(op.body.block)
        self.integers.bind(op.counter.data, None)
        self.inner = outer

    def entered(self, op: t.For, steps: tuple[Expr, Expr]) -> Callable[[], None]:
        """What is to be done before each evaluation of a step."""
        return lambda: None

    def left(self, op: t.For) -> None:
        """What is to be done after a loop."""

    def _unguarded(self, value: GuardedTerms, kind: DType, counter: str) -> GuardedTerms:
        """What a step begins with or leaves, without a guard."""
        lasts = all(form in self.integers.forms and counter not in self.integers.forms[form].symbols
                    for form in value.guard)  # fmt: skip
        flat = self.path.inside and lasts and not value.whole
        return value.flat() if flat else value.folded(self.arithmetic, kind)

    def _beyond_step(self, need: Atoms, counter: str) -> Atoms:
        """Bounds without which a value is not known, after the step they speak of: nothing tells any longer whether
        those of that step held."""
        found: dict[int, Numbers] = {}
        for form, threshold in need.items():
            symbol = self.integers.forms.get(form)
            if form != _NOT_TOLD and (symbol is None or counter in symbol.symbols):
                form, threshold = _NOT_TOLD, np.where(threshold > ALWAYS, -ALWAYS, ALWAYS)
            if (threshold > ALWAYS).any():
                found = merged(found, {form: threshold})
        return found

    def _carried(self, op: t.For) -> list[SSAValue]:
        """Buffers from before the loop that it writes."""
        written: dict[SSAValue, None] = {}
        for inner in operations(op):
            for buffer in WRITES.get(type(inner), _nothing)(inner):
                if buffer in self.held:
                    written[buffer] = None
        return list(written)

    def inlined(self, e: Expr) -> Expr:
        """An expression without names that are defined in the kernel."""
        return self.integers.inlined(e)

    # -- buffers ------------------------------------------------------------------------------------------------------
    def registers(self, op: t.Registers) -> None:
        size = size_of(op.buffer)
        self.held[op.buffer] = GuardedTerms(np.full((1, size), key("undefined", size), np.uint64))

    def shared(self, op: t.Shared) -> None:
        size = size_of(op.buffer)
        self.held[op.buffer] = GuardedTerms(np.full((1, size), key("undefined"), np.uint64))

    def place(self, count: int, first: int = 0) -> None:
        """Expressions speak of registers ``first .. first + count - 1``."""
        self.integers.place((count, first), {t.REGISTER: np.arange(first, first + count).reshape(1, -1)})

    def numbers(self, e: Expr) -> Numbers:
        """An expression that nothing but threads and registers enters."""
        value = self.integers(e)
        if not value.known:
            raise Undecided(f"the place {e}")
        return value.number

    def resolved(self, bounds: Bounds) -> Bounds:
        """Without the bounds that always hold here."""
        if bounds.decided:
            return bounds
        atoms: dict[int, Numbers] = {}
        for form, threshold in bounds.atoms.items():
            least = self.least(form)
            if (threshold >= least).any():
                atoms[form] = np.where(threshold < least, ALWAYS, threshold)
        return Bounds(bounds.mask, atoms)

    def known(self, value: GuardedTerms) -> GuardedTerms:
        """A value without the bounds that always hold here: it may be from before a branch that asked for them."""
        need, guard = (self._open(atoms) if atoms else {} for atoms in (value.need, value.guard))
        return replace(value, need=need, guard=guard, beyond=value.beyond if guard else None)

    def _open(self, atoms: Mapping[int, Numbers]) -> dict[int, Numbers]:
        """Of some bounds those that may not hold."""
        return self.resolved(Bounds(np.ones((1, 1), np.bool_), dict(atoms))).atoms

    def least(self, form: int) -> int:
        """A lower bound of a form."""
        symbol = self.integers.forms.get(form)
        found = None if symbol is None else self.facts.least(self.inlined(symbol))
        return ALWAYS if found is None else found

    def write(self, buffer: SSAValue, value: GuardedTerms, live: Bounds, first: int, count: int) -> None:
        """Registers ``first .. first + count - 1`` of a buffer; where ``live`` is false they are not known."""
        if not live.decided or not live.mask.all():
            value = replace(value, need=merged(value.need, live.atoms))
        size = size_of(buffer)
        if not live.mask.all():
            value = where(live.mask, value, self.held[buffer].at(lambda x: _columns(x, first, count)))
        if count == size:
            self.held[buffer] = value
            return
        inside = np.zeros((1, size), np.bool_)
        inside[0, first : first + count] = True
        self.held[buffer] = where(inside, value.at(lambda x: _padded(x, first, count, size)), self.held[buffer])

    # -- element-wise code and reductions -----------------------------------------------------------------------------
    def map(self, op: t.Map) -> None:
        """All registers at once, but those that read what earlier ones write."""
        count = op.count.data
        self.place(count)
        reads = [self.numbers(read.expr) for read, b in zip(op.reads, op.inputs, strict=True) if b in op.outputs]
        if not any((at < np.arange(count)).any() for at in reads):
            return self._mapped(op, 0, count)
        for register in range(count):
            self._mapped(op, register, 1)
        return None

    def _mapped(self, op: t.Map, first: int, count: int) -> None:
        self.place(count, first)
        given = dict(self.scalars)
        for read, buffer, arg in zip(op.reads, op.inputs, op.body.block.args, strict=True):
            at = self.numbers(read.expr)
            size = size_of(buffer)
            given[arg] = self.held[buffer].at(lambda x, at=at, size=size: _picked(x, at, size))
        live = self.resolved(self.integers.bounds(op.live.expr))
        functions, widened = self.program.functions, self.widened
        body = Body(self.arithmetic, self.integers, self.resolved, functions, widened, contracts=self.inner)
        results = body.run(op, given)
        for buffer, value in zip(op.outputs, results, strict=True):
            self.write(buffer, _wide(value, count), live, first, count)

    def fold(self, op: t.Fold) -> None:
        count, size = size_of(op.sources[0]), size_of(op.targets[0])
        self.place(count)
        live = self.resolved(self.integers.bounds(op.live.expr))
        into = np.broadcast_to(self.numbers(op.into.expr), (1, count))[0]
        order = np.argsort(into, kind="stable")
        present, starts = np.unique(into[order], return_index=True)
        combined = Combined(self.arithmetic, op.fn.data, kind_of(op.sources[0]))
        images, guard, needs = self._contributions(combined, [self.held[s] for s in op.sources], live)
        targets = [self.held[b].flat() for b in op.targets]
        before = combined.into([v.terms for v in targets])

        def grouped(fn: np.ufunc, x: Numbers, rest: int) -> Numbers:
            """The registers that go to one target, together."""
            ordered = np.broadcast_to(x, (x.shape[0], count))[:, order]
            result = np.full((x.shape[0], size), rest, x.dtype)
            result[:, present] = fn.reduceat(ordered, starts, axis=1)
            return result

        kept: dict[int, Numbers] = {}
        if not any(x.any() for x in before) and live.mask.all():
            for form, threshold in guard.items():
                least, most = (grouped(fn, threshold, ALWAYS) for fn in (np.minimum, np.maximum))
                if np.array_equal(least, most):
                    kept[form] = most
        factor = weight({f: c for f, c in guard.items() if f not in kept})
        totals: list[Fingerprints] = []
        for image, old in zip(images, before, strict=True):
            weighed = image if factor is None else image * factor
            totals.append(old + grouped(np.add, weighed, 0))
        need = {f: grouped(np.maximum, c, ALWAYS) for f, c in needs.items()}
        self._reduced(op.targets, combined, totals, kept, [need, *(v.need for v in targets)])

    def _contributions(
        self, combined: Combined, values: Sequence[GuardedTerms], live: Bounds
    ) -> tuple[list[Fingerprints], Atoms, Atoms]:
        """The images of registers, the bounds without which they are 0, and those without which they are not known.

        A bound of ``live`` on what no guard bounds is that of another axis than the reduced one: there the result has
        no value.
        """
        guard: Atoms = values[0].guard
        neutral = all(v.beyond is not None and same(v.guard, guard) for v in values) and not any(
            image.any() for image in combined.into([v.beyond for v in values if v.beyond is not None])
        )
        if guard and not neutral:
            values, guard = [v.flat() for v in values], dict[int, Numbers]()
        need: Atoms = {f: c for f, c in live.atoms.items() if f not in guard}
        guard = {f: np.maximum(c, live.atoms[f]) if f in live.atoms else c for f, c in guard.items()}
        images = combined.into([v.terms for v in values])
        if not live.mask.all():
            images = [np.where(live.mask, image, np.uint64(0)) for image in images]
        for value in values:
            need = merged(need, without(value.need, live.atoms))
        return images, guard, need

    def _reduced(
        self,
        buffers: Sequence[SSAValue],
        combined: Combined,
        images: Sequence[Fingerprints],
        guard: Atoms,
        needs: Sequence[Atoms],
    ) -> None:
        """Buffers hold what images stand for, and the identity beyond a guard."""
        need: Atoms = {}
        for several in needs:
            need = merged(need, several)
        beyond = combined.back([np.zeros((1, 1), np.uint64)] * len(images))
        for buffer, found, identity in zip(buffers, combined.back(images), beyond, strict=True):
            self.held[buffer] = GuardedTerms(found, guard, identity if guard else None, need)

    def shuffle(self, op: t.Shuffle) -> None:
        combined = Combined(self.arithmetic, op.fn.data, kind_of(op.buffers[0]))
        always = Bounds(np.ones((1, 1), np.bool_))
        found, atoms, needs = self._contributions(combined, [self.held[b] for b in op.buffers], always)
        images = [self._per_thread(x) for x in found]
        guard, need = ({f: self._per_thread(c) for f, c in x.items()} for x in (atoms, needs))
        for distance in (d.data for d in op.distances):
            other = self.tid[:, 0] ^ distance
            apart = {f: c for f, c in guard.items() if not np.array_equal(c, c[other])}
            factor = weight(apart)
            if factor is not None:
                images = [x * factor for x in images]
                guard = {f: c for f, c in guard.items() if f not in apart}
            images = [x + x[other] for x in images]
            need = {f: np.maximum(c, c[other]) for f, c in need.items()}
        self._reduced(op.buffers, combined, images, guard, [need])

    def _per_thread(self, x: Fingerprints) -> Fingerprints:
        return np.broadcast_to(x, (self.count, x.shape[1]))

    # -- tensors ------------------------------------------------------------------------------------------------------
    def load(self, op: t.Load) -> None:
        count = size_of(op.buffer)
        self.place(count)
        need = self.indexed(op)
        tensor = tensor_of(op.tensor)
        coords = [self.integers(c.expr) for c in op.coords]
        terms = np.atleast_2d(loaded(tensor, self.written.get(tensor, frozenset()), coords))
        guard = self.resolved(self.integers.bounds(guard_of(op)))
        value = chosen(guard, GuardedTerms(terms, need=need), GuardedTerms(np.zeros((1, 1), np.uint64)))
        self.write(op.buffer, _wide(value, count), self.resolved(self.integers.bounds(op.live.expr)), 0, count)

    def store(self, op: t.Store | t.AtomicReduce) -> None:
        count = size_of(op.buffer)
        self.place(count)
        need = self.indexed(op)
        tensor, fn = tensor_of(op.tensor), op.fn.data if isinstance(op, t.AtomicReduce) else None
        if self.counts:
            coords = [self.integers(c.expr) for c in op.coords]
            bounds = self.resolved(self.integers.bounds(guard_of(op)))
            value = self.held[op.buffer]
            value = self.known(replace(value, need=merged(value.need, need)) if need else value)
            value = value.named(bounds.atoms)
            at = [] if op.scattered is None else [self.integers(e) for e in op.scattered.at]
            self.stores.append(StoredElements(tensor, fn, self.around, [*coords, *at], value, bounds, place_of(op)))
        self.written[tensor] = self.written.get(tensor, frozenset()) | {place_of(op)}

    def indexed(self, op: t.Load | t.Store | t.AtomicReduce | a.ThreadCopies) -> Atoms:
        """The elements of index buffers become coordinates; where they are these."""
        need: Atoms = {}
        for k, (buffer, read) in enumerate(zip(op.indices, op.reads, strict=True)):
            at, size = self.numbers(read), size_of(buffer)
            value = self.held[buffer].at(lambda x, at=at, size=size: _picked(x, at, size)).flat()
            need = merged(need, value.need)
            self.integers.bind(index_symbol(k), Number(np.zeros((1, 1), np.int64), value.terms))
        return need

    def bind(self, op: t.Bind) -> None:
        """A symbol that stands for what was loaded."""
        value = self.held[op.buffer].flat()
        first = value.terms[:1, :1]
        if (value.terms[:, :1] != first).any() or any((c > ALWAYS).any() for c in value.need.values()):
            raise Undecided("an integer that threads hold apart", place_of(op))
        name = op.symbol.data
        self.integers.bind(name, Number(np.zeros((1, 1), np.int64), first, Sym(name)))
        if op.most is not None:  # as is proved of the text (``loaded``)
            self.facts = self.facts.when([Sym(name) <= self.inlined(op.most.expr)])

    # -- shared memory and moves between registers --------------------------------------------------------------------
    def shared_write(self, op: t.SharedWrite) -> None:
        count = size_of(op.buffer)
        self.place(count)
        shape = (self.count, count)
        at = np.broadcast_to(self.numbers(op.offset.expr), shape)
        guard = self.integers.bounds(op.guard.expr)
        if not guard.decided:
            raise Undecided("a write to shared memory under a condition of the launch", place_of(op))
        mask = np.broadcast_to(guard.mask, shape)
        value, size = self.held[op.buffer], size_of(op.shared)

        def put(x: Numbers) -> Numbers:
            result = np.zeros((1, size), x.dtype)
            result[0, at[mask]] = np.broadcast_to(x, shape)[mask]
            return result

        written = put(np.ones((1, 1), np.bool_))
        self.held[op.shared] = where(written, value.at(put), self.held[op.shared])

    def shared_read(self, op: t.SharedRead) -> None:
        count = size_of(op.buffer)
        self.place(count)
        at = self.numbers(op.offset.expr)
        guard = self.integers.bounds(op.guard.expr)
        if not guard.decided:
            raise Undecided("a read of shared memory under a condition of the launch", place_of(op))
        at = np.where(guard.mask, at, 0)
        value = self.held[op.shared].at(lambda x: np.broadcast_to(x, (1, size_of(op.shared)))[0, at])
        self.held[op.buffer] = where(guard.mask, _wide(value, count), self.held[op.buffer])

    def shared_count(self, op: t.SharedCount) -> None:
        """Every bin has all elements that are counted, each by a factor of the bin's own."""
        count, size = size_of(op.buffer), size_of(op.shared)
        self.place(count)
        guard = self.resolved(self.integers.bounds(op.guard.expr))
        value, old = self.held[op.buffer].flat(), self.held[op.shared].flat()
        factor = weight(guard.atoms)
        images = mix(value.terms, COUNTED) if factor is None else mix(value.terms, COUNTED) * factor
        shape = (self.count, count)
        images = np.where(np.broadcast_to(guard.mask, shape), np.broadcast_to(images, shape), np.uint64(0))
        beyond = without(value.need, guard.atoms).items()
        need = {form: np.max(np.where(guard.mask, c, ALWAYS), keepdims=True) for form, c in beyond}
        terms = old.terms + np.sum(images, dtype=np.uint64) * bins_of(size)
        self.held[op.shared] = GuardedTerms(terms, need=merged(old.need, need))

    def select(self, op: t.RegisterSelect) -> None:
        self.place(1)
        at = self._picks([[c.data for c in row] for row in op.choices], [i.expr for i in op.indices], op.elements.data)
        self.held[op.target] = self.held[op.source].at(lambda x: _picked(x, at, size_of(op.source)))

    def exchange(self, op: t.Exchange) -> None:
        self.place(1)
        width = op.elements.data
        sent = self._picks([[c.data for c in row] for row in op.sends], [i.expr for i in op.send_indices], width)
        lanes = np.concatenate(
            [np.broadcast_to(self.numbers(e.expr), (self.count, 1)).repeat(width, 1) for e in op.lanes], axis=1
        )
        taken = self._picks(
            [[c.data * width for c in row] for row in op.taken], [i.expr for i in op.taken_indices], width
        )
        threads = self.tid // _LANES * _LANES + lanes

        def moved(x: Numbers) -> Numbers:
            whole = np.broadcast_to(_picked(x, sent, size_of(op.source)), sent.shape)
            return np.take_along_axis(np.take_along_axis(whole, threads, 0), taken, 1)

        self.held[op.target] = self.held[op.source].at(moved)

    def _picks(self, choices: Sequence[Sequence[int]], indices: Sequence[Expr], width: int) -> Numbers:
        """Per thread, the source register of each register."""
        found: list[Numbers] = []
        for row, index in zip(choices, indices, strict=True):
            firsts = np.array(row)
            first = firsts[np.broadcast_to(self.numbers(index), (self.count, 1))]
            found.append(first + np.arange(width))
        return np.concatenate(found, axis=1)


def size_of(buffer: SSAValue) -> int:
    kind = buffer.type
    assert isinstance(kind, t.RegistersType | t.SharedType)
    return kind.count.data


def kind_of(buffer: SSAValue) -> DType:
    kind = buffer.type
    assert isinstance(kind, t.RegistersType | t.SharedType)
    return kind.dtype.dtype


def tensor_of(value: SSAValue) -> str:
    assert isinstance(value.type, TensorType)
    return value.type.tensor_name.data


def place_of(op: Operation) -> str:
    loc = op.attributes.get("loc")
    return loc.data if isinstance(loc, StringAttr) else ""


def _wide(value: GuardedTerms, count: int) -> GuardedTerms:
    """A row of registers, each of its own."""
    return value.at(lambda x: np.broadcast_to(x, (x.shape[0], count)))


def _picked(x: Numbers, at: Numbers, size: int) -> Numbers:
    """Per thread, the registers ``at``."""
    if x.shape[1] == 1 and size > 1:
        return x
    if at.shape[0] == 1:
        return x[:, at[0]]
    rows = max(x.shape[0], at.shape[0])
    return np.take_along_axis(np.broadcast_to(x, (rows, size)), np.broadcast_to(at, (rows, at.shape[1])), 1)


def _columns(x: Numbers, first: int, count: int) -> Numbers:
    return x if x.shape[1] == 1 else x[:, first : first + count]


def _padded(x: Numbers, first: int, count: int, size: int) -> Numbers:
    result = np.zeros((x.shape[0], size), x.dtype)
    result[:, first : first + count] = x
    return result


_ZERO = Const(0)
_LANES = 32


def _nothing(op: Operation) -> Sequence[SSAValue]:
    return ()


WRITES: dict[type[Operation], Callable[[Any], Sequence[SSAValue]]] = {
    t.Map: lambda op: op.outputs,
    t.Fold: lambda op: op.targets,
    t.Shuffle: lambda op: op.buffers,
    t.Load: lambda op: [op.buffer],
    t.SharedRead: lambda op: [op.buffer],
    t.ClusterRead: lambda op: [op.buffer],
    t.SharedWrite: lambda op: [op.shared],
    t.SharedCount: lambda op: [op.shared],
    t.RegisterSelect: lambda op: [op.target],
    t.Exchange: lambda op: [op.target],
    a.LoadMatrix: lambda op: [op.buffer],
    a.Mma: lambda op: [op.accumulator],
    a.Wgmma: lambda op: [op.accumulator],
}
_COPIES = {
    t.Store,
    t.AtomicReduce,
    t.Load,
    t.SharedWrite,
    a.TmaLoad,
    a.TmaStore,
    a.CpAsync,
    a.LoadStore,
    a.ZeroFill,
    a.CopyOut,
    a.StoreMatrix,
}
DATA = frozenset({*WRITES, *_COPIES, t.For})
VISITS: dict[type[Operation], Callable[[Any, Any], None]] = {
    t.Let: Threads.let,
    t.Bind: Threads.bind,
    t.Programs: Threads.programs,
    t.If: Threads.branch,
    t.For: Threads.loop,
    t.Registers: Threads.registers,
    t.Shared: Threads.shared,
    t.Map: Threads.map,
    t.Fold: Threads.fold,
    t.Shuffle: Threads.shuffle,
    t.Load: Threads.load,
    t.Store: Threads.store,
    t.AtomicReduce: Threads.store,
    t.SharedWrite: Threads.shared_write,
    t.SharedRead: Threads.shared_read,
    t.SharedCount: Threads.shared_count,
    t.RegisterSelect: Threads.select,
    t.Exchange: Threads.exchange,
    t.Pin: Threads.skip,
    t.Print: Threads.skip,
    t.Trap: Threads.skip,
    t.Barrier: Threads.skip,
    t.WarpBarrier: Threads.skip,
    a.TensorMap: Threads.skip,
    a.Mbarriers: Threads.skip,
    a.FenceMbarrierInit: Threads.skip,
}
