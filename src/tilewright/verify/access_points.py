"""Integer points of conjunctions, by isl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import RLock

import islpy as isl

from tilewright.verify.access_linear import GaveUpError, Linear, Row, Variables

_MOST_OPERATIONS = 2_000_000
"""Of isl, for one question."""


class IntegerPoints:
    """Asks for points within the bounds of some variables; ``calls`` counts the questions. ``GaveUpError`` where isl
    takes more than it is allowed."""

    def __init__(self, variables: Variables):
        self.variables, self.calls = variables, 0

    def are_none(self, literals: list[Linear]) -> bool:
        """No point satisfies all literals."""
        self.calls += 1
        return _are_none(*self._rows(literals, ()))

    def one(self, literals: list[Linear]) -> Mapping[int, int] | None:
        """Some point that does; None if there is none."""
        self.calls += 1
        everything = range(len(self.variables.names))
        try:
            with _ALONE:
                piece = _points(*self._rows(literals, everything))
                if piece.is_empty():
                    return None
                point = piece.sample_point()
                values = [point.get_coordinate_val(isl.dim_type.set, i) for i in everything]
        except isl.Error as error:
            raise _gave_up() from error
        return {i: int(value.to_python()) for i, value in enumerate(values)}

    def _rows(self, literals: list[Linear], more: Iterable[int]) -> tuple[int, tuple[Row, ...], tuple[Row, ...]]:
        """A conjunction within the variables' bounds, over ``more`` and the variables it has: how many these are,
        equations and inequalities in their numbers."""
        used = sorted({v for literal in literals for v in literal.terms}.union(more))
        place = {variable: column for column, variable in enumerate(used)}
        equations, inequalities = _rows([*literals, *self._bounds(used)])
        return len(used), _placed(equations, place), _placed(inequalities, place)

    def _bounds(self, used: Iterable[int]) -> Iterator[Linear]:
        for variable in used:
            low, high = self.variables.bounds[variable]
            if low is not None:
                yield Linear(-low, {variable: 1})
            if high is not None:
                yield Linear(high, {variable: -1})


_CONTEXT, _ALONE = isl.Context(), RLock()
"""What isl works in, by one thread at a time: a context of each question's own was never freed."""


@lru_cache(maxsize=4096)  # the accesses of a kernel, and of one's variants, ask most questions several times
def _are_none(columns: int, equations: tuple[Row, ...], inequalities: tuple[Row, ...]) -> bool:
    """No point satisfies all rows."""
    try:
        with _ALONE:
            return _points(columns, equations, inequalities).is_empty()
    except isl.Error as error:
        raise _gave_up() from error


def _points(columns: int, equations: tuple[Row, ...], inequalities: tuple[Row, ...]) -> isl.BasicSet:
    """The integer points that satisfy all rows."""
    _CONTEXT.reset_operations()
    _CONTEXT.set_max_operations(_MOST_OPERATIONS)
    return isl.BasicSet.from_constraint_matrices(
        isl.Space.set_alloc(_CONTEXT, 0, columns),
        _matrix(columns, equations),
        _matrix(columns, inequalities),
        isl.dim_type.set,
        isl.dim_type.div,
        isl.dim_type.param,
        isl.dim_type.cst,
    )


def _matrix(columns: int, rows: Sequence[Row]) -> isl.Mat:
    """Rows of coefficients, the constant last. isl copies a matrix for every element that is set, and a set for every
    constraint that is added to it: rows are made by themselves."""
    result = isl.Mat.alloc(_CONTEXT, 0, columns + 1)
    zeros = result.add_zero_rows(1)
    for const, terms in rows:
        row = zeros.set_element_val(0, columns, _number(const))
        for column, c in terms:
            row = row.set_element_val(0, column, _number(c))
        result = result.concat(row)
    return result


def _number(n: int) -> isl.Val:
    """Of any size: islpy takes integers of a C long only."""
    return isl.Val(n if abs(n) < 1 << 62 else str(n), _CONTEXT)


def _placed(rows: Iterable[Row], place: Mapping[int, int]) -> tuple[Row, ...]:
    """Rows in the columns of their variables."""
    return tuple((const, tuple((place[v], c) for v, c in terms)) for const, terms in rows)


def _gave_up() -> GaveUpError:
    return GaveUpError(f"isl gave up after {_MOST_OPERATIONS} operations")


def _rows(literals: Iterable[Linear]) -> tuple[list[Row], list[Row]]:
    """Equations and inequalities, each once: of two forms that differ in their constant the stronger, and one equation
    for a form and its opposite."""
    least: dict[tuple[tuple[int, int], ...], int] = {}
    for literal in literals:
        const, terms = literal.key
        least[terms] = min(const, least.get(terms, const))
    equations: list[Row] = []
    inequalities: list[Row] = []
    for terms, const in least.items():
        opposite = tuple((v, -c) for v, c in terms)
        if least.get(opposite) != -const:
            inequalities.append((const, terms))
        elif terms <= opposite:
            equations.append((const, terms))
    return equations, inequalities
