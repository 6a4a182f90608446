"""Compares two programs op by op, under a renaming of indices. Values may be held transposed; unused ops are
ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Block, Operation, ParametrizedAttribute, SSAValue

from tilewright.base.expr import (
    TRUE,
    Const,
    Expr,
    simplify,
)
from tilewright.lang.axes import Coord, Span
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr, RangeAttr
from tilewright.tile.ops import ops_in
from tilewright.tile.queries import is_arithmetic

Names = Mapping[str, Expr]
Permutation = tuple[int, ...]
SAME_AXES, TRANSPOSED = (0, 1), (1, 0)


class ProgramMismatchError(Exception):
    """How a rewritten program differs from the kernel's."""


class ProgramMatch:
    """Walks two programs together, the second under other ``names``. ``values``: for a value of the first the second's,
    and the first's axis that each of its axes is."""

    def __init__(self, names: Names, values: dict[SSAValue, tuple[SSAValue, Permutation]] | None = None):
        self.names = names
        self.values: dict[SSAValue, tuple[SSAValue, Permutation]] = {} if values is None else values

    def within(self, names: Names) -> ProgramMatch:
        """The same under other names, inside of a stream."""
        return ProgramMatch(names, self.values)

    def arguments(self, one: tile.Kernel, other: tile.Kernel) -> None:
        """The arguments of equal names."""
        named = dict(zip((n.data for n in other.arg_names), other.body.block.args, strict=True))
        for name, arg in zip((n.data for n in one.arg_names), one.body.block.args, strict=True):
            if name not in named or named[name].type != arg.type:
                raise ProgramMismatchError(f"no argument {name}")
            self.values[arg] = (named[name], ())

    def is_new(self, stream: tile.StreamLoop, whole: tile.Kernel) -> bool:
        """Whether a stream has no counterpart in the kernel."""
        counters = {op.counter for op in whole.walk() if isinstance(op, tile.StreamLoop)}
        return stream.counter not in counters

    def made_of(self, op: tile.FragmentInit) -> Operation:
        """The fragment of the second program that corresponds to one of the first."""
        made = self.values[op.result][0].owner
        assert isinstance(made, Operation)
        return made

    def block(self, one: Block, other: Block) -> None:
        """All ops of two blocks."""
        self.ops(live_ops(ops_in(one)), live_ops(ops_in(other)))

    def ops(self, one: Sequence[Operation], other: Sequence[Operation]) -> None:
        """Two lists of ops."""
        if len(one) != len(other):
            raise ProgramMismatchError(f"{len(other)} ops, not {len(one)}")
        for x, y in zip(one, other, strict=True):
            self.op(x, y)

    def stream(self, x: tile.StreamLoop, y: tile.StreamLoop) -> None:
        """Two streams, but for how many steps they have."""
        if not self.alike(x.axis, y.axis) or not self.alike(x.begin, y.begin):
            raise ProgramMismatchError(f"a stream over {y.axis.data}")
        self.block(x.body.block, y.body.block)

    def trips(self, x: tile.StreamLoop, y: tile.StreamLoop) -> bool:
        """Requires equal step counts."""
        return self.alike(x.trip, y.trip)

    def same_axis(self, one: object, other: object) -> bool:
        """Whether two axes of tiles are the same under the renaming."""
        return renamed_axis(one, self.names) == other

    def op(self, x: Operation, y: Operation) -> None:
        """Two ops; notes how the second's results lie."""
        if type(x) is not type(y):
            raise ProgramMismatchError(f"{y.name}, not {x.name}")
        if isinstance(x, tile.StreamLoop) and isinstance(y, tile.StreamLoop):
            if x.counter != y.counter or not self.trips(x, y):
                raise ProgramMismatchError(f"a stream of {y.trip.expr} steps")
            self.stream(x, y)
            return
        permutation = self._permutation(x, y)
        operands = list(zip(x.operands, y.operands, strict=True))
        if isinstance(x, tile.Dot) and permutation == TRANSPOSED:
            operands = list(zip(x.operands, reversed(y.operands), strict=True))
        attributes = x.attributes.keys() - {"loc"}
        if attributes != y.attributes.keys() - {"loc"} or (x.regions and not x.is_structurally_equivalent(y)):
            raise ProgramMismatchError(f"another {x.name}")
        if any(not self.alike(x.attributes[name], y.attributes[name]) for name in attributes):
            raise ProgramMismatchError(f"another {x.name}")
        spread = (
            permutation
            if isinstance(x, tile.Dot | tile.FragmentInit | tile.FragmentRead | tile.FragmentWrite) or is_arithmetic(x)
            else None
        )
        if not all(self._equal(a, b, spread) for a, b in operands):
            raise ProgramMismatchError(f"{x.name} of other values")
        for a, b in zip(x.results, y.results, strict=True):
            self.values[a] = (b, permutation)

    def _permutation(self, x: Operation, y: Operation) -> Permutation:
        """How the second op's result lies: as the first's where their types say so."""
        if isinstance(x, tile.FragmentRead | tile.FragmentWrite):
            return self.values[x.frag][1]
        if not x.results:
            return ()
        kinds = (x.results[0].type, y.results[0].type)
        if not all(isinstance(kind, tile.TileType | tile.FragmentType) for kind in kinds):
            return ()
        if len({kind.dtype for kind in kinds if isinstance(kind, tile.TileType | tile.FragmentType)}) > 1:
            raise ProgramMismatchError(f"{x.name} of another dtype")
        one, other = (kind.axes_tuple for kind in kinds if isinstance(kind, tile.TileType | tile.FragmentType))
        same = tuple(range(len(one)))
        if len(one) != len(other):
            raise ProgramMismatchError(f"{x.name} of {len(other)} axes")
        for permutation in dict.fromkeys((same, TRANSPOSED if len(one) == len(TRANSPOSED) else same)):
            if all(self.same_axis(one[at], other[i]) for i, at in enumerate(permutation)):
                return permutation
        raise ProgramMismatchError(f"{x.name} of other axes")

    def _equal(self, x: SSAValue, y: SSAValue, permutation: Permutation | None) -> bool:
        """Axis i of ``y`` is axis ``permutation[i]`` of ``x`` (None: axis i), and they hold the same."""
        (one, own), (other, mine) = untransposed(x), untransposed(y)
        if one not in self.values or self.values[one][0] is not other:
            return False
        held = self.values[one][1] or tuple(range(len(mine)))
        asked = permutation or tuple(range(len(own)))
        return all(held[mine[i]] == own[asked[i]] for i in range(len(mine)))

    def alike(self, one: Attribute, other: Attribute) -> bool:
        """Whether two attributes are equal under the renaming."""
        match one, other:
            case ExprAttr(), ExprAttr():
                return one.data.substitute(self.names) == other.data
            case RangeAttr(), RangeAttr():
                return renamed_coord(one.data, self.names) == other.data
            case ArrayAttr(), ArrayAttr():
                return len(one) == len(other) and all(self.alike(a, b) for a, b in zip(one, other, strict=True))
            case ParametrizedAttribute(), ParametrizedAttribute() if type(one) is type(other):
                pairs = zip(one.parameters, other.parameters, strict=True)
                return all(self.alike(a, b) for a, b in pairs)
            case _:
                return one == other


class RestMatch(ProgramMatch):
    """Matches a program with the first one where an extent is 0."""

    def __init__(self, extent: str):
        super().__init__({})
        self.extent = extent

    def block(self, one: Block, other: Block) -> None:
        """All ops of two blocks; of the first none of what then is nothing, nor what only that uses."""
        ops = [op for op in ops_in(one) if not (isinstance(op, tile.StreamLoop) and is_empty(op, self.extent))]
        products = [op for each in ops for op in each.walk() if isinstance(op, tile.Dot) and is_empty(op, self.extent)]
        left = live_ops(ops_in(other))
        expected = live_ops(ops, closed=products)
        zeros = [op for op in expected if op in products]
        if len(left) != len(expected) + 2 * len(zeros):
            raise ProgramMismatchError(f"{len(left)} ops, not {len(expected) + 2 * len(zeros)}")
        others = iter(left)
        for op in expected:
            if op in zeros:
                self._zero(op, next(others), next(others), next(others))
            else:
                self.op(op, next(others))

    def _zero(self, product: Operation, constant: Operation, expanded: Operation, made: Operation) -> None:
        """A product over no elements is 0."""
        result = made.results[0] if made.results else None
        if (
            not (isinstance(constant, tile.Constant) and constant.value.data == 0)
            or not (isinstance(expanded, tile.Expand) and expanded.operands[0] is constant.results[0])
            or not (isinstance(made, tile.Broadcast) and made.operands[0] is expanded.results[0])
            or result is None
            or result.type != product.results[0].type
        ):
            raise ProgramMismatchError("no zeros for a product over nothing")
        self.values[product.results[0]] = (result, tuple(range(len(tile.tile_type(result).axes_tuple))))


def is_empty(op: Operation, extent: str) -> bool:
    """Whether a stream has no step, or a product no contracted elements, where the extent is 0."""
    if isinstance(op, tile.StreamLoop):
        amount = op.trip.expr
    elif isinstance(op, tile.Dot):
        axis = tile.tile_type(op.a).axes_tuple[1]
        amount = axis.stop - axis.origin if isinstance(axis, Span) else Const(1)
    else:
        return False
    amount = amount.substitute({extent: 0})
    return simplify(amount <= 0, dict.fromkeys(amount.symbols, (0, None))) == TRUE


def require_same_frame(whole: tile.Kernel, made: tile.Kernel, grid: Sequence[Expr], also: Sequence[Expr] = ()) -> None:
    """Requires equal grids, bounds, requirements (and ``also`` these) and numerics."""
    if [extent.expr for extent in made.grid] != list(grid):
        raise ProgramMismatchError("another grid")
    if [r.expr for r in made.requires] != [*(r.expr for r in whole.requires), *also]:
        raise ProgramMismatchError("other requirements")
    for name in ("bounds", "numerics", "ascending", "gate", "queue"):
        if whole.attributes.get(name) != made.attributes.get(name):
            raise ProgramMismatchError(f"other {name}")


def live_ops(
    ops: Sequence[Operation], kept: Sequence[Operation] = (), closed: Sequence[Operation] = ()
) -> list[Operation]:
    """Ops with an effect, those ``kept``, and their operands, except through ``closed`` ops; transposes and broadcasts
    are transparent."""
    used: set[SSAValue] = {v for op in kept for v in op.results}
    found: list[Operation] = []
    for op in reversed(ops):
        if op.results and not any(r in used for r in op.results):
            continue
        used |= {v for inner in op.walk() if inner not in closed for v in inner.operands}
        if not isinstance(op, tile.Transpose):
            found.append(op)
    return found[::-1]


def untransposed(value: SSAValue) -> tuple[SSAValue, Permutation]:
    """The value of which ``value`` is a transposed view, and the permutation of its axes."""
    kind = value.type
    permutation = tuple(range(kind.rank)) if isinstance(kind, tile.TileType | tile.FragmentType) else ()
    while isinstance(value.owner, tile.Transpose):
        permutation = tuple(value.owner.perm.data[at].data for at in permutation)
        value = value.owner.x
    return value, permutation


def inverse(permutation: Permutation) -> Permutation:
    return tuple(permutation.index(i) for i in range(len(permutation)))


def renamed_axis(axis: object, names: Names) -> object:
    return renamed_coord(axis, names) if isinstance(axis, Span) else axis


def renamed_coord(coord: Coord, names: Names) -> Coord:
    if isinstance(coord, Span):
        return Span(coord.origin.substitute(names), coord.size, coord.stop.substitute(names))
    return coord.substitute(names)


def precedes(one: Operation, other: Operation) -> bool:
    block = one.parent_block()
    return block is not None and block.get_operation_index(one) < block.get_operation_index(other)
