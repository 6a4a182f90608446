"""How a process of the command line ends: its exit status, and nothing but text for people on the way there.

0  yes: proved, legal, done          2  the question could not be read: options, files, bundles, disks
1  no: refuted, illegal, refused     3  unknown
70 a bug of ours (EX_SOFTWARE of sysexits.h)    130 interrupted    141 nobody reads the output any more
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any

import typer

from tilewright.cli.terminal import echo
from tilewright.diag import TilewrightError
from tilewright.diag.configuration import Configuration
from tilewright.diag.missing import refuse_missing


class Status(IntEnum):
    """Exit statuses."""

    YES = 0
    NO = 1
    USAGE = 2
    UNKNOWN = 3
    OUR_BUG = 70
    INTERRUPTED = 128 + signal.SIGINT


_UNREADABLE = ("CMD", "ART", "LAY", "TMA07", "JIT005")
"""Codes about what was handed in, not about the answer."""


def ended(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit status. Nothing is raised; whoever closes the output ends the process."""
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
            echo(_told(error), err=True)
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
        echo(_told(error), err=True)
        return Status.USAGE
    except TilewrightError as error:
        _tell(error)
        return Status.USAGE if error.code.startswith(_UNREADABLE) else Status.NO
    except MemoryError:
        echo("error: not enough memory", err=True)
        return Status.USAGE
    except ModuleNotFoundError as error:
        return _not_installed(error)
    except Exception as error:
        return _our_bug(error)


@contextmanager
def answering() -> Generator[None]:
    """For a command whose status 1 means that the answer is no: what is refused ends with ``USAGE``, a crash with
    ``OUR_BUG``."""
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except TilewrightError as error:
        _tell(error)
        raise typer.Exit(Status.USAGE) from None
    except OSError as error:
        echo(_told(error), err=True)
        raise typer.Exit(Status.USAGE) from None
    except ModuleNotFoundError as error:
        raise typer.Exit(_not_installed(error)) from None
    except Exception as error:
        raise typer.Exit(_our_bug(error)) from None


def _tell(error: TilewrightError) -> None:
    echo(error, err=True)
    echo(f"\ntilewright explain {error.code} tells more", err=True)
    _trace()


def _told(error: OSError) -> str:
    """A file or a disk that refuses, without Python's class names."""
    file = f"{error.filename}: " if error.filename is not None else ""
    return f"error: {file}{error.strerror or error}"


def _not_installed(error: ModuleNotFoundError) -> Status:
    """A package of an extra is named with it; any other missing module is a bug of ours."""
    try:
        refuse_missing(error, "this command")
    except TilewrightError as refused:
        _tell(refused)
        return Status.USAGE
    except ModuleNotFoundError:
        return _our_bug(error)


def _our_bug(error: Exception) -> Status:
    what = str(error).strip()
    echo(f"tilewright failed, {type(error).__name__}{': ' * bool(what)}{what[:2000]}", err=True)
    echo("this is a bug of ours; TILEWRIGHT_TRACEBACK=1 shows where", err=True)
    _trace()
    return Status.OUR_BUG


def _trace() -> None:
    with suppress(TilewrightError):  # a file of settings that can't be read
        if Configuration.from_environment().traceback:
            echo(traceback.format_exc(), err=True)


def _drop_output() -> None:
    """What is still buffered for an output that refuses is not tried again when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        with suppress(OSError):
            os.dup2(nowhere, number)
