"""Translation validation of what the assembler made: each kernel's PTX against its Transport IR."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.artifact.schema import NOT_COMPARED, Launch, Obligation
from tilewright.compiler.passes import timed
from tilewright.compiler.recipe import recipe
from tilewright.transport import dialect as t
from tilewright.validate.kernel import compare

PTX = Obligation("ptx", "translation validation", "for all arguments of the class")
"""The PTX does what the Transport IR says: loads, stores, synchronisation, values."""
_MOST = 3


@dataclass(frozen=True)
class Validated:
    """What is known of a kernel's PTX: an obligation, or why it is undecided."""

    certificate: tuple[Obligation, ...] = ()
    undecided: tuple[str, ...] = ()


NOT_ASKED = Validated(undecided=(NOT_COMPARED,))


@timed("validate")
def validated(kernel: t.Kernel, ptx: str) -> Validated:
    """Compare a kernel's PTX with its text, as a launch of the kernel alone would bind its parameters."""
    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    found = compare(kernel, ptx, launch.args, launch.grid[0])
    return Validated(undecided=tuple(map(str, found[:_MOST]))) if found else Validated((PTX,))
