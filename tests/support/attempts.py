"""Run something that may be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.diag import TilewrightError


def attempt(build: Callable[[], Any]) -> tuple[Any, str]:
    """The result and an empty code, or None and the refusal's code."""
    try:
        return build(), ""
    except TilewrightError as error:
        return None, error.code
