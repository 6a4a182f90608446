"""Answers of the judges. ``Unknown`` is neither legal nor illegal, neither proved nor refuted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

F = TypeVar("F", covariant=True)  # what a legal answer carries: descriptor fields, a plan
W = TypeVar("W", covariant=True)  # what a refutation carries: a timeline, a counterexample


@dataclass(frozen=True)
class Violation:
    """A violated rule: its id, the finding, the requirement, and the rule's source."""

    rule: str
    found: str
    required: str
    source: str


@dataclass(frozen=True)
class Legal(Generic[F]):
    """The request satisfies every rule; ``fields`` are the hardware descriptor's."""

    fields: F


@dataclass(frozen=True)
class Factored(Generic[F]):
    """Legal after splitting the layout: ``fields`` of the descriptor's part; ``residual`` names who applies the
    rest."""

    fields: F
    residual: str


@dataclass(frozen=True)
class Repair(Generic[F]):
    """A change that makes the request legal, already re-judged. ``cost`` is predicted extra seconds per call."""

    action: str
    fields: F
    cost: float


@dataclass(frozen=True)
class Repairs(Generic[F]):
    """Illegal as requested; each repair makes it legal, cheapest first. ``core`` are the violated rules."""

    core: tuple[Violation, ...]
    repairs: tuple[Repair[F], ...]


@dataclass(frozen=True)
class Illegal:
    """No repair known; ``core`` is a minimal set of clashing rules."""

    core: tuple[Violation, ...]


@dataclass(frozen=True)
class Unknown:
    """Not decided: ``obligation`` is what could not be settled, ``reason`` why, ``settle`` what would settle it.

    ``place`` is the user's ``file:line`` that it is about, empty where there is none.
    """

    obligation: str
    reason: str
    settle: str = ""
    place: str = ""


Legality: TypeAlias = Legal[F] | Factored[F] | Repairs[F] | Illegal | Unknown


@dataclass(frozen=True)
class Discharged:
    """One discharged obligation: its name (``once``), the method (``isl``), and its subject (a tensor)."""

    name: str
    method: str
    subject: str = ""


@dataclass(frozen=True)
class Proved:
    """Every obligation was discharged."""

    obligations: tuple[Discharged, ...] = ()


@dataclass(frozen=True)
class Refuted(Generic[W]):
    """An obligation fails, shown by ``witness``."""

    obligation: str
    witness: W


Proof: TypeAlias = Proved | Refuted[W] | Unknown
