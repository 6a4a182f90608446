"""Certifies a plain kernel: what its stores promise is written once, and nothing outside a tensor is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from xdsl.ir import Operation

from tilewright.artifact.schema import MAX_EXTENT, Obligation
from tilewright.base import verdict
from tilewright.base.expr import Const, Expr, Sym, all_of, minimum, negate, own
from tilewright.base.verdict import Proof, Proved, Refuted, Unknown
from tilewright.compiler.proofs.loaded import offsets_of, tiles_of
from tilewright.compiler.reliance import FAILED
from tilewright.compiler.timing import timed
from tilewright.diag import TilewrightError, fail
from tilewright.lang.axes import Span, axis_symbol
from tilewright.protocol.access import (
    AccessKind,
    AccessMap,
    IndexRole,
    KernelAccesses,
    LoopIndex,
    NamedValue,
    RaggedTiles,
    StoreDomain,
)
from tilewright.tile import dialect as tile
from tilewright.tile.indirect import scatter_number
from tilewright.tile.ops import GATE, OPEN_COUNTER, operations, program_index
from tilewright.tile.queries import tensor_name
from tilewright.transport import dialect as transport
from tilewright.transport.access import accesses_of, scatter_name
from tilewright.verify.access import AccessWitness, prove_accesses
from tilewright.verify.access_report import diagnose

_MOST_CASES = 256
"""Ways through branches on extents that are proved one by one, as many as eight independent branches have; with more
nothing is decided."""


@timed("prove")
def prove_stores(kernel: tile.Kernel, lowered: transport.Kernel) -> Proof[AccessWitness]:
    """Whether every store's domain is written once and nothing outside a tensor is touched."""
    gate = None if kernel.gate is None else kernel.gate.data
    return prove_domains(lowered, store_domains(kernel), tiles_of(kernel), gate=gate)


def prove_domains(
    lowered: transport.Kernel,
    domains: Sequence[StoreDomain],
    tiles: Mapping[str, RaggedTiles] | None = None,
    *,
    gate: str | None = None,
) -> Proof[AccessWitness]:
    """Whether the stores write exactly ``domains``, each element once, and nothing outside a tensor is touched.

    Where a branch depends on extents alone, a launch takes one side of it: each side is proved by itself. ``tiles`` are
    those of ragged grids, by the integer at which they begin. Of a kernel whose roles stand behind a ``gate`` only
    launches that pass it are asked about; others write nothing, and need not. Which broken promises a kernel reports
    itself is for ``proofs.gate`` to judge; here the additions are asked to lie inside.
    """
    accesses = accesses_of(lowered)
    if gate is not None:
        accesses = replace(accesses, accesses=tuple(_with_open_gate(access, gate) for access in accesses.accesses))
    if tiles:
        accesses = replace(accesses, accesses=tuple(_with_tiles(access, tiles) for access in accesses.accesses))
    # facts about strides and addresses say nothing of coordinates
    about_extents = tuple(a for a in accesses.assumptions if not any("." in symbol for symbol in a.symbols))
    proved: dict[tuple[str, str], dict[str, None]] = {}  # what holds, with the methods that decided it in the cases
    cases = tuple(islice(_cases(replace(accesses, assumptions=about_extents)), _MOST_CASES + 1))
    if len(cases) > _MOST_CASES:
        found = f"branches on extents go more than {_MOST_CASES} ways"
        return Unknown("the accesses of a kernel", found, "branch on fewer conditions", accesses.accesses[0].location)
    for case in cases:
        apart = _shifted(case) or any(map(_bounded_by_others, domains))
        answer = prove_accesses(case, [_by_step(d) for d in domains] if apart else domains)
        if not isinstance(answer, Proved):
            return answer
        for o in answer.obligations:
            proved.setdefault((o.name, o.subject), {}).update(dict.fromkeys(o.method.split(", ")))
    return Proved(tuple(verdict.Discharged(name, ", ".join(by), of) for (name, of), by in proved.items()))


def _with_open_gate(access: AccessMap, gate: str) -> AccessMap:
    scope = (i for i in access.scope if not isinstance(i, LoopIndex) or i.name not in (GATE, OPEN_COUNTER))
    reports = access.kind is AccessKind.REDUCE and access.tensor == gate == FAILED
    return replace(access, scope=tuple(scope), kind=AccessKind.READ if reports else access.kind)


def _with_tiles(access: AccessMap, tiles: Mapping[str, RaggedTiles]) -> AccessMap:
    scope = (replace(i, tiles=tiles.get(i.name)) if isinstance(i, LoopIndex) else i for i in access.scope)
    return replace(access, scope=tuple(scope))


def _shifted(accesses: KernelAccesses) -> bool:
    """Whether tiles begin at a position that programs compute themselves: then each is proved separately."""
    return any(
        isinstance(item, NamedValue) and any(item.name in coord.symbols for coord in access.coords)
        for access in accesses.accesses
        for item in access.scope
    )


def _bounded_by_others(domain: StoreDomain) -> bool:
    """A stream ends or begins where the program, or a stream around it, says, or a program writes where it has loaded:
    its steps are no box of indices."""
    if any(i.tiles is not None for i in domain.indices):
        return True
    names = {i.name for i in domain.indices}
    ends = (i.end for i in domain.indices if i.role is IndexRole.COUNTER)
    return any(not names.isdisjoint(end.symbols) for end in ends)


def _by_step(domain: StoreDomain) -> StoreDomain:
    """The store domain of each step of each program, separately."""
    return replace(domain, instances=tuple(i.name for i in domain.indices if i.role is not IndexRole.AXIS))


def _cases(accesses: KernelAccesses) -> Iterator[KernelAccesses]:
    """The accesses of every way that branches on extents can go."""
    extents = {p.name for p in accesses.parameters}
    conditions = dict.fromkeys(c for access in accesses.accesses for c in access.conditions if c.symbols <= extents)
    condition = next(iter(conditions), None)
    if condition is None:
        yield accesses
        return
    for truth in (condition, negate(condition)):
        kept = tuple(
            replace(access, conditions=tuple(c for c in access.conditions if c != truth))
            for access in accesses.accesses
            if negate(truth) not in access.conditions
        )
        yield from _cases(replace(accesses, accesses=kept, assumptions=(*accesses.assumptions, truth)))


def certified(kernel: tile.Kernel, answer: Proof[AccessWitness]) -> tuple[Obligation, ...]:
    """The proved obligations of one lowered kernel; ACC001 to ACC004 with the witness, ACC005 with the open question.

    No certificate, no code: an unproved kernel is never emitted.
    """
    if not isinstance(answer, Proved):
        where = tile.begins_at(kernel)
        raise TilewrightError((diagnose(answer, where),))
    return relying(kernel, [recorded(o) for o in answer.obligations])


def relying(kernel: tile.Kernel, found: Sequence[Obligation]) -> tuple[Obligation, ...]:
    """The obligations, with the promises that those about offsets rely on."""
    by = ", ".join(dict.fromkeys(str(promise) for promise in offsets_of(kernel)))
    return tuple(replace(o, method=f"{o.method}, by {by}") if by and o.name == "once" else o for o in found)


def require_proved(
    kernel: tile.Kernel, answer: Proof[str], code: str, required: str = ""
) -> tuple[verdict.Discharged, ...]:
    """The obligations of a proof; the error ``code`` at the kernel's first line if it does not hold."""
    if isinstance(answer, Proved):
        return answer.obligations
    why = answer.witness if isinstance(answer, Refuted) else answer.reason
    settle = answer.settle if isinstance(answer, Unknown) else ""
    fail(code, where=tile.begins_at(kernel), found=f"{answer.obligation}: {why}", required=settle or required)


def recorded(proved: verdict.Discharged) -> Obligation:
    """An obligation as an artifact stores it."""
    return Obligation(proved.name, proved.method, proved.subject)


def store_domains(kernel: tile.Kernel) -> tuple[StoreDomain, ...]:
    """The domain of every store of the tile program."""
    programs, loads = _programs(kernel), _loads(kernel)
    found: list[StoreDomain] = []
    for op in operations(kernel):
        if not isinstance(op, tile.WRITES):
            continue
        indices = [*programs, *_counters(op)]
        adds = isinstance(op, tile.AtomicReduce) or (
            isinstance(op, tile.Scatter | tile.ScatterReduce) and tile.by_places(op)
        )
        tensor, coords, guard, axes = _box(op) if isinstance(op, tile.Store | tile.AtomicReduce) else _scattered(op)
        indices = [*_loaded(loads, [*coords, *guard, *(i.end for i in indices)], indices), *indices]
        instances = tuple(i.name for i in indices) if adds else ()
        found.append(StoreDomain(tensor, _location(op), (*indices, *axes), tuple(coords), all_of(guard), instances))
    return tuple(found)


@dataclass(frozen=True)
class ScatterDomain:
    """The points of scatter ``number`` of a tile program, a plain store at loaded coordinates, where ``guard`` holds:
    ``places`` gives the coordinates along the axes of its tile over ``indices``."""

    op: tile.Scatter
    number: int
    location: str
    indices: tuple[LoopIndex, ...]
    places: Mapping[str, Expr]
    guard: tuple[Expr, ...]


def scatter_domains(kernel: tile.Kernel) -> Iterator[ScatterDomain]:
    """The domain of every plain store at loaded coordinates."""
    programs, loads = _programs(kernel), _loads(kernel)
    for op in operations(kernel):
        if isinstance(op, tile.Scatter) and op.indices:
            indices = [*programs, *_counters(op)]
            places, guard, axes = _places(op)
            indices = [*_loaded(loads, [*guard, *(i.end for i in indices)], indices), *indices, *axes]
            yield ScatterDomain(op, scatter_number(op), _location(op), tuple(indices), places, tuple(guard))


def _programs(kernel: tile.Kernel) -> list[LoopIndex]:
    extents = (extent.expr for extent in kernel.grid)
    return [LoopIndex(program_index(i), IndexRole.PROGRAM, Const(0), extent) for i, extent in enumerate(extents)]


def _location(op: Operation) -> str:
    location = tile.location_of(op)
    return str(location) if location is not None else ""


def _loads(kernel: tile.Kernel) -> tuple[LoopIndex, ...]:
    """Integers that the program loads, each once for every value of the programs and steps ``per``."""
    tiles, found = tiles_of(kernel), list[LoopIndex]()
    for op in operations(kernel):
        if isinstance(op, tile.Bind):
            name = op.symbol.data
            per = (*(program_index(i) for i in range(len(kernel.grid))), *(i.name for i in _counters(op)))
            end = Const(MAX_EXTENT + 1) if op.most is None else minimum(op.most.expr, MAX_EXTENT) + 1
            found.append(LoopIndex(name, IndexRole.LOADED, Const(0), end, per=per, tiles=tiles.get(name)))
    return tuple(found)


def _loaded(loads: Sequence[LoopIndex], asked: Sequence[Expr], indices: Sequence[LoopIndex]) -> Iterator[LoopIndex]:
    """Of what the program loads that on which a store depends, per those of its ``indices``."""
    if not loads:
        return
    symbols = frozenset[str]().union(*(e.symbols for e in asked))
    for load in loads:
        if load.name in symbols:
            tiles = load.tiles if load.tiles is not None and load.tiles.end in symbols else None
            yield replace(load, per=tuple(i.name for i in indices if i.name in load.per), tiles=tiles)


_Written: TypeAlias = tuple[str, list[Expr], list[Expr], list[LoopIndex]]
"""A written value: its coordinates, domain and positions in the tile."""


def _box(op: tile.Store | tile.AtomicReduce) -> _Written:
    """The domain of a store of a box."""
    coords: list[Expr] = []
    guard: list[Expr] = []
    axes: list[LoopIndex] = []
    for position, coord in enumerate(c.data for c in op.coords):
        if not isinstance(coord, Span):
            coords.append(coord)
            continue
        at = _along(axes, position, coord)
        coords.append(at)
        guard.append(at < coord.stop)
    return tensor_name(op), coords, guard, axes


def _scattered(op: tile.Scatter | tile.ScatterReduce) -> _Written:
    """The elements at computed coordinates that lie in the tensor; where these may meet, all of the tile, by their
    places."""
    places, guard, axes = _places(op)
    name = tensor_name(op)
    if tile.by_places(op):
        return scatter_name(name, scatter_number(op)), list(places.values()), guard, axes
    coords = [c.expr.substitute(places) for c in op.coords]
    dims = [d.expr for d in tile.tensor_type(op.tensor).dims]
    inside = [test for c, dim in zip(coords, dims, strict=True) for test in (c >= 0, c < dim)]
    return name, coords, [*guard, *inside], axes


def _places(op: tile.Scatter | tile.ScatterReduce) -> tuple[dict[str, Expr], list[Expr], list[LoopIndex]]:
    """Coordinates along the axes of what is written, where they lie in its domain, and the indices they are over."""
    axes: list[LoopIndex] = []
    guard: list[Expr] = []
    places: dict[str, Expr] = {}
    for position, axis in enumerate(tile.tile_type(op.value).axes_tuple):
        at = _along(axes, position, axis) if isinstance(axis, Span) else Const(0)
        places[axis_symbol(position)] = at
        if isinstance(axis, Span):
            guard.append(at < axis.stop)
    return places, guard, axes


def _along(axes: list[LoopIndex], position: int, span: Span) -> Expr:
    """The coordinate along an axis of the tile, of which ``axes`` gets the index."""
    name = own(f"axis{position}")
    axes.append(LoopIndex(name, IndexRole.AXIS, Const(0), Const(span.size)))
    return span.origin + Sym(name)


def _counters(op: Operation) -> list[LoopIndex]:
    """Counters of the streams around an op, outermost first."""
    found: list[LoopIndex] = []
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, tile.StreamLoop):
            found.insert(0, LoopIndex(parent.counter.data, IndexRole.COUNTER, Const(0), parent.trip.expr))
        parent = parent.parent_op()
    return found
