"""The one table of rooms that load late, so that ``import tilewright`` stays quick and needs no compiler."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from tilewright.diag.missing import refuse_missing

if TYPE_CHECKING:  # what the table below loads, for the type checker and the import contract
    from tilewright import runtime as runtime
    from tilewright import simulate as simulate
    from tilewright.compiler import build as build
    from tilewright.compiler import buildable as buildable
    from tilewright.compiler import program as program
    from tilewright.compiler import requests as requests
    from tilewright.compiler import specialisation as specialisation
    from tilewright.jit import arrays as arrays
    from tilewright.jit import tuning as tuning
    from tilewright.schedule import pressure as pressure

_TABLE = {
    "arrays": ("tilewright.jit.arrays", "running on NumPy arrays"),
    "build": ("tilewright.compiler.build", "compiling"),
    "buildable": ("tilewright.compiler.buildable", "simulating"),
    "pressure": ("tilewright.schedule.pressure", "simulating"),
    "program": ("tilewright.compiler.program", "compiling"),
    "requests": ("tilewright.compiler.requests", "simulating"),
    "runtime": ("tilewright.runtime", "launching"),
    "simulate": ("tilewright.simulate", "simulating"),
    "specialisation": ("tilewright.compiler.specialisation", "compiling"),
    "tuning": ("tilewright.jit.tuning", "timing schedules"),
}
"""By name: the module, and what needs it, for the error where a package is missing."""


def __getattr__(name: str) -> object:
    """Imports a room on first use: ``rooms.build.build(program)``; JIT005 without the packages that it needs."""
    if name not in _TABLE:
        raise AttributeError(name)
    path, does = _TABLE[name]
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        refuse_missing(error, does)
    globals()[name] = module
    return module


def is_array(value: object) -> bool:
    """A NumPy array, of a subclass too; where NumPy was never imported, nothing is one."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)
