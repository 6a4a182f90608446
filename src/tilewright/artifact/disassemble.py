"""SASS of a cubin, by NVIDIA's nvdisasm from its wheel."""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from tilewright.diag import fail

_WHEEL = "nvidia-cuda-nvdisasm"
_TIMEOUT_SECONDS = 120


def sass(cubin: bytes) -> str:
    """The SASS of ``cubin`` as nvdisasm prints it; ART009 if the tool is missing or fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [_nvdisasm(), "-c", str(path)], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            fail("ART009", found=str(error), required="nvdisasm runs")
    if done.returncode:
        fail("ART009", found=done.stderr.strip().removeprefix(str(path)), required="a cubin")
    return done.stdout


@cache
def _nvdisasm() -> str:
    try:
        names = files(_WHEEL) or []
    except PackageNotFoundError:
        names = []
    for name in names:
        if name.name in ("nvdisasm", "nvdisasm.exe"):
            return os.fspath(name.locate())
    fail("ART009", found=f"the package {_WHEEL} is not installed", required=_WHEEL, help=f"pip install {_WHEEL}")
