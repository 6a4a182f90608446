"""Entry point of the command ``tilewright``: while the package loads, an interrupt ends the process without a word."""

from __future__ import annotations

import signal


def main() -> None:
    """The command line, with the process's arguments."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tilewright.cli import main as run  # noqa: PLC0415 - loads under the handler above

    run()
