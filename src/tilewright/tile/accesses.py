"""What a trace knows about accesses: that they stay inside their tensors, that reads and writes don't meet.

The tracer decides what structure can show; what depends on a launch's extents becomes a requirement that dispatch
checks; that different programs never write one element is left to the certificate's ``cover`` obligation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import gcd
from types import MappingProxyType

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import (
    FALSE,
    TRUE,
    Const,
    Expr,
    FloorDiv,
    Interval,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    expr,
    own,
    simplify,
)
from tilewright.diag import Label, Location
from tilewright.lang.axes import Axis, Coord, Span, show_axes
from tilewright.lang.enums import AtomicFn
from tilewright.lang.recorder import Array
from tilewright.lang.source_locations import here, refuse
from tilewright.tile.limits import Limits
from tilewright.tile.ops import COUNTER


class Use(Enum):
    """The kind of an access: load, store or reduction."""

    LOAD = "loaded"
    STORE = "stored"
    ADD = "added to"
    MIN = "reduced by min"
    MAX = "reduced by max"
    AND = "reduced by and"
    OR = "reduced by or"
    SET = "set, by any program"

    @staticmethod
    def of(fn: AtomicFn) -> Use:
        """What a reduction into memory does."""
        return Use[fn.name]

    @property
    def reduces(self) -> bool:
        """Programs may reduce into one element in any order; no other use of the tensor is allowed beside it."""
        return self not in (Use.LOAD, Use.STORE)


@dataclass(frozen=True)
class _Access:
    """``axes``: of the tile that a gather or scatter moves; None of other accesses. ``loaded``: some coordinate is.
    ``ends``: numbers between which each coordinate lies in every launch."""

    use: Use
    coords: tuple[Coord, ...]
    where: Location
    axes: tuple[Axis, ...] | None = None
    loaded: bool = False
    ends: tuple[Interval, ...] = ()

    def same_elements(self, other: _Access) -> bool:
        """Every thread finds the same elements at both, where each program does."""
        return (self.coords, self.axes) == (other.coords, other.axes) and not self.loaded

    def __str__(self) -> str:
        """For messages: the coordinates, or the axes at loaded coordinates."""
        if self.loaded:
            return f"loaded coordinates, a tile of {show_axes(self.axes or ())}"
        return "[" + ", ".join(map(str, self.coords)) + "]"


class Accesses:
    """The accesses recorded so far, and what they require of a launch."""

    def __init__(self, dims: frozenset[str], scalars: Mapping[str, Interval] = MappingProxyType({})):
        self.limits = Limits(dims, scalars)
        self.requires = dict[Expr, None]()
        self._seen = dict[str, list[_Access]]()
        self._in_range = set[Expr]()
        self._loaded = set[str]()

    def loaded_symbol(self, most: Expr | None) -> str:
        """A symbol for a loaded integer that was clipped to an extent, or to ``most``."""
        name = own(f"b{len(self._loaded)}")
        self._loaded.add(name)
        self.limits.known = {**self.limits.known, name: (0, MAX_EXTENT)}
        if most is not None:
            self.limits.add(name, most + 1)
        return name

    def record(self, use: Use, array: Array, coords: Sequence[Coord], varying: Sequence[str]) -> None:
        """Check an access and remember it; ``varying`` are the symbols a plain store has to depend on."""
        for position, coord in enumerate(coords):
            self.stays_inside(array, position, coord)
        self._remember(array, _Access(use, tuple(coords), here()), varying)

    def record_indirect(
        self,
        use: Use,
        array: Array,
        coords: Sequence[Expr],
        axes: tuple[Axis, ...],
        loaded: bool,
        varying: Sequence[str],
        ragged: bool = False,
    ) -> None:
        """The same for a gather or scatter, whose coordinates may leave the tensor: expressions over positions of
        ranges, as ``Coordinates.placed`` gives them, and over elements of what was ``loaded``. ``ragged``: rows of a
        ragged grid are among the ranges."""
        access = _Access(use, tuple(coords), here(), axes, loaded)
        self._remember(array, access, [] if loaded else varying, _OF_RAGGED if ragged else "")

    def walk(self, start: Expr, step: Span) -> None:
        """A stream that begins at ``start``: each ``step`` begins before it ends. Asked of a start that is loaded, and
        of steps of one element, whose last then lies right before the end, and none where the start lies behind it."""
        if not self._loaded.isdisjoint(start.symbols) or (step.size == 1 and start != Const(0)):
            self.limits.walk(step.origin, step.stop)

    def is_loaded(self, array: Array) -> bool:
        """Whether the tensor has been loaded from."""
        return any(access.use is Use.LOAD for access in self._seen.get(array.name, ()))

    def is_written(self, tensor: str) -> bool:
        """Whether something was written to the tensor."""
        return any(access.use is not Use.LOAD for access in self._seen.get(tensor, ()))

    def _remember(self, array: Array, access: _Access, varying: Sequence[str], help: str = "") -> None:
        if access.use is Use.STORE:
            _depends_on(array, access, varying, self._loaded, help)
        access = replace(access, ends=tuple(map(self._ends, access.coords)))
        earlier = self._seen.setdefault(array.name, [])
        for other in earlier:
            if not _apart(other, access):
                _agree(array, other, access)
        earlier.append(access)

    def _ends(self, coord: Coord) -> Interval:
        """Numbers between which a coordinate lies in every launch."""
        if not isinstance(coord, Span):
            return self.limits.range(coord)
        return self.limits.range(coord.origin)[0], self.limits.range(coord.end - 1)[1]

    def reaches(self, array: Array, position: int, coord: Expr) -> bool:
        """Whether a coordinate lies inside in every program; what depends on the launch dispatch is asked. Refuses
        (LNG020) one that lies outside in every program."""
        dim = array.dims[position]
        low = self.limits.lower(coord)
        if self.limits.at_least(coord, dim) or self.limits.at_least(Const(-1), coord):
            self._refuse(array, position, coord, dim)
        return low is not None and self.require(Const(0) <= low) and self._below(coord + 1, dim)

    def _below(self, last: Expr, dim: Expr) -> bool:
        high = self.limits.upper(last)
        for end in (last, high):
            if end == dim or (isinstance(end, Min) and dim in end.args):
                return True
        return high is not None and self.require(high <= dim)

    def require(self, predicate: Expr) -> bool:
        """Adds a predicate over extents and scalars that dispatch checks; False if no launch can satisfy it, or if it
        depends on loaded integers."""
        decided = simplify(predicate, self.limits.known)
        may = self.may_be(decided)
        if may and decided != TRUE:
            self.requires[decided] = None
        return may

    def may_be(self, predicate: Expr) -> bool:
        """Whether a launch can satisfy a predicate that dispatch can check."""
        decided = simplify(predicate, self.limits.known)
        return decided != FALSE and self._loaded.isdisjoint(decided.symbols)

    def check_range(self, e: Expr) -> None:
        """Refuse (LNG023) quotients, remainders, minima and maxima of integers that may not fit 64 bits: sums and
        products beyond wrap, which those of what has wrapped do not show. What depends on the launch it is asked."""
        for operand in () if e.polynomial else dict.fromkeys(_operands(e)):
            if operand in self._in_range:
                continue
            self._in_range.add(operand)
            ends = self.limits.range(operand)
            if all(end is not None and _I64[0] <= end <= _I64[1] for end in ends):
                continue
            low, high = self.limits.lower(operand), self.limits.upper(operand)
            if (
                low is None
                or high is None
                or not (self.require(expr(_I64[0]) <= low) and self.require(high <= _I64[1]))
            ):
                refuse(
                    "LNG023",
                    found=f"{operand}, of which a quotient, remainder, minimum or maximum is taken",
                    required="an integer that fits 64 bits in every program and iteration",
                    help="divide the factors first, or cast one with .to(tw.i64): tiles wrap after each operation",
                )

    def check_divisors(self, e: Expr) -> None:
        """Refuse (LNG023) divisors that can be 0 or negative: the hardware's quotient differs from Python's there."""
        for divisor in _divisors(e):
            low = self.limits.lower(divisor)
            if low is None or not self.require(Const(0) < low):
                refuse(
                    "LNG023",
                    found=f"a division by {divisor}",
                    required="a divisor that is positive in every program and iteration",
                    help="divide by an extent or a scalar of the launch; tw.maximum(divisor, 1) is always positive",
                )

    def stays_inside(self, array: Array, position: int, coord: Coord) -> None:
        """Refuse (LNG020) a coordinate that may lie outside; what depends on the launch dispatch is asked."""
        dim = array.dims[position]
        first = coord.origin if isinstance(coord, Span) else coord
        last = coord.stop if isinstance(coord, Span) else coord + 1
        low = self.limits.lower(first)
        if low is None or not self.require(Const(0) <= low):
            self._refuse(array, position, coord, dim)
        if not self._below(last, dim):
            self._refuse(array, position, coord, dim)

    def _refuse(self, array: Array, position: int, coord: Coord, dim: Expr) -> None:
        first = coord.origin if isinstance(coord, Span) else coord
        if not isinstance(coord, Span) and coord.constant is not None and coord.constant < 0:
            help = f"count from the end with {array.name}.shape[{position}] - {-coord.constant}"
        elif _multiplied(first):
            help = "give the extent that is multiplied as a number, group: int = 4, or annotate factors, "
            help += '"G*R", and index a view: x.reshape(B, G, R)[b, g, r]'
        else:
            help = "use a Range over this dimension's extent, or an index that is bounded by it"
        refuse(
            "LNG020",
            found=f"coordinate {coord} on dimension {position} of {array.name}",
            required=f"0 <= coordinate < {dim} in every program",
            help=help,
        )


def _multiplied(e: Expr) -> bool:
    """A product of symbols is part of an expression."""
    return isinstance(e, Product) or any(map(_multiplied, e.children))


_I64 = (-(1 << 63), (1 << 63) - 1)


def _apart(one: _Access, other: _Access) -> bool:
    """Whether no element belongs to both, in any programs: along some dimension their coordinates never coincide."""
    if one.use.reduces or other.use.reduces:
        return False
    for (low, high), (below, above) in zip(one.ends, other.ends, strict=True):
        if (high is not None and below is not None and high < below) or (
            above is not None and low is not None and above < low
        ):
            return True
    return any(map(_alternate, one.coords, other.coords))


def _alternate(one: Coord, other: Coord) -> bool:
    """Coordinates that differ modulo a factor of all their terms, such as 2 * i and 2 * i + 1."""
    if isinstance(one, Span) or isinstance(other, Span):
        return False
    step = gcd(*(c for e in (one, other) if isinstance(e, Sum) for _, c in e.terms))
    residues = [(e % step).constant for e in (one, other)] if step > 1 else [None]
    return None not in residues and residues[0] != residues[1]


def _operands(e: Expr) -> list[Expr]:
    """The operands of divisions, minima and maxima in ``e``."""
    own = list(e.children) if isinstance(e, (FloorDiv, Mod, Min, Max)) else []
    return own + [o for child in e.children for o in _operands(child)]


def _divisors(e: Expr) -> list[Expr]:
    """Divisors in ``e`` that are not constants; of constants construction has taken care."""
    own = [e.denominator] if isinstance(e, (FloorDiv, Mod)) and e.denominator.constant is None else []
    return own + [d for child in e.children for d in _divisors(child)]


_OF_RAGGED = (
    "store to the rows of a ragged grid at Ranges alone, y[t, d], or at computed coordinates and in views with "
    "tw.reduce_add"
)


def _depends_on(array: Array, access: _Access, varying: Sequence[str], loaded: Collection[str], ragged: str) -> None:
    places = [*access.coords, *(a for a in access.axes or () if isinstance(a, Span))]
    symbols = frozenset[str]().union(*((c.origin if isinstance(c, Span) else c).symbols for c in places))
    missing = [v for v in varying if v not in symbols]
    if missing:
        loop = missing[0].startswith(COUNTER)
        help = "make the grid over the output's axes, or use tw.reduce_add(y, index, value)"
        if loop:
            help = "store after the stream, or tw.reduce_add(y, index, value)"
        elif ragged:
            help = ragged
        elif not symbols.isdisjoint(loaded):
            help = (
                "walk groups of rows with g, m = tw.ragged_grid(offsets, x.shape[0], 64), or each in one program, with "
            )
            help += "start=offsets[g], until=offsets[g + 1], offsets a tw.Offsets"
        refuse(
            "LNG015",
            found=f"the coordinates of this store to {array.name} don't depend on "
            + (f"the stream's counter {missing[0]}" if loop else f"the program index {missing[0]}"),
            required="each element written by one program, once",
            help=help,
        )


def _agree(array: Array, earlier: _Access, later: _Access) -> None:
    labels = (Label(earlier.where, f"{earlier.use.value} here, at {earlier}"),)
    found = f"{array.name} is {later.use.value} at {later}"
    uses = {earlier.use, later.use}
    if len(uses) == 1 and earlier.use is not Use.STORE:
        return
    if any(use.reduces for use in uses):
        refuse(
            "LNG016",
            found=found,
            required="a tensor reduced into is neither loaded nor stored in the same kernel, and by one function",
            help="use a second tensor; fill the target before the launch",
            labels=labels,
        )
    if earlier.use is Use.STORE and later.use is Use.LOAD:
        refuse(
            "LNG014",
            found=found,
            required="loads before stores: other threads may have written the element",
            help="keep the value that was stored in a variable",
            labels=labels,
        )
    if uses == {Use.STORE}:
        if earlier.same_elements(later) or earlier.loaded or later.loaded:
            refuse(
                "LNG015",
                found=found,
                required="each element written by one program, once",
                help="store the final value only; where coordinates are loaded, by one store",
                labels=labels,
            )
        return
    if not earlier.same_elements(later):
        refuse(
            "LNG014",
            found=found,
            required="the same Ranges for every load and store of a tensor that is both read and written",
            help="add with tw.reduce_add(y, index, value), or write to another tensor"
            if later.loaded
            else "write to another tensor, or load and store at the same index",
            labels=labels,
        )
