"""The base of all ops: effects, and a few facts that no effect states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.hw.spaces import Space
from tilewright.hw.target import InstructionSet
from tilewright.protocol.effects import Access, Await, Effect, Engine, Grain, Queue, Signal
from tilewright.protocol.operands import Region, Slot, Word

MEMORY = frozenset((Space.SHARED, Space.DISTRIBUTED_SHARED))
GLOBAL = frozenset((Space.GLOBAL,))
REGISTERS = frozenset((Space.REGISTER,))
COLUMNS = frozenset((Space.TMEM,))

Brief: TypeAlias = tuple[str | Expr | Slot | Region, ...]
"""An op in a few words: text, and operands whose indices are worked out where it is shown."""

E = TypeVar("E")


def located(**spaces: frozenset[Space]) -> Mapping[str, frozenset[Space]]:
    """The state spaces that operands may lie in, by the field."""
    return spaces


@cache
def names_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of a dataclass's fields."""
    return tuple(f.name for f in fields(kind))


class Op:
    """An operation of a protocol: a frozen dataclass of operands.

    Subclasses list their effects, and state what is so whatever the operands are.
    """

    grain: ClassVar[Grain] = Grain.THREADS
    engine: ClassVar[Engine] = Engine.NONE
    instruction: ClassVar[str] = ""
    """The row of ``hw.sync_prices``, for ops that have one."""
    needs: ClassVar[InstructionSet | None] = None
    """The instructions that a target needs to have for it, if not all have them."""
    spaces: ClassVar[Mapping[str, frozenset[Space]]] = located()
    """State spaces that the operands may lie in, by field."""
    peers: ClassVar[bool] = False
    """Whether operands may lie in another CTA of the cluster."""
    swizzled: ClassVar[bool] = False
    """Whether shared memory is addressed through a swizzle."""

    @property
    def values(self) -> tuple[object, ...]:
        """The values of its fields."""
        return tuple([getattr(self, name) for name in names_of(type(self))])

    @property
    def regions(self) -> tuple[Region, ...]:
        """The bytes that its operands name."""
        listed = (cast(tuple[object, ...], x) if isinstance(x, tuple) else (x,) for x in self.values)
        return tuple([x for part in listed for x in part if isinstance(x, Region)])

    @cached_property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions in its operands."""
        out: list[Expr | None] = []
        for value in self.values:
            for item in cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,):
                match item:
                    case Expr():
                        out.append(item)
                    case Slot(_, index, cta) | Region(_, index, _, cta):
                        out += (index, cta)
                    case Word(_, index):
                        out.append(index)
                    case _:
                        pass
        return tuple([e for e in out if e is not None])

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The symbols that its expressions use."""
        return frozenset[str]().union(*(e.symbols for e in self.expressions))

    @property
    def bulk(self) -> bool:
        """Whether it is a bulk copy without a tensor map, which moves whole units of 16 bytes."""
        return False

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What the op does, in the order in which it happens."""
        raise NotImplementedError(type(self).__name__)

    @property
    def brief(self) -> Brief:
        """The op in a few words."""
        return (type(self).__name__,)

    def of(self, kind: type[E]) -> Iterator[E]:
        """Its effects of one kind."""
        return iter([e for e in self.effects if isinstance(e, kind)])

    @property
    def accesses(self) -> Iterator[Access]:
        """Its accesses to memory."""
        return self.of(Access)

    @cached_property
    def queue(self) -> Queue | None:
        """The queue in whose groups its accesses are done."""
        return next((x.queue for x in self.accesses), None)

    @property
    def slot(self) -> Slot | None:
        """The mbarrier that it signals, waits for or tests."""
        return next((e.bar for e in self.effects if isinstance(e, Signal | Await)), None)
