"""Equivalence classes of axes that must have the same distribution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.tile.queries import extents, is_arithmetic, rank_of

Position = tuple[SSAValue, int]


@dataclass
class Classes:
    """Union-find over (value, axis) positions. Axes of one element have no class.

    Two positions of one value never fall into one class (``x[m]`` against ``x[m]`` transposed would keep the diagonal
    only); an operand edge that would force that is kept apart in ``converts`` and moved through shared memory.
    """

    parent: dict[Position, Position] = field(default_factory=dict[Position, Position])
    members: dict[Position, dict[SSAValue, int]] = field(default_factory=dict[Position, dict[SSAValue, int]])
    size: dict[Position, int] = field(default_factory=dict[Position, int])
    converts: set[tuple[Operation, int]] = field(default_factory=set[tuple[Operation, int]])
    split: list[tuple[Position, list[Position]]] = field(default_factory=list[tuple[Position, list[Position]]])

    def add(self, value: SSAValue) -> None:
        """Adds the axes of a tile or fragment, each as a class of its own."""
        for axis, extent in enumerate(extents(value.type)):
            position = (value, axis)
            if extent is not None and position not in self.parent:
                self.parent[position] = position
                self.members[position] = {value: axis}
                self.size[position] = extent

    def find(self, position: Position) -> Position:
        """The representative of a class."""
        root = position
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[position] != root:
            self.parent[position], position = root, self.parent[position]
        return root

    def can_join(self, a: Position, b: Position) -> bool:
        """Whether one class may hold both: no value has two axes in it."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        small, large = sorted((self.members[a], self.members[b]), key=len)
        return all(large.get(value, axis) == axis for value, axis in small.items())

    def join(self, pairs: list[tuple[Position, Position]]) -> bool:
        """Unites all pairs; if one of them cannot be united, none are, and the result is False."""
        undo: list[tuple[Position, Position]] = []
        for a, b in pairs:
            if a not in self.parent or b not in self.parent:
                continue
            if not self.can_join(a, b):
                self._split(undo)
                return False
            a, b = self.find(a), self.find(b)
            if a != b:
                undo.append((a, b))
                self.parent[b] = a
                self.members[a] = self.members[a] | self.members[b]
        return True

    def _split(self, undo: list[tuple[Position, Position]]) -> None:
        for a, b in reversed(undo):
            self.parent[b] = b
            self.members[a] = {v: x for v, x in self.members[a].items() if v not in self.members[b]}

    def numbered(self, values: Iterable[SSAValue]) -> tuple[dict[SSAValue, tuple[int | None, ...]], dict[int, int]]:
        """Per value the class number of each axis (None: one element), in order of appearance, and the extent of each
        class."""
        ids: dict[Position, int] = {}
        axes_of: dict[SSAValue, tuple[int | None, ...]] = {}
        sizes: dict[int, int] = {}
        for value in values:
            axes: list[int | None] = []
            for root, extent in zip(self.of(value), extents(value.type), strict=True):
                number = None if root is None else ids.setdefault(root, len(ids))
                if number is not None:
                    sizes[number] = max(sizes.get(number, 0), extent or 1)
                axes.append(number)
            axes_of[value] = tuple(axes)
        return axes_of, sizes

    def of(self, value: SSAValue) -> tuple[Position | None, ...]:
        """The class of each axis of a value; None for axes of one element."""
        return tuple(
            self.find((value, axis)) if extent is not None else None for axis, extent in enumerate(extents(value.type))
        )


def classify(kernel: tile.Kernel) -> Classes:
    """Classes of all tiles and fragments of ``kernel``."""
    classes = Classes()
    inside = operations(kernel)
    for op in inside:
        for result in op.results:
            if isinstance(result.type, tile.TileType | tile.FragmentType):
                classes.add(result)
    for op in inside:
        for index, pairs in _edges(op):
            if not classes.join(pairs):
                classes.converts.add((op, index))
    _join_reshaped(classes, [op for op in inside if isinstance(op, tile.Reshape)])
    return classes


def _join_reshaped(classes: Classes, reshapes: Iterable[tile.Reshape]) -> None:
    """Axes that are split into the same parts, or merged of them, are one class, and so are the parts of one axis:
    what is split and merged again is where it was."""
    for op in reshapes:
        for old, new in op.groups:
            sides = [
                [(v, d) for d in dims if (v, d) in classes.parent]
                for v, dims in ((op.x, old), (op.result, new))
            ]  # fmt: skip
            whole, parts = sides if len(sides[0]) == 1 else reversed(sides)
            if len(whole) != 1 or len(parts) < 2:
                continue
            for other, others in classes.split:
                same_parts = [classes.find(p) for p in parts] == [classes.find(p) for p in others]
                same = classes.find(whole[0]) == classes.find(other)
                extents = [classes.size[p] for p in parts] == [classes.size[p] for p in others]
                if same_parts or (same and extents):
                    classes.join([(whole[0], other), *zip(parts, others, strict=True)])
            classes.split.append((whole[0], parts))


def _edges(op: Operation) -> Iterator[tuple[int, list[tuple[Position, Position]]]]:
    """The corresponding positions of each operand: (operand index, pairs of operand and result positions)."""
    match op:
        case _ if is_arithmetic(op) or isinstance(op, tile.Broadcast):
            result = op.results[0]
            for i, operand in enumerate(op.operands):
                yield i, [((operand, d), (result, d)) for d in range(rank_of(result))]
        case tile.Gather() | tile.Scatter() | tile.ScatterReduce():
            for i, index in enumerate(op.operands):
                if index in op.indices:
                    yield i, [((index, d), (op.moved, d)) for d in range(rank_of(index))]
        case tile.FragmentInit() | tile.FragmentRead():
            yield 0, [((op.operands[0], d), (op.results[0], d)) for d in range(rank_of(op.results[0]))]
        case tile.FragmentWrite():
            yield 1, [((op.value, d), (op.frag, d)) for d in range(rank_of(op.value))]
        case tile.Expand():
            kept = [d for d in range(rank_of(op.results[0])) if d not in {p.data for p in op.positions}]
            yield 0, [((op.operands[0], i), (op.results[0], d)) for i, d in enumerate(kept)]
        case tile.Transpose():
            yield 0, [((op.operands[0], p), (op.results[0], d)) for d, p in enumerate([p.data for p in op.perm])]
        case tile.Reshape():
            alike = [(old[0], new[0]) for old, new in op.groups if len(old) == len(new) == 1]
            yield 0, [((op.x, a), (op.result, b)) for a, b in alike]
        case tile.Scan():
            kept = [d for d in range(rank_of(op.elements[0])) if d != op.axis.data]
            for i, operand in enumerate(op.elements):
                whole = [((operand, d), (r, d)) for r in op.running for d in range(rank_of(operand))]
                yield i, whole + [((operand, d), (r, i)) for r in op.last for i, d in enumerate(kept)]
            for i, operand in enumerate(op.before):
                yield op.count + i, [((operand, d), (op.last[0], d)) for d in range(len(kept))]
        case tile.Sort():
            kept = [d for d in range(rank_of(op.x)) if op.count is None or d != op.axis.data]
            yield 0, [((op.x, d), (op.result, d)) for d in kept]
        case tile.ProgramSum():
            yield 0, [((op.x, d), (op.result, d)) for d in range(rank_of(op.x) - 1)]
        case tile.Reduce():
            rank = rank_of(op.operands[0])
            kept = [d for d in range(rank) if d != op.axis.data]
            yield 0, [((op.operands[0], d), (op.results[0], i)) for i, d in enumerate(kept)]
        case _:
            return
