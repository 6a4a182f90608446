"""The command line. ``cli.commands`` has the application, ``cli.process`` runs a command line."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the process's arguments and exit with the status. An interrupt while the commands load exits silently."""
    quiet = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL)
    if quiet:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tilewright.cli.process import ended

    if quiet:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(ended(sys.argv[1:]))
