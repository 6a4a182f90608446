"""The application: one file a command, each with a ``register`` that adds it.

To add a command, write ``cli/<name>.py`` with ``register(app)`` and name it in ``_COMMANDS``; to add to ``show`` or
``explain``, register on ``show.app`` or ``explain.app``. Rooms that load slowly are imported inside the commands that
need them, so that ``tilewright --help`` stays quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright import __version__
from tilewright.cli import (
    build,
    check,
    compile_,
    demo,
    explain,
    explain_tma,
    explain_wgmma,
    rules,
    run,
    show,
    show_banks,
    show_config,
    show_layout,
    validate,
)
from tilewright.cli.terminal import echo

_COMMANDS = (
    demo,
    compile_,
    build,
    run,
    check,
    show,
    show_layout,
    show_banks,
    validate,
    explain,
    explain_tma,
    explain_wgmma,
    rules,
    show_config,
)

app = typer.Typer(
    name="tilewright",
    help="Compile, check, run and explain GPU tile kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        echo(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


for _command in _COMMANDS:
    _command.register(app)
