"""Last tiles of groups on a ragged grid: the number of a group's is the same in whichever program it is found.

A program at ``place`` behind those of whole blocks walks the groups, as the tile program says::

    found, number, count = place * many, place * many, 0
    for h in range(groups if they are few, else 0):
        if any test:     found, number = h, count
        count = f(count, h)

``count`` is a function of h alone. So of few groups (found, number) is (h, count of h) or (0, 0), and 0 is the count of
group 0; of many, both are the place. Clipped alike, they are a group and a function of it. Where extents say so, the
group is any other instead, and its number a function of its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.base.expr import Const, Expr, FloorDiv, Min, Sym, maximum, minimum
from tilewright.lang.enums import CompareFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import is_elementwise, owner


def numbers(group: SSAValue, number: SSAValue, blocks: Expr, offsets: str, groups: Expr, end: str) -> bool:
    """Whether in programs from ``blocks`` on ``number`` is a function of ``group``, which ends at ``end``, for
    ``groups`` groups delimited by ``offsets``; both before they are clipped in the same way."""
    place = Sym(program_index(0)) - blocks
    found = _walked(_otherwise(_behind(group, blocks), number))
    beside = _walked(_otherwise(number, number, end))
    if found is None or beside is None or found.stream is not beside.stream or found.first != beside.first:
        return False
    counter = Sym(found.stream.counter.data)
    if found.test != beside.test or _integer(found.taken) != counter:
        return False
    count = owner(beside.taken)
    begins = _begins_alike(found.first, place, found.stream.trip.expr, groups)
    return begins and isinstance(count, tile.FragmentRead) and _counts(count, found.stream, offsets)


@dataclass(frozen=True)
class _Walked:
    """What is read behind a stream that may take another value in each step: ``taken`` where ``test`` holds, and
    ``first`` before all."""

    stream: tile.StreamLoop
    first: Expr
    test: SSAValue
    taken: SSAValue


def _walked(value: SSAValue | None) -> _Walked | None:
    read = None if value is None else owner(value)
    if not isinstance(read, tile.FragmentRead) or not isinstance(read.frag.owner, tile.FragmentInit):
        return None
    first, write = _integer(read.frag.owner.init), _only_write(read.frag)
    stream = None if write is None else write.parent_op()
    if write is None or first is None or not isinstance(stream, tile.StreamLoop) or not _stands_behind(read, stream):
        return None
    choice = owner(write.value)
    before = None if not isinstance(choice, tile.Select) else owner(choice.b)
    if not isinstance(choice, tile.Select) or not isinstance(before, tile.FragmentRead) or before.frag != read.frag:
        return None
    return _Walked(stream, first, choice.cond, choice.a) if _stands_before(before, write) else None


def _stands_behind(read: tile.FragmentRead, stream: tile.StreamLoop) -> bool:
    return read.parent is stream.parent and stream.is_before_in_block(read)


def _stands_before(read: tile.FragmentRead, write: tile.FragmentWrite) -> bool:
    return read.parent is write.parent and read.is_before_in_block(write)


def _only_write(fragment: SSAValue) -> tile.FragmentWrite | None:
    writes = [use.operation for use in fragment.uses if isinstance(use.operation, tile.FragmentWrite)]
    return writes[0] if len(writes) == 1 else None


def _behind(group: SSAValue, blocks: Expr) -> SSAValue | None:
    """The value of a group in programs from ``blocks`` on: the alternative of a select by ``program < blocks``."""
    choice = owner(group)
    test = owner(choice.cond) if isinstance(choice, tile.Select) else None
    if not isinstance(choice, tile.Select) or not isinstance(test, tile.Compare):
        return None
    sides = _integer(test.a), _integer(test.b)
    return choice.b if test.fn.data is CompareFn.LT and sides == (Sym(program_index(0)), blocks) else None


def _otherwise(value: SSAValue | None, number: SSAValue, end: str | None = None) -> SSAValue | None:
    """Of a choice by the test of extents by which ``number`` is chosen the other value; if ``end`` is given, the one is
    a function of this integer."""
    choice, same = None if value is None else owner(value), owner(number)
    if not isinstance(choice, tile.Select) or not isinstance(same, tile.Select) or choice.cond is not same.cond:
        return value
    test, one = owner(same.cond), _integer(choice.a)
    sides = [] if not isinstance(test, tile.Compare) else [_integer(test.a), _integer(test.b)]
    if not sides or not all(side is not None and side.symbols <= _extents(choice) for side in sides):
        return None
    return choice.b if end is None or (one is not None and one.symbols <= {end}) else None


def _begins_alike(first: Expr, place: Expr, trip: Expr, groups: Expr) -> bool:
    """Whether both begin with 0, or with the position where no group is visited."""
    if first == Const(0) or (first == place and trip == Const(0)):
        return True
    for node in _nodes(first):
        match node:
            case Min((FloorDiv(_, Const(least)), Const(1))) | Min((Const(1), FloorDiv(_, Const(least)))):
                few = minimum(maximum(place + 1, 0), 1) * (1 - node) * (least - 1)
                if first == place * node and trip == minimum(groups, few):
                    return True
            case _:
                pass
    return False


def _nodes(node: Expr) -> list[Expr]:
    return [node, *(inner for child in node.children for inner in _nodes(child))]


def _counts(read: tile.FragmentRead, stream: tile.StreamLoop, offsets: str) -> bool:
    """Whether what is read in a step begins with 0 and is computed in each step from itself, the step and the
    offsets."""
    write, fragment = _only_write(read.frag), read.frag.owner
    if write is None or not isinstance(fragment, tile.FragmentInit) or write.parent_op() is not stream:
        return False
    if _integer(fragment.init) != Const(0) or not _stands_before(read, write):
        return False
    known = {stream.counter.data, *_extents(stream)}
    pending, seen = [write.value], set[SSAValue]()
    while pending:
        value = pending.pop()
        op = owner(value)
        if value in seen:
            continue
        seen.add(value)
        match op:
            case tile.FragmentRead() if op.frag == read.frag and _stands_before(op, write):
                pass
            case tile.Gather() if tile.tensor_type(op.tensor).tensor_name.data == offsets and _placed(op) <= known:
                pending += op.indices
            case tile.ScalarExpr() if op.expr.expr.symbols <= known:
                pass
            case _ if op is not None and not isinstance(op, tile.ScalarExpr) and is_elementwise(op):
                pending += op.operands
            case _:
                return False
    return True


def _placed(gather: tile.Gather) -> frozenset[str]:
    """A gather's coordinates without its indices."""
    own = {tile.index_symbol(k) for k in range(len(gather.indices))}
    return frozenset[str]().union(*(c.expr.symbols for c in gather.coords)) - own


def _extents(op: tile.StreamLoop | tile.Select) -> set[str]:
    """The symbols of the kernel's extents, which have one value per launch."""
    kernel = op.parent_op()
    while kernel is not None and not isinstance(kernel, tile.Kernel):
        kernel = kernel.parent_op()
    assert kernel is not None, "an op of a kernel"
    kinds = [arg.type for arg in kernel.body.block.args if isinstance(arg.type, tile.TensorType)]
    return {symbol for kind in kinds for dim in kind.dims for symbol in dim.expr.symbols}


def _integer(value: SSAValue) -> Expr | None:
    op = owner(value)
    if isinstance(op, tile.Constant) and isinstance(op.value.data, int):
        return Const(op.value.data)
    return op.expr.expr if isinstance(op, tile.ScalarExpr) else None
