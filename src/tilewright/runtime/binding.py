"""Arguments against parameters: ranks, dtypes, agreeing dimensions, bounds, facts, aliasing. The slow path of a launch.

What it establishes depends only on shapes, strides, dtypes, devices, integer scalars and addresses modulo what the
facts look at, so a program runs it once for each such combination. Only the overlap of whole arguments depends on
addresses beyond that; ``Aliasing`` is its remainder for every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.artifact.schema import MAX_EXTENT, Artifact, TensorArgument
from tilewright.base.cached import cached_property
from tilewright.base.expr import Assignment, Const, Expr, ExprError, solved_for, symbol_plus
from tilewright.diag import fail
from tilewright.runtime.arguments import TensorDescription
from tilewright.runtime.overlap import MemoryFootprint, footprint, overlap, overlaps_itself


@dataclass(frozen=True)
class Aliasing:
    """Pairs of tensors (positions among the tensor parameters) that must not share a byte."""

    names: tuple[str, ...]
    footprints: tuple[MemoryFootprint, ...]
    pairs: tuple[tuple[int, int], ...]

    def check(self, addresses: tuple[int, ...]) -> None:
        """RUN010 if two arguments share bytes and one of them is written."""
        for i, j, low, high in self._near:
            if low < addresses[i] - addresses[j] < high:
                self._check_pair(i, j, addresses)

    @cached_property
    def _near(self) -> tuple[tuple[int, int, int, int], ...]:
        """Pairs of arguments with the distances of their addresses at which their byte ranges overlap."""
        prints = self.footprints
        return tuple((i, j, prints[j].low - prints[i].high, prints[j].high - prints[i].low) for i, j in self.pairs)

    def _check_pair(self, i: int, j: int, addresses: tuple[int, ...]) -> None:
        a, b, p, q = self.footprints[i], self.footprints[j], addresses[i], addresses[j]
        if overlap(a, p, b, q):
            same = p == q and a == b
            found = f"{self.names[i]} at {_span(a, p)} and {self.names[j]} at {_span(b, q)}"
            fail(
                "RUN010",
                found=f"{found}: the same tensor" if same else found,
                required=f"{self.names[i]} is written: no byte in common",
                help=_IN_PLACE if same else "give the kernel a copy, or an output of its own",
            )


_IN_PLACE = (
    "give the kernel an output of its own; to work in place, write it with one parameter that it reads and writes: "
    "only of one parameter is it proved that every element is read before it is written"
)


def _span(f: MemoryFootprint, address: int) -> str:
    return f"0x{address + f.low:x}..0x{address + f.high:x}"


def bind(artifact: Artifact, tensors: Mapping[str, TensorDescription], scalars: Mapping[str, int]) -> Assignment:
    """Values of all symbols; refuses arguments the program does not serve (RUN003 to RUN009, RUN019, RUN022)."""
    env: dict[str, int] = dict(scalars)
    owners: dict[str, str] = {}
    open_: list[_Open] = []
    for parameter in artifact.parameters:
        if isinstance(parameter, TensorArgument):
            open_ += _bind_tensor(parameter, tensors[parameter.name], env, owners)
    _solve(open_, env, owners)
    values = Assignment(env)
    for bound in artifact.bounds:
        if env[bound.symbol] > bound.limit:
            found, required = f"{bound.symbol} = {env[bound.symbol]} ({owners[bound.symbol]})", str(bound)
            refuse_left_out(artifact, env, found, required)
            fail("RUN007", found=found, required=required, help="raise upto= in the kernel and compile it again")
    for fact in artifact.facts:
        if not holds(fact, values):
            fail("RUN008", found=_values(fact, env), required=str(fact), help=_help(fact, scalars))
    for parameter in artifact.tensors:
        if parameter.access.writes:
            _check_output(parameter, tensors[parameter.name])
    return values


def holds(predicate: Expr, env: Mapping[str, int]) -> bool:
    """Whether a predicate holds; RUN017 where it divides by zero."""
    try:
        return bool(predicate.evaluate(env))
    except ExprError as error:
        fail("RUN017", found=f"a predicate: {error}", required="a value")


def refuse_left_out(artifact: Artifact, env: Mapping[str, int], found: str, required: str) -> None:
    """RUN021 for arguments of a class that was left out when the program was compiled."""
    for left in artifact.left_out:
        if holds(left.predicate, env):
            fail("RUN021", found=found, required=required, notes=(str(left),), help=left.help)


def _help(fact: Expr, scalars: Mapping[str, int]) -> str:
    """The remedy: other tensors, or another kernel where its code requires more than their alignment and strides."""
    if any("." in symbol for symbol in fact.symbols):
        return ""  # the catalogue's
    of_scalars = ", ".join(f"tw.maximum({name}, 0)" for name in sorted(fact.symbols & scalars.keys()))
    kept = "the kernel's indices stay inside these tensors only so"
    clamped = f"; a bound that may lie before an axis is written {of_scalars}" if of_scalars else ""
    computed = (
        "by m.index, of a scalar index p by p.to(tw.i32), which are absent outside: .fill(0.0) where several meet"
    )
    divided = '; extents that divide are annotated "G" and "32*G"' if "//" in str(fact) else ""
    return f"{kept}: index each axis with a Range over its own extent, or {computed}{divided}{clamped}"


def aliasing(artifact: Artifact, tensors: Mapping[str, TensorDescription]) -> Aliasing:
    """What must be checked whenever the addresses change."""
    parameters = artifact.tensors
    prints = tuple(_footprint(tensors[p.name]) for p in parameters)
    pairs = tuple(
        (i, j)
        for i, a in enumerate(parameters)
        for j, b in enumerate(parameters)
        if i != j and a.access.writes and not (b.access.writes and j < i) and prints[i].high > prints[i].low
    )
    return Aliasing(tuple(p.name for p in parameters), prints, pairs)


class _Open(NamedTuple):
    """A dimension whose extent is an expression, and what it is in this call."""

    dim: Expr
    extent: int
    place: str
    declared: str


def _solve(open_: Sequence[_Open], env: dict[str, int], owners: dict[str, str]) -> None:
    """Gives symbols their values by extents such as ``2*N`` and ``H*D``, and checks all of these (RUN006)."""
    pending = [item for item in open_ if not item.dim.symbols <= env.keys()]
    while pending:
        found = [(item, solved_for(item.dim, item.extent, env)) for item in pending]
        item, solution = next(pair for pair in found if pair[1] is not None)
        assert solution is not None
        symbol, value = solution
        if not 0 <= value <= MAX_EXTENT:
            fail(
                "RUN006",
                found=f"{item.place} is {item.extent}, so that {symbol} would be {value}",
                required=f"{symbol} from 0 to {MAX_EXTENT}, by {item.declared}",
            )
        env[symbol], owners[symbol] = value, item.place
        pending = [item for item in pending if not item.dim.symbols <= env.keys()]
    for dim, extent, place, declared in open_:
        value = dim.evaluate(env)
        if value != extent:
            given = f"{dim} = {value} where {_values(dim, env)}"
            fail("RUN006", found=f"{place} is {extent}", required=f"{given}, by {declared}")


def _bind_tensor(
    parameter: TensorArgument, tensor: TensorDescription, env: dict[str, int], owners: dict[str, str]
) -> list[_Open]:
    """Symbols of one tensor: its address, strides, and the extents that are a symbol or one and a number; the other
    dimensions are returned."""
    open_: list[_Open] = []
    name = parameter.name
    declared = f"{name}: [{', '.join(map(str, parameter.dims))}]"
    if len(tensor.shape) != parameter.rank:
        fail("RUN003", found=f"{name} has shape {tensor.shape}", required=f"{parameter.rank} dimensions, {declared}")
    if tensor.dtype.name != parameter.dtype:
        fail("RUN004", found=f"{name} has dtype {tensor.dtype}", required=parameter.dtype)
    for i, (dim, extent) in enumerate(zip(parameter.dims, tensor.shape, strict=True)):
        place = f"dimension {i} of {name}"
        if extent > MAX_EXTENT:
            fail("RUN022", found=f"{place} is {extent}", required=f"at most {MAX_EXTENT}")
        match dim:
            case Const(value):
                if extent != value:
                    fail("RUN006", found=f"{place} is {extent}", required=f"{value}, by {declared}")
            case _:
                known = symbol_plus(dim)
                if known is None:
                    open_.append(_Open(dim, extent, place, declared))
                    continue
                symbol, more = known
                if extent < more:
                    fail("RUN006", found=f"{place} is {extent}", required=f"at least {more}, by {declared}")
                if env.setdefault(symbol, extent - more) != extent - more:
                    found = _disagreement(symbol, env, owners, place, extent - more)
                    fail("RUN005", found=found, required=f"one {symbol}")
                owners.setdefault(symbol, place)
    env[f"{name}.address"] = tensor.address
    for i, stride in enumerate(tensor.strides):
        env[f"{name}.stride{i}"] = stride
    return open_


def _disagreement(symbol: str, env: Mapping[str, int], owners: Mapping[str, str], place: str, extent: int) -> str:
    return f"{symbol} = {env[symbol]} ({owners.get(symbol, 'a scalar')}) and {symbol} = {extent} ({place})"


def _check_output(parameter: TensorArgument, tensor: TensorDescription) -> None:
    if tensor.read_only:
        fail("RUN019", found=f"{parameter.name} is read-only", required="memory that may be written")
    if overlaps_itself(_footprint(tensor)):
        fail(
            "RUN009",
            found=f"{parameter.name} has shape {tensor.shape} with strides {tensor.strides}",
            required="an address of its own for every element",
        )


def _footprint(tensor: TensorDescription) -> MemoryFootprint:
    return footprint(tensor.shape, tensor.strides, tensor.dtype.bytes)


def _values(e: Expr, env: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {env[name]}" for name in sorted(e.symbols))
