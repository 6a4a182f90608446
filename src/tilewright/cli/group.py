"""A command group with a default: ``show DIR`` is ``show bundle DIR``, beside ``show layout ...``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup


def group_with_default(default: str, help: str) -> typer.Typer:
    """A command group that passes a first argument that names no command to the command ``default``."""

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> Any:
            named = bool(args) and (args[0] in self.commands or args[0] in ("--help", "-h"))
            return super().parse_args(ctx, args if named else [default, *args])

        def format_usage(self, ctx: Any, formatter: Any) -> None:
            pieces: Sequence[str] = (f"[{default}] ARGS...", "| COMMAND ARGS...")
            formatter.write_usage(ctx.command_path, " ".join(pieces))

    return typer.Typer(cls=Group, help=help, no_args_is_help=False)
