"""Operands of ops: bytes of a buffer, an mbarrier, a use of a pipeline, a scope, a state space."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilewright.base.expr import Const, Expr

ZERO: Expr = Const(0)
CTA_RANK = "cta"
"""The symbol of the executing CTA's rank in its cluster, or in its grid."""


class Scope(Enum):
    """Scope of an arrive, of a wait or of a strong operation: who may rely on the order it makes."""

    CTA = "cta"
    CLUSTER = "cluster"
    GPU = "gpu"


class Sem(Enum):
    """What a strong operation is part of (PTX ISA 9.1, 8.8): a release pattern, an acquire pattern, both, neither."""

    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"

    @property
    def acquires(self) -> bool:
        """Whether it takes what the word hands on."""
        return self in (Sem.ACQUIRE, Sem.ACQ_REL)

    @property
    def releases(self) -> bool:
        """Whether it hands on what its thread did, and knows to be done, before."""
        return self in (Sem.RELEASE, Sem.ACQ_REL)


class FenceSpace(Enum):
    """The state space whose accesses a proxy fence orders."""

    ALL = "all"
    SHARED = "shared"
    GLOBAL = "global"


@dataclass(frozen=True)
class Region:
    """Bytes ``begin .. begin + size`` of a buffer, of the CTA of rank ``cta`` (None: the executing one).

    Tensor memory counts columns instead of bytes.
    """

    buffer: str
    begin: Expr
    size: int
    cta: Expr | None = None


@dataclass(frozen=True)
class Slot:
    """One mbarrier of an array, of the CTA of rank ``cta`` (None: the executing one)."""

    barrier: str
    index: Expr = ZERO
    cta: Expr | None = None


@dataclass(frozen=True)
class Word:
    """One 32-bit word of a counter in global memory."""

    counter: str
    index: Expr = ZERO


@dataclass(frozen=True)
class PipelineUse:
    """Use number ``index`` of a pipeline; its stage is ``index`` modulo the number of stages."""

    pipeline: str
    index: Expr


@dataclass(frozen=True)
class StageSlot(Slot):
    """The mbarrier, of the array ``barrier`` of a pipeline, of the stage of use number ``use``."""

    use: Expr = ZERO


@dataclass(frozen=True)
class StageRegion(Region):
    """Bytes ``begin .. begin + size`` of the stage of use number ``use``; without a size the whole stage."""

    size: int = 0
    use: Expr = ZERO
