"""Translation validation of a kernel on its way: Tile IR to Transport IR to the PTX that the assembler made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.artifact.schema import EXECUTION, NOT_COMPARED, VALIDATION, Launch, Obligation
from tilewright.compiler.recipe import recipe
from tilewright.compiler.timing import timed
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

LOWERING = Obligation("lowering", VALIDATION, "stored elements, Tile IR and Transport IR")
"""Every element that the Transport IR stores is the Tile IR's."""
PTX = Obligation("ptx", VALIDATION, "Transport IR and PTX, for all arguments of the class")
"""The PTX does what the Transport IR says: loads, stores, synchronisation, values."""
_MOST = 3


@dataclass(frozen=True)
class Validated:
    """What translation validation shows of a kernel, and why the rest is undecided; ``refuted`` says where the PTX
    does something else than the Transport IR."""

    certificate: tuple[Obligation, ...] = ()
    undecided: tuple[str, ...] = ()
    refuted: str = ""


NOT_ASKED = Validated(undecided=(NOT_COMPARED,))


def validated(source: tile.Kernel, kernel: t.Kernel, ptx: str) -> Validated:
    """Compare a kernel with its program, and its PTX with it, as a launch of it alone would bind its parameters; where
    the PTX is undecided, execute it beside the kernel."""
    compared = _compared(source, kernel, ptx)
    if PTX in compared.certificate:
        return compared
    from tilewright.compiler.differential import run_differential_test  # noqa: PLC0415 - two machines load with it, and few kernels need them

    found = run_differential_test(kernel, ptx, recipe([kernel]))
    if found.differences:
        return replace(compared, refuted=found.differences[0].what)
    if not found.launches:
        return compared
    launches = f"Transport IR and PTX agree on {len(found.launches)} launches: {'; '.join(found.launches)}"
    return replace(compared, certificate=(*compared.certificate, Obligation(PTX.name, EXECUTION, launches)))


@timed("validate")
def _compared(source: tile.Kernel, kernel: t.Kernel, ptx: str) -> Validated:
    from tilewright.validate.kernel import compare  # noqa: PLC0415 - calls compile without these 78 modules
    from tilewright.validate.lowering.compare import compare as compare_lowering  # noqa: PLC0415 - as above

    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    found: dict[Obligation, Sequence[object]] = {
        LOWERING: compare_lowering(source, kernel),
        PTX: compare(kernel, ptx, launch.args, launch.grid[0], _MOST),
    }
    undecided = (f"{o.name}: {place}" for o, places in found.items() for place in places[:_MOST])
    return Validated(tuple(o for o, places in found.items() if not places), tuple(undecided))
