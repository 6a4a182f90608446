"""Where the walk over a kernel's ops is, as a protocol needs to know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.base.expr import Expr, ExprLike, Sym, simplify
from tilewright.protocol import ops
from tilewright.protocol.model import By
from tilewright.transport import asynchronous as a


@dataclass
class WalkScope:
    """Where the walk is: the role's own names, the warpgroup, who executes, the loops around."""

    role: str
    index: int
    threads: int
    warpgroup: int
    by: By = By.ALL
    programs: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    known: Mapping[str, ExprLike] = field(default_factory=dict[str, ExprLike])
    """What names stand for: the warpgroup, the CTA's rank, and what the role has named."""
    _values: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    @classmethod
    def of(cls, role: str, index: int, threads: int, warpgroup: int) -> WalkScope:
        """The body of a role."""
        known = {a.WARPGROUP: warpgroup, a.CTA_RANK: Sym(ops.CTA_RANK)}
        return cls(role, index, threads, warpgroup, known=known)

    def elected(self) -> WalkScope:
        """The same place, executed by one thread."""
        return self._within(By.ELECTED, self.programs, self.loops)

    def inside(self, programs: tuple[str, ...] = (), loops: tuple[str, ...] = ()) -> WalkScope:
        """A body there, with names of its own."""
        return self._within(self.by, self.programs + programs, self.loops + loops)

    def _within(self, by: By, programs: tuple[str, ...], loops: tuple[str, ...]) -> WalkScope:
        return WalkScope(
            self.role, self.index, self.threads, self.warpgroup, by, programs, loops, self.known, self._values
        )

    def let(self, name: str, value: Expr) -> None:
        """From here on ``name`` stands for ``value``; not so in the bodies around."""
        self.known, self._values = {**self.known, name: self.value(value)}, {}

    def value(self, node: Expr) -> Expr:
        """An expression in the protocol's symbols."""
        found = self._values.get(node)
        if found is None:
            found = self._values[node] = simplify(node.substitute(self.known), {})
        return found
