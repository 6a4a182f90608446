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

VALIDATION = Flag(
    "TILEWRIGHT_VALIDATION",
    "1: each kernel's PTX is compared with its Transport IR, 0: none is",
    "of kernels that are compiled ahead of time, not of those compiled at a call",
)

_NOWHERE = Path(os.devnull) / "no-home-folder"
"""Of users without one: nothing can be stored there, which the store then says."""

FLAGS: tuple[Flag, ...] = (STORE, TRACEBACK, VALIDATION)


@dataclass(frozen=True)
class Configuration:
    """The flags' values."""

    store: Path
    traceback: bool
    validation: bool | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Configuration:
        """Read ``environment`` (the process's own by default); an empty value counts as unset."""
        env = os.environ if environment is None else environment
        named = env.get(STORE.name) or os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "tilewright")
        store = os.path.expanduser(named)
        return cls(
            store=_NOWHERE if store.startswith("~") else Path(store),
            traceback=env.get(TRACEBACK.name, "0") not in ("", "0"),
            validation={"0": False, "1": True}.get(env.get(VALIDATION.name, "")),
        )
