"""Proves that programs which were rewritten before they were scheduled compute what the kernel says.

    swapped    op by op the kernel's own, where a value may be held transposed: ``(a b)^T = b^T a^T``
    split      of ``f = 0; for i < T: f += X(i); rest`` one kernel sums ``X(s * per + j)`` over ``j`` for each part s,
               the other one adds the parts, and does the rest; so too of ``f = max(f, X(i))`` and ``min``, from any
               number, which each part begins with. With ``per = ceil(T / parts)`` and ``parts >= 1`` every
               i below T is ``s * per + j`` of one part and one j below ``min(per, T - s * per)``; the order of sums is
               free (docs/language.md). That all sums are there when they are read, ``proofs.steps`` proves.
    rest       the kernel's own without its streams, for launches in which none of them has a step
    clustered  the same in one kernel, each of whose programs s sums up a part of as many steps, adds its share of the
               columns of all parts, and does the rest for it. Steps from T on add products over no elements.

Both sides are walked together, ops that nothing uses left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute, SSAValue

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import (
    OWN,
    TRUE,
    Any_,
    Compare,
    Const,
    Expr,
    Sym,
    ceildiv,
    conjuncts,
    maximum,
    minimum,
    simplify,
)
from tilewright.diag import TilewrightError, fail
from tilewright.lang.axes import Coord, Span
from tilewright.lang.fns import BinaryFn, ReduceFn
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr, RangeAttr
from tilewright.tile.ops import ops_in, program_index
from tilewright.tile.queries import coords_of, is_arithmetic, tensor_name

Names = Mapping[str, Expr]
Turn = tuple[int, ...]
_ALIKE, _TURNED = (0, 1), (1, 0)
_FOLDS = {BinaryFn.ADD: ReduceFn.SUM, BinaryFn.MAX: ReduceFn.MAX, BinaryFn.MIN: ReduceFn.MIN}
"""What may be taken in in any order; all but sums as often as one likes."""


class UnlikeError(Exception):
    """Where a rewritten program is not the kernel's."""


class RewrittenKernel(Protocol):
    """A kernel that a step launches, and the program that it came from where it is another one: at its extents, and at
    those of its shares."""

    @property
    def tile(self) -> tile.Kernel: ...
    @property
    def wholes(self) -> tuple[tile.Kernel, ...]: ...
    @property
    def binding(self) -> Mapping[str, Expr]: ...


def certify_rewritten(kernels: Sequence[RewrittenKernel], predicate: Expr) -> tuple[Obligation, ...]:
    """The obligations of a variant's kernels, in order, of which the last may be rewritten, or the last two together;
    ``predicate`` holds of its launches. CRT003 for one that does not hold."""
    found = [(kernel.wholes, kernel.tile, kernel.binding) for kernel in kernels if kernel.wholes]
    match found:
        case []:
            return ()
        case [((whole,), made, _)]:
            return (
                certify_rest(whole, made, predicate)
                if not any(isinstance(op, tile.Dot) for op in made.walk())
                else certify_swapped(whole, made),
            )
        case [((whole, shares), made, _)]:
            return (certify_clustered(whole, shares, made),)
        case [((whole,), product, given), ((same,), combine, other)]:
            if given != other:
                _refuse("split", "two kernels that are told of other parts")
            return (certify_split((whole, same), product, combine, given),)
        case _:
            _refuse("split", f"{len(found)} kernels that were rewritten")


def certify_swapped(whole: tile.Kernel, made: tile.Kernel) -> Obligation:
    """The obligation of a kernel with swapped operands; CRT003 where it is another program."""
    try:
        _same_frame(whole, made, [extent.expr for extent in whole.grid])
        match = _Match({})
        match.arguments(whole, made)
        match.block(whole.body.block, made.body.block)
    except UnlikeError as why:
        _refuse("swapped", f"{made.sym_name.data}: {why}")
    return in_swapped_operands()


def certify_rest(whole: tile.Kernel, made: tile.Kernel, predicate: Expr) -> Obligation:
    """The obligation of a kernel that is ``whole`` where an extent is 0, as ``predicate`` says: without the streams
    that then have no step, and with zeros for products over nothing; CRT003 where it is another program, or a stream
    may have a step."""
    try:
        cases = (each.args if isinstance(each, Any_) else (each,) for each in conjuncts(predicate))
        extents = [names for several in cases if (names := _extents_of_0(several))]
        found = next((names for names in extents if all(_without(whole, made, name) for name in names)), None)
        if found is None:
            raise UnlikeError(f"streams may have steps where {predicate}")
        _same_frame(whole, made, [extent.expr for extent in whole.grid])
        for name in found:
            match = _MatchOfRest(name)
            match.arguments(whole, made)
            match.block(whole.body.block, made.body.block)
    except UnlikeError as why:
        _refuse("rest", f"{made.sym_name.data}: {why}")
    return in_rest(predicate)


def is_rest(whole: tile.Kernel, made: tile.Kernel, predicate: Expr) -> bool:
    """Whether that obligation holds."""
    try:
        certify_rest(whole, made, predicate)
    except TilewrightError:
        return False
    return True


def _extents_of_0(cases: Sequence[Expr]) -> list[str]:
    """The extents of which each case says that one is 0; none where a case says something else."""
    extents = [c.lhs.name for c in cases if isinstance(c, Compare) and isinstance(c.lhs, Sym) and c == c.lhs.eq(0)]
    return extents if len(extents) == len(cases) else []


def _without(whole: tile.Kernel, made: tile.Kernel, extent: str) -> bool:
    """As many streams may have a step where the extent is 0 as there are in ``made``, and less is computed."""
    streams, left = ([op for op in kernel.walk() if isinstance(op, tile.Stream)] for kernel in (whole, made))
    products = [op for op in whole.walk() if isinstance(op, tile.Dot)]
    may = [op for op in streams if not _is_none(op, extent)]
    if len(left) == len(streams) and not any(_is_none(op, extent) for op in products):
        raise UnlikeError("no streams that it is without, and no products over nothing")
    return len(may) == len(left)


def _is_none(op: Operation, extent: str) -> bool:
    """A stream has no step, or a product has nothing to add up, where the extent is 0."""
    if isinstance(op, tile.Stream):
        amount = op.trip.expr
    elif isinstance(op, tile.Dot):
        axis = tile.tile_type(op.a).axes_tuple[1]
        amount = axis.stop - axis.origin if isinstance(axis, Span) else Const(1)
    else:
        return False
    amount = amount.substitute({extent: 0})
    return simplify(amount <= 0, dict.fromkeys(amount.symbols, (0, None))) == TRUE


def certify_split(
    wholes: tuple[tile.Kernel, tile.Kernel], product: tile.Kernel, combine: tile.Kernel, given: Names
) -> Obligation:
    """The obligation of a stream that is cut into parts; CRT003 where the kernels are not the program's.

    ``wholes`` is the program at the extents of ``product`` and at those of ``combine``, ``given`` what a launch passes
    for symbols of theirs.
    """
    try:
        parts = product.grid.data[0].expr
        count = parts.substitute(given)
        least = dict.fromkeys(count.symbols, (0, None))
        if simplify(count >= 1, least) != TRUE or any(OWN in name or "." in name for name in count.symbols):
            raise UnlikeError(f"{count} parts")
        stored = _product(wholes[0], product, parts)
        loaded = _combine(wholes[1], combine, parts)
        if stored != loaded:
            raise UnlikeError(
                f"sums stored to {', '.join(map(str, stored))}, loaded from {', '.join(map(str, loaded))}"
            )
    except UnlikeError as why:
        _refuse("split", str(why))
    return in_parts(count)


def certify_clustered(whole: tile.Kernel, shares: tile.Kernel, made: tile.Kernel) -> Obligation:
    """The obligation of a stream in parts that one kernel sums up and adds; CRT003 where it is not the program.

    ``whole`` is the program at the extents of a part's tiles, ``shares`` at those of what is added of them.
    """
    try:
        parts = made.grid.data[-1].expr.constant
        if parts is None or parts < 1:
            raise UnlikeError("programs that are no parts")
        totals, rest = _parts_in_cluster(whole, made, int(parts))
        _rest_of_shares(shares, made, int(parts), totals, rest)
    except UnlikeError as why:
        _refuse("clustered", f"{made.sym_name.data}: {why}")
    return in_cluster(int(parts))


def in_rest(predicate: Expr) -> Obligation:
    """What is said of a kernel without its streams."""
    return Obligation("rest", "identity", f"no stream has a step where {predicate}")


def in_swapped_operands() -> Obligation:
    """What is said of a kernel with swapped operands."""
    return Obligation("swapped", "identity", "(a b)^T = b^T a^T")


def in_parts(count: Expr) -> Obligation:
    """What is said of a stream that is cut into parts."""
    return Obligation("split", "identity", f"{count} parts, each step in one of them")


def in_cluster(parts: int) -> Obligation:
    """What is said of a stream in parts that one kernel sums up and adds."""
    return Obligation("clustered", "identity", f"{parts} parts, each step in one of them, each column in one share")


# -- the one kernel of a split -----------------------------------------------------------------------------------------
def _parts_in_cluster(
    whole: tile.Kernel, made: tile.Kernel, parts: int
) -> tuple[list[tile.ProgramSum], list[Operation]]:
    """Compares the stream; returns the sums over programs, one a fragment in order, and the ops behind them."""
    axis = len(whole.grid)
    _same_frame(whole, made, [*(extent.expr for extent in whole.grid), Const(parts)])
    match = _Match({})
    match.arguments(whole, made)
    stream, fragments = _accumulating(whole)
    before = ops_in(whole.body.block)
    left = _live(before[: before.index(stream) + 1])
    right = _live(ops_in(made.body.block))
    if len(right) < len(left):
        raise UnlikeError(f"{len(right)} ops")
    at = len(left) - 1
    match.ops(left[:-1], right[:at])
    own, counter, part = right[at], stream.counter.data, Sym(program_index(axis))
    per = ceildiv(stream.trip.expr, parts)
    if not isinstance(own, tile.Stream) or own.counter != stream.counter or own.trip.expr != per:
        raise UnlikeError("no stream of a part's steps")
    match.within({counter: part * per + Sym(counter)}).stream(stream, own)
    _nothing_beyond(stream)
    behind = right[len(left) :]
    sums = [op for op in behind if isinstance(op, tile.ProgramSum)]
    if len(sums) != len(fragments):
        raise UnlikeError(f"{len(sums)} sums over programs")
    for fragment, total in zip(fragments, sums, strict=True):
        if _fold(_write_of(fragment)) is not BinaryFn.ADD:
            raise UnlikeError("a sum over programs of what steps do not add")
        read, turn = _behind(total.x)
        held = match.values[fragment.result]
        if not isinstance(read.owner, tile.FragmentRead) or read.owner.frag is not held[0] or turn != _ALIKE:
            raise UnlikeError("a sum over programs that is not of a part")
        if (total.axis.data, total.parts.data) != (axis, parts) or not _precedes(own, read.owner):
            raise UnlikeError("a sum over other programs")
    reads = {_behind(total.x)[0].owner for total in sums}
    return sums, [op for op in behind if op not in sums and op not in reads]


def _nothing_beyond(stream: tile.Stream) -> None:
    """Steps beyond the last are over no elements, and what they add are products over these."""
    span, counter = stream.axis.data, Sym(stream.counter.data)
    if span.origin != counter * span.size or stream.trip.expr != ceildiv(span.stop, span.size):
        raise UnlikeError(f"a stream over {span} in {stream.trip.expr} steps")
    for op in ops_in(stream.body.block):
        if isinstance(op, tile.FragmentWrite):
            term = _added_to(op)
            if not isinstance(term, tile.Dot) or tile.tile_type(term.a).axes.data[1] != stream.axis:
                raise UnlikeError("a step that adds more than a product over its elements")


def _rest_of_shares(
    shares: tile.Kernel, made: tile.Kernel, parts: int, totals: Sequence[tile.ProgramSum], rest: Sequence[Operation]
) -> None:
    """Compares what is done with a share. Programs beyond the columns store nothing: each store is of some."""
    axis = len(shares.grid) - 1
    column, part = program_index(axis), Sym(program_index(axis + 1))
    names = {column: Sym(column) * parts + part}
    stream, fragments = _accumulating(shares)
    if len(fragments) != len(totals):
        raise UnlikeError(f"{len(totals)} sums for {len(fragments)} fragments")
    match = _Match(names)
    match.arguments(shares, made)
    for fragment, total in zip(fragments, totals, strict=True):
        axes = tile.fragment_type(fragment.result).axes_tuple
        if [_axis(own, names) for own in axes] != list(tile.tile_type(total.result).axes_tuple):
            raise UnlikeError("a share of other columns")
        span = axes[-1]
        if not isinstance(span, Span) or span.origin != Sym(column) * span.size:
            raise UnlikeError("a share that is not the grid's last axis")
        if shares.grid.data[-1].expr != ceildiv(span.stop, span.size):
            raise UnlikeError("other programs than there are shares")
        match.values |= {
            op.result: (total.result, _ALIKE)
            for op in ops_in(shares.body.block)
            if isinstance(op, tile.FragmentRead) and op.frag is fragment.result
        }
    ops = [op for op in ops_in(shares.body.block) if op is not stream and op not in fragments]
    left = [op for op in _live(ops) if not isinstance(op, tile.FragmentRead)]
    for op in left:
        stores = isinstance(op, tile.Store) and any(
            isinstance(c, Span) and column in c.origin.symbols for c in coords_of(op)
        )
        if not op.results and not stores:
            raise UnlikeError(f"{op.name} by programs without columns")
    match.ops(left, rest)


# -- the two kernels of a split ----------------------------------------------------------------------------------------
def _product(whole: tile.Kernel, made: tile.Kernel, parts: Expr) -> list[tile.TensorType]:
    """Compares the kernel that multiplies; returns the tensors of the fragments' sums, in order."""
    names: dict[str, Expr] = {program_index(i): Sym(program_index(i + 1)) for i in range(len(whole.grid))}
    grid = [parts, *(extent.expr.substitute(names) for extent in whole.grid)]
    _same_frame(whole, made, grid, [parts >= 1])
    match = _Match(names)
    match.arguments(whole, made)
    stream, fragments = _accumulating(whole)
    before = ops_in(whole.body.block)
    left = _live(before[: before.index(stream) + 1])
    right = _live(ops_in(made.body.block))
    if len(right) < len(left):
        raise UnlikeError(f"{len(right)} ops")
    at, behind = len(left) - 1, right[len(left) :]
    match.ops(left[:-1], right[:at])
    _stream_of_part(match, stream, right[at], parts)
    stores = [op for op in behind if isinstance(op, tile.Store)]
    if len(stores) != len(fragments) or any(not isinstance(op, tile.Store | tile.FragmentRead) for op in behind):
        raise UnlikeError("what a part does with its sums")
    part = Sym(program_index(0))
    for fragment, store in zip(fragments, stores, strict=True):
        read, turn = _behind(store.value)
        held = match.values[fragment.result]
        if not isinstance(read.owner, tile.FragmentRead) or read.owner.frag is not held[0] or turn != _inverse(held[1]):
            raise UnlikeError(f"{tensor_name(store)} is not stored the sum of a part")
        place = [_coord(c, names) for c in _place(whole, fragment)]
        if list(coords_of(store)) != [part, *place]:
            raise UnlikeError(f"the sums of {tensor_name(store)} lie elsewhere")
    return [tile.tensor_type(store.tensor) for store in stores]


def _stream_of_part(match: _Match, stream: tile.Stream, made: Operation, parts: Expr) -> None:
    trip, counter, part = stream.trip.expr, stream.counter.data, Sym(program_index(0))
    per = ceildiv(trip, parts)
    if not isinstance(made, tile.Stream) or made.counter != stream.counter:
        raise UnlikeError("no stream of a part's steps")
    if made.trip.expr != minimum(per, maximum(trip - part * per, 0)):
        raise UnlikeError(f"a part of {made.trip.expr} steps")
    match.within({**match.names, counter: part * per + Sym(counter)}).stream(stream, made)


def _combine(whole: tile.Kernel, made: tile.Kernel, parts: Expr) -> list[tile.TensorType]:
    """Compares the kernel that adds; returns the tensors of the fragments' sums, in order."""
    _same_frame(whole, made, [extent.expr for extent in whole.grid], [parts >= 1])
    match = _Match({})
    match.arguments(whole, made)
    stream, fragments = _accumulating(whole)
    left = _live([op for op in ops_in(whole.body.block) if op is not stream], kept=fragments)
    right = ops_in(made.body.block)
    (adding,) = [op for op in right if isinstance(op, tile.Stream) and match.is_new(op, whole)] or [None]
    if adding is None:
        raise UnlikeError("no stream over the parts")
    rest = _live(
        [op for op in right if op is not adding], kept=[op for op in right if isinstance(op, tile.FragmentInit)]
    )
    match.ops(left, rest)
    if not all(_precedes(match.made_of(fragment), adding) for fragment in fragments):
        raise UnlikeError("sums are added before there is a fragment")
    behind = right[: right.index(adding)]
    if any(isinstance(op, tile.FragmentRead) or not op.results for op in behind):
        raise UnlikeError("something is done before the sums are added")
    return _added(match, whole, fragments, adding, parts)


def _added(
    match: _Match, whole: tile.Kernel, fragments: Sequence[tile.FragmentInit], adding: tile.Stream, parts: Expr
) -> list[tile.TensorType]:
    span = adding.axis.data
    counter = Sym(adding.counter.data)
    if (span.origin, span.stop) != (counter * span.size, parts) or adding.trip.expr != ceildiv(parts, span.size):
        raise UnlikeError(f"a stream over {span} in {adding.trip.expr} steps")
    if adding.begin.expr != Const(0):
        raise UnlikeError(f"a stream over the parts from {adding.begin.expr}")
    body = ops_in(adding.body.block)
    writes = [op for op in body if isinstance(op, tile.FragmentWrite)]
    if len(writes) != len(fragments) or any(not op.results for op in body if op not in writes and op is not body[-1]):
        raise UnlikeError("what is done with the parts")
    found: list[tile.TensorType] = []
    for fragment, write in zip(fragments, writes, strict=True):
        term, fold = _added_to(write), _fold(write)
        some = isinstance(term, tile.Reduce) and term.fn.data is _FOLDS[fold] and term.axis.data == 0
        if fold is not _fold(_write_of(fragment)):
            raise UnlikeError("parts that are put together otherwise than steps are")
        load = term.x.owner if isinstance(term, tile.Reduce) and some else term
        if write.frag is not match.values[fragment.result][0] or not isinstance(load, tile.Load):
            raise UnlikeError("a fragment that is not added its parts")
        if list(coords_of(load)) != [span if some else counter, *_place(whole, fragment)] or span.size > 1 > some:
            raise UnlikeError(f"the sums of {tensor_name(load)} are read elsewhere")
        found.append(tile.tensor_type(load.tensor))
    if len(set(found)) != len(found):
        raise UnlikeError("sums that are read twice")
    return found


def _accumulating(whole: tile.Kernel) -> tuple[tile.Stream, list[tile.FragmentInit]]:
    """The program's one stream, which only adds to fragments that begin at zero: terms that depend on none of them."""
    ops = ops_in(whole.body.block)
    streams = [op for op in ops if isinstance(op, tile.Stream)]
    if len(streams) != 1 or any(name.startswith(OWN) for name in streams[0].trip.expr.symbols):
        raise UnlikeError("not one stream of as many steps in every program")
    (stream,) = streams
    if any(not op.results or isinstance(op, tile.FragmentRead) for op in ops[: ops.index(stream)]):
        raise UnlikeError("an effect before the stream, or a fragment read")
    body = ops_in(stream.body.block)
    writes = [op for op in body if isinstance(op, tile.FragmentWrite)]
    if any(op.regions or not (op.results or isinstance(op, tile.FragmentWrite | tile.Yield)) for op in body):
        raise UnlikeError("a stream with effects of its own")
    fragments: list[tile.FragmentInit] = []
    for write in writes:
        _added_to(write)
        fragment = write.frag.owner
        begins = _is_zero if _fold(write) is BinaryFn.ADD else _is_constant
        if not isinstance(fragment, tile.FragmentInit) or not begins(fragment.init) or fragment in fragments:
            raise UnlikeError("a fragment that does not begin at zero, or is added to twice")
        fragments.append(fragment)
    if len([op for op in body if isinstance(op, tile.FragmentRead)]) != len(writes):
        raise UnlikeError("a stream that reads a fragment twice")
    return stream, fragments


def _added_to(write: tile.FragmentWrite) -> Operation:
    """What ``f += X`` adds: the op of X, if f is read for nothing else."""
    total = write.value.owner
    if not isinstance(total, tile.Binary) or total.fn.data not in _FOLDS:
        raise UnlikeError("a fragment that is not added to")
    reads = [v.owner for v in total.operands if isinstance(v.owner, tile.FragmentRead)]
    terms = [v.owner for v in total.operands if not isinstance(v.owner, tile.FragmentRead)]
    if len(reads) != 1 or len(terms) != 1 or reads[0].frag is not write.frag or len(list(reads[0].result.uses)) != 1:
        raise UnlikeError("a fragment that is not added to")
    if len(list(total.result.uses)) != 1 or reads[0].parent_block() is not write.parent_block():
        raise UnlikeError("a sum that goes elsewhere")
    (term,) = terms
    assert isinstance(term, Operation)
    return term


def _fold(write: tile.FragmentWrite) -> BinaryFn:
    """How a fragment takes in a term (``_added_to``)."""
    total = write.value.owner
    assert isinstance(total, tile.Binary)
    return total.fn.data


def _write_of(fragment: tile.FragmentInit) -> tile.FragmentWrite:
    """The one of the program's stream."""
    uses = [use.operation for use in fragment.result.uses]
    (write,) = (op for op in uses if isinstance(op, tile.FragmentWrite))
    return write


def _is_zero(value: SSAValue) -> bool:
    return str(_constant(value)) in ("0.0", "0")


def _is_constant(value: SSAValue) -> bool:
    return _constant(value) is not None


def _constant(value: SSAValue) -> object:
    op = value.owner
    while isinstance(op, tile.Expand | tile.Broadcast | tile.Transpose):
        op = op.operands[0].owner
    return op.value.data if isinstance(op, tile.Constant) else None


def _place(whole: tile.Kernel, fragment: tile.FragmentInit) -> list[Coord]:
    """Where the sums of a program's fragment lie in those of all: its place along the grid's axes that no axis of the
    fragment runs along, then the fragment's spans."""
    axes = tile.fragment_type(fragment.result).axes_tuple
    spans = [axis for axis in axes if isinstance(axis, Span)]
    if len(spans) != len(axes):
        raise UnlikeError("a fragment with an axis without a place")
    along = set[int]()
    for span in spans:
        here = {i for i in range(len(whole.grid)) if span.origin == Sym(program_index(i)) * span.size} - along
        if len(here) != 1:
            raise UnlikeError("a fragment whose tiles are not the grid's")
        along |= here
    return [*(Sym(program_index(i)) for i in range(len(whole.grid)) if i not in along), *spans]


# -- op by op ----------------------------------------------------------------------------------------------------------
class _Match:
    """Walks two programs together, the second under other ``names``. ``values``: for a value of the first the second's,
    and the first's axis that each of its axes is."""

    def __init__(self, names: Names, values: dict[SSAValue, tuple[SSAValue, Turn]] | None = None):
        self.names = names
        self.values: dict[SSAValue, tuple[SSAValue, Turn]] = {} if values is None else values

    def within(self, names: Names) -> _Match:
        """The same under other names, inside of a stream."""
        return _Match(names, self.values)

    def arguments(self, one: tile.Kernel, other: tile.Kernel) -> None:
        """The arguments of equal names."""
        named = dict(zip((n.data for n in other.arg_names), other.body.block.args, strict=True))
        for name, arg in zip((n.data for n in one.arg_names), one.body.block.args, strict=True):
            if name not in named or named[name].type != arg.type:
                raise UnlikeError(f"no argument {name}")
            self.values[arg] = (named[name], ())

    def is_new(self, stream: tile.Stream, whole: tile.Kernel) -> bool:
        """A stream over something else than any of the kernel's."""
        counters = {op.counter for op in whole.walk() if isinstance(op, tile.Stream)}
        return stream.counter not in counters

    def made_of(self, op: tile.FragmentInit) -> Operation:
        """The fragment of the second program."""
        made = self.values[op.result][0].owner
        assert isinstance(made, Operation)
        return made

    def block(self, one: Block, other: Block) -> None:
        """All ops of two blocks."""
        self.ops(_live(ops_in(one)), _live(ops_in(other)))

    def ops(self, one: Sequence[Operation], other: Sequence[Operation]) -> None:
        """Two lists of ops."""
        if len(one) != len(other):
            raise UnlikeError(f"{len(other)} ops, not {len(one)}")
        for x, y in zip(one, other, strict=True):
            self.op(x, y)

    def stream(self, x: tile.Stream, y: tile.Stream) -> None:
        """Two streams, but for how many steps they have."""
        if not self.alike(x.axis, y.axis) or not self.alike(x.begin, y.begin):
            raise UnlikeError(f"a stream over {y.axis.data}")
        self.block(x.body.block, y.body.block)

    def op(self, x: Operation, y: Operation) -> None:
        """Two ops; notes how the second's results lie."""
        if type(x) is not type(y):
            raise UnlikeError(f"{y.name}, not {x.name}")
        if isinstance(x, tile.Stream) and isinstance(y, tile.Stream):
            if x.counter != y.counter or not self.alike(x.trip, y.trip):
                raise UnlikeError(f"a stream of {y.trip.expr} steps")
            self.stream(x, y)
            return
        turn = self._turn(x, y)
        operands = list(zip(x.operands, y.operands, strict=True))
        if isinstance(x, tile.Dot) and turn == _TURNED:
            operands = list(zip(x.operands, reversed(y.operands), strict=True))
        attributes = x.attributes.keys() - {"loc"}
        if attributes != y.attributes.keys() - {"loc"} or (x.regions and not x.is_structurally_equivalent(y)):
            raise UnlikeError(f"another {x.name}")
        if any(not self.alike(x.attributes[name], y.attributes[name]) for name in attributes):
            raise UnlikeError(f"another {x.name}")
        spread = (
            turn
            if isinstance(x, tile.Dot | tile.FragmentInit | tile.FragmentRead | tile.FragmentWrite) or is_arithmetic(x)
            else None
        )
        if not all(self._equal(a, b, spread) for a, b in operands):
            raise UnlikeError(f"{x.name} of other values")
        for a, b in zip(x.results, y.results, strict=True):
            self.values[a] = (b, turn)

    def _turn(self, x: Operation, y: Operation) -> Turn:
        """How the second op's result lies: as the first's where their types say so."""
        if isinstance(x, tile.FragmentRead | tile.FragmentWrite):
            return self.values[x.frag][1]
        if not x.results:
            return ()
        kinds = (x.results[0].type, y.results[0].type)
        if not all(isinstance(kind, tile.TileType | tile.FragmentType) for kind in kinds):
            return ()
        one, other = (kind.axes_tuple for kind in kinds if isinstance(kind, tile.TileType | tile.FragmentType))
        same = tuple(range(len(one)))
        if len(one) != len(other):
            raise UnlikeError(f"{x.name} of {len(other)} axes")
        for turn in dict.fromkeys((same, _TURNED if len(one) == len(_TURNED) else same)):
            if all(_axis(one[at], self.names) == other[i] for i, at in enumerate(turn)):
                return turn
        raise UnlikeError(f"{x.name} of other axes")

    def _equal(self, x: SSAValue, y: SSAValue, turn: Turn | None) -> bool:
        """Axis i of ``y`` is axis ``turn[i]`` of ``x`` (None: axis i), and they hold the same."""
        (one, own), (other, mine) = _behind(x), _behind(y)
        if one not in self.values or self.values[one][0] is not other:
            return False
        held = self.values[one][1] or tuple(range(len(mine)))
        asked = turn or tuple(range(len(own)))
        return all(held[mine[i]] == own[asked[i]] for i in range(len(mine)))

    def alike(self, one: Attribute, other: Attribute) -> bool:
        """Two attributes, the first under the names."""
        match one, other:
            case ExprAttr(), ExprAttr():
                return one.data.substitute(self.names) == other.data
            case RangeAttr(), RangeAttr():
                return _coord(one.data, self.names) == other.data
            case ArrayAttr(), ArrayAttr():
                return len(one) == len(other) and all(self.alike(a, b) for a, b in zip(one, other, strict=True))
            case ParametrizedAttribute(), ParametrizedAttribute() if type(one) is type(other):
                pairs = zip(one.parameters, other.parameters, strict=True)
                return all(self.alike(a, b) for a, b in pairs)
            case _:
                return one == other


class _MatchOfRest(_Match):
    """The second program is the first where an extent is 0."""

    def __init__(self, extent: str):
        super().__init__({})
        self.extent = extent

    def block(self, one: Block, other: Block) -> None:
        """All ops of two blocks; of the first none of what then is nothing, nor what only that uses."""
        ops = [op for op in ops_in(one) if not (isinstance(op, tile.Stream) and _is_none(op, self.extent))]
        products = [op for each in ops for op in each.walk() if isinstance(op, tile.Dot) and _is_none(op, self.extent)]
        left = _live(ops_in(other))
        expected = _live(ops, closed=products)
        zeros = [op for op in expected if op in products]
        if len(left) != len(expected) + 2 * len(zeros):
            raise UnlikeError(f"{len(left)} ops, not {len(expected) + 2 * len(zeros)}")
        others = iter(left)
        for op in expected:
            if op in zeros:
                self._zero(op, next(others), next(others), next(others))
            else:
                self.op(op, next(others))

    def _zero(self, product: Operation, constant: Operation, expanded: Operation, made: Operation) -> None:
        """A product over nothing is 0 in all of its elements."""
        result = made.results[0] if made.results else None
        if (
            not (isinstance(constant, tile.Constant) and constant.value.data == 0)
            or not (isinstance(expanded, tile.Expand) and expanded.operands[0] is constant.results[0])
            or not (isinstance(made, tile.Broadcast) and made.operands[0] is expanded.results[0])
            or result is None
            or result.type != product.results[0].type
        ):
            raise UnlikeError("no zeros for a product over nothing")
        self.values[product.results[0]] = (result, tuple(range(len(tile.tile_type(result).axes_tuple))))


def _same_frame(whole: tile.Kernel, made: tile.Kernel, grid: Sequence[Expr], also: Sequence[Expr] = ()) -> None:
    """Grid, bounds, requirements, and ``also`` these, and numerics."""
    if [extent.expr for extent in made.grid] != list(grid):
        raise UnlikeError("another grid")
    if [r.expr for r in made.requires] != [*(r.expr for r in whole.requires), *also]:
        raise UnlikeError("other requirements")
    for name in ("bounds", "numerics", "ascending", "gate", "queue"):
        if whole.attributes.get(name) != made.attributes.get(name):
            raise UnlikeError(f"other {name}")


def _live(
    ops: Sequence[Operation], kept: Sequence[Operation] = (), closed: Sequence[Operation] = ()
) -> list[Operation]:
    """Ops with an effect, those ``kept``, and what they use, but for those ``closed``, whose operands nobody reads;
    shapes that only turn axes are looked through."""
    used: set[SSAValue] = {v for op in kept for v in op.results}
    found: list[Operation] = []
    for op in reversed(ops):
        if op.results and not any(r in used for r in op.results):
            continue
        used |= {v for inner in op.walk() if inner not in closed for v in inner.operands}
        if not isinstance(op, tile.Transpose):
            found.append(op)
    return found[::-1]


def _behind(value: SSAValue) -> tuple[SSAValue, Turn]:
    """The value that one is a transposed view of, and which of its axes each axis is."""
    kind = value.type
    turn = tuple(range(kind.rank)) if isinstance(kind, tile.TileType | tile.FragmentType) else ()
    while isinstance(value.owner, tile.Transpose):
        turn = tuple(value.owner.perm.data[at].data for at in turn)
        value = value.owner.x
    return value, turn


def _inverse(turn: Turn) -> Turn:
    return tuple(turn.index(i) for i in range(len(turn)))


def _axis(axis: object, names: Names) -> object:
    return _coord(axis, names) if isinstance(axis, Span) else axis


def _coord(coord: Coord, names: Names) -> Coord:
    if isinstance(coord, Span):
        return Span(coord.origin.substitute(names), coord.size, coord.stop.substitute(names))
    return coord.substitute(names)


def _precedes(one: Operation, other: Operation) -> bool:
    block = one.parent_block()
    return block is not None and block.get_operation_index(one) < block.get_operation_index(other)


def _refuse(obligation: str, found: str) -> NoReturn:
    fail("CRT003", found=f"{obligation}: {found}", required="the program that was written")
