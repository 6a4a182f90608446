"""Python in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(code: str) -> str:
    """What ``code`` prints; modules are compiled once, as installed ones are, whatever the caller keeps of them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept).stdout
