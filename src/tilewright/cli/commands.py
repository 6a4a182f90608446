"""The application: one file a command, each with a ``register`` that adds it.

To add a command, write ``cli/<name>.py`` with ``register(app)`` and name it in ``_COMMANDS``; to add to ``show`` or
``explain``, register on ``show.app`` or ``explain.app``. Rooms that load slowly are imported inside the commands that
need them, so that ``tilewright --help`` stays quick.
"""

from __future__ import annotations

import typer

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
for _command in _COMMANDS:
    _command.register(app)
