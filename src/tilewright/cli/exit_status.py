"""Exit statuses of commands, and readable messages for every error on the way there.

0  yes: proved, legal, done          2  the question could not be read: options, files, bundles, disks
1  no: refuted, illegal, refused     3  unknown
70 a bug of ours (EX_SOFTWARE of sysexits.h)    130 interrupted    141 the output was closed
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from enum import IntEnum

import typer

from tilewright.cli.terminal import echo
from tilewright.diag import TilewrightError
from tilewright.diag.configuration import Configuration
from tilewright.diag.missing import refuse_missing


class Status(IntEnum):
    """Exit statuses of ``tilewright``."""

    YES = 0
    NO = 1
    USAGE = 2
    UNKNOWN = 3
    OUR_BUG = 70
    INTERRUPTED = 128 + signal.SIGINT


@contextmanager
def answering() -> Generator[None]:
    """For commands whose status 1 is an answer: a refused input exits with ``USAGE``, a crash with ``OUR_BUG``."""
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except TilewrightError as error:
        show_refusal(error)
        raise typer.Exit(Status.USAGE) from None
    except OSError as error:
        echo(refusal_text(error), err=True)
        raise typer.Exit(Status.USAGE) from None
    except ModuleNotFoundError as error:
        raise typer.Exit(not_installed(error)) from None
    except Exception as error:
        raise typer.Exit(our_bug(error)) from None


def show_refusal(error: TilewrightError) -> None:
    """Print a refusal, and how to read more about its code."""
    echo(error, err=True)
    echo(f"\ntilewright explain {error.code} tells more", err=True)
    _trace()


def refusal_text(error: OSError) -> str:
    """The message of an OSError, without Python's class names."""
    file = f"{error.filename}: " if error.filename is not None else ""
    return f"error: {file}{error.strerror or error}"


def not_installed(error: ModuleNotFoundError) -> Status:
    """Name the extra that a missing package belongs to; any other missing module is a bug of ours."""
    try:
        refuse_missing(error, "this command")
    except TilewrightError as refused:
        show_refusal(refused)
        return Status.USAGE
    except ModuleNotFoundError:
        return our_bug(error)


def our_bug(error: Exception) -> Status:
    """Print an exception that no user should see."""
    what = str(error).strip()
    echo(f"tilewright failed, {type(error).__name__}{': ' * bool(what)}{what[:2000]}", err=True)
    echo("this is a bug of ours; TILEWRIGHT_TRACEBACK=1 shows where", err=True)
    _trace()
    return Status.OUR_BUG


def _trace() -> None:
    with suppress(TilewrightError):  # a file of settings that can't be read
        if Configuration.from_environment().traceback:
            echo(traceback.format_exc(), err=True)
