"""Compares a stream that was cut into parts with the program's: two kernels by way of workspaces, or one whose CTAs add
their sums in a cluster. ``proofs.rewritten`` has the identities."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import (
    OWN,
    Const,
    Expr,
    Sym,
    ceildiv,
    maximum,
    minimum,
)
from tilewright.compiler.proofs.program_match import (
    SAME_AXES,
    ProgramMatch,
    ProgramMismatchError,
    inverse,
    live_ops,
    precedes,
    renamed_axis,
    renamed_coord,
    require_same_frame,
    untransposed,
)
from tilewright.lang.axes import Coord, Span
from tilewright.lang.enums import BinaryFn, ReduceFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_in, program_index
from tilewright.tile.queries import coords_of, tensor_name

FOLDS = {BinaryFn.ADD: ReduceFn.SUM, BinaryFn.MAX: ReduceFn.MAX, BinaryFn.MIN: ReduceFn.MIN}
"""What may be taken in in any order; all but sums as often as one likes."""


def _up_to_stream(
    match: ProgramMatch, whole: tile.Kernel, made: tile.Kernel, stream: tile.StreamLoop
) -> tuple[Operation, list[Operation]]:
    """Compares what stands before the stream; returns the op of ``made`` in its place, and those behind it."""
    before = ops_in(whole.body.block)
    *left, _ = live_ops(before[: before.index(stream) + 1])  # the stream is the last, and what it uses lives
    right = live_ops(ops_in(made.body.block))
    at = len(left)
    if len(right) <= at:
        raise ProgramMismatchError(f"{len(right)} ops")
    match.ops(left, right[:at])
    return right[at], right[at + 1 :]


# -- one kernel, in clusters -------------------------------------------------------------------------------------------
def match_cluster_parts(
    whole: tile.Kernel, made: tile.Kernel, parts: int
) -> tuple[list[tile.ProgramSum], list[Operation]]:
    """Compares the stream; returns the sums over programs, one a fragment in order, and the ops behind them."""
    axis = len(whole.grid)
    require_same_frame(whole, made, [*(extent.expr for extent in whole.grid), Const(parts)])
    match = ProgramMatch({})
    match.arguments(whole, made)
    stream, fragments = accumulating_stream(whole)
    own, behind = _up_to_stream(match, whole, made, stream)
    counter, part = stream.counter.data, Sym(program_index(axis))
    per = ceildiv(stream.trip.expr, parts)
    if not isinstance(own, tile.StreamLoop) or own.counter != stream.counter or own.trip.expr != per:
        raise ProgramMismatchError("no stream of a part's steps")
    match.within({counter: part * per + Sym(counter)}).stream(stream, own)
    _nothing_beyond(stream)
    sums = [op for op in behind if isinstance(op, tile.ProgramSum)]
    if len(sums) != len(fragments):
        raise ProgramMismatchError(f"{len(sums)} sums over programs")
    for fragment, total in zip(fragments, sums, strict=True):
        if fold_of(write_of(fragment)) is not BinaryFn.ADD:
            raise ProgramMismatchError("a sum over programs of what steps do not add")
        read, permutation = untransposed(total.x)
        held = match.values[fragment.result]
        if not isinstance(read.owner, tile.FragmentRead) or read.owner.frag is not held[0] or permutation != SAME_AXES:
            raise ProgramMismatchError("a sum over programs that is not of a part")
        if (total.axis.data, total.parts.data) != (axis, parts) or not precedes(own, read.owner):
            raise ProgramMismatchError("a sum over other programs")
    reads = {untransposed(total.x)[0].owner for total in sums}
    return sums, [op for op in behind if op not in sums and op not in reads]


def _nothing_beyond(stream: tile.StreamLoop) -> None:
    """Requires that steps beyond the last add products over no elements."""
    span, counter = stream.axis.data, Sym(stream.counter.data)
    if span.origin != counter * span.size or stream.trip.expr != ceildiv(span.stop, span.size):
        raise ProgramMismatchError(f"a stream over {span} in {stream.trip.expr} steps")
    for op in ops_in(stream.body.block):
        if isinstance(op, tile.FragmentWrite):
            term = added_term(op)
            if not isinstance(term, tile.Dot) or tile.tile_type(term.a).axes.data[1] != stream.axis:
                raise ProgramMismatchError("a step that adds more than a product over its elements")


def match_shares(
    shares: tile.Kernel, made: tile.Kernel, parts: int, totals: Sequence[tile.ProgramSum], rest: Sequence[Operation]
) -> None:
    """Compares the code after the sums. Programs beyond the last column store nothing."""
    axis = len(shares.grid) - 1
    column, part = program_index(axis), Sym(program_index(axis + 1))
    names = {column: Sym(column) * parts + part}
    stream, fragments = accumulating_stream(shares)
    if len(fragments) != len(totals):
        raise ProgramMismatchError(f"{len(totals)} sums for {len(fragments)} fragments")
    match = ProgramMatch(names)
    match.arguments(shares, made)
    for fragment, total in zip(fragments, totals, strict=True):
        axes = tile.fragment_type(fragment.result).axes_tuple
        if [renamed_axis(own, names) for own in axes] != list(tile.tile_type(total.result).axes_tuple):
            raise ProgramMismatchError("a share of other columns")
        span = axes[-1]
        if not isinstance(span, Span) or span.origin != Sym(column) * span.size:
            raise ProgramMismatchError("a share that is not the grid's last axis")
        if shares.grid.data[-1].expr != ceildiv(span.stop, span.size):
            raise ProgramMismatchError("other programs than there are shares")
        match.values |= {
            op.result: (total.result, SAME_AXES)
            for op in ops_in(shares.body.block)
            if isinstance(op, tile.FragmentRead) and op.frag is fragment.result
        }
    ops = [op for op in ops_in(shares.body.block) if op is not stream and op not in fragments]
    left = [op for op in live_ops(ops) if not isinstance(op, tile.FragmentRead)]
    for op in left:
        stores = isinstance(op, tile.Store) and any(
            isinstance(c, Span) and column in c.origin.symbols for c in coords_of(op)
        )
        if not op.results and not stores:
            raise ProgramMismatchError(f"{op.name} by programs without columns")
    match.ops(left, rest)


# -- two kernels, by way of workspaces ---------------------------------------------------------------------------------
def match_product(whole: tile.Kernel, made: tile.Kernel, parts: Expr) -> list[tile.TensorType]:
    """Compares the kernel that computes partial sums; returns the tensors of the fragments' sums, in order."""
    names: dict[str, Expr] = {program_index(i): Sym(program_index(i + 1)) for i in range(len(whole.grid))}
    grid = [parts, *(extent.expr.substitute(names) for extent in whole.grid)]
    require_same_frame(whole, made, grid, [parts >= 1])
    match = ProgramMatch(names)
    match.arguments(whole, made)
    stream, fragments = accumulating_stream(whole)
    own, behind = _up_to_stream(match, whole, made, stream)
    _stream_of_part(match, stream, own, parts)
    stores = [op for op in behind if isinstance(op, tile.Store)]
    if len(stores) != len(fragments) or any(not isinstance(op, tile.Store | tile.FragmentRead) for op in behind):
        raise ProgramMismatchError("what a part does with its sums")
    part = Sym(program_index(0))
    for fragment, store in zip(fragments, stores, strict=True):
        read, permutation = untransposed(store.value)
        held = match.values[fragment.result]
        if (
            not isinstance(read.owner, tile.FragmentRead)
            or read.owner.frag is not held[0]
            or permutation != inverse(held[1])
        ):
            raise ProgramMismatchError(f"{tensor_name(store)} is not stored the sum of a part")
        place = [renamed_coord(c, names) for c in place_of_sums(whole, fragment)]
        if list(coords_of(store)) != [part, *place]:
            raise ProgramMismatchError(f"the sums of {tensor_name(store)} lie elsewhere")
    return [tile.tensor_type(store.tensor) for store in stores]


def _stream_of_part(match: ProgramMatch, stream: tile.StreamLoop, made: Operation, parts: Expr) -> None:
    trip, counter, part = stream.trip.expr, stream.counter.data, Sym(program_index(0))
    per = ceildiv(trip, parts)
    if not isinstance(made, tile.StreamLoop) or made.counter != stream.counter:
        raise ProgramMismatchError("no stream of a part's steps")
    if made.trip.expr != minimum(per, maximum(trip - part * per, 0)):
        raise ProgramMismatchError(f"a part of {made.trip.expr} steps")
    match.within({**match.names, counter: part * per + Sym(counter)}).stream(stream, made)


def match_combine(whole: tile.Kernel, made: tile.Kernel, parts: Expr) -> list[tile.TensorType]:
    """Compares the kernel that adds partial sums; returns the tensors of the fragments' sums, in order."""
    require_same_frame(whole, made, [extent.expr for extent in whole.grid], [parts >= 1])
    match = ProgramMatch({})
    match.arguments(whole, made)
    stream, fragments = accumulating_stream(whole)
    left = live_ops([op for op in ops_in(whole.body.block) if op is not stream], kept=fragments)
    right = ops_in(made.body.block)
    (adding,) = [op for op in right if isinstance(op, tile.StreamLoop) and match.is_new(op, whole)] or [None]
    if adding is None:
        raise ProgramMismatchError("no stream over the parts")
    rest = live_ops(
        [op for op in right if op is not adding], kept=[op for op in right if isinstance(op, tile.FragmentInit)]
    )
    match.ops(left, rest)
    if not all(precedes(match.made_of(fragment), adding) for fragment in fragments):
        raise ProgramMismatchError("sums are added before there is a fragment")
    behind = right[: right.index(adding)]
    if any(isinstance(op, tile.FragmentRead) or not op.results for op in behind):
        raise ProgramMismatchError("something is done before the sums are added")
    return _added(match, whole, fragments, adding, parts)


def _added(
    match: ProgramMatch,
    whole: tile.Kernel,
    fragments: Sequence[tile.FragmentInit],
    adding: tile.StreamLoop,
    parts: Expr,
) -> list[tile.TensorType]:
    span = adding.axis.data
    counter = Sym(adding.counter.data)
    if (span.origin, span.stop) != (counter * span.size, parts) or adding.trip.expr != ceildiv(parts, span.size):
        raise ProgramMismatchError(f"a stream over {span} in {adding.trip.expr} steps")
    if adding.begin.expr != Const(0):
        raise ProgramMismatchError(f"a stream over the parts from {adding.begin.expr}")
    body = ops_in(adding.body.block)
    writes = [op for op in body if isinstance(op, tile.FragmentWrite)]
    if len(writes) != len(fragments) or any(not op.results for op in body if op not in writes and op is not body[-1]):
        raise ProgramMismatchError("what is done with the parts")
    found: list[tile.TensorType] = []
    for fragment, write in zip(fragments, writes, strict=True):
        term, fold = added_term(write), fold_of(write)
        some = isinstance(term, tile.Reduce) and term.fn.data is FOLDS[fold] and term.axis.data == 0
        if fold is not fold_of(write_of(fragment)):
            raise ProgramMismatchError("parts that are put together otherwise than steps are")
        load = term.x.owner if isinstance(term, tile.Reduce) and some else term
        if write.frag is not match.values[fragment.result][0] or not isinstance(load, tile.Load):
            raise ProgramMismatchError("a fragment that is not added its parts")
        if (
            list(coords_of(load)) != [span if some else counter, *place_of_sums(whole, fragment)]
            or span.size > 1 > some
        ):
            raise ProgramMismatchError(f"the sums of {tensor_name(load)} are read elsewhere")
        found.append(tile.tensor_type(load.tensor))
    if len(set(found)) != len(found):
        raise ProgramMismatchError("sums that are read twice")
    return found


# -- what is cut -------------------------------------------------------------------------------------------------------
def accumulating_stream(whole: tile.Kernel) -> tuple[tile.StreamLoop, list[tile.FragmentInit]]:
    """The program's only stream, if it only adds terms to fragments that begin at zero and that no term depends on."""
    ops = ops_in(whole.body.block)
    streams = [op for op in ops if isinstance(op, tile.StreamLoop)]
    if len(streams) != 1 or any(name.startswith(OWN) for name in streams[0].trip.expr.symbols):
        raise ProgramMismatchError("not one stream of as many steps in every program")
    (stream,) = streams
    if any(not op.results or isinstance(op, tile.FragmentRead) for op in ops[: ops.index(stream)]):
        raise ProgramMismatchError("an effect before the stream, or a fragment read")
    body = ops_in(stream.body.block)
    writes = [op for op in body if isinstance(op, tile.FragmentWrite)]
    if any(op.regions or not (op.results or isinstance(op, tile.FragmentWrite | tile.Yield)) for op in body):
        raise ProgramMismatchError("a stream with effects of its own")
    fragments: list[tile.FragmentInit] = []
    for write in writes:
        added_term(write)
        fragment = write.frag.owner
        begins = is_zero if fold_of(write) is BinaryFn.ADD else is_constant
        if not isinstance(fragment, tile.FragmentInit) or not begins(fragment.init) or fragment in fragments:
            raise ProgramMismatchError("a fragment that does not begin at zero, or is added to twice")
        fragments.append(fragment)
    if len([op for op in body if isinstance(op, tile.FragmentRead)]) != len(writes):
        raise ProgramMismatchError("a stream that reads a fragment twice")
    return stream, fragments


def added_term(write: tile.FragmentWrite) -> Operation:
    """The term X of ``f += X``, if f is read for nothing else."""
    total = write.value.owner
    if not isinstance(total, tile.Binary) or total.fn.data not in FOLDS:
        raise ProgramMismatchError("a fragment that is not added to")
    reads = [v.owner for v in total.operands if isinstance(v.owner, tile.FragmentRead)]
    terms = [v.owner for v in total.operands if not isinstance(v.owner, tile.FragmentRead)]
    if len(reads) != 1 or len(terms) != 1 or reads[0].frag is not write.frag or len(list(reads[0].result.uses)) != 1:
        raise ProgramMismatchError("a fragment that is not added to")
    if len(list(total.result.uses)) != 1 or reads[0].parent_block() is not write.parent_block():
        raise ProgramMismatchError("a sum that goes elsewhere")
    (term,) = terms
    assert isinstance(term, Operation)
    return term


def fold_of(write: tile.FragmentWrite) -> BinaryFn:
    """The op by which a fragment accumulates its terms (``added_term``)."""
    total = write.value.owner
    assert isinstance(total, tile.Binary)
    return total.fn.data


def write_of(fragment: tile.FragmentInit) -> tile.FragmentWrite:
    """The stream's write to a fragment."""
    uses = [use.operation for use in fragment.result.uses]
    (write,) = (op for op in uses if isinstance(op, tile.FragmentWrite))
    return write


def is_zero(value: SSAValue) -> bool:
    return str(_constant(value)) in ("0.0", "0")


def is_constant(value: SSAValue) -> bool:
    return _constant(value) is not None


def _constant(value: SSAValue) -> object:
    op = value.owner
    while isinstance(op, tile.Expand | tile.Broadcast | tile.Transpose):
        op = op.operands[0].owner
    return op.value.data if isinstance(op, tile.Constant) else None


def place_of_sums(whole: tile.Kernel, fragment: tile.FragmentInit) -> list[Coord]:
    """Where the sums of a program's fragment lie in those of all: its place along the grid's axes that no axis of the
    fragment runs along, then the fragment's spans."""
    axes = tile.fragment_type(fragment.result).axes_tuple
    spans = [axis for axis in axes if isinstance(axis, Span)]
    if len(spans) != len(axes):
        raise ProgramMismatchError("a fragment with an axis without a place")
    along = set[int]()
    for span in spans:
        here = {i for i in range(len(whole.grid)) if span.origin == Sym(program_index(i)) * span.size} - along
        if len(here) != 1:
            raise ProgramMismatchError("a fragment whose tiles are not the grid's")
        along |= here
    return [*(Sym(program_index(i)) for i in range(len(whole.grid)) if i not in along), *spans]
