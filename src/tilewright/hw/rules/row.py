"""What a hardware rule is: a predicate over named fields with its scope, consequence and source.

A rule is data. Its predicate is text in the language of ``base.expr`` over the field names of its topic and the names
of enumerators; it is *true when the use is legal*. One text serves every reader: the judge of one request, the
vectorised judge of a corpus, the judge of a shape domain, and the printed reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tilewright.base.cached import cached_property
from tilewright.base.expr import Expr, parse
from tilewright.diag.catalogue import CATALOGUE


class Evidence(Enum):
    """The evidence for a rule."""

    DOCUMENTED = "documented"
    OBSERVED = "observed"


class Consequence(Enum):
    """The consequence of breaking a rule."""

    DRIVER_REJECTS = "driver rejects"
    ASSEMBLER_REJECTS = "assembler rejects"
    UNDEFINED = "undefined"
    OVERWRITES = "writes beyond"
    """Bytes outside the destination are written."""
    FAULT = "fault"
    RACE = "race"
    HANG = "hang"
    UNSETTLED = "unsettled"
    """Accepted by the driver; neither documents nor executions settle the hardware's behaviour."""
    SLOW = "slow"
    ADVISORY = "advisory"
    """Documents disagree; uses that break it work in practice."""


REFUSES = frozenset(
    (
        Consequence.ASSEMBLER_REJECTS,
        Consequence.UNDEFINED,
        Consequence.OVERWRITES,
        Consequence.FAULT,
        Consequence.RACE,
        Consequence.HANG,
    )
)
"""Consequences that make a use wrong to run although the driver encodes it."""


class Per(Enum):
    """The scope of one instance of a predicate."""

    REQUEST = "request"
    DIMENSION = "dimension"
    """Once for each dimension i < rank; per-dimension fields are written without an index."""
    STRIDE = "stride"
    """Once for each stored stride, i < rank - 1; ``global_stride`` of dimension i + 1."""


@dataclass(frozen=True)
class RuleScope:
    """Where a rule holds: compute capability (90 for 9.0) in ``[cc_from, cc_before)``; toolkit versions as in
    CUDA_VERSION (12080 for 12.8). ``driver`` names the driver an observation was made with."""

    cc_from: int = 90
    cc_before: int | None = None
    toolkit_from: int | None = None
    driver: str = ""

    def holds(self, cc: int) -> bool:
        """Whether an architecture of compute capability ``cc`` is in scope."""
        return self.cc_from <= cc and (self.cc_before is None or cc < self.cc_before)

    def __str__(self) -> str:
        text = f"sm_{self.cc_from}" + ("+" if self.cc_before is None else f" .. below sm_{self.cc_before}")
        if self.toolkit_from is not None:
            text += f", toolkit >= {self.toolkit_from // 1000}.{self.toolkit_from % 1000 // 10}"
        return text + (f", driver {self.driver}" if self.driver else "")


@dataclass(frozen=True)
class HardwareRule:
    """One fact. ``id`` is also its diagnostic code; title and reason live in the catalogue under it.

    No rule that the driver enforces is implied by the others of its architecture: of each rule the tests have a case
    that breaks it alone.
    """

    id: str
    predicate: str
    consequence: Consequence
    evidence: Evidence
    source: str
    per: Per = Per.REQUEST
    scope: RuleScope = RuleScope()
    of_sizes: bool = False
    """About extents and the range of strides. Left open by a plan it becomes the launch's guard, for it fails only for
    empty, broadcast or impossibly large tensors and for padded outputs whose rows end between 16-byte units; an open
    alignment of addresses and strides fails for common shapes."""

    @property
    def title(self) -> str:
        """The rule in words."""
        return CATALOGUE[self.id].title

    @property
    def why(self) -> str:
        """The reason for the rule."""
        return CATALOGUE[self.id].why

    @cached_property
    def parsed(self) -> Expr:
        """The predicate as an expression over fields and enumerator names."""
        return parse(self.predicate)

    def holds_for(self, names: Mapping[str, int]) -> Expr:
        """The predicate with enumerator names replaced by their values."""
        return self.parsed.substitute(names)
