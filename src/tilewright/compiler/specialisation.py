"""What a caller asks for, observed from his arguments. Loads without the compiler's dependencies: a call that finds its
artifact ready needs no more than this."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.hw.target import Target
from tilewright.lang.fns import OutOfRange
from tilewright.lang.params import KernelFunction
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.facts import CallFacts, Observed, contiguous, observe_facts

__all__ = ["CallFacts", "Observed", "Request", "default_facts", "observe_facts"]


@dataclass(frozen=True)
class Request:
    """What to compile: the function, what it is specialised for, the facts of its class, target and pinned schedule.

    A ``debug`` build bounds its waits, compares its roles, and traps where the kernel wants it.
    """

    function: KernelFunction
    signature: Signature
    facts: CallFacts
    target: Target
    schedule: Schedule
    debug: bool = False

    @property
    def traps(self) -> bool:
        """Loaded coordinates that lead outside end the launch."""
        return self.debug and self.function.on_out_of_range is OutOfRange.TRAP

    @property
    def pins(self) -> str:
        """What is fixed that the schedule would choose; empty where nothing is."""
        extents = (f"{name}={value}" for name, value in self.signature.keywords if name in self.function.autos)
        return ", ".join(filter(None, (str(self.schedule), *extents)))


def default_facts(function: KernelFunction) -> CallFacts:
    """The class of row-major tensors with 16-byte aligned rows and 32-bit offsets."""
    return CallFacts(tuple((t.name, contiguous(len(t.dims))) for t in function.tensors))
