"""Guards of a protocol: the iterations of a loop that they distinguish, and whether they hold on the path to a
block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import lcm

from tilewright.base.expr import All, Any_, Compare, Const, Expr, Mod, Not, Sum, Sym
from tilewright.protocol.model import If, Node, Symbol, walk
from tilewright.protocol.product_graph import OutsideFragment


@dataclass(frozen=True)
class Context:
    """Facts on the path to a block: about symbols, and for each loop counter a value that represents all of its values
    there."""

    facts: tuple[tuple[str, bool], ...] = ()
    counters: tuple[tuple[str, int], ...] = ()

    def fact(self, name: str) -> bool | None:
        """Whether a symbol is positive, or a guard true, on this way; None: not decided yet."""
        return dict(self.facts).get(name)

    def with_fact(self, name: str, value: bool) -> Context:
        """The same way, with a fact decided."""
        return replace(self, facts=(*self.facts, (name, value)))

    def with_counter(self, name: str, value: int) -> Context:
        """The same way, inside one more loop."""
        return replace(self, counters=(*self.counters, (name, value)))


@dataclass
class UndecidedError(Exception):
    """A fact about symbols is needed; the loop body at ``level`` (a counter, or empty) must be split on it."""

    name: str
    level: str


@dataclass(frozen=True)
class Guards:
    """Decides guards over the symbols of one protocol."""

    symbols: Mapping[str, Symbol]

    def holds(self, condition: Expr, context: Context) -> bool:
        """Whether a guard is true there; raises ``UndecidedError`` where the body must be split first."""
        match condition:
            case Const(value):
                return bool(value)
            case All():
                return all(self.holds(c, context) for c in condition.children)
            case Any_():
                return any(self.holds(c, context) for c in condition.children)
            case Not(inner):
                return not self.holds(inner, context)
            case _:
                pass
        counters = dict(context.counters)
        if condition.symbols <= counters.keys():
            return bool(condition.evaluate(counters))
        if not condition.symbols <= self.symbols.keys():
            raise OutsideFragment(f"a guard on {condition}")
        if len(condition.symbols) == 1:
            (name,) = condition.symbols
            truths = [bool(condition.evaluate({name: v})) for v in (0, 1)]
            if _is_positivity(condition, name):
                if self.symbols[name].least > 0:
                    return truths[1]
                known = context.fact(name)
                if known is None:
                    raise UndecidedError(name, self._level([name], context))
                return truths[int(known)]
        known = context.fact(condition.text)
        if known is None:
            raise UndecidedError(condition.text, self._level(sorted(condition.symbols), context))
        return known

    def runs(self, end: Expr, context: Context) -> bool | None:
        """Whether a loop to ``end`` runs at least once; None: either."""
        match end:
            case Const(value):
                return value > 0
            case Sym(name) | Sum(0, ((Sym(name), _),)) if name in self.symbols:
                return True if self.symbols[name].least > 0 else context.fact(name)
            case _:
                return None

    def _level(self, names: list[str], context: Context) -> str:
        """The counter of the loop with which the symbols vary; symbols used within symbolic loops vary with the
        outermost one."""
        pers = {self.symbols[n].per for n in names} - {None}
        if len(pers) > 1:
            raise OutsideFragment(f"a guard on symbols of two loops: {', '.join(names)}")
        counters = [c for c, _ in context.counters]
        per = pers.pop() if pers else (counters[0] if counters else "")
        if per and per not in counters:
            raise OutsideFragment(f"{names[0]} is used outside the loop {per} that it varies with")
        return per or ""


def conditions_of(nodes: tuple[Node, ...]) -> Iterator[Expr]:
    """The guards in nodes, at any depth."""
    return (node.condition for node in walk(nodes) if isinstance(node, If))


def distinguished(condition: Expr, counter: str) -> tuple[int, int]:
    """How many first values of the counter, and which residues beyond, the truth of a guard depends on."""
    if counter not in condition.symbols:
        return 0, 1
    match condition:
        case Compare(_, lhs, rhs):
            difference = lhs - rhs
            match difference:
                case Sym() | Sum(_, ((Sym(), 1 | -1),)) if difference.symbols == frozenset((counter,)):
                    offset = difference.offset if isinstance(difference, Sum) else 0
                    return max(0, abs(offset) + 1), 1
                case _:
                    found = [_residue(e, counter) for e in (lhs, rhs)]
                    return 0, lcm(*found)
        case All() | Any_() | Not():
            found = [distinguished(c, counter) for c in condition.children]
            return max(c for c, _ in found), lcm(*(m for _, m in found))
        case _:
            raise OutsideFragment(f"a guard on {condition}")


def _residue(e: Expr, counter: str) -> int:
    match e:
        case _ if counter not in e.symbols:
            return 1
        case Mod(Sym(name), Const(m)) if name == counter and m > 0:
            return m
        case _:
            raise OutsideFragment(f"a guard on {e}")


def _is_positivity(condition: Expr, name: str) -> bool:
    """Whether the truth of a comparison depends on ``name > 0`` alone (for values that are not negative)."""
    match condition:
        case Compare("<" | "<=" as op, Const(c), Sym(n)) if n == name:
            return c == (0 if op == "<" else 1)
        case Compare("<" | "<=" as op, Sym(n), Const(c)) if n == name:
            return c == (1 if op == "<" else 0)
        case Compare("==" | "!=", Sym(n), Const(0)) | Compare("==" | "!=", Const(0), Sym(n)):
            return n == name
        case _:
            return False
