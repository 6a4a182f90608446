"""Proofs about a kernel's global accesses, for every launch of its class: extents, scalars and strides stay symbols.

Obligations:

    guards   every access, under its guard and the conditions around it, lies inside its tensor
    once     no element is stored twice, by two programs, threads or registers, or by two ops
    domain   the elements stored are exactly those that the tile program's stores promise
    added    for atomic additions: for each value of the instances (programs, counters) of the promise, every promised
             element is added to exactly once, and no other

Each answer is ``Proved`` with the method that decided it (``bounds``, ``radix``, ``isl``), ``Refuted`` with a replayed
witness, or ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations, product

from tilewright.base.expr import OWN, Compare, Const, Expr, Sym, conjuncts
from tilewright.base.verdict import Discharged, Proof, Proved, Refuted, Unknown
from tilewright.protocol.access import AccessKind, AccessMap, IndexRole, KernelAccesses, RaggedTiles, StoreDomain
from tilewright.verify.access_linear import (
    Disjunction,
    Formula,
    GaveUpError,
    Linear,
    Linearisation,
    Variables,
    both,
    equal,
    opposite,
)
from tilewright.verify.access_pieces import AccessPiece, piece_of
from tilewright.verify.access_radix import PlacedPiece, Plane, Radix, are_apart, differ_modulo, ends_of, radix_of
from tilewright.verify.access_solve import KnownLiterals, Solver
from tilewright.verify.access_split import join_digits, split_by_extents
from tilewright.verify.access_witness import AccessFault, AccessWitness, Point, Replay

__all__ = ["AccessFault", "AccessWitness", "Point", "prove_accesses", "prove_cover", "prove_guards"]

_LOADED = "walk groups of rows with tw.ragged_grid(offsets, x.shape[0], 64), offsets a tw.Offsets; or tw.reduce_add"
_MULTIPLIED = (
    'give the extent that is multiplied as a number, y: tw.Tensor["T", "H*64"], or its part of the tensor a dimension '
    'of its own, y: tw.Tensor["T", "H", "D"], by a reshape before the call'
)
_NOT_EXACT = "store at sums of indices times positive constants, and load at the others: y[m] = x[n - 1 - m]"


def prove_accesses(kernel: KernelAccesses, domains: Sequence[StoreDomain]) -> Proof[AccessWitness]:
    """All obligations of a kernel: the first refutation, else the first doubt, else everything proved."""
    launch = _Launch(kernel)
    answers = [*_all_guards(launch), *_all_covers(launch, domains)]
    for kind in (Refuted, Unknown):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    return Proved(tuple(o for answer in answers if isinstance(answer, Proved) for o in answer.obligations))


def prove_guards(kernel: KernelAccesses) -> tuple[Proof[AccessWitness], ...]:
    """One answer for each access, in order: no point of it lies outside its tensor."""
    return tuple(_all_guards(_Launch(kernel)))


def prove_cover(kernel: KernelAccesses, domains: Sequence[StoreDomain]) -> tuple[Proof[AccessWitness], ...]:
    """One answer for each tensor that is written: its stores cover their domain, each element once."""
    return tuple(_all_covers(_Launch(kernel), domains))


def prove_once(kernel: KernelAccesses, domain: StoreDomain) -> Proof[AccessWitness]:
    """Whether each point of a promise is an element of its own; ``kernel`` gives the parameters, and what is known."""
    launch = _Launch(kernel)
    promised = replace(domain, instances=())
    try:
        points = promised.as_map((Const(0),) * len(domain.coords))
        cover = _Cover(launch, domain.tensor, [points], [promised], added=False)
        twice = cover.overlap()
    except GaveUpError as error:
        return Unknown(f"once: {domain.tensor}", str(error), "simplify the guards of the store", domain.location)
    if twice is not None:
        return twice
    return Proved((Discharged("once", cover.proof.method("radix"), domain.tensor),))


class _Launch:
    """The launch's parameters as variables, what is known of them, and the accesses over them: questions share these.

    An expression of parameters is defined once, whichever access it stands in.
    """

    def __init__(self, kernel: KernelAccesses):
        self.kernel = kernel
        self.variables = Variables()
        env = {p.name: Linear(0, {self.variables.new(p.name, p.low, p.high): 1}) for p in kernel.parameters}
        for assumption in kernel.assumptions:
            for condition in conjuncts(assumption):
                self._narrow(env, condition)
        self.parameters = range(len(env))
        self.outer = Linearisation(self.variables, env)
        self._known = KnownLiterals(self.variables, None, [self.outer.formula(a) for a in kernel.assumptions])
        self._told = 0  # how many of the definitions are among what is known
        self._pieces: dict[int, AccessPiece] = {}

    def _narrow(self, env: Mapping[str, Linear], condition: Expr) -> None:
        """A parameter's least value, if ``condition`` states it: quotients by the parameter are bounded then."""
        match condition:
            case Compare("<=", Const(low), Sym(name)) if name in env:
                (variable,) = env[name].terms
                self.variables.narrow(variable, low, None)
            case _:
                pass

    def branch(self) -> _Launch:
        """The same launch, for a question with definitions of its own."""
        found = copy(self)
        found.outer, found._pieces = self.outer.branch(), dict(self._pieces)
        return found

    def piece(self, access: AccessMap) -> AccessPiece:
        """An access over index variables of its own: the same for every question about it."""
        found = self._pieces.get(id(access))  # the piece keeps it alive
        if found is None:
            found = self._pieces[id(access)] = self.another(access)
        return found

    def another(self, access: AccessMap, fixed: Mapping[str, Linear] | None = None) -> AccessPiece:
        """An access over fresh index variables; ``fixed`` indices are taken as given."""
        return piece_of(access, self.variables, self.outer, fixed or {})

    def inside(self, access: AccessMap, place: int, extent: str) -> bool:
        """Whether a coordinate lies in ``0 .. extent``, one of the parameters, at every point of an access."""
        if extent not in {p.name for p in self.kernel.parameters}:
            return False
        alone = self.branch()
        piece = alone.another(access)
        coord, end = piece.coords[place], alone.outer.form(Sym(extent))
        solver, known = Solver(self.variables, self.parameters), alone.known([piece.points])
        outside = (coord.times(-1).shifted(-1), coord.plus(end, -1))
        return all(solver.find(known, [beyond]) is None for beyond in outside)

    def known(self, formulas: Iterable[Formula] = ()) -> KnownLiterals:
        """What holds for every launch, and ``formulas``."""
        definitions, self._told = self.outer.facts[self._told :], len(self.outer.facts)
        if definitions:
            self._known = KnownLiterals(self.variables, self._known, definitions)
        return KnownLiterals(self.variables, self._known, formulas)


@dataclass
class _Proof:
    """One question, and whether it needed isl."""

    launch: _Launch
    place: str
    """The user's line that it is about."""

    def __post_init__(self) -> None:
        self.solver = Solver(self.launch.variables, self.launch.parameters)

    def replay(self, values: Mapping[int, int]) -> Replay:
        """The original expressions at a solver's point."""
        return Replay(self.launch.kernel, self.launch.outer, values)

    def method(self, best: str) -> str:
        """How the question was decided."""
        return f"{best}, isl" if self.solver.isl_calls and best != "isl" else best

    def doubt(self, obligation: str, reason: str = "") -> Unknown:
        """The solver found a point that the original expressions don't confirm, or gave up."""
        if reason:
            return Unknown(obligation, reason, _NOT_EXACT, self.place)
        inexact = ", ".join(dict.fromkeys(text.replace(OWN, "") for text in self.launch.variables.inexact))
        return Unknown(obligation, f"products and quotients of symbols: {inexact}", _MULTIPLIED, self.place)


def inside_of(access: AccessMap) -> str:
    """What ``guards`` is about."""
    return f"{access.op} inside {access.tensor}"


# -- guards ------------------------------------------------------------------------------------------------------------
def _all_guards(launch: _Launch) -> Iterator[Proof[AccessWitness]]:
    """Accesses that differ in what they are called only (a tensor read and another written at the same places) are one
    question."""
    answers: dict[object, Proof[AccessWitness]] = {}
    for access in (a for a in launch.kernel.accesses if a.bounded):
        question = (access.dims, access.scope, access.conditions, access.guard, access.coords)
        known = answers.get(question)
        if isinstance(known, Proved):
            (same,) = known.obligations
            yield Proved((replace(same, subject=inside_of(access)),))
        else:
            yield answers.setdefault(question, _guards(launch, access))


def _guards(launch: _Launch, access: AccessMap) -> Proof[AccessWitness]:
    proof = _Proof(launch, access.location)
    obligation = f"guards: {inside_of(access)}"
    piece = launch.piece(access)
    outside = [c.times(-1).shifted(-1) for c in piece.coords]
    extents = [launch.outer.form(d) for d in access.dims]
    outside += [c.plus(e, -1) for c, e in zip(piece.coords, extents, strict=True)]
    known = launch.known([piece.points])
    try:
        for beyond in outside:
            point = proof.solver.find(known, [beyond])
            if point is not None:
                replay = proof.replay(point)
                indices = replay.indices(piece)
                element = replay.touches(access, indices)
                dims = [d.evaluate(replay.parameters) for d in access.dims]
                inside = element is not None and all(0 <= x < d for x, d in zip(element, dims, strict=True))
                if element is None or inside or not replay.legal():
                    return proof.doubt(obligation)
                return Refuted(
                    obligation, replay.witness(AccessFault.OUTSIDE, access, element, [(access, indices)], proof.place)
                )
    except GaveUpError as error:
        return proof.doubt(obligation, str(error))
    return Proved((Discharged("guards", "isl" if proof.solver.isl_calls else "bounds", inside_of(access)),))


# -- cover -------------------------------------------------------------------------------------------------------------
def _all_covers(launch: _Launch, domains: Sequence[StoreDomain]) -> Iterator[Proof[AccessWitness]]:
    written = [a for a in launch.kernel.accesses if a.kind is not AccessKind.READ]
    for name in dict.fromkeys([*(a.tensor for a in written), *(d.tensor for d in domains)]):
        own, promised = [a for a in written if a.tensor == name], [d for d in domains if d.tensor == name]
        # what is defined from the variables of one instance is a case more in every later question
        alone = launch.branch() if any(d.instances for d in promised) else launch
        yield _cover(alone, name, own, promised)


def _cover(
    launch: _Launch, tensor: str, accesses: Sequence[AccessMap], domains: Sequence[StoreDomain]
) -> Proof[AccessWitness]:
    kinds = {a.kind for a in accesses}
    if len(kinds) > 1:
        reason = "plain stores and atomic additions to one tensor"
        return Unknown(f"once: stores to {tensor}", reason, "use one of them", accesses[0].location)
    if not domains:
        reason = "no store of the tile program names this tensor"
        return Unknown(f"domain: stores to {tensor}", reason, "", accesses[0].location)
    added = kinds == {AccessKind.REDUCE}
    try:
        named, promises = accesses, domains
        accesses, domains = split_by_extents(*join_digits(accesses, domains), launch.inside)
        written = dict(zip(accesses, named, strict=True))
        if accesses:
            dims, own = accesses[0].dims, named[0].dims
            written |= {d.as_map(dims): p.as_map(own) for d, p in zip(domains, promises, strict=True)}
        if not added and accesses and any(d.instances for d in domains):
            # each instance writes what it promises; that no two write one element is left to the promises
            promised = [replace(d, instances=()) for d in domains]
            apart = _Cover(
                launch, tensor, [d.as_map(accesses[0].dims) for d in promised], promised, added=False, written=written
            )
            twice = apart.overlap()
            if twice is not None:
                return twice
        return _Cover(launch, tensor, accesses, domains, added=added, written=written).prove()
    except GaveUpError as error:
        settle = "simplify the guards of the stores"
        return Unknown(f"cover: stores to {tensor}", str(error), settle, domains[0].location)


class _Cover:
    """The obligations of one written tensor."""

    def __init__(
        self,
        launch: _Launch,
        tensor: str,
        accesses: Sequence[AccessMap],
        domains: Sequence[StoreDomain],
        *,
        added: bool,
        written: Mapping[AccessMap, AccessMap] | None = None,
    ):
        self.tensor = tensor
        self.written = written or {}
        """By a map with other coordinates in their place the one that it was made of, which counterexamples name."""
        self.launch = launch
        self.proof = _Proof(launch, domains[0].location)
        self.name = "added" if added else "once"
        dims = accesses[0].dims if accesses else tuple(Const(0) for _ in domains[0].coords)
        self.domains = [d.as_map(dims) for d in domains]
        self.accesses = list(accesses)
        self.instances = sorted({i for d in domains for i in d.instances})
        self.fixed: dict[str, Linear] = {}
        """The instance whose promise it is, as variables."""
        self.falling: frozenset[int] = frozenset()
        """Coordinates that fall while indices without a bound grow, in all accesses: elements are counted backwards."""

    def overlap(self) -> Proof[AccessWitness] | None:
        """Why two points of the accesses may be one element; None if each is another."""
        placed, radixes, known = self._placed(self.accesses)
        return self._once(placed, radixes, known)

    def prove(self) -> Proof[AccessWitness]:
        """``once`` and ``domain`` for plain stores, ``added`` for atomic additions."""
        missing = self._missing_instance()
        if missing is not None:
            return missing
        self.fixed = {name: Linear(0, {self.launch.variables.new(name): 1}) for name in self.instances}
        placed, radixes, known = self._placed([*self.accesses, *self.domains])
        stores, promised = placed[: len(self.accesses)], placed[len(self.accesses) :]
        return (
            self._once(stores, radixes, known)
            or self._inside(known, promised, stores, radixes, AccessFault.MISSED)
            or self._inside(known, stores, promised, radixes, AccessFault.STRAY)
            or self._proved(radixes)
        )

    def _placed(
        self, sources: Sequence[AccessMap]
    ) -> tuple[list[PlacedPiece], list[tuple[Radix, ...] | str], KnownLiterals]:
        """The accesses over the plane, their mixed-radix forms, and what is known of the plane's digits."""
        pieces = [self._piece(a) for a in sources]
        self.falling = _falling(pieces)
        pieces = [self._counted(p) for p in pieces]
        radixes = [self._radix(p) for p in pieces]
        rank = len(self.domains[0].coords)
        plane = Plane(self.launch.variables, rank, [r for r in radixes if not isinstance(r, str)])
        placed = [
            plane.place_any(p) if isinstance(r, str) else plane.place(p, r)
            for p, r in zip(pieces, radixes, strict=True)
        ]
        return placed, radixes, self.launch.known(plane.facts)

    def _once(
        self, stores: Sequence[PlacedPiece], radixes: Sequence[tuple[Radix, ...] | str], known: KnownLiterals
    ) -> Proof[AccessWitness] | None:
        for store, radix in zip(stores, radixes, strict=False):
            answer = self._injective(store, radix)
            if answer is not None:
                return answer
        return self._disjoint(known, stores)

    def _piece(self, access: AccessMap) -> AccessPiece:
        return self.launch.another(access, self.fixed) if self.fixed else self.launch.piece(access)

    def _counted(self, piece: AccessPiece) -> AccessPiece:
        """The piece with descending coordinates negated, which maps elements to elements in the same way for all
        pieces."""
        if not self.falling:
            return piece
        coords = tuple(c.times(-1) if d in self.falling else c for d, c in enumerate(piece.coords))
        return replace(piece, coords=coords)

    def _radix(self, piece: AccessPiece) -> tuple[Radix, ...] | str:
        """The piece's mixed-radix form, if its points fulfil what that requires."""
        radixes = radix_of(piece)
        if not isinstance(radixes, str):
            for requirement in (q for r in radixes for q in r.requirements):
                known = self.launch.known()
                if self.proof.solver.find(known, [piece.points, opposite(requirement)]) is not None:
                    return "terms of a coordinate overlap"
        return radixes

    def _proved(self, radixes: Sequence[tuple[Radix, ...] | str]) -> Proved:
        method = self.proof.method("isl" if any(isinstance(r, str) for r in radixes) else "radix")
        names = ("added",) if self.name == "added" else ("once", "domain")
        return Proved(tuple(Discharged(name, method, self.tensor) for name in names))

    def _missing_instance(self) -> Unknown | None:
        sources = [*self.accesses, *self.domains]
        # what a program has loaded it has loaded once: where it decides nothing it need not be named
        loaded = {i.name for source in sources for i in source.indices if i.role is IndexRole.LOADED}
        for name in (n for n in self.instances if n not in loaded):
            for source in sources:
                if name not in {i.name for i in source.indices}:
                    reason = f"{source.op} has no index {name!r}, for whose every value the promise adds once"
                    settle = "keep the loop's counter under its name"
                    return Unknown(f"added: {self.tensor}", reason, settle, source.location)
        return None

    def _injective(self, store: PlacedPiece, radix: tuple[Radix, ...] | str) -> Proof[AccessWitness] | None:
        """No two points of one op have the same coordinates; mixed-radix numbers have it by construction."""
        if not isinstance(radix, str):
            return None
        one, other = store.piece, self._counted(self.launch.another(store.piece.source, self.fixed))
        same = [equal(a, b) for a, b in zip(one.coords, other.coords, strict=True)]
        pairs = zip(one.free, other.free, strict=True)
        differ = Disjunction(tuple(Linear(-1, {a: -1, b: 1}) for a, b in pairs))
        for apart in _differences(one, other, differ):
            point = self.proof.solver.find(self.launch.known(), [one.points, other.points, *same, *apart])
            if point is not None:
                return self._twice(point, store, PlacedPiece(other, other.points, None, {}))
        return None

    def _disjoint(self, known: KnownLiterals, stores: Sequence[PlacedPiece]) -> Proof[AccessWitness] | None:
        ends = [ends_of(store.inside) for store in stores]
        for (a, at_a), (b, at_b) in combinations(zip(stores, ends, strict=True), 2):
            if are_apart(at_a, at_b) or differ_modulo(a.piece.coords, b.piece.coords):
                continue
            point = self.proof.solver.find(known, [a.inside, b.inside, *_tiles_apart(a.piece, b.piece)])
            if point is not None:
                return self._twice(point, a, b)
        return None

    def _twice(self, point: Mapping[int, int], a: PlacedPiece, b: PlacedPiece) -> Refuted[AccessWitness] | Unknown:
        obligation = f"{self.name}: stores to {self.tensor}"
        replay = self.proof.replay(point)
        at_a, at_b = (replay.indices(x.piece, x.values) for x in (a, b))
        one_access = a.piece.source is b.piece.source and at_a == at_b
        first, second = (self._as_written(x.piece.source) for x in (a, b))
        element = replay.touches(first, at_a)
        if element is None or element != replay.touches(second, at_b) or one_access or not replay.legal():
            return self.proof.doubt(obligation)
        if any(i.role is IndexRole.LOADED for i in (*first.indices, *second.indices)):
            reason = "what was loaded decides where the program stores"
            return Unknown(obligation, reason, _LOADED, self.proof.place)
        points = [(first, at_a), (second, at_b)]
        return Refuted(obligation, replay.witness(AccessFault.TWICE, first, element, points, first.location))

    def _inside(
        self,
        known: KnownLiterals,
        some: Sequence[PlacedPiece],
        all_of_these: Sequence[PlacedPiece],
        radixes: Sequence[tuple[Radix, ...] | str],
        fault: AccessFault,
    ) -> Proof[AccessWitness] | None:
        """Every element of ``some`` belongs to one of ``all_of_these``."""
        obligation = f"{self.name if self.name == 'added' else 'domain'}: stores to {self.tensor}"
        outside = [p.outside for p in all_of_these]
        if any(o is None for o in outside):
            reason = next(r for r in radixes if isinstance(r, str))
            return self.proof.doubt(obligation, reason)
        ends = [ends_of(p.inside) for p in all_of_these]
        for member in some:
            own = ends_of(member.inside)
            # of others no element belongs to the member
            near = (
                o
                for o, p, at in zip(outside, all_of_these, ends, strict=True)
                if o is not None and not are_apart(own, at) and not differ_modulo(member.piece.coords, p.piece.coords)
            )
            point = self.proof.solver.find(known, [member.inside, both(near)])
            if point is None:
                continue
            replay = self.proof.replay(point)
            indices = replay.indices(member.piece, member.values)
            own_map = self._as_written(member.piece.source)
            element = replay.touches(own_map, indices)
            others = [
                replay.touches(self._as_written(p.piece.source), replay.indices(p.piece, p.values))
                for p in all_of_these
            ]
            if element is None or element in others or not replay.legal():
                return self.proof.doubt(obligation)
            points = [(own_map, indices)] if fault is AccessFault.STRAY else []
            source = self._as_written(self.accesses[0]) if self.accesses else own_map
            return Refuted(obligation, replay.witness(fault, source, element, points, own_map.location))
        return None

    def _as_written(self, access: AccessMap) -> AccessMap:
        return self.written.get(access, access)


def _falling(pieces: Sequence[AccessPiece]) -> frozenset[int]:
    """Coordinates in which indices without a constant bound have negative factors only."""
    found: set[int] = set()
    for dim in range(min((len(p.coords) for p in pieces), default=0)):
        unbounded = [c for p in pieces for v, c in p.coords[dim].terms.items() if v in p.free and p.sizes[v] is None]
        if unbounded and all(c < 0 for c in unbounded):
            found.add(dim)
    return frozenset(found)


def _differences(one: AccessPiece, other: AccessPiece, differ: Formula) -> Iterator[list[Formula]]:
    """What holds of two points of one access; of tiles of ragged grids by itself for two programs and for one."""
    tiles = next((tiles for tiles, _, _ in _tiles(one)), None)
    if tiles is None or tiles.program not in other.indices:
        yield [differ, *_loaded_once(one, other)]
        return
    first, second = one.indices[tiles.program], other.indices[tiles.program]
    yield [second.plus(first, -1).shifted(-1), *_tiles_apart(one, other)]
    loaded = [i.name for i in one.source.indices if i.role is IndexRole.LOADED and set(i.per) <= {tiles.program}]
    known = [equal(one.indices[name], other.indices[name]) for name in loaded if name in one.indices]
    yield [equal(first, second), *known, differ, *_loaded_once(one, other)]


def _loaded_once(one: AccessPiece, other: AccessPiece) -> Iterator[Formula]:
    """An integer that was loaded is the same at two points of the programs and steps with which it is loaded."""
    for index in one.source.indices:
        if index.role is IndexRole.LOADED and index.name in one.indices:
            apart = [opposite(equal(one.indices[name], other.indices[name])) for name in index.per]
            yield Disjunction((*apart, equal(one.indices[index.name], other.indices[index.name])))


def _tiles(piece: AccessPiece) -> Iterator[tuple[RaggedTiles, Linear, Linear]]:
    """Tiles of ragged grids that a piece lies in, with where they begin and end."""
    for index in piece.source.indices:
        tiles = index.tiles
        if tiles is not None and {index.name, tiles.end, tiles.program} <= piece.indices.keys():
            yield tiles, piece.indices[index.name], piece.indices[tiles.end]


def _tiles_apart(one: AccessPiece, other: AccessPiece) -> Iterator[Formula]:
    """Tiles of ragged grids, ``begin .. min(begin + size, end)`` of two programs, do not meet.

    Let program p have group g, the rows ``lo .. hi`` of it, ``begin = lo + max(p - n, 0) * size``, where n is a
    function of g, and ``end`` hi if ``n <= p``, else 0, so that the tile is empty. Of two programs p < p' whose tiles
    are not empty: in one group, lo and n are the same, so that begin' >= begin + size. In groups g < g' the offsets
    ascend, so that end = hi <= lo' <= begin'; where g > g' likewise. Rows in no group begin at the last offset.
    Clipping to the rows there are moves a begin to where every end lies before it. Where program p has group p, of two
    whole groups one ends before the other.
    """
    for (mine, begin, end), (its, its_begin, its_end) in product(_tiles(one), _tiles(other)):
        if mine.grid != its.grid:
            continue
        if mine.rest != its.rest:
            yield its_begin.plus(end, -1) if its.rest else begin.plus(its_end, -1)
            continue
        apart = [its_begin.plus(end, -1), begin.plus(its_end, -1)]
        if mine.size is not None:
            apart += [b.plus(a, -1).shifted(-mine.size) for a, b in ((begin, its_begin), (its_begin, begin))]
        yield Disjunction((equal(one.indices[mine.program], other.indices[its.program]), *apart))
