"""Evaluates both IRs of a kernel, path by path, and compares their stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import Expr, ExprError, Interval
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.arithmetic import of_reals
from tilewright.validate.tile_to_transport.facts import SymbolFacts
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, fingerprints, key, mix
from tilewright.validate.tile_to_transport.integers import ALWAYS, Numbers
from tilewright.validate.tile_to_transport.memory import SharedFills
from tilewright.validate.tile_to_transport.recurrence import Claims
from tilewright.validate.tile_to_transport.roles import Peers, RoleThreads, roles
from tilewright.validate.tile_to_transport.segments import LoopSegment, StoredElements
from tilewright.validate.tile_to_transport.threads import Path, SourceFacts, Threads, is_gate
from tilewright.validate.tile_to_transport.tiles import TileValues
from tilewright.validate.tile_to_transport.values import without
from tilewright.validate.undecided import Undecided

MOST_PATHS = 64
"""Ways through the branches of a kernel."""


@dataclass(frozen=True)
class Unlike:
    """Something that is not shown to be the same in both: the user's place, and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


def compare(source: tile.Kernel, lowered: t.Kernel) -> tuple[Unlike, ...]:
    """Where the Transport IR is not shown to store what the Tile IR stores, for all arguments of its class; empty if it
    is."""
    return _without_errors(lambda: _compared(source, lowered))


def _without_errors(found: Callable[[], Iterator[Unlike]]) -> tuple[Unlike, ...]:
    """What is found, or why nothing can be said."""
    with np.errstate(over="ignore"):
        try:
            return tuple(dict.fromkeys(found()))
        except Undecided as error:
            return (Unlike(error.where, f"undecided: {error.what}"),)
        except (ArithmeticError, ExprError, LookupError, TypeError, ValueError) as error:  # a text that says nonsense
            return (Unlike("", f"undecided: {type(error).__name__}: {error}"),)


def _compared(source: tile.Kernel, lowered: t.Kernel) -> Iterator[Unlike]:
    """The differences of the first path that has some."""
    facts = SymbolFacts(_known(lowered)).when(
        [*(a.expr for a in lowered.assumptions), *(r.expr for r in source.requires)]
    )
    yield from _grid(source, lowered, facts)
    paths: list[list[int]] = [[]]
    count = 0
    found: tuple[Unlike, ...] = ()
    while paths and not found:
        count += 1
        if count > MOST_PATHS:
            raise Undecided("too many branches")
        found = _either(source, lowered, facts, paths.pop(), paths)
    yield from found


def _either(
    source: tile.Kernel, lowered: t.Kernel, facts: SymbolFacts, taken: list[int], more: list[list[int]]
) -> tuple[Unlike, ...]:
    """The differences on one path, where what loops carry is asked for everywhere, unless there are none where it is
    asked for inside of the bounds of their steps alone."""
    path, inside = Path(taken, more), Path(taken, more, inside=True)
    found = _without_errors(lambda: _path(source, lowered, facts, path))
    if not found or _without_errors(lambda: _path(source, lowered, facts, inside)):
        return found
    same = all(a == b for a, b in zip(path.chosen, inside.chosen, strict=False))
    return () if same else found  # what is left for other paths was asked for in the order of both


def _path(source: tile.Kernel, lowered: t.Kernel, facts: SymbolFacts, path: Path) -> Iterator[Unlike]:
    program = SourceFacts.of(source, reals=of_reals(lowered))
    gates = (op for op in operations(lowered) if isinstance(op, t.For) and is_gate(op))
    if source.gate is None and any(op.counter.data not in program.streams for op in gates):
        raise Undecided("a gate that the program has not")
    told: list[Expr] = []
    found = list(_on_path(source, lowered, program, facts, path, told))
    if found and told:  # what was asked before a branch has told it may be known
        found = list(_on_path(source, lowered, program, facts.when(told), path, told))
    yield from found


def _on_path(
    source: tile.Kernel, lowered: t.Kernel, program: SourceFacts, facts: SymbolFacts, path: Path, told: list[Expr]
) -> Iterator[Unlike]:
    """The same on one path, with the launch conditions that its branches imply."""
    if not any(roles(lowered)):
        threads = Threads(lowered, program, facts, path, lowered.threads.data)
        threads.block(lowered.body.block)
        told += threads.told
        yield from _against(source, lowered, [threads])
        return
    peers: Peers = {}
    for rank in range(prod(_cluster(lowered))):
        memory = SharedFills()
        every: list[RoleThreads] = []
        for role in roles(lowered):
            threads = RoleThreads(lowered, role, program, facts, path, memory, rank, peers)
            threads.block(role.body.block)
            told += threads.told
            every.append(threads)
        memory.settled()
        yield from _counted(every)
        for interleaving in dict.fromkeys(r.interleaving for r in every if r.stores):
            yield from _against(
                source, lowered, [r for r in every if r.stores and r.interleaving == interleaving], every
            )


def _against(
    source: tile.Kernel, lowered: t.Kernel, threads: Sequence[Threads], every: Sequence[Threads] = ()
) -> Iterator[Unlike]:
    """What threads store together, against what a program stores: ``every`` role may run some of its streams, and hand
    on what comes out."""
    first, reals = threads[0], of_reals(lowered)
    handed: dict[str, list[LoopSegment]] = {}
    for role in every:
        counters = dict.fromkeys(part.counter for part in role.parts if part.counter not in handed)
        handed |= {c: [part for part in role.parts if part.counter == c] for c in counters}
    rank = first.rank if isinstance(first, RoleThreads) and first.adds else None
    found: list[Unlike] = []
    for rotated in (True, False) if any(part.single for part in first.parts) else (False,):
        tiles = TileValues(
            source,
            first.facts,
            first.parts,
            first.integers,
            reals=reals,
            rotated=rotated,
            functions=first.program.functions,
            rank=rank,
        )
        tiles.handed = handed
        tiles.theirs += [role.integers for role in every if role is not first]
        tiles.run()
        claims = Claims()
        for side in (tiles, *(every or threads)):
            claims.add(side.claims)
        if not claims.hold():
            found = [Unlike("", "undecided: a recurrence whose steps are not told apart")]
            continue
        found = list(_stored(tiles.stores, [s for several in threads for s in several.stores]))
        if not found:
            break
    yield from found


def _cluster(lowered: t.Kernel) -> tuple[int, int]:
    return next((op.cluster_shape for op in operations(lowered) if isinstance(op, t.Programs)), (1, 1))


def _counted(every: Sequence[RoleThreads]) -> Iterator[Unlike]:
    """Whether all roles count fills in the same way: programs of any role add as many, and each role starts with the
    fill of its first program."""
    names = dict.fromkeys(c.name for r in every for c in r.counted)
    for name in names:
        counts = [c for r in every for c in r.counted if c.name == name]
        by = next((c.added for c in counts if c.interleaving == (0, 1)), None)
        if by is None:
            raise Undecided(f"what a program adds to {name}")
        for c in counts:
            place, distance = c.interleaving
            if distance > 1 and any(s.startswith("$p") for s in by.symbols):
                raise Undecided(f"interleaved programs that add different numbers to {name}")
            if c.first != by * place or c.added != by * distance:
                yield Unlike("", f"roles count {name} differently: {c.first} and {c.added} a program, not {by}")


def _grid(source: tile.Kernel, lowered: t.Kernel, facts: SymbolFacts) -> Iterator[Unlike]:
    """Every program of the grid is run."""
    grid = [g.expr for g in source.grid]
    for op in operations(lowered):
        if isinstance(op, t.Programs):
            names = [n.data for n in op.names]
            if names != [f"$p{i}" for i in range(len(grid))]:
                yield Unlike("", f"programs {', '.join(names)} of a grid of {len(grid)} axes")
            for extent, wanted in zip(op.extents, grid, strict=False):
                if extent.expr != wanted and not facts.never_negative(extent.expr - wanted):
                    yield Unlike("", f"{extent.expr} programs along an axis of {wanted}")


def _known(lowered: t.Kernel) -> dict[str, Interval]:
    """Intervals of the dimensions, and of integers that are loaded."""
    found: dict[str, Interval] = {
        op.symbol.data: (0, MAX_EXTENT) for op in operations(lowered) if isinstance(op, t.Bind)
    }
    for arg in lowered.body.block.args:
        if isinstance(arg.type, tile.TensorType):
            for dim in arg.type.dims:
                found |= dict.fromkeys(dim.expr.symbols, (0, MAX_EXTENT))
    return found


# -- stores -----------------------------------------------------------------------------------------------------------
@dataclass
class _Elements:
    """Stored elements, one after another: where, what, under which thresholds."""

    at: Fingerprints
    terms: Fingerprints
    atoms: dict[int, Numbers]
    need: dict[int, Numbers]
    places: list[tuple[int, str]]

    def place(self, i: int) -> str:
        """The user's line of an element."""
        return next(where for end, where in self.places if i < end)


def _elements(stores: Sequence[StoredElements]) -> _Elements:
    """All elements of several stores that may be stored."""
    at: list[Fingerprints] = []
    terms: list[Fingerprints] = []
    atoms: list[tuple[int, dict[int, Numbers]]] = []
    need: list[tuple[int, dict[int, Numbers]]] = []
    places: list[tuple[int, str]] = []
    end = 0
    for stored in stores:
        coords = [fingerprints(c.number) + c.rest for c in stored.coords]
        value, bounds = stored.value, stored.bounds
        shape = np.broadcast_shapes(
            *(c.shape for c in coords), value.terms.shape, bounds.mask.shape, *(c.shape for c in bounds.atoms.values())
        )
        mask = np.broadcast_to(bounds.mask, shape)
        where = fingerprints(0).reshape(())
        for axis, c in enumerate(coords):
            where = where + mix(c, key("at", axis))

        def flat(x: Numbers, shape: tuple[int, ...] = shape, mask: Numbers = mask) -> Numbers:
            return np.broadcast_to(x, shape)[mask]

        at.append(flat(where))
        terms.append(flat(value.terms))
        count = at[-1].size
        end += count
        places.append((end, stored.where))
        atoms.append((count, {f: flat(c) for f, c in bounds.atoms.items()}))
        need.append((count, {f: flat(c) for f, c in without(value.needs, bounds.atoms).items()}))
    return _Elements(np.concatenate(at), np.concatenate(terms), _joined(atoms), _joined(need), places)


def _joined(several: Sequence[tuple[int, dict[int, Numbers]]]) -> dict[int, Numbers]:
    forms = {f for _, atoms in several for f in atoms}
    return {
        f: np.concatenate([atoms.get(f, np.full(count, ALWAYS)) for count, atoms in several]) for f in sorted(forms)
    }


def _stored(wanted: Sequence[StoredElements], found: Sequence[StoredElements]) -> Iterator[Unlike]:
    """Each element that either side stores, compared."""
    groups = dict.fromkeys((s.tensor, s.fn, s.around) for s in (*wanted, *found))
    for group in groups:
        ours = [s for s in wanted if (s.tensor, s.fn, s.around) == group]
        theirs = [s for s in found if (s.tensor, s.fn, s.around) == group]
        if not ours or not theirs:
            yield Unlike((ours or theirs)[0].where, f"{group[0]} is stored in {'one loop' if group[2] else 'one'} only")
            continue
        yield from _side_by_side(group[0], _elements(ours), _elements(theirs))


def _side_by_side(tensor: str, ours: _Elements, theirs: _Elements) -> Iterator[Unlike]:
    order = np.argsort(ours.at)
    sorted_ = ours.at[order]
    if (sorted_[1:] == sorted_[:-1]).any():
        raise Undecided(f"an element of {tensor} is stored twice", ours.place(0))
    if not sorted_.size or not theirs.at.size:
        if sorted_.size != theirs.at.size:
            yield Unlike((ours if sorted_.size else theirs).place(0), f"{tensor}: nothing is stored")
        return
    slot = np.minimum(np.searchsorted(sorted_, theirs.at), sorted_.size - 1)
    index = order[slot]
    known = ours.at[index] == theirs.at
    yield from _first(theirs, ~known, f"an element of {tensor} that the program does not store")
    yield from _first(theirs, known & (ours.terms[index] != theirs.terms), f"another value is stored to {tensor}")
    undefined = np.zeros(theirs.at.size, np.bool_)
    for threshold in theirs.need.values():
        undefined |= threshold > ALWAYS
    yield from _first(theirs, undefined, f"what is stored to {tensor} is not known where it is stored")
    outside = np.zeros(theirs.at.size, np.bool_)
    exact = known.copy()
    for form in {**ours.atoms, **theirs.atoms}:
        domain = ours.atoms[form][index] if form in ours.atoms else np.full(index.size, ALWAYS)
        guard = theirs.atoms[form] if form in theirs.atoms else np.full(index.size, ALWAYS)
        outside |= known & (guard < domain)
        exact &= guard <= domain
    yield from _first(theirs, outside, f"an element of {tensor} is stored outside of its domain")
    missing = np.ones(ours.at.size, np.bool_)
    missing[index[exact]] = False
    yield from _first(ours, missing, f"an element of {tensor} is not stored")


def _first(elements: _Elements, wrong: Numbers, what: str) -> Iterator[Unlike]:
    if wrong.any():
        yield Unlike(elements.place(int(np.argmax(wrong))), f"{what} ({int(wrong.sum())} of {wrong.size} elements)")


__all__ = ["Unlike", "compare"]
