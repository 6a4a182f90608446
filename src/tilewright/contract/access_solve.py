"""Is there an integer point that satisfies a formula? Cheap bounds first, then isl on one conjunction at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import islpy as isl

from tilewright.contract.access_linear import FALSEHOOD, Both, Either, Formula, Linear, Variables

_MOST_CONJUNCTIONS = 400
_MOST_ISL_OPERATIONS = 2_000_000
_NEAR = 2
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

        Contradictions are looked for near ``formulas`` first, which decides most questions at a fraction of the cost.
        """
        self._conjunctions = 0
        state = _State(self.variables)
        if not all(state.add(f) for f in formulas):
            return None
        goals = len(state.literals)
        if not all(state.add(f) for f in facts):
            return None
        try:
            return self._search(state, goals)
        except isl.Error as error:
            raise GaveUpError(f"isl gave up after {_MOST_ISL_OPERATIONS} operations") from error

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
        # what lies near the goal mostly decides, in a fraction of the time
        for near in self._neighbourhoods(literals, goals):
            if self._set(near, ()).is_empty():
                return None
        for bound in _SMALL:
            limits = [Linear(bound, {v: -1}) for v in self.small]
            point = self._point(literals, limits)
            if point is not None:
                return point
        return self._point(literals, [])

    def _neighbourhoods(self, literals: list[Linear], goals: int) -> Iterable[list[Linear]]:
        """Growing sets of literals around the first ``goals``: after two steps over shared variables, and all steps."""
        kept, rest = literals[:goals], literals[goals:]
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

    def _point(self, literals: list[Linear], limits: list[Linear]) -> Mapping[int, int] | None:
        everything = range(len(self.variables.names))
        piece = self._set([*literals, *limits], everything)
        if piece.is_empty():
            return None
        point = piece.sample_point()
        values = (point.get_coordinate_val(isl.dim_type.set, i) for i in everything)
        return {i: int(value.to_python()) for i, value in enumerate(values)}

    def _set(self, literals: Iterable[Linear], more: Iterable[int]) -> isl.BasicSet:
        """The integer points of a conjunction within the variables' bounds, over ``more`` and the variables it has."""
        distinct = {literal.key: literal for literal in literals}.values()
        used = sorted({v for literal in distinct for v in literal.terms}.union(more))
        bounds = [(v, *self.variables.bounds[v]) for v in used]
        rows = [
            *distinct,
            *(Linear(-low, {v: 1}) for v, low, _ in bounds if low is not None),
            *(Linear(high, {v: -1}) for v, _, high in bounds if high is not None),
        ]
        self.isl_calls += 1
        place = {v: i for i, v in enumerate(used)}
        context = self._context
        context.reset_operations()
        context.set_max_operations(_MOST_ISL_OPERATIONS)
        space = isl.Space.set_alloc(context, 0, len(used))
        local = isl.LocalSpace.from_space(space)
        result = isl.BasicSet.universe(space)
        for row in rows:
            constraint = isl.Constraint.alloc_inequality(local).set_constant_val(isl.Val(row.const, context))
            for variable, c in row.terms.items():
                constraint = constraint.set_coefficient_val(isl.dim_type.set, place[variable], isl.Val(c, context))
            result = result.add_constraint(constraint)
        return result


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
                if self.variables.negative(formula):
                    return True
                return any(
                    self.variables.negative(formula, other)
                    for other in self.literals
                    if not other.terms.keys().isdisjoint(formula.terms)
                )
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
