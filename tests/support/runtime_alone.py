"""Runs a program as where the packages of the extra `compiler` are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXTRA = ("egglog", "flint", "islpy", "ml_dtypes", "numpy", "resvg_py", "xdsl", "z3", "torch")

_BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRA}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
_COMMAND = "import sys; from tilewright.cli.process import ended; sys.exit(ended(sys.argv[1:]))"


def run_alone(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``program`` with the runtime alone."""
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-c", _BLOCKER + program, *arguments],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def command_alone(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command ``tilewright`` with the runtime alone."""
    return run_alone(_COMMAND, *arguments, **environment)
