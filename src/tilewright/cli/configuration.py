"""``tilewright config``: the environment variables, their meaning and the values in force."""

from __future__ import annotations

import typer

from tilewright.cli.terminal import echo
from tilewright.diag.configuration import FLAGS, Configuration


def register(app: typer.Typer) -> None:
    app.command("config", help="Show the environment variables that Tilewright reads.")(show_configuration)


def show_configuration() -> None:
    for flag in FLAGS:
        echo(f"{flag.name}: {flag.meaning} (default {flag.default})")
    values = Configuration.from_environment()
    echo(f"\nstore in use: {values.store}")
