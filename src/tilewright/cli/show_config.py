"""``tilewright show-config``: every setting, its value, and where the value comes from."""

from __future__ import annotations

from pathlib import Path

import typer

from tilewright.cli.terminal import echo
from tilewright.diag.configuration import SHIPPED, settings, settings_file


def register(app: typer.Typer) -> None:
    app.command("show-config", help="Show every setting, its value and where it comes from.")(show_config)


def show_config() -> None:
    from tilewright.ops.shipping import state

    for given in settings():
        echo(f"{given.setting.name} = {given.value}  ({given.origin})")
        echo(f"    {given.setting.meaning}")
        if given.setting is SHIPPED:
            echo(f"    {state(Path(given.value))}")
        echo(f"    {given.setting.variable}; by default {given.setting.default}")
    file = settings_file()
    echo(f"\n{file}: {'read' if file.is_file() else 'no such file'}")
