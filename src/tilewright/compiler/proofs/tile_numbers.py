"""Numbers of tiles on a ragged grid: that of a group's first tile is the same in whichever program it is found.

It is computed from the group and the row at which it begins, or counted by a program that walks the groups::

    found, number, count = 0, 0, 0
    for h in range(trip):                   at most as many as there are groups
        if any test:     found, number = h, count
        count = f(count, h)

``count`` is a function of h alone, so (found, number) is (h, count of h) or (0, 0), and 0 is the count of group 0.
Where a test of extents chooses between the two ways, it chooses the group and its number alike.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Const, Expr, Min, Sym
from tilewright.tile import dialect as tile
from tilewright.tile.queries import is_elementwise, owner


def is_of_group(number: SSAValue, group: SSAValue, known: AbstractSet[str], offsets: str, groups: Expr) -> bool:
    """Whether a number is a function of the group, one of ``groups`` delimited by ``offsets``; ``known`` are symbols
    that are, once it is found."""
    mine, its = owner(number), owner(group)
    if isinstance(mine, tile.Select) and isinstance(its, tile.Select) and mine.cond is its.cond:
        test = owner(mine.cond)
        sides = [] if not isinstance(test, tile.Compare) else [_integer(test.a), _integer(test.b)]
        if sides and all(side is not None and side.symbols <= extents_around(mine) for side in sides):
            pairs = (mine.a, its.a), (mine.b, its.b)
            return all(_computed(x, known) or _counted(x, y, offsets, groups) for x, y in pairs)
    return _computed(number, known) or _counted(number, group, offsets, groups)


def _computed(number: SSAValue, known: AbstractSet[str]) -> bool:
    value, op = _integer(number), owner(number)
    return value is not None and op is not None and value.symbols <= known | extents_around(op)


def _counted(number: SSAValue, group: SSAValue, offsets: str, groups: Expr) -> bool:
    found, beside = _walked(group), _walked(number)
    if found is None or beside is None or found.stream is not beside.stream or found.test != beside.test:
        return False
    if _integer(found.taken) != Sym(found.stream.counter.data) or not _at_most(found.stream.trip.expr, groups):
        return False
    count = owner(beside.taken)
    return isinstance(count, tile.FragmentRead) and _counts(count, found.stream, offsets)


def _at_most(trip: Expr, groups: Expr) -> bool:
    return trip == groups or (isinstance(trip, Min) and groups in trip.args)


@dataclass(frozen=True)
class _Walked:
    """What is read behind a stream that may take another value in each step, and is 0 before all: ``taken`` where
    ``test`` holds."""

    stream: tile.StreamLoop
    test: SSAValue
    taken: SSAValue


def _walked(value: SSAValue) -> _Walked | None:
    read = owner(value)
    if not isinstance(read, tile.FragmentRead) or not isinstance(read.frag.owner, tile.FragmentInit):
        return None
    first, write = _integer(read.frag.owner.init), _only_write(read.frag)
    stream = None if write is None else write.parent_op()
    if write is None or first != Const(0) or not isinstance(stream, tile.StreamLoop):
        return None
    choice = owner(write.value)
    before = None if not isinstance(choice, tile.Select) else owner(choice.b)
    if not isinstance(choice, tile.Select) or not isinstance(before, tile.FragmentRead) or before.frag != read.frag:
        return None
    behind = read.parent is stream.parent and stream.is_before_in_block(read)
    return _Walked(stream, choice.cond, choice.a) if behind and _stands_before(before, write) else None


def _stands_before(read: tile.FragmentRead, write: tile.FragmentWrite) -> bool:
    return read.parent is write.parent and read.is_before_in_block(write)


def _only_write(fragment: SSAValue) -> tile.FragmentWrite | None:
    writes = [use.operation for use in fragment.uses if isinstance(use.operation, tile.FragmentWrite)]
    return writes[0] if len(writes) == 1 else None


def _counts(read: tile.FragmentRead, stream: tile.StreamLoop, offsets: str) -> bool:
    """Whether what is read in a step begins with 0 and is computed in each step from itself, the step and the
    offsets."""
    write, fragment = _only_write(read.frag), read.frag.owner
    if write is None or not isinstance(fragment, tile.FragmentInit) or write.parent_op() is not stream:
        return False
    if _integer(fragment.init) != Const(0) or not _stands_before(read, write):
        return False
    known = {stream.counter.data, *extents_around(stream)}
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


def extents_around(op: Operation) -> set[str]:
    """The symbols of the extents of an op's kernel, which have one value per launch."""
    kernel: Operation | None = op
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
