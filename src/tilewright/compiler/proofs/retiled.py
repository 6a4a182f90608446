"""Proves that two programs are one at other sizes of tiles: of bundles, whose rewritten kernels name the program at the
sizes of each (``proofs.rewritten``).

A program index or a counter that counts tiles of another size occurs as the origin of these tiles alone. Its grid or
its stream covers one domain in both, so each element is in one tile. Each op computes an element from the elements at
its place, but for sums, maxima and minima over all tiles of a stream, which are free in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from xdsl.ir import Attribute, Operation

from tilewright.base.expr import Const, Expr, Sym, ceildiv
from tilewright.compiler.proofs.program_match import ProgramMatch, ProgramMismatchError, require_same_frame
from tilewright.compiler.proofs.split_programs import FOLDS, accumulating_stream, added_term, fold_of, write_of
from tilewright.lang.axes import Span
from tilewright.lang.enums import BinaryFn, ReduceFn
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr, RangeAttr
from tilewright.tile.ops import program_index
from tilewright.tile.queries import coords_of, is_elementwise

_PLACED = (
    tile.Load | tile.Store | tile.FragmentInit | tile.FragmentRead | tile.FragmentWrite | tile.StreamLoop | tile.Yield
)
_Tiling = Mapping[str, int]
"""The tile size that a program index or counter counts."""


def require_retiled(one: tile.Kernel, other: tile.Kernel) -> None:
    """``ProgramMismatchError`` where two programs may differ in more than the sizes of their tiles."""
    first, second = _tiling(one), _tiling(other)
    differing = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    if several := differing - (first.keys() & second.keys()):
        raise ProgramMismatchError(f"tiles of several sizes along {min(several)}")
    require_same_frame(one, other, [extent.expr for extent in other.grid])
    if len(one.grid) != len(other.grid):
        raise ProgramMismatchError("another grid")
    programs = {program_index(i): (a.expr, b.expr) for i, (a, b) in enumerate(zip(one.grid, other.grid, strict=True))}
    if any(a != b for name, (a, b) in programs.items() if name not in differing):
        raise ProgramMismatchError("another grid")
    for kernel, tiling, place in ((one, first, 0), (other, second, 1)):
        for name in sorted(differing):
            if name in programs:
                _require_covered(kernel, name, tiling[name], programs[name][place])
            else:
                _require_summed(kernel, name, tiling[name])
    match = _RetiledMatch(first, second, differing, differing & programs.keys())
    match.arguments(one, other)
    match.block(one.body.block, other.body.block)


class _RetiledMatch(ProgramMatch):
    """Walks both; what counts tiles of another size, ``differing``, stands in the origins of these alone."""

    def __init__(self, first: _Tiling, second: _Tiling, differing: Set[str], programs: Set[str]):
        super().__init__({})
        self.first, self.second, self.differing, self.programs = first, second, differing, programs

    def trips(self, x: tile.StreamLoop, y: tile.StreamLoop) -> bool:
        return x.counter.data in self.differing or super().trips(x, y)

    def op(self, x: Operation, y: Operation) -> None:
        if not self._by_place(x):
            raise ProgramMismatchError(f"{x.name} over tiles of another size")
        super().op(x, y)

    def alike(self, one: Attribute, other: Attribute) -> bool:
        if isinstance(one, ExprAttr):
            return one == other and not one.data.symbols & self.differing
        if isinstance(one, RangeAttr) and isinstance(other, RangeAttr):
            return self.same_axis(one.data, other.data)
        return super().alike(one, other)

    def same_axis(self, one: object, other: object) -> bool:
        if not isinstance(one, Span) or not isinstance(other, Span):
            return one == other
        name = self._counted(one)
        if name is None:
            return one == other and not (one.origin.symbols | one.stop.symbols) & self.differing
        return not one.stop.symbols & self.differing and other == Span(
            Sym(name) * self.second[name], self.second[name], one.stop
        )

    def _counted(self, axis: object) -> str | None:
        """The index or counter of the first program's tiles along an axis whose tile sizes differ."""
        name = counter_of(axis)
        return name if name in self.differing else None

    def _by_place(self, op: Operation) -> bool:
        """Whether elements of its results depend only on those at their places, or are sums over all of a stream; and
        each element of memory is added to as often."""
        if isinstance(op, tile.AtomicReduce):
            return self.programs <= {self._counted(coord) for coord in coords_of(op)}
        if isinstance(op, tile.Dot | tile.Reduce):
            counter = self._counted(_reduced(op))
            return counter is None or counter not in self.programs
        return is_elementwise(op) or isinstance(op, _PLACED) or not any(map(self._counted, _axes(op)))


def counter_of(axis: object) -> str | None:
    """The program index or counter that counts tiles of a span's size from 0, if any."""
    if not isinstance(axis, Span):
        return None
    return next((name for name in axis.origin.symbols if axis.origin == Sym(name) * axis.size), None)


def _axes(op: Operation) -> Iterator[object]:
    """The axes of its operands and results."""
    for value in (*op.operands, *op.results):
        if isinstance(value.type, tile.TileType | tile.FragmentType):
            yield from value.type.axes_tuple
    if isinstance(op, tile.StreamLoop):
        yield op.axis.data


def _reduced(op: tile.Dot | tile.Reduce) -> object:
    """The axis that is summed up."""
    return (
        tile.tile_type(op.a).axes_tuple[1]
        if isinstance(op, tile.Dot)
        else tile.tile_type(op.x).axes_tuple[op.axis.data]
    )


def _folded(write: tile.FragmentWrite) -> Operation:
    """What a fragment takes in; of the greatest or the least float without conversions to floats, which keep their
    order."""
    term = added_term(write)
    while fold_of(write) is not BinaryFn.ADD and isinstance(term, tile.Cast):
        source = term.x.owner
        if not isinstance(source, Operation) or not (term.dtype.is_float and tile.tile_type(term.x).element.is_float):
            break
        term = source
    return term


def _spans(kernel: tile.Kernel, name: str) -> set[Span]:
    """The spans whose tiles ``name`` counts."""
    return {axis for op in kernel.walk() for axis in _axes(op) if isinstance(axis, Span) and counter_of(axis) == name}


def _tiling(kernel: tile.Kernel) -> _Tiling:
    """The tile size that ``name`` counts, the same for all its spans."""
    sizes: dict[str, set[int]] = {}
    for axis in (axis for op in kernel.walk() for axis in _axes(op)):
        if isinstance(axis, Span) and (name := counter_of(axis)) is not None:
            sizes.setdefault(name, set()).add(axis.size)
    return {name: min(found) for name, found in sizes.items() if len(found) == 1}


def _require_covered(kernel: tile.Kernel, name: str, size: int, programs: Expr) -> None:
    """Requires that tiles of both sizes cover one domain, and no program is empty."""
    stops = {span.stop for span in _spans(kernel, name)}
    if {ceildiv(stop, size) for stop in stops} != {programs} or len(stops) != 1:
        raise ProgramMismatchError(f"{programs} programs along {name}")


def _require_summed(kernel: tile.Kernel, name: str, size: int) -> None:
    """Requires that the steps of a stream that ``name`` counts sum terms over its whole axis, and do nothing else."""
    stream, fragments = accumulating_stream(kernel)
    span = stream.axis.data
    whole = stream.trip.expr == ceildiv(span.stop, size) and stream.begin.expr == Const(0)
    if stream.counter.data != name or _spans(kernel, name) != {span} or not whole:
        raise ProgramMismatchError(f"a stream over {span} in {stream.trip.expr} steps")
    terms = [_folded(write_of(fragment)) for fragment in fragments]
    for op in stream.body.walk():
        if isinstance(op, tile.Dot | tile.Reduce) and counter_of(_reduced(op)) == name and op not in terms:
            raise ProgramMismatchError(f"{op.name} over a step")
    for fragment, term in zip(fragments, terms, strict=True):
        fn = FOLDS[fold_of(write_of(fragment))]
        by = term.fn.data if isinstance(term, tile.Reduce) else ReduceFn.SUM
        if not isinstance(term, tile.Dot | tile.Reduce) or counter_of(_reduced(term)) != name or by is not fn:
            raise ProgramMismatchError("a step that adds more than what lies along it")
