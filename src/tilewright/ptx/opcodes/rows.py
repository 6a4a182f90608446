"""The shape of the opcode table: a row is a pattern of modifiers, the roles of its operands, and what it computes.

A pattern is written as the manual writes syntax: modifiers in their order, alternatives with ``/``, optional ones
with ``?``, ``L2::*`` for any modifier of that prefix, ``**`` for all that follow. ``add sat? s32`` stands for
``add.s32`` and ``add.sat.s32``.

Roles: ``w`` written, ``r`` read, ``i`` an immediate that is read, ``u`` read and written, ``a`` an address in memory,
``n`` a name or constant that selects something; ``c`` the carry flag read, ``k`` written, which no operand names. A
role has the type of the last modifier unless ``:type`` follows; ``:$1`` is the modifier that slot 1 took (slots count
from 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from tilewright.base.cached import cached_property

Bits: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""Registers as unsigned integers, one element a lane; predicates as bools."""
Function: TypeAlias = Callable[..., Any]
"""Takes the operands that are read, in their order, as ``Bits`` of their type's width; returns ``Bits``, or a tuple of
them where more than one register is written."""


class OpcodeKind(Enum):
    """The side effects of an instruction."""

    PURE = "pure"
    """None: the results are a function of the registers read."""
    SPECIAL = "special"
    """Reads a special register or the address of a variable."""
    CONTROL = "control"
    """Branches, ends, calls, hints to the scheduler."""
    MEMORY = "memory"
    """Loads and stores of one thread."""
    ATOMIC = "atomic"
    """Atomic read-modify-write of one thread, with or without a result."""
    WARP = "warp"
    """Values of other threads of the warp: shfl, vote, match, redux, elect."""
    MATRIX = "matrix"
    """ldmatrix, stmatrix, mma: warps together, at once."""
    WGMMA = "wgmma"
    """Asynchronous products of a warpgroup."""
    COPY = "copy"
    """Asynchronous copies."""
    BARRIER = "barrier"
    """Barriers of a CTA, a warp, a cluster."""
    MBARRIER = "mbarrier"
    """Barriers in shared memory."""
    FENCE = "fence"
    """Orders memory accesses."""
    PARSED = "parsed"
    """Read, no meaning given: tcgen05."""


@dataclass(frozen=True)
class Row:
    """One row. ``build`` receives what each slot matched ("" for nothing) and returns the function of a pure row.
    ``bound`` states how far the result of an approximate instruction may be from that function."""

    pattern: str
    roles: str
    build: Callable[..., Function] | None = None
    kind: OpcodeKind = OpcodeKind.PURE
    bound: str = ""

    @property
    def opcode(self) -> str:
        """The root, such as ``add``."""
        return self.pattern.split(" ", 1)[0]

    @cached_property
    def slots(self) -> tuple[tuple[tuple[str, ...], bool], ...]:
        """(alternatives, optional) for each modifier."""
        return tuple((tuple(s.rstrip("?").split("/")), s.endswith("?")) for s in self.pattern.split()[1:])

    def match(self, modifiers: tuple[str, ...]) -> tuple[str, ...] | None:
        """What each slot matches; None if the modifiers do not belong to this row."""
        found, at = list[str](), 0
        for alternatives, optional in self.slots:
            if alternatives == ("**",):
                found.append(".".join(modifiers[at:]))
                at = len(modifiers)
            elif at < len(modifiers) and any(_fits(a, modifiers[at]) for a in alternatives):
                found.append(modifiers[at])
                at += 1
            elif optional:
                found.append("")
            else:
                return None
        return tuple(found) if at == len(modifiers) else None

    def forms(self) -> Iterator[Form]:
        """All forms of a row without ``*``."""
        for chosen in product(*((*(("",) if optional else ()), *names) for names, optional in self.slots)):
            yield Form(self, chosen)


@dataclass(frozen=True)
class Form:
    """A row with its modifiers chosen: ``add.sat.s32``."""

    row: Row
    chosen: tuple[str, ...]

    @property
    def kind(self) -> OpcodeKind:
        """The side effects."""
        return self.row.kind

    @property
    def name(self) -> str:
        """The opcode in full."""
        return ".".join((self.row.opcode, *filter(None, self.chosen)))

    @cached_property
    def accesses(self) -> tuple[str, ...]:
        """The letter of each operand's role."""
        return tuple(r[0] for r in self.row.roles.split())

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The type of each operand."""
        return tuple(self._type(r.partition(":")[2]) for r in self.row.roles.split())

    def _type(self, named: str) -> str:
        if named.startswith("$"):
            return self.chosen[int(named[1:])]
        return named or (self.chosen[-1] if self.chosen else "b32")

    @cached_property
    def function(self) -> Function | None:
        """The function that computes the results; None if the instruction has side effects."""
        return None if self.row.build is None else self.row.build(*self.chosen)


def _fits(alternative: str, modifier: str) -> bool:
    return modifier == alternative or (alternative.endswith("*") and modifier.startswith(alternative[:-1]))
