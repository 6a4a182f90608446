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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from tilewright.base.expr import Const
from tilewright.base.verdict import Obligation, Proof, Proved, Refuted, Unknown
from tilewright.contract.access_linear import (
    Both,
    Either,
    Formula,
    Linear,
    Lowering,
    Variables,
    equal,
    opposite,
)
from tilewright.contract.access_pieces import Piece, piece_of
from tilewright.contract.access_radix import Placed, Plane, Radix, radix_of
from tilewright.contract.access_solve import GaveUpError, Solver
from tilewright.contract.access_witness import AccessWitness, Fault, Point, Replay
from tilewright.protocol.access import AccessKind, AccessMap, KernelAccesses, StoreDomain

__all__ = ["AccessWitness", "Fault", "Point", "prove_accesses", "prove_cover", "prove_guards"]

_NOT_EXACT = "write the coordinates as sums of indices times constants"


def prove_accesses(kernel: KernelAccesses, domains: Sequence[StoreDomain]) -> Proof[AccessWitness]:
    """All obligations of a kernel: the first refutation, else the first doubt, else everything proved."""
    answers = [*prove_guards(kernel), *prove_cover(kernel, domains)]
    for kind in (Refuted, Unknown):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    return Proved(tuple(o for answer in answers if isinstance(answer, Proved) for o in answer.obligations))


def prove_guards(kernel: KernelAccesses) -> tuple[Proof[AccessWitness], ...]:
    """One answer for each access, in order: no point of it lies outside its tensor.

    Accesses that differ in what they are called only (a tensor read and another written at the same places) are one
    question.
    """
    answers: dict[object, Proof[AccessWitness]] = {}
    found: list[Proof[AccessWitness]] = []
    for access in kernel.accesses:
        question = (access.dims, access.scope, access.conditions, access.guard, access.coords)
        known = answers.get(question)
        if isinstance(known, Proved):
            (same,) = known.obligations
            found.append(Proved((replace(same, subject=inside_of(access)),)))
        else:
            found.append(answers.setdefault(question, _guards(kernel, access)))
    return tuple(found)


def prove_cover(kernel: KernelAccesses, domains: Sequence[StoreDomain]) -> tuple[Proof[AccessWitness], ...]:
    """One answer for each tensor that is written: its stores cover their domain, each element once."""
    written = [a for a in kernel.accesses if a.kind is not AccessKind.READ]
    tensors = dict.fromkeys([*(a.tensor for a in written), *(d.tensor for d in domains)])
    return tuple(
        _cover(kernel, name, [a for a in written if a.tensor == name], [d for d in domains if d.tensor == name])
        for name in tensors
    )


@dataclass
class _Proof:
    """One question's variables: the launch's parameters and what is known of them."""

    kernel: KernelAccesses
    place: str
    """The user's line that it is about."""
    variables: Variables = field(default_factory=Variables)

    def __post_init__(self) -> None:
        env = {p.name: Linear(0, {self.variables.new(p.name, p.low, p.high): 1}) for p in self.kernel.parameters}
        self.outer = Lowering(self.variables, env)
        self.assumed = [self.outer.formula(a) for a in self.kernel.assumptions]
        self.solver = Solver(self.variables, range(len(env)))

    @property
    def facts(self) -> list[Formula]:
        """What holds for every launch."""
        return [*self.assumed, *self.outer.facts]

    def piece(self, access: AccessMap, fixed: dict[str, Linear] | None = None) -> Piece:
        """The access over fresh index variables."""
        return piece_of(access, self.variables, self.outer, fixed or {})

    def replay(self, values: Mapping[int, int]) -> Replay:
        """The original expressions at a solver's point."""
        return Replay(self.kernel, self.outer, values)

    def method(self, best: str) -> str:
        """How the question was decided."""
        return f"{best}, isl" if self.solver.isl_calls and best != "isl" else best

    def doubt(self, obligation: str, reason: str = "") -> Unknown:
        """The solver found a point that the original expressions don't confirm, or gave up."""
        inexact = ", ".join(dict.fromkeys(self.variables.inexact))
        return Unknown(obligation, reason or f"not linear in the parameters: {inexact}", _NOT_EXACT, self.place)


def inside_of(access: AccessMap) -> str:
    """What ``guards`` is about."""
    return f"{access.op} inside {access.tensor}"


# -- guards ------------------------------------------------------------------------------------------------------------
def _guards(kernel: KernelAccesses, access: AccessMap) -> Proof[AccessWitness]:
    proof = _Proof(kernel, access.location)
    obligation = f"guards: {inside_of(access)}"
    piece = proof.piece(access)
    outside = [c.times(-1).shifted(-1) for c in piece.coords]
    extents = [proof.outer.form(d) for d in access.dims]
    outside += [c.plus(e, -1) for c, e in zip(piece.coords, extents, strict=True)]
    try:
        for beyond in outside:
            point = proof.solver.find([*proof.facts, piece.points], [beyond])
            if point is not None:
                replay = proof.replay(point)
                indices = replay.indices(piece)
                element = replay.touches(access, indices)
                dims = [d.evaluate(replay.parameters) for d in access.dims]
                inside = element is not None and all(0 <= x < d for x, d in zip(element, dims, strict=True))
                if element is None or inside or not replay.legal():
                    return proof.doubt(obligation)
                return Refuted(
                    obligation, replay.witness(Fault.OUTSIDE, access, element, [(access, indices)], proof.place)
                )
    except GaveUpError as error:
        return proof.doubt(obligation, str(error))
    return Proved((Obligation("guards", "isl" if proof.solver.isl_calls else "bounds", inside_of(access)),))


# -- cover -------------------------------------------------------------------------------------------------------------
def _cover(
    kernel: KernelAccesses, tensor: str, accesses: Sequence[AccessMap], domains: Sequence[StoreDomain]
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
        if not added and accesses and any(d.instances for d in domains):
            # each instance writes what it promises; that no two write one element is left to the promises
            promised = [replace(d, instances=()) for d in domains]
            apart = _Cover(kernel, tensor, [d.as_map(accesses[0].dims) for d in promised], promised, added=False)
            answer = apart.prove()
            if not isinstance(answer, Proved):
                return answer
        return _Cover(kernel, tensor, accesses, domains, added=added).prove()
    except GaveUpError as error:
        settle = "simplify the guards of the stores"
        return Unknown(f"cover: stores to {tensor}", str(error), settle, domains[0].location)


class _Cover:
    """The obligations of one written tensor."""

    def __init__(
        self,
        kernel: KernelAccesses,
        tensor: str,
        accesses: Sequence[AccessMap],
        domains: Sequence[StoreDomain],
        *,
        added: bool,
    ):
        self.tensor = tensor
        self.proof = _Proof(kernel, domains[0].location)
        self.name = "added" if added else "once"
        dims = accesses[0].dims if accesses else tuple(Const(0) for _ in domains[0].coords)
        self.domains = [d.as_map(dims) for d in domains]
        self.accesses = list(accesses)
        self.instances = sorted({i for d in domains for i in d.instances})

    def prove(self) -> Proof[AccessWitness]:
        """``once`` and ``domain`` for plain stores, ``added`` for atomic additions."""
        missing = self._missing_instance()
        if missing is not None:
            return missing
        fixed = {name: Linear(0, {self.proof.variables.new(name): 1}) for name in self.instances}
        writes = [self.proof.piece(a, fixed) for a in self.accesses]
        promises = [self.proof.piece(d, fixed) for d in self.domains]
        radixes = [self._radix(p) for p in [*writes, *promises]]
        rank = len(self.domains[0].coords)
        known = [r for r in radixes if not isinstance(r, str)]
        plane = Plane(self.proof.variables, rank, known)
        placed = [
            plane.place_any(p) if isinstance(r, str) else plane.place(p, r)
            for p, r in zip([*writes, *promises], radixes, strict=True)
        ]
        stores, promised = placed[: len(writes)], placed[len(writes) :]
        for store, radix in zip(stores, radixes, strict=False):
            answer = self._injective(store, radix, fixed)
            if answer is not None:
                return answer
        return (
            self._disjoint(plane, stores)
            or self._inside(plane, promised, stores, radixes, Fault.MISSED)
            or self._inside(plane, stores, promised, radixes, Fault.STRAY)
            or self._proved(radixes)
        )

    def _radix(self, piece: Piece) -> tuple[Radix, ...] | str:
        """The piece's mixed-radix form, if its points fulfil what that requires."""
        radixes = radix_of(piece)
        if not isinstance(radixes, str):
            for requirement in (q for r in radixes for q in r.requirements):
                if self.proof.solver.find(self.proof.facts, [piece.points, opposite(requirement)]) is not None:
                    return "terms of a coordinate overlap"
        return radixes

    def _proved(self, radixes: Sequence[tuple[Radix, ...] | str]) -> Proved:
        method = self.proof.method("isl" if any(isinstance(r, str) for r in radixes) else "radix")
        names = ("added",) if self.name == "added" else ("once", "domain")
        return Proved(tuple(Obligation(name, method, self.tensor) for name in names))

    def _missing_instance(self) -> Unknown | None:
        for name in self.instances:
            for source in [*self.accesses, *self.domains]:
                if name not in {i.name for i in source.indices}:
                    reason = f"{source.op} has no index {name!r}, for whose every value the promise adds once"
                    settle = "keep the loop's counter under its name"
                    return Unknown(f"added: {self.tensor}", reason, settle, source.location)
        return None

    def _injective(
        self, store: Placed, radix: tuple[Radix, ...] | str, fixed: dict[str, Linear]
    ) -> Proof[AccessWitness] | None:
        """No two points of one op have the same coordinates; mixed-radix numbers have it by construction."""
        if not isinstance(radix, str):
            return None
        one, other = store.piece, self.proof.piece(store.piece.source, fixed)
        same = [equal(a, b) for a, b in zip(one.coords, other.coords, strict=True)]
        pairs = zip(one.free, other.free, strict=True)
        differ = Either(tuple(Linear(-1, {a: -1, b: 1}) for a, b in pairs))
        point = self.proof.solver.find(self.proof.facts, [one.points, other.points, *same, differ])
        if point is None:
            return None
        copy = Placed(other, other.points, None, {})
        return self._twice(point, store, copy)

    def _disjoint(self, plane: Plane, stores: Sequence[Placed]) -> Proof[AccessWitness] | None:
        for a, b in combinations(stores, 2):
            point = self.proof.solver.find([*self.proof.facts, *plane.facts], [a.inside, b.inside])
            if point is not None:
                return self._twice(point, a, b)
        return None

    def _twice(self, point: Mapping[int, int], a: Placed, b: Placed) -> Refuted[AccessWitness] | Unknown:
        obligation = f"{self.name}: stores to {self.tensor}"
        replay = self.proof.replay(point)
        at_a, at_b = (replay.indices(x.piece, x.values) for x in (a, b))
        first, second = a.piece.source, b.piece.source
        element = replay.touches(first, at_a)
        one_access = first is second and at_a == at_b
        if element is None or element != replay.touches(second, at_b) or one_access or not replay.legal():
            return self.proof.doubt(obligation)
        points = [(first, at_a), (second, at_b)]
        return Refuted(obligation, replay.witness(Fault.TWICE, first, element, points, first.location))

    def _inside(
        self,
        plane: Plane,
        some: Sequence[Placed],
        all_of_these: Sequence[Placed],
        radixes: Sequence[tuple[Radix, ...] | str],
        fault: Fault,
    ) -> Proof[AccessWitness] | None:
        """Every element of ``some`` belongs to one of ``all_of_these``."""
        obligation = f"{self.name if self.name == 'added' else 'domain'}: stores to {self.tensor}"
        outside = [p.outside for p in all_of_these]
        if any(o is None for o in outside):
            reason = next(r for r in radixes if isinstance(r, str))
            return self.proof.doubt(obligation, reason)
        nowhere = Both(tuple(o for o in outside if o is not None))
        for member in some:
            facts = [*self.proof.facts, *plane.facts]
            point = self.proof.solver.find(facts, [member.inside, nowhere])
            if point is None:
                continue
            replay = self.proof.replay(point)
            indices = replay.indices(member.piece, member.values)
            element = replay.touches(member.piece.source, indices)
            others = [replay.touches(p.piece.source, replay.indices(p.piece, p.values)) for p in all_of_these]
            if element is None or element in others or not replay.legal():
                return self.proof.doubt(obligation)
            points = [(member.piece.source, indices)] if fault is Fault.STRAY else []
            source = self.accesses[0] if self.accesses else member.piece.source
            return Refuted(obligation, replay.witness(fault, source, element, points, member.piece.source.location))
        return None
