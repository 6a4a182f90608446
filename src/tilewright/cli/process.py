"""One process of the command line, from its arguments to its exit status."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer

from tilewright.cli.exit_status import Status, not_installed, our_bug, refusal_text, show_refusal
from tilewright.cli.terminal import echo
from tilewright.diag import TilewrightError

_UNREADABLE = ("CMD", "ART", "LAY", "TMA07", "JIT003", "JIT004", "JIT005", "LNG028", "LNG029")
"""Prefixes of codes about unreadable input, values of options among it, as opposed to a negative answer."""


def ended(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit status; raises nothing. Ends the process if the output is closed."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        status = _status(arguments)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller
                stream.flush()
    except OSError as error:  # the output itself can't be written
        status = Status.USAGE
        with suppress(OSError):
            echo(refusal_text(error), err=True)
        _drop_output()
    return status


def _status(arguments: Sequence[str]) -> int:
    from tilewright.cli.commands import app

    try:
        command: Any = typer.main.get_command(app)
        return command.main(list(arguments), prog_name="tilewright", standalone_mode=True) or Status.YES
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Status.YES if end.code is None else Status.USAGE
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    except OSError as error:
        echo(refusal_text(error), err=True)
        return Status.USAGE
    except TilewrightError as error:
        show_refusal(error)
        return Status.USAGE if error.code.startswith(_UNREADABLE) else Status.NO
    except MemoryError:
        echo("error: not enough memory", err=True)
        return Status.USAGE
    except ModuleNotFoundError as error:
        return not_installed(error)
    except Exception as error:
        return our_bug(error)


def _drop_output() -> None:
    """Discard buffered output that can't be written, so that Python does not retry at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        with suppress(OSError):
            os.dup2(nowhere, number)
