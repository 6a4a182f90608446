"""SASS of a cubin, by NVIDIA's nvdisasm from its wheel, and how many bytes of it there are."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from tilewright.diag import fail

_WHEEL = "nvidia-cuda-nvdisasm"
_TIMEOUT_SECONDS = 120
_PROGBITS, _EXECUTABLE = 1, 4
"""Type and flag of ELF sections that hold instructions."""


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


def code_bytes(cubin: bytes) -> int:
    """Bytes of machine code in an ELF file of 64 bits: its sections of executable instructions."""
    table, size, count = *struct.unpack_from("<Q", cubin, 40), *struct.unpack_from("<HH", cubin, 58)
    headers = (struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count))
    return sum(length for _, kind, flags, _, _, length in headers if kind == _PROGBITS and flags & _EXECUTABLE)


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
