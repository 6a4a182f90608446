"""Equations over sets of statements, solved from "everything is known" downwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.protocol.product_graph import OutsideFragment

MAX_EVALUATIONS = 1_000_000
"""Evaluations of equations before the solver gives up."""

Value = Callable[[list[int]], int]
"""The value of a variable, given all others."""


class Equations:
    """Variables in the order of their equations; each equation may give up statements only as others do.

    The solution is the greatest: sums and common parts of finitely many statements, of which a round that is not the
    last gives one up.
    """

    def __init__(self, everything: int):
        self.everything = everything
        self.values: list[int] = []
        self._order: list[int] = []
        self._run: list[Value | None] = []
        self._users: list[list[int]] = []

    def variable(self) -> int:
        """A new variable."""
        self.values.append(self.everything)
        self._run.append(None)
        self._users.append([])
        return len(self.values) - 1

    def define(self, variable: int, inputs: Sequence[int], run: Value) -> int:
        """Gives a variable its equation; it is evaluated after those defined before, again when ``inputs`` change."""
        self._run[variable] = run
        self._order.append(variable)
        for i in inputs:
            self._users[i].append(variable)
        return variable

    def solve(self) -> None:
        """Evaluates until nothing changes."""
        values, users = self.values, self._users
        pending = [(v, run) for v in self._order if (run := self._run[v]) is not None]
        dirty = bytearray(len(values))
        for v, _ in pending:
            dirty[v] = 1
        changed, left = True, MAX_EVALUATIONS
        while changed:
            changed = False
            for v, run in pending:
                if not dirty[v]:
                    continue
                left -= 1
                if left < 0:
                    raise OutsideFragment(f"more than {MAX_EVALUATIONS} evaluations of what is known where")
                dirty[v] = 0
                now = run(values)
                if now != values[v]:
                    values[v] = now
                    changed = True
                    for user in users[v]:
                        dirty[user] = 1
