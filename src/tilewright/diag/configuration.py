"""Every setting of Tilewright, with its meaning and default, in one place: environment variables, and a file.

A variable of the environment counts before the file, the file before the default. Nothing else in the package looks at
the environment. A ``Configuration`` is a plain value: tests and embedders make their own.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tilewright.diag import fail, shown


@dataclass(frozen=True)
class Setting:
    """One setting: ``name`` in the file, ``variable`` in the environment."""

    name: str
    variable: str
    meaning: str
    default: str


STORE = Setting(
    "store",
    "TILEWRIGHT_STORE",
    "folder of compiled kernels; may be deleted at any time",
    "$XDG_CACHE_HOME/tilewright, or ~/.cache/tilewright",
)
SHIPPED = Setting(
    "shipped",
    "TILEWRIGHT_SHIPPED",
    "folder that `tilewright build ops` has made; only read, after the store",
    "the one in the package",
)
TRACEBACK = Setting(
    "traceback", "TILEWRIGHT_TRACEBACK", "1: the command line shows Python's traceback below a diagnostic", "0"
)
VALIDATION = Setting(
    "validation",
    "TILEWRIGHT_VALIDATION",
    "1: each kernel's PTX is compared with its Transport IR before it is used; 0: none is; ahead: where compiled ahead "
    "of time, not at a call",
    "ahead",
)
DEPENDENT = Setting(
    "dependent",
    "TILEWRIGHT_DEPENDENT",
    "1: kernels without a pinned schedule begin while the launch before them ends, as with schedule=tw.Schedule("
    "dependent=True)",
    "0",
)
SETTINGS: tuple[Setting, ...] = (STORE, SHIPPED, TRACEBACK, VALIDATION, DEPENDENT)

_WORDS = {TRACEBACK: ("0", "1"), VALIDATION: ("0", "1", "ahead"), DEPENDENT: ("0", "1")}
"""Accepted values of settings that name no folder."""

_FILE = "tilewright/config.toml"
"""Under ``$XDG_CONFIG_HOME``, or ``~/.config``."""

_NOWHERE = Path(os.devnull) / "no-home-folder"
"""Folder of users without a home: nothing can be stored there, and the store reports that."""


@dataclass(frozen=True)
class Given:
    """A setting's value as text, with ``~`` expanded, and its origin: default, environment or file."""

    setting: Setting
    value: str
    origin: str


@dataclass(frozen=True)
class Configuration:
    """The values of the settings."""

    store: Path
    shipped: Path
    traceback: bool
    validation: bool | None
    """Validate all kernels, none, or (None) those compiled ahead of time."""
    dependent: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Configuration:
        """Read ``environment`` (the process's own by default) and the file; CMD008 if the file can't be read."""
        store, shipped, traceback, validation, dependent = (given.value for given in settings(environment))
        validated = {"0": False, "1": True}.get(validation)
        return cls(Path(store), Path(shipped), traceback != "0", validated, dependent != "0")


def settings(environment: Mapping[str, str] | None = None) -> tuple[Given, ...]:
    """Every setting in the order of ``SETTINGS``. An empty variable counts as unset; CMD008 for a file with anything
    but settings in it."""
    env = os.environ if environment is None else environment
    file = settings_file(env)
    written = _read(file)
    cache = os.path.join(env.get("XDG_CACHE_HOME") or "~/.cache", "tilewright")
    defaults = {STORE: cache, SHIPPED: str(_SHIPPED_IN_PACKAGE), TRACEBACK: "0", VALIDATION: "ahead", DEPENDENT: "0"}
    return tuple(_given(setting, env, written, file, defaults[setting]) for setting in SETTINGS)


def settings_file(environment: Mapping[str, str] | None = None) -> Path:
    """The path of the settings file."""
    env = os.environ if environment is None else environment
    return _folder(os.path.join(env.get("XDG_CONFIG_HOME") or "~/.config", _FILE))


_SHIPPED_IN_PACKAGE = Path(__file__).parent.parent / "ops" / "shipped"


def _given(setting: Setting, env: Mapping[str, str], written: Mapping[str, str], file: Path, default: str) -> Given:
    value, origin = default, "default"
    if env.get(setting.variable):
        value, origin = env[setting.variable], "environment"
        if setting in _WORDS and value not in _WORDS[setting]:
            words = " or ".join(_WORDS[setting])
            fail("CMD008", found=f"{setting.variable}={shown(value)}", required=words, help=f"unset {setting.variable}")
    elif setting.name in written:
        value, origin = written[setting.name], f"file {file}"
    return Given(setting, value if setting in _WORDS else str(_folder(value)), origin)


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        _unreadable(file, str(error))
    import tomllib  # noqa: PLC0415 - most have no such file

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        _unreadable(file, str(error))
    return {name: _text(file, name, value) for name, value in table.items()}


def _text(file: Path, name: str, value: object) -> str:
    """The value of a setting as text, in the form that the environment would hold."""
    names = [setting.name for setting in SETTINGS]
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        _unreadable(file, f"the name {name!r}", f"did you mean {near[0]}?" if near else "")
    if name in (setting.name for setting in _WORDS):
        if isinstance(value, bool):
            return str(int(value))
        _unreadable(file, f"{name} = {value!r}", f"write {name} = true")
    if not isinstance(value, str) or not value:
        _unreadable(file, f"{name} = {value!r}", f'write {name} = "/a/folder"')
    return value


def _unreadable(file: Path, found: str, help: str = "") -> NoReturn:
    names = ", ".join(setting.name for setting in SETTINGS)
    fail("CMD008", found=f"{file}: {found}", required=f"TOML with {names}", help=help)


def _folder(text: str) -> Path:
    path = os.path.expanduser(text)
    return _NOWHERE if path.startswith("~") else Path(path)
