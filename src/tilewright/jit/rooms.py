"""The one table of rooms that load late, so that ``import tilewright`` stays quick and needs no compiler."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from tilewright.diag.missing import refuse_missing

if TYPE_CHECKING:  # what the table below loads, for the type checker and the import contract
    from tilewright import runtime, simulate
    from tilewright.compiler import build, buildable, program, requests, specialisation
    from tilewright.jit import arrays
    from tilewright.schedule import pressure

_TABLE = {
    "arrays": "tilewright.jit.arrays",
    "build": "tilewright.compiler.build",
    "buildable": "tilewright.compiler.buildable",
    "pressure": "tilewright.schedule.pressure",
    "program": "tilewright.compiler.program",
    "requests": "tilewright.compiler.requests",
    "runtime": "tilewright.runtime",
    "simulate": "tilewright.simulate",
    "specialisation": "tilewright.compiler.specialisation",
}
_DOES = {
    "arrays": "running on NumPy arrays",
    "build": "compiling",
    "buildable": "simulating",
    "pressure": "simulating",
    "program": "compiling",
    "requests": "simulating",
    "runtime": "launching",
    "simulate": "simulating",
}

__all__ = [
    "arrays",
    "build",
    "buildable",
    "is_array",
    "pressure",
    "program",
    "requests",
    "runtime",
    "simulate",
    "specialisation",
]


def __getattr__(name: str) -> object:
    """Imports a room on first use: ``rooms.build.build(program)``; JIT005 without the packages that it needs."""
    if name not in _TABLE:
        raise AttributeError(name)
    try:
        module = import_module(_TABLE[name])
    except ModuleNotFoundError as error:
        refuse_missing(error, _DOES.get(name, name))
    globals()[name] = module
    return module


def is_array(value: object) -> bool:
    """A NumPy array, of a subclass too; where NumPy was never imported, nothing is one."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)
