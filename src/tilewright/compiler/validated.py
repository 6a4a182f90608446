"""Translation validation of a kernel on its way: Tile IR to Transport IR to the PTX that the assembler made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.artifact.schema import NOT_COMPARED, Launch, Obligation
from tilewright.compiler.passes import timed
from tilewright.compiler.recipe import recipe
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.validate.kernel import compare
from tilewright.validate.lowering.compare import compare as compare_lowering

LOWERING = Obligation("lowering", "translation validation", "stored elements, Tile IR and Transport IR")
"""Every element that the Transport IR stores is the Tile IR's."""
PTX = Obligation("ptx", "translation validation", "Transport IR and PTX, for all arguments of the class")
"""The PTX does what the Transport IR says: loads, stores, synchronisation, values."""
_MOST = 3


@dataclass(frozen=True)
class Validated:
    """What translation validation shows of a kernel, and why the rest is undecided."""

    certificate: tuple[Obligation, ...] = ()
    undecided: tuple[str, ...] = ()


NOT_ASKED = Validated(undecided=(NOT_COMPARED,))


@timed("validate")
def validated(source: tile.Kernel, kernel: t.Kernel, ptx: str) -> Validated:
    """Compare a kernel with its program, and its PTX with it, as a launch of it alone would bind its parameters."""
    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    found: dict[Obligation, Sequence[object]] = {
        LOWERING: compare_lowering(source, kernel),
        PTX: compare(kernel, ptx, launch.args, launch.grid[0]),
    }
    undecided = (f"{o.name}: {place}" for o, places in found.items() for place in places[:_MOST])
    return Validated(tuple(o for o, places in found.items() if not places), tuple(undecided))
