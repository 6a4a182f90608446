"""Every environment variable that Tilewright reads, with its meaning and default, in one place.

Nothing else in the package looks at the environment. A ``Configuration`` is a plain value: tests and embedders make
their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Flag:
    """One environment variable."""

    name: str
    meaning: str
    default: str


STORE = Flag(
    "TILEWRIGHT_STORE",
    "folder of compiled kernels; may be deleted at any time",
    "$XDG_CACHE_HOME/tilewright, or ~/.cache/tilewright",
)
TRACEBACK = Flag("TILEWRIGHT_TRACEBACK", "1: the command line shows Python's traceback below a diagnostic", "0")

FLAGS: tuple[Flag, ...] = (STORE, TRACEBACK)


@dataclass(frozen=True)
class Configuration:
    """The flags' values."""

    store: Path
    traceback: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Configuration:
        """Read ``environment`` (the process's own by default); an empty value counts as unset."""
        env = os.environ if environment is None else environment
        cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(
            store=Path(env.get(STORE.name) or cache / "tilewright").expanduser(),
            traceback=env.get(TRACEBACK.name, "0") not in ("", "0"),
        )
