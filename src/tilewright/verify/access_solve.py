"""Is there an integer point that satisfies a formula? Cheap bounds first, then isl on one conjunction at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.base.cached import cached_property
from tilewright.verify.access_linear import (
    Conjunction,
    Disjunction,
    Formula,
    GaveUpError,
    Linear,
    Row,
    Variables,
    either,
)

if TYPE_CHECKING:
    from tilewright.verify.access_points import IntegerPoints

_MOST_CONJUNCTIONS = 400
_PATIENCE = 4  # cases after which alternatives are tried one by one, and what all cases below share is asked first
_NEAR = 3
_SMALL = (40, 600, 9000)  # witnesses are easier to read, and to replay, with small extents


class _ManyCasesError(Exception):
    """A question has many cases."""


@dataclass
class Solver:
    """Answers questions about one set of variables."""

    variables: Variables
    small: Sequence[int] = ()
    _conjunctions: int = 0

    @property
    def isl_calls(self) -> int:
        """How many questions needed isl."""
        return self._points.calls if "_points" in self.__dict__ else 0

    def find(self, known: KnownLiterals, formulas: Iterable[Formula]) -> Mapping[int, int] | None:
        """A point that satisfies everything, or None if there is none; ``GaveUpError`` beyond the work allowed.

        Contradictions are looked for near ``formulas`` first, which decides most questions at a fraction of the cost.
        """
        self._conjunctions = 0
        asked = KnownLiterals(self.variables, known, formulas)
        if not asked.possible:
            return None
        goals = frozenset(asked.literals)
        if not asked.propagate():
            return None
        try:
            return self._search(asked, goals)
        except _ManyCasesError:
            return self._search(asked, goals) if self._narrow(asked) else None

    def _narrow(self, known: KnownLiterals) -> bool:
        """Drop alternatives that what holds near them contradicts, so that no case tries them again; False if a choice
        has none left."""
        literals = known.everything()
        impossible: dict[Row, bool] = {}

        def open_(part: Formula) -> bool:
            match part:
                case Linear():
                    if part.key not in impossible:
                        near = next(iter(_neighbourhoods([part], literals)))
                        impossible[part.key] = self._points.are_none(near)
                    return not impossible[part.key]
                case Conjunction(parts):
                    return all(map(open_, parts))
                case Disjunction(parts):
                    return any(map(open_, parts))

        narrowed = [either(tuple(filter(open_, choice.parts))) for choice in known.choices]
        known.choices = []
        return all(map(known.add, narrowed))

    def _search(self, known: KnownLiterals, goals: frozenset[Linear]) -> Mapping[int, int] | None:
        if not known.propagate():
            return None
        if not known.choices:
            return self._conjunction(*_split(known.everything(), goals))
        if self._conjunctions > _PATIENCE and self._contradict(*_split(known.everything(), goals)):
            return None  # whatever is chosen
        wanted = {variable for goal in goals for variable in goal.terms}
        # what concerns the goals leads to contradictions sooner
        choice = min(known.choices, key=lambda c: (wanted.isdisjoint(_variables(c)), len(c.parts)))
        for part in choice.parts:
            branch = known.without(choice)
            if branch.add(part):
                found = self._search(branch, goals)
                if found is not None:
                    return found
        return None

    # -- one conjunction, by isl ----------------------------------------------------------------------------------
    def _conjunction(self, goals: list[Linear], rest: list[Linear]) -> Mapping[int, int] | None:
        self._conjunctions += 1
        if self._conjunctions == _PATIENCE:
            raise _ManyCasesError
        if self._conjunctions > _MOST_CONJUNCTIONS:
            raise GaveUpError(f"more than {_MOST_CONJUNCTIONS} cases")
        if self._contradict(goals, rest):
            return None
        for bound in _SMALL:
            limits = [Linear(bound, {v: -1}) for v in self.small]
            point = self._points.one([*goals, *rest, *limits])
            if point is not None:
                return point
        return self._points.one([*goals, *rest])

    def _contradict(self, goals: list[Linear], rest: list[Linear]) -> bool:
        """No point satisfies all literals. What lies near the goal mostly decides, in a fraction of the time."""
        return any(self._points.are_none(near) for near in _neighbourhoods(goals, rest))

    @cached_property
    def _points(self) -> IntegerPoints:
        from tilewright.verify.access_points import IntegerPoints  # noqa: PLC0415 - most kernels need no isl

        return IntegerPoints(self.variables)


def _variables(formula: Formula) -> Iterator[int]:
    if isinstance(formula, Linear):
        yield from formula.terms
    else:
        for part in formula.parts:
            yield from _variables(part)


def _split(literals: Iterable[Linear], goals: frozenset[Linear]) -> tuple[list[Linear], list[Linear]]:
    literals = list(literals)
    return [x for x in literals if x in goals], [x for x in literals if x not in goals]


def _neighbourhoods(kept: list[Linear], rest: list[Linear]) -> Iterable[list[Linear]]:
    """Growing sets of literals around those to keep: after three steps over shared variables, and all steps."""
    reached = {v for literal in kept for v in literal.terms}
    steps = 0
    while True:
        linked = [x for x in rest if not reached.isdisjoint(x.terms)]
        if linked:
            rest = [x for x in rest if reached.isdisjoint(x.terms)]
            reached |= {v for literal in linked for v in literal.terms}
            kept = [*kept, *linked]
        steps += 1
        if steps == _NEAR or not linked:
            yield kept
        if not linked:
            return


class KnownLiterals:
    """Literals that hold, and choices still open, on top of what is known ``below``."""

    def __init__(self, variables: Variables, below: KnownLiterals | None = None, formulas: Iterable[Formula] = ()):
        self.variables = variables
        self.below = below
        self.literals: list[Linear] = []
        self.choices: list[Disjunction] = []
        self._by_term: dict[tuple[int, bool], list[Linear]] = {}
        self.possible: bool = (below is None or below.possible) and all(self.add(f) for f in formulas)
        """False where the formulas contradict each other plainly."""
        self.choices += () if below is None else below.choices

    def without(self, choice: Disjunction) -> KnownLiterals:
        """What is known, in which ``choice`` is no longer open."""
        found = KnownLiterals(self.variables, self)
        found.choices = [c for c in self.choices if c is not choice]
        return found

    def everything(self) -> list[Linear]:
        """All literals, those below first."""
        return self.literals if self.below is None else [*self.below.everything(), *self.literals]

    def add(self, formula: Formula) -> bool:
        """Require a formula; False if that is plainly impossible."""
        match formula:
            case Linear():
                if self.refutes(formula):
                    return False
                self.literals.append(formula)
                for variable, c in formula.terms.items():
                    self._by_term.setdefault((variable, c > 0), []).append(formula)
                return True
            case Conjunction(parts):
                return all(self.add(p) for p in parts)
            case Disjunction(parts):
                if len(parts) == 1:
                    return self.add(parts[0])
                self.choices.append(formula)
                return bool(parts)

    def refutes(self, formula: Formula) -> bool:
        """The formula is impossible by bounds, or by bounds of its sum, or a multiple's, with a literal that holds."""
        match formula:
            case Linear():
                return self._refutes(formula)
            case Conjunction(parts):
                return any(self.refutes(p) for p in parts)
            case Disjunction(parts):
                return all(self.refutes(p) for p in parts)

    def _refutes(self, form: Linear) -> bool:
        """Only a literal in which a variable has the other sign makes a sum smaller than both; where a variable of the
        form has no bound, that variable. Multiples of either are tried that leave the variable out of the sum."""
        bounds, negative = self.variables.bounds, self.variables.negative
        rivals: list[tuple[int, bool]] = []
        high = form.const
        for variable, c in form.terms.items():
            end = bounds[variable][c > 0]
            if end is None:
                rivals = [(variable, c < 0)]
                break
            high += c * end
            rivals.append((variable, c < 0))
        else:
            if high < 0:
                return True
        known: KnownLiterals | None = self
        while known is not None:
            for rival in rivals:
                for other in known._by_term.get(rival, ()):
                    if negative(form, other):
                        return True
                    a, b = abs(form.terms[rival[0]]), abs(other.terms[rival[0]])
                    if b > a and b % a == 0 and negative(form, other, b // a):
                        return True
                    if a > b and a % b == 0 and negative(other, form, a // b):
                        return True
            known = known.below
        return False

    def propagate(self) -> bool:
        """Drop impossible alternatives; False if a choice has none left."""
        changed = True
        while changed:
            changed = False
            for choice in list(self.choices):
                open_parts = tuple(p for p in choice.parts if not self.refutes(p))
                if len(open_parts) == len(choice.parts):
                    continue
                changed = True
                self.choices = [c for c in self.choices if c is not choice]
                if not self.add(either(open_parts)):
                    return False
        return True
