"""A compile request, derived from a caller's arguments. Loads without the compiler's dependencies: a call whose
artifact is cached needs no more."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.hw.target import Target
from tilewright.lang.enums import OutOfRange
from tilewright.lang.params import KernelFunction
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.facts import CallFacts, Observed, contiguous, observe_facts

__all__ = ["CallFacts", "Observed", "Request", "default_facts", "observe_facts"]


@dataclass(frozen=True)
class Request:
    """What to compile: the function, its signature, the facts of its class, target and pinned schedule. A ``debug``
    build has timeouts in waits, checks that roles agree, and traps where the kernel asks for it."""

    function: KernelFunction
    signature: Signature
    facts: CallFacts
    target: Target
    schedule: Schedule
    debug: bool = False

    @property
    def traps(self) -> bool:
        """Whether loaded coordinates outside of a tensor end the launch."""
        return self.debug and self.function.on_out_of_range is OutOfRange.TRAP

    @property
    def pins(self) -> str:
        """The pinned decisions as text; empty where nothing is pinned."""
        extents = (f"{name}={value}" for name, value in self.signature.keywords if name in self.function.autos)
        return ", ".join(filter(None, (str(self.schedule), *extents)))


def default_facts(function: KernelFunction) -> CallFacts:
    """The class of row-major tensors with 16-byte aligned rows and 32-bit offsets."""
    return CallFacts(tuple((t.name, contiguous(len(t.dims))) for t in function.tensors))
