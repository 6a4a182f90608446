"""Control flow: programs, loops, branches, roles, and the counters that they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import OWN, Expr, FloorDiv, Mod, Sym
from tilewright.tile.ops import ops_in
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import Carried, LoopBody
from tilewright.validate.terms import Terms
from tilewright.validate.transport_ir.accesses import integers
from tilewright.validate.transport_ir.plan import BranchedLoop, Plan
from tilewright.validate.undecided import Undecided
from tilewright.validate.unswitched import in_branches
from tilewright.validate.values import Value

MOST_ELEMENTS = 16
"""The largest alignment, in elements, for which the misalignment of an address is split into cases."""


def name_integer(plan: Plan, op: t.Let) -> None:
    """A name for an integer; conditions on the distance from a boundary are those of one quantity."""
    value = op.value.expr
    if isinstance(value, Mod) and any(symbol.endswith(".address") for symbol in value.symbols):
        n, numerator = value.denominator.constant, plan.expr(value.numerator)
        if n is not None and 1 < n <= MOST_ELEMENTS and isinstance(numerator, Poly):
            plan.cases.remainder(numerator, n)
    plan.let(op.symbol.data, value)


def name_loaded(plan: Plan, op: t.Bind) -> None:
    """A name for an integer that was loaded, at most ``most``."""
    value = plan.named.get(op.buffer)
    if value is None and isinstance(op.parent_op(), t.Kernel):
        word, value = plan.buffers[op.buffer][0], plan.terms.const(0, 0)
        for holds, number in integers(plan, word, plan.where(op)):
            value = plan.values.select(holds, number, value)
    if value is None:
        raise Undecided("an integer that is not read from shared memory", plan.where(op))
    plan.bind(op.symbol.data, value)
    if op.most is not None:
        plan.never_negative(plan.values.sub(plan.expr(op.most.expr), value))


def branch(plan: Plan, op: t.If) -> None:
    """then or else."""
    condition = plan.predicate(op.condition.expr)
    plan.branches |= dict.fromkeys((condition, plan.cases.negate(condition)))
    plan.under(condition, lambda: plan.block(op.then.block))
    if not op.otherwise.block.is_empty:
        plan.under(plan.cases.negate(condition), lambda: plan.block(op.otherwise.block))


def in_role(plan: Plan, op: a.Role) -> None:
    """Threads of one role."""
    first, threads = op.first.data, op.threads.data
    number = np.arange(plan.kernel.threads.data)
    inside = plan.cases.threads_where((number >= first) & (number < first + threads))
    saved = dict(plan.symbols)
    plan.role = op
    own = np.where((number >= first) & (number < first + threads), number - first, 0)  # others don't run the body
    plan.bind(t.THREAD, plan.terms.table(0, own))
    plan.bind(a.WARPGROUP, plan.terms.table(0, own // a.WARPGROUP_THREADS))
    plan.under(inside, lambda: plan.block(op.body.block))
    plan.restore(saved)
    plan.role = None
    plan.roles += 1


def elected(plan: Plan, op: a.Elected) -> None:
    """The first thread of every warpgroup of the role, or of the CTA."""
    first = 0 if plan.role is None else plan.role.first.data
    number = np.arange(plan.kernel.threads.data) - first
    one = number % a.WARPGROUP_THREADS == 0 if plan.role is not None else number == 0
    plan.under(plan.cases.threads_where(one), lambda: plan.block(op.body.block))


def counter(plan: Plan, op: a.Counter) -> None:
    """A carried integer."""
    plan.counters |= {op.symbol.data}
    plan.periodic = plan.periodic - {op.symbol.data} | ({op.symbol.data} if op.period is not None else set())
    plan.bind(op.symbol.data, plan.terms.const(0, op.start.data))


def advance(plan: Plan, op: a.Advance) -> None:
    """Adds to a carried integer."""
    name = op.symbol.data
    plan.bind(name, plan.values.add(plan.symbol(name), plan.expr(op.by.expr)))


def programs(plan: Plan, op: t.Programs) -> None:
    """The programs of a CTA."""
    names = [n.data for n in op.names]
    extents = [plan.expr(e.expr) for e in op.extents]
    if not names:
        plan.block(op.body.block)
        return
    (rows, columns), values, terms = op.cluster_shape, plan.values, plan.terms
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
    cta = terms.of(0, terms.atom("ctaid", low=0, high=max(min(most, plan.launch.most_ctas - 1), 0)))
    cluster = values.lift(lambda x: terms.floordiv(x, clusters), cta)
    most_programs = MAX_EXTENT if op.persistent.data else (1 << 31) - 1
    plan.bounded(total, 0, most_programs)
    if not op.persistent.data:
        plan.conditions["kernel"] = values.test(plan.cases.less, cluster, total)
        _name_coordinates(plan, op, cluster, counted, extents, most_programs)
        plan.block(op.body.block)
        return
    first, step = op.interleaving
    stride = values.lift(lambda x: terms.floordiv(x, clusters), values.resize(plan.launch.ctas, 0))
    begin = values.add(cluster, values.scale(stride, first))
    by = values.scale(stride, step)

    def bind(program: Value) -> None:
        ordinal = program
        if op.alternates:
            turn = plan.quotient(program, stride)
            dealt = values.mul(turn, stride)
            last = values.sub(
                values.lift(lambda p, q: plan.arithmetic.extreme("min", p, q), stride, values.sub(total, dealt)),
                terms.const(0, 1),
            )
            odd = values.sub(turn, values.scale(values.lift(lambda x: terms.floordiv(x, 2), turn), 2))
            back = values.sub(last, values.scale(values.sub(program, dealt), 2))
            ordinal = values.add(program, values.mul(odd, back))
            plan.below(ordinal, total)
        _name_coordinates(plan, op, ordinal, counted, extents, most_programs)

    loop(plan, op, begin, by, total, bind)


def _name_coordinates(
    plan: Plan, op: t.Programs, program: Value, counted: Sequence[Value], extents: Sequence[Value], most: int
) -> None:
    """The coordinates of a program, of at most ``most``: the last fastest, or in bands; one down or up; with the place
    in a cluster."""
    values, count = plan.values, len(counted)
    names = [n.data for n in op.names]
    found: list[Value] = [program] * count
    leveled = op.descending or op.ascending
    if leveled is not None:
        assert op.group is not None
        which = names.index(leveled.data)
        others = [i for i in range(count) if i != which]
        rows: Value = plan.terms.const(0, 1)
        for i in others:
            rows = values.mul(rows, counted[i])
        row, level = _band(plan, program, rows, counted[which], op.group.data)
        plan.below(row, rows)
        plan.below(level, counted[which])
        for i, digit in zip(others, _digits(plan, row, [counted[i] for i in others]), strict=True):
            found[i] = digit
        last = values.sub(extents[which], plan.terms.const(0, 1))
        found[which] = level if op.descending is None else values.sub(last, level)
    elif op.group is not None:
        rest = place = program
        if count > 2:
            matrix = values.mul(counted[-2], counted[-1])
            rest = plan.quotient(program, matrix)
            place = values.sub(program, values.mul(rest, matrix))
        found = [*_digits(plan, rest, counted[:-2]), *_band(plan, place, counted[-2], counted[-1], op.group.data)]
    else:
        found = _digits(plan, program, counted)
    if op.cluster is not None:
        rank = plan.terms.of(0, plan.terms.atom("cta_rank", low=0, high=15))
        plan.bind(a.CTA_RANK, rank)
        ctas = plan.kernel.cluster
        whole = ctas is not None and ctas.data == op.cluster_shape[1]  # a launch has no other ranks
        row = plan.terms.const(0, 0) if whole else plan.terms.floordiv(rank, op.cluster_shape[1])
        column = plan.terms.sub(rank, plan.terms.scale(row, op.cluster_shape[1]))
        for i, size, at in ((-2, op.cluster_shape[0], row), (-1, op.cluster_shape[1], column)):
            found[i] = values.add(values.scale(found[i], size), at)
    for name, coordinate, extent in zip(names, found, extents, strict=True):
        plan.below(coordinate, extent)
        if op.cluster is None and isinstance(coordinate, Poly):  # no extent is 0, so none is above their product
            plan.terms.bound(coordinate, 0, most - 1)
        plan.bind(name, coordinate)
    _bound_shares(plan, op)


def _bound_shares(plan: Plan, op: t.Programs) -> None:
    """Of a coordinate p < n, n a symbol of the compiler's own, p * ceil(s / n) <= s + n for s >= 0."""
    pairs = zip((n.data for n in op.names), (e.expr for e in op.extents), strict=True)
    own: dict[Expr, str] = {extent: name for name, extent in pairs if isinstance(extent, Sym) and OWN in extent.name}
    named = (inner.value.expr for inner in op.walk() if isinstance(inner, t.Let)) if own else ()
    for quotient in dict.fromkeys(q for e in named for q in _quotients(e) if q.denominator in own):
        n = quotient.denominator
        share, count = plan.expr(quotient.numerator - n + 1), plan.expr(n)
        product = plan.values.mul(plan.symbol(own[n]), plan.expr(quotient))
        if isinstance(share, Poly) and isinstance(count, Poly) and isinstance(product, Poly):
            (low, high), (_, most) = plan.terms.interval(share), plan.terms.interval(count)
            if low is not None and low >= 0 and high is not None and most is not None:
                plan.terms.bound(product, 0, high + most)


def _quotients(e: Expr) -> Iterator[FloorDiv]:
    if isinstance(e, FloorDiv):
        yield e
    for part in e.children:
        yield from _quotients(part)


def _band(plan: Plan, place: Value, rows: Value, columns: Value, group: int) -> tuple[Value, Value]:
    """The row and the column at a place of a matrix that is walked in bands of rows, which vary fastest."""
    values = plan.values
    matrix = values.mul(rows, columns)
    first = values.scale(plan.quotient(place, values.scale(columns, group)), group)
    height = values.lift(
        lambda p, q: plan.arithmetic.extreme("min", p, q), plan.terms.const(0, group), values.sub(rows, first)
    )
    inside = values.sub(place, values.mul(first, columns))
    column = plan.quotient(inside, height)
    # of 0 <= place < rows * columns: first is the last multiple of the group at or above place's row
    plan.below(place, matrix)
    plan.below(first, rows)
    plan.below(inside, values.mul(height, columns))
    return values.add(first, values.sub(inside, values.mul(column, height))), column


def _digits(plan: Plan, whole: Value, extents: Sequence[Value]) -> list[Value]:
    """The digits of a number, the last fastest."""
    values, found = plan.values, [whole] * len(extents)
    for i in reversed(range(1, len(extents))):
        above = plan.quotient(whole, extents[i])
        found[i] = values.sub(whole, values.mul(above, extents[i]))
        whole = above
    found[:1] = [whole] if extents else []
    return found


def repeat(plan: Plan, op: t.For) -> None:
    """A loop."""
    guard = plan.unswitched.get(op)
    if guard is not None:
        branch(plan, in_branches(op, guard))
        return
    begin, end, step = (plan.expr(e.expr) for e in (op.begin, op.end, op.step))
    if _once(plan, op):
        plan.bind(op.counter.data, begin)
        plan.block(op.body.block)
        return
    runs = _runs(plan, op)
    if _at_most_once(plan, op):
        plan.branched[op] = BranchedLoop(plan.region.name, plan.holds, plan.cases.both(plan.holds, runs))
        plan.bind(op.counter.data, begin)
        plan.under(runs, lambda: plan.block(op.body.block))
        return
    loop(plan, op, begin, step, end, lambda value: plan.bind(op.counter.data, plan.beside_numbers(value, runs)))


def _once(plan: Plan, op: t.For) -> bool:
    """The loop makes one iteration, whatever the arguments."""
    begin, end, step = (plan.values.number(plan.expr(e.expr)) for e in (op.begin, op.end, op.step))
    return begin is not None and end is not None and step is not None and begin < end <= begin + step


def _at_most_once(plan: Plan, op: t.For) -> bool:
    """The text of the loop's end says that it makes no second iteration: a branch, also in the PTX, but for those of
    which it was found to have a loop."""
    if op in plan.kept:
        return False
    begin, step, most = op.begin.expr.constant, op.step.expr.constant, plan.ends(op.end.expr)[1]
    return begin is not None and step is not None and most is not None and most <= begin + step


def loop(
    plan: Plan, op: t.For | t.Programs, begin: Value, step: Value, end: Value, bind: Callable[[Value], None]
) -> None:
    """The region of a loop over ``begin, begin + step, ...`` below ``end``; ``bind`` names the present one."""
    values, cases, terms = plan.values, plan.cases, plan.terms
    name = plan.regions.setdefault(op, f"loop{len(plan.regions)}")
    outer, outer_holds = plan.region, plan.holds
    saved = dict(plan.symbols)
    if isinstance(op, t.Programs) and op.drawn is not None:
        if plan.loops:
            raise Undecided("programs that are drawn in a loop", plan.where(op))
        drawn = plan.bounds.draws(name, begin, _next_program(op))
        present, following = drawn.present, drawn.next
    else:
        plan.iterations.counts(name, [begin, end, step])
        present = values.add(begin, values.mul(step, plan.iterations.count(name)))
        following = values.add(present, step)
    runs = values.test(cases.less, begin, end)
    region = LoopBody(name, cases.both(outer_holds, runs), plan.next(), plan.where(op), around=outer_holds)
    plan.conditions[name] = values.test(cases.less, present, end)
    region.again = values.test(cases.less, following, end)
    outer_loops, plan.loops = plan.loops, (*plan.loops, name)
    plan.never_negative(values.sub(values.sub(end, terms.const(0, 1)), present))
    least, most = (terms.interval(v)[k] if isinstance(v, Poly) else None for k, v in enumerate((begin, end)))
    if isinstance(present, Poly) and least == 0 and most is not None and most <= MAX_EXTENT:
        terms.bound(present, 0, MAX_EXTENT)  # wider than what ends the loop, which is compared
    # counters have closed forms
    bind(present)
    steps = {c: _advanced(plan, op.body.block, c, plan.loops) for c in sorted(plan.counters)}
    starts = {c: plan.symbols[c] for c in steps}
    for c, by in steps.items():
        if by is None:
            continue
        closed = plan.iterations.closed(name, starts[c], by)
        if closed is None:
            raise Undecided(f"counter {c}")
        plan.bind(c, closed)
        _counted(plan, c, closed)
    held = _CarriedState.carried(plan, region, _written(op.body.block))
    plan.region, plan.holds = region, cases.true
    plan.block(op.body.block)
    plan.region, plan.holds, plan.loops = outer, outer_holds, outer_loops
    last = terms.sub(plan.iterations.trips(name), terms.const(0, 1))
    held.leave(plan, region, runs, last)
    outer.loops.append(region)
    for c, by in steps.items():
        if by is None:
            continue
        behind = plan.iterations.left(values.add(_closed_again(plan, name, starts[c], by), by), name, last)
        saved[c] = values.select(runs, behind, starts[c])
        _counted(plan, c, behind)
    plan.restore(saved)


def _next_program(op: t.Programs) -> t.Bind:
    """The op that names the next one of programs that are drawn."""
    found = [o for o in ops_in(op.body.block) if isinstance(o, t.Bind) and o.symbol == op.drawn]
    if len(found) != 1:
        raise Undecided("programs that are drawn, of which the next is named elsewhere or twice")
    return found[0]


def _counted(plan: Plan, counter: str, value: Value) -> None:
    """A counter is never negative, and one of which the text keeps no remainder at most what a launch counts."""
    if counter in plan.periodic:
        plan.never_negative(value)
    else:
        plan.bounded(value, 0, MAX_EXTENT)


@dataclass(frozen=True)
class _CarriedState:
    """The state of buffers and memory before a loop, and at the start of an iteration."""

    before: dict[SSAValue, list[Value]]
    atoms: dict[SSAValue, list[Value]]
    states: dict[str, Value]

    @staticmethod
    def carried(plan: Plan, region: LoopBody, written: Iterable[SSAValue]) -> _CarriedState:
        """Buffers that the body writes and the contents of memory become values that iterations carry."""
        terms = plan.terms
        before = {b: list(plan.buffers[b]) for b in written if b in plan.buffers}
        states = dict(plan.states)
        for buffer, elements in before.items():
            label = len(region.carried)
            plan.buffers[buffer] = [
                terms.data(e.width, e.width, "carry", region.name, f"{label}.{k}") for k, e in enumerate(elements)
            ]
            for k, e in enumerate(elements):
                region.carried[f"{label}.{k}"] = Carried(e)
        for state in states:
            plan.states[state] = terms.of(0, terms.atom("carry", region.name, f"@{state}", low=0))
            region.carried[f"@{state}"] = Carried(states[state])
        return _CarriedState(before, {b: list(plan.buffers[b]) for b in before}, states)

    def leave(self, plan: Plan, region: LoopBody, runs: Condition, last: Poly) -> None:
        """Behind the loop, whose last iteration is ``last``: what iterations carry on, and what is left of it."""
        select, left = plan.values.select, plan.iterations.left
        for buffer, elements in self.before.items():
            after: list[Value] = []
            for atom, now, old in zip(self.atoms[buffer], plan.buffers[buffer], elements, strict=True):
                region.carried[_carried_name(plan.terms, atom)].next = now
                behind = left(now, region.name, last)
                after.append(old if now is atom else select(runs, behind, old))
            plan.buffers[buffer] = after
        for state, old in self.states.items():
            region.carried[f"@{state}"].next = plan.states[state]
            plan.states[state] = select(runs, left(plan.states[state], region.name, last), old)


def _closed_again(plan: Plan, name: str, start: Value, by: Value) -> Value:
    closed = plan.iterations.closed(name, start, by)
    assert closed is not None
    return closed


def _advanced(plan: Plan, block: Block, counter: str, loops: tuple[str, ...]) -> Value | None:
    """The amount by which one run of a block, in some loops, advances a counter; None where it does not."""
    total: Value | None = None
    for op in ops_in(block):
        by: Value | None = None
        if isinstance(op, a.Advance) and op.symbol.data == counter:
            by = plan.expr(op.by.expr)
        elif isinstance(op, t.For):
            by = _advanced_by_loop(plan, op, counter, loops)
        elif isinstance(op, t.Let):
            plan.let(op.symbol.data, op.value.expr)
        elif isinstance(op, t.Bind):
            plan.bind(op.symbol.data, plan.bounds.value(op, loops))
        elif isinstance(op, t.If | a.Elected | t.Programs):
            for region in op.regions:
                if any(isinstance(o, a.Advance) and o.symbol.data == counter for o in region.walk()):
                    if not isinstance(op, a.Elected):
                        raise Undecided(f"counter {counter} in a branch")
                    by = _advanced(plan, region.block, counter, loops)
        if by is not None:
            total = by if total is None else plan.values.add(total, by)
    return total


def _advanced_by_loop(plan: Plan, op: t.For, counter: str, loops: tuple[str, ...]) -> Value | None:
    """By how much all iterations of a loop advance a counter, each as much as the others."""
    if not any(isinstance(o, a.Advance) and o.symbol.data == counter for o in op.walk()):
        return None
    if _once(plan, op):
        return _advanced(plan, op.body.block, counter, loops)
    if _at_most_once(plan, op):
        inner = _advanced(plan, op.body.block, counter, loops)
        return None if inner is None else plan.values.select(_runs(plan, op), inner, plan.terms.const(0, 0))
    name = plan.regions.setdefault(op, f"loop{len(plan.regions)}")
    inner = _advanced(plan, op.body.block, counter, (*loops, name))
    if inner is None:
        return None
    if plan.iterations.varies(inner, name):
        raise Undecided(f"counter {counter}")
    plan.iterations.counts(name, [plan.expr(e.expr) for e in (op.begin, op.end, op.step)])
    return plan.values.select(
        _runs(plan, op), plan.values.mul(inner, plan.iterations.trips(name)), plan.terms.const(0, 0)
    )


def _runs(plan: Plan, op: t.For) -> Condition:
    """The condition under which a loop makes an iteration."""
    return plan.values.test(plan.cases.less, plan.expr(op.begin.expr), plan.expr(op.end.expr))


def _written(block: Block) -> dict[SSAValue, None]:
    """Register buffers that a block writes and doesn't declare."""
    found: dict[SSAValue, None] = {}
    declared: set[SSAValue] = set()
    for op in block.walk():
        match op:
            case t.Registers():
                declared.add(op.buffer)
            case t.Load() | t.SharedRead() | t.ClusterRead() | a.LoadMatrix():
                found[op.buffer] = None
            case t.Map():
                found |= dict.fromkeys(op.outputs)
            case t.Fold():
                found |= dict.fromkeys(op.targets)
            case t.Shuffle():
                found |= dict.fromkeys(op.buffers)
            case t.RegisterSelect() | t.Exchange():
                found[op.target] = None
            case a.Wgmma() | a.Mma():
                found[op.accumulator] = None
            case _:
                pass
    return {b: None for b in found if b not in declared}


def _carried_name(terms: Terms, value: Value) -> str:
    """A region's name for a variable that its loop carries."""
    atom = terms.single(value) if isinstance(value, Poly) else None
    assert atom is not None
    return str(atom.args[1])


OPS: dict[type[Operation], Callable[..., None]] = {
    t.Let: name_integer,
    t.Bind: name_loaded,
    t.If: branch,
    t.For: repeat,
    t.Programs: programs,
    a.Role: in_role,
    a.Elected: elected,
    a.Counter: counter,
    a.Advance: advance,
}
