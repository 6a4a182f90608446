"""Counterexamples to access proofs: concrete extents and the threads that go wrong, replayed before they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.base.expr import Expr, ExprError
from tilewright.protocol.access import AccessMap, KernelAccesses
from tilewright.verify.access_linear import Linear, Linearisation
from tilewright.verify.access_pieces import AccessPiece


class AccessFault(Enum):
    """The kind of an access error, by the code that reports it."""

    OUTSIDE = "ACC001"
    TWICE = "ACC002"
    MISSED = "ACC003"
    STRAY = "ACC004"


@dataclass(frozen=True)
class Point:
    """One access by one thread: the op and the values of its indices (programs, counters, tid, r)."""

    op: str
    indices: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.op} at " + ", ".join(f"{name} = {value}" for name, value in self.indices)


@dataclass(frozen=True)
class AccessWitness:
    """A counterexample: the extents and scalars of a launch, the element, and the accesses to it (none, for an element
    never written)."""

    fault: AccessFault
    tensor: str
    parameters: tuple[tuple[str, int], ...]
    element: tuple[int, ...]
    extents: tuple[int, ...]
    points: tuple[Point, ...]
    place: str
    """The source location ``file:line`` of the access, or of the promise that nothing checks; empty if there is
    none."""

    def __str__(self) -> str:
        where = f"{self.tensor}{list(self.element)} of {list(self.extents)}"
        launch = ", ".join(f"{name} = {value}" for name, value in self.parameters)
        who = "; ".join(map(str, self.points)) or "no access"
        return f"{where}: {who}" + (f"  ({launch})" if launch else "")


@dataclass(frozen=True)
class Replay:
    """Evaluates a solver's point on the original expressions, which share nothing with the proof."""

    kernel: KernelAccesses
    outer: Linearisation
    values: Mapping[int, int]

    @property
    def parameters(self) -> dict[str, int]:
        """The launch's parameters at the point."""
        return {p.name: self._at(self.outer.env[p.name]) for p in self.kernel.parameters}

    def legal(self) -> bool:
        """The parameters lie in their bounds and fulfil the assumptions that speak of them alone."""
        known = self.parameters
        for p in self.kernel.parameters:
            if (p.low is not None and known[p.name] < p.low) or (p.high is not None and known[p.name] > p.high):
                return False
        return all(a.evaluate(known) for a in self.kernel.assumptions if a.symbols <= known.keys())

    def indices(self, piece: AccessPiece, placed: Mapping[int, Linear] | None = None) -> dict[str, int]:
        """The indices of a piece at the point; ``placed`` gives its variables over an element's digits."""
        return {name: self._at(form.replaced(placed or {})) for name, form in piece.indices.items()}

    def touches(self, source: AccessMap, indices: Mapping[str, int]) -> tuple[int, ...] | None:
        """The element that ``source`` accesses there, by plain evaluation."""
        try:
            return source.at({**self.parameters, **indices})
        except (ExprError, ZeroDivisionError):
            return None

    def witness(
        self,
        fault: AccessFault,
        source: AccessMap,
        element: tuple[int, ...],
        points: Sequence[tuple[AccessMap, dict[str, int]]],
        place: str,
    ) -> AccessWitness:
        """The replayed counterexample; parameters that don't occur in the tensor or the accesses are left out."""
        known = self.parameters
        involved = [*source.dims, *(e for access, _ in points for e in _expressions(access))]
        names = set[str]().union(*(e.symbols for e in [*involved, *_expressions(source)]))
        return AccessWitness(
            fault,
            source.tensor,
            tuple((name, value) for name, value in known.items() if name in names),
            element,
            tuple(int(d.evaluate(known)) for d in source.dims),
            tuple(
                Point(access.op, tuple((i.name, indices[i.name]) for i in access.indices)) for access, indices in points
            ),
            place,
        )

    def _at(self, form: Linear) -> int:
        return form.value(self.values)


def _expressions(access: AccessMap) -> list[Expr]:
    return [*access.coords, access.predicate, *(i.end for i in access.indices)]
