"""The four words of a multi-stage pipeline (``protocol.pipelines`` expands them to mbarriers)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr
from tilewright.protocol.effects import Effect
from tilewright.protocol.operands import PipelineUse, Scope
from tilewright.protocol.ops.base import Brief, Op


class PipelineOp(Op):
    """An op on the use of a pipeline. Its effects are those of the op that it expands to."""

    word = ""

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        raise NotImplementedError(f"{self.word}: expand the protocol first")

    @property
    def brief(self) -> Brief:
        return (self.word,)


@dataclass(frozen=True)
class ProducerAcquire(PipelineOp):
    """Waits until the stage may be filled for a use: until the consumers have released its use before."""

    use: PipelineUse
    scope: Scope = Scope.CTA

    word = "producer_acquire"


@dataclass(frozen=True)
class ProducerCommit(PipelineOp):
    """Arrives on the full barrier of a use, of which copies will bring ``tx_bytes``; none if threads filled it."""

    use: PipelineUse
    tx_bytes: int = 0
    scope: Scope = Scope.CTA

    word = "producer_commit"


@dataclass(frozen=True)
class ConsumerWait(PipelineOp):
    """Waits for the data of a use."""

    use: PipelineUse
    scope: Scope = Scope.CTA

    word = "consumer_wait"


@dataclass(frozen=True)
class ConsumerRelease(PipelineOp):
    """Arrives on the empty barrier of a use, of the CTA of rank ``cta`` (None: the executing one)."""

    use: PipelineUse
    cta: Expr | None = None
    scope: Scope = Scope.CTA

    word = "consumer_release"
