"""Texts of many expressions that name what they share: written out, the predicates of a product's variants repeat their
prices hundreds of times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.base.expr.nodes import (
    OWN,
    All,
    Any_,
    Compare,
    Const,
    Expr,
    ExprError,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
)
from tilewright.base.expr.text import MAX_TEXT, parse

_PART = f"{OWN}part"
_REFERENCE = re.compile(rf"{re.escape(_PART)}\d+")
_SHORT = 16
"""Characters of what is repeated rather than named."""
_MAX_NESTING = 60
"""Of nodes: expressions are evaluated by functions that call themselves."""


class SharedTexts:
    """The texts of ``roots``, in which what occurs several times stands as ``$part0``, ``$part1``, ... , or by another
    name than ``$part``; ``parts`` are their texts, each of earlier ones. ``symbols`` may have other names, too."""

    def __init__(self, roots: Iterable[Expr], part: str = _PART, symbols: Mapping[str, str] | None = None):
        roots = list(roots)
        uses, every = Counter(roots), list(_each_once(roots))
        for node in every:
            uses.update(set(node.children))
        self._names: dict[Expr, Sym] = {Sym(old): Sym(new) for old, new in (symbols or {}).items()}
        self.parts: list[str] = []
        for node in every:
            if uses[node] > 1 and not isinstance(node, Const | Sym) and len(node.text) > _SHORT:
                self.parts.append(self.text(node))
                self._names[node] = Sym(f"{part}{len(self.parts) - 1}")

    def text(self, node: Expr) -> str:
        """The text of a root."""
        return self._named(node).text

    def _named(self, node: Expr) -> Expr:
        """The node over names. It is not normalised anew: another order of its terms would be another text, no other
        expression."""
        visit = self._named
        match node:
            case _ if node in self._names:
                return self._names[node]
            case Const() | Sym():
                return node
            case Sum(offset, terms):
                return Sum(offset, tuple((visit(term), c) for term, c in terms))
            case Compare(op, a, b):
                return Compare(op, visit(a), visit(b))
            case FloorDiv(a, b) | Mod(a, b):
                return type(node)(visit(a), visit(b))
            case Not(a):
                return Not(visit(a))
            case Product(args) | Min(args) | Max(args) | Xor(args) | All(args) | Any_(args):
                return type(node)(tuple(map(visit, args)))
            case _:
                raise TypeError(f"not an expression node: {type(node).__name__}")


class SharedParts:
    """The expressions that ``SharedTexts.parts`` and texts over them stand for."""

    def __init__(self, texts: Sequence[str]):
        self._parts: dict[str, Expr] = {}
        self._nesting: dict[Expr, int] = {}
        for i, text in enumerate(texts):
            self._parts[f"{_PART}{i}"] = self.read(text)

    def read(self, text: str) -> Expr:
        """The expression of a text; ``ExprError`` for what is outside of the language, or longer written out than an
        expression may be, or nested too deeply."""
        named = _REFERENCE.findall(text)
        if not named:
            return parse(text)
        if unknown := [name for name in named if name not in self._parts]:
            raise ExprError(f"{unknown[0]} is none of the {len(self._parts)} parts before it")
        if len(text) + sum(len(self._parts[name].text) for name in named) > MAX_TEXT:
            raise ExprError(f"an expression of more than {MAX_TEXT} characters, with its parts written out")
        read = parse(text, {name: self._parts[name] for name in named})
        for node in _each_once([read], self._nesting):
            self._nesting[node] = 1 + max((self._nesting[child] for child in node.children), default=0)
        if self._nesting[read] > _MAX_NESTING:
            raise ExprError(f"an expression nested more than {_MAX_NESTING} times, with its parts written out")
        return read


def first_of(predicates: Sequence[Expr]) -> Callable[[Mapping[str, int]], int | None]:
    """A function that gives the number of the first predicate that holds under an assignment, None if there is none:
    their texts as Python's, with what they share computed once (for the 49 variants of a product 20 times as fast as
    their nodes). ``ExprError`` as ``evaluate`` raises it."""
    symbols = sorted(frozenset[str]().union(*(each.symbols for each in predicates)))
    texts = SharedTexts(predicates, "part", {name: f"given{i}" for i, name in enumerate(symbols)})
    lines = [f"def first({', '.join(f'given{i}' for i in range(len(symbols)))}):"]
    lines += [f" part{i} = {text}" for i, text in enumerate(texts.parts)]
    lines += [f" if {texts.text(each)}: return {i}" for i, each in enumerate(predicates)]
    scope: dict[str, Any] = {"xor": _xor}
    exec("\n".join([*lines, " return None"]), scope)
    first = scope["first"]

    def found(values: Mapping[str, int]) -> int | None:
        try:
            return first(*[values[name] for name in symbols])
        except (KeyError, ZeroDivisionError):  # perhaps of a part that nothing asks for
            return next((i for i, each in enumerate(predicates) if each.evaluate(values)), None)

    return found


def _xor(*args: int) -> int:
    found = 0
    for each in args:
        found ^= each
    return found


def _each_once(roots: Iterable[Expr], known: Container[Expr] = ()) -> Iterator[Expr]:
    """All nodes but those that are ``known``, what they consist of first."""
    seen = set[Expr]()
    waiting = [(root, False) for root in roots]
    while waiting:
        node, visited = waiting.pop()
        if visited:
            yield node
        elif node not in seen and node not in known:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(child, False) for child in reversed(node.children)]
