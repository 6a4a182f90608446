"""Translation validation of a compiled kernel: Tile IR against Transport IR against PTX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.artifact.schema import EXECUTION, NOT_COMPARED, VALIDATION, Launch, Obligation
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.timing import timed
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

LOWERING = Obligation("lowering", VALIDATION, "stored elements, Tile IR and Transport IR")
"""Every element that the Transport IR stores equals the Tile IR's."""
PTX = Obligation("ptx", VALIDATION, "Transport IR and PTX, for all arguments of the class")
"""The PTX implements the Transport IR: loads, stores, synchronisation, values."""
_MOST = 3


@dataclass(frozen=True)
class Validated:
    """The result of translation validation: obligations shown, why the rest is undecided, and, if ``refuted``, where
    the PTX differs from the Transport IR."""

    certificate: tuple[Obligation, ...] = ()
    undecided: tuple[str, ...] = ()
    refuted: str = ""


NOT_ASKED = Validated(undecided=(NOT_COMPARED,))


def validated(source: tile.Kernel, kernel: t.Kernel, ptx: str) -> Validated:
    """Compares a kernel with its program and its PTX with the kernel, with the parameters of a launch of this kernel
    alone; PTX that stays undecided is executed beside the kernel."""
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
    from tilewright.validate.tile_to_transport.compare import compare as compare_lowering  # noqa: PLC0415 - as above
    from tilewright.validate.transport_to_ptx import compare  # noqa: PLC0415 - calls compile without these 78 modules

    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    found: dict[Obligation, Sequence[object]] = {
        LOWERING: compare_lowering(source, kernel),
        PTX: compare(kernel, ptx, launch.args, launch.grid[0], _MOST),
    }
    undecided = (f"{o.name}: {place}" for o, places in found.items() for place in places[:_MOST])
    return Validated(tuple(o for o, places in found.items() if not places), tuple(undecided))
