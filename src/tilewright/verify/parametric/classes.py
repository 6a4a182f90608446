"""Classes of threads on the product, and their ops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar, cast

from tilewright.base.cached import cached_property
from tilewright.protocol import ops
from tilewright.protocol.effects import Effect
from tilewright.protocol.graph import EventGraph, Site
from tilewright.protocol.model import By
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.threads import ThreadClass, groups_of, runs

E = TypeVar("E")


@dataclass(frozen=True, eq=False)
class Class:
    """Threads of a role in one CTA that run the same code; ``code`` per block."""

    index: int
    party: int
    group: ThreadClass
    cta: int
    code: tuple[tuple[Site, ...], ...]

    @cached_property
    def role(self) -> tuple[str, int]:
        """Role and CTA."""
        return self.group.role, self.cta

    @cached_property
    def ops(self) -> tuple[tuple[ops.Op, ...], ...]:
        """The ops of its code, per block."""
        return tuple(tuple(site.step.op for site in code) for code in self.code)

    def sites(self) -> Iterator[Site]:
        """All ops the class executes."""
        return chain.from_iterable(self.code)


class Ref(NamedTuple):
    """Op ``i`` of a class in a block."""

    c: Class
    s: int
    i: int

    @property
    def site(self) -> Site:
        """The site it executes."""
        return self.c.code[self.s][self.i]

    @property
    def op(self) -> ops.Op:
        """The op."""
        return self.c.ops[self.s][self.i]

    @property
    def name(self) -> str:
        """The op for people."""
        return f"{type(self.op).__name__} of {self.c.group.label}"


def classes_of(graph: EventGraph) -> tuple[Class, ...]:
    """The classes of threads of all parties; raises ``OutsideFragment``."""
    out: list[Class] = []
    for p, (role, cta) in enumerate(graph.product.parties):
        if any(s.step.by is By.THREAD_ZERO for code in graph.sites[p] for s in code):
            raise OutsideFragment("steps of thread zero")
        for group in groups_of(role):
            mine = runs(group.kind)
            code = tuple(tuple(s for s in code if s.step.by in mine) for code in graph.sites[p])
            out.append(Class(len(out), p, group, cta, code))
    return tuple(out)


class EffectsByKind:
    """All effects of some classes, class by class in the order of the product."""

    def __init__(self, classes: tuple[Class, ...]):
        self._found: dict[type[object], list[tuple[Ref, Effect]]] = {}
        for c in classes:
            for s, code in enumerate(c.ops):
                for i, op in enumerate(code):
                    for effect in op.effects:
                        self._found.setdefault(type(effect), []).append((Ref(c, s, i), effect))

    def of(self, kind: type[E]) -> list[tuple[Ref, E]]:
        """Those of one kind, each with the op that it belongs to."""
        return cast(list[tuple[Ref, E]], self._found.get(kind, []))
