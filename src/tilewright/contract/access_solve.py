"""Is there an integer point that satisfies a formula? Cheap bounds first, then isl on one conjunction at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import islpy as isl

from tilewright.contract.access_linear import FALSEHOOD, Both, Either, Formula, Linear, Variables

_MOST_CONJUNCTIONS = 400
_MOST_ISL_OPERATIONS = 2_000_000
_SMALL = (40, 600, 9000)  # witnesses are easier to read, and to replay, with small extents


class GaveUpError(Exception):
    """The question needs more work than allowed."""


@dataclass
class Solver:
    """Answers questions about one set of variables; ``isl_calls`` counts those that needed isl."""

    variables: Variables
    small: Sequence[int] = ()
    isl_calls: int = 0
    _conjunctions: int = 0
    _context: isl.Context = field(default_factory=isl.Context)

    def find(self, facts: Iterable[Formula], formulas: Iterable[Formula]) -> Mapping[int, int] | None:
        """A point that satisfies everything, or None if there is none; ``GaveUpError`` beyond the work allowed.

        ``facts`` are known to have a solution; those that share no variable with ``formulas``, directly or through
        others, don't decide the question.
        """
        self._conjunctions = 0
        state = _State(self.variables)
        if not all(state.add(f) for f in formulas):
            return None
        goals = len(state.literals)
        if not all(state.add(f) for f in facts):
            return None
        return self._search(state, goals)

    def _search(self, state: _State, goals: int) -> Mapping[int, int] | None:
        if not state.propagate():
            return None
        if not state.choices:
            return self._conjunction(state.literals, goals)
        choice = min(state.choices, key=lambda c: len(c.parts))
        for part in choice.parts:
            branch = state.without(choice)
            if branch.add(part):
                found = self._search(branch, goals)
                if found is not None:
                    return found
        return None

    # -- one conjunction, by isl ----------------------------------------------------------------------------------
    def _conjunction(self, literals: list[Linear], goals: int) -> Mapping[int, int] | None:
        self._conjunctions += 1
        if self._conjunctions > _MOST_CONJUNCTIONS:
            raise GaveUpError(f"more than {_MOST_CONJUNCTIONS} cases")
        if self._set(self._relevant(literals, goals), ()).is_empty():
            return None
        for bound in _SMALL:
            limits = [Linear(bound, {v: -1}) for v in self.small]
            point = self._point(literals, limits)
            if point is not None:
                return point
        return self._point(literals, []) or {}

    def _relevant(self, literals: list[Linear], goals: int) -> list[Linear]:
        reached = {v for literal in literals[:goals] for v in literal.terms}
        kept, rest = list(literals[:goals]), literals[goals:]
        while True:
            linked = [x for x in rest if not reached.isdisjoint(x.terms)]
            if not linked:
                return kept
            kept += linked
            rest = [x for x in rest if reached.isdisjoint(x.terms)]
            reached |= {v for literal in linked for v in literal.terms}

    def _point(self, literals: list[Linear], limits: list[Linear]) -> Mapping[int, int] | None:
        everything = range(len(self.variables.names))
        piece = self._set([*literals, *limits], everything)
        if piece.is_empty():
            return None
        point = piece.sample_point()
        values = (point.get_coordinate_val(isl.dim_type.set, i) for i in everything)
        return {i: int(value.to_python()) for i, value in enumerate(values)}

    def _set(self, literals: Iterable[Linear], more: Iterable[int]) -> isl.BasicSet:
        used: set[int] = set(more)
        texts: dict[str, None] = {}
        for literal in literals:
            used.update(literal.terms)
            texts[_text(literal)] = None
        for variable in used:
            low, high = self.variables.bounds[variable]
            if low is not None:
                texts[f"{low}<=v{variable}"] = None
            if high is not None:
                texts[f"v{variable}<={high}"] = None
        names = ",".join(f"v{v}" for v in sorted(used))
        self.isl_calls += 1
        self._context.reset_operations()
        self._context.set_max_operations(_MOST_ISL_OPERATIONS)
        try:
            return isl.BasicSet(f"{{[{names}]: {' and '.join(texts) or '0=0'}}}", self._context)
        except isl.Error as error:
            raise GaveUpError(f"isl: {error}") from error


def _text(literal: Linear) -> str:
    return "+".join([*(f"{c}v{v}" for v, c in literal.terms.items()), str(literal.const)]) + ">=0"


class _State:
    """Literals that must hold, and choices still open."""

    def __init__(self, variables: Variables):
        self.variables = variables
        self.literals: list[Linear] = []
        self.choices: list[Either] = []

    def without(self, choice: Either) -> _State:
        """A copy in which ``choice`` is no longer open."""
        copy = _State(self.variables)
        copy.literals = list(self.literals)
        copy.choices = [c for c in self.choices if c is not choice]
        return copy

    def add(self, formula: Formula) -> bool:
        """Require a formula; False if that is plainly impossible."""
        match formula:
            case Linear():
                if self.refutes(formula):
                    return False
                self.literals.append(formula)
                return True
            case Both(parts):
                return all(self.add(p) for p in parts)
            case Either(parts):
                if len(parts) == 1:
                    return self.add(parts[0])
                self.choices.append(formula)
                return bool(parts)

    def refutes(self, formula: Formula) -> bool:
        """The formula is impossible by bounds, or by bounds of its sum with a literal that holds."""
        match formula:
            case Linear():
                high = self.variables.interval(formula)[1]
                if high is not None and high < 0:
                    return True
                for other in self.literals:
                    if not other.terms.keys().isdisjoint(formula.terms):
                        high = self.variables.interval(formula.plus(other))[1]
                        if high is not None and high < 0:
                            return True
                return False
            case Both(parts):
                return any(self.refutes(p) for p in parts)
            case Either(parts):
                return all(self.refutes(p) for p in parts)

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
                if not self.add(Either(open_parts) if open_parts else FALSEHOOD):
                    return False
        return True
