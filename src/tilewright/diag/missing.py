"""Packages that are not installed. The base package is the runtime alone; the error names the extra that brings a
missing package."""

from __future__ import annotations

from typing import NoReturn

from tilewright.diag import fail

_COMPILER = "tilewright[compiler]"
_PACKAGE_OF = {
    "cuda": "tilewright",
    "typer": "tilewright",
    "torch": "tilewright[torch]",
    "egglog": _COMPILER,
    "flint": _COMPILER,
    "islpy": _COMPILER,
    "ml_dtypes": _COMPILER,
    "numpy": _COMPILER,
    "resvg_py": _COMPILER,
    "xdsl": _COMPILER,
    "z3": _COMPILER,
}
"""Import name to the name of the package that pip installs."""


def refuse_missing(error: ModuleNotFoundError, what: str) -> NoReturn:
    """JIT005 for ``what``, which needs a package of an extra; any other module is raised as it was."""
    module = (error.name or "").partition(".")[0]
    if module not in _PACKAGE_OF:
        raise error
    brought_by = _PACKAGE_OF[module]
    ready = "; kernels whose artifacts are stored or shipped are launched without" * (brought_by == _COMPILER)
    fail(
        "JIT005",
        found=f"{what} needs the package {module}, which is not installed",
        required=brought_by,
        help=f"pip install '{brought_by}'{ready}",
    )
