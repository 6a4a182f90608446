"""The ``Schedule`` value: what a person pins, and what the compiler writes down of what it chose."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeAlias, cast

from tilewright.diag import shown
from tilewright.lang.source_locations import refuse


class RoleMode(StrEnum):
    """How warp roles share a tile."""

    PLAIN = "plain"  # every warp copies and computes
    COOPERATIVE = "cooperative"  # consumers split one tile
    PINGPONG = "pingpong"  # consumers take turns with whole tiles


Pins: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, init=False)
class Schedule:
    """Decisions of a schedule; None leaves one to the compiler, anything else is kept or refused with a reason.

    ``warps`` per CTA (1, 2, 4, 8, 16 or 32), ``stages`` of a ring, ``consumers`` warpgroups, ``mode`` of warp roles,
    ``cluster`` CTAs along the grid's last two axes, ``persistent`` CTAs that walk the programs, ``vector`` elements per
    access (1, 2, 4, 8 or 16), ``staged`` operands of products: read from aligned copies wherever tensor copies can't
    bring them, or never; ``split_k`` parts of the stream that only sums up, each with programs of its own (1: never);
    ``dependent`` launches, whose CTAs begin before the launch before them has ended and first of all wait
    for that (programmatic dependent launch); ``extents`` of the ``tw.auto`` keywords.

    Text: ``str(schedule)`` is ``stages=4, mode=pingpong, cluster=2x1, @bm=128``, read back by ``Schedule.parse``.
    Unknown keys are refused with LNG027, values out of range with LNG028.
    """

    warps: int | None = None
    stages: int | None = None
    consumers: int | None = None
    mode: RoleMode | None = None
    cluster: tuple[int, int] | None = None
    persistent: bool | None = None
    vector: int | None = None
    staged: bool | None = None
    split_k: int | None = None
    dependent: bool | None = None
    extents: Pins = ()

    def __init__(
        self,
        *,
        warps: int | None = None,
        stages: int | None = None,
        consumers: int | None = None,
        mode: str | None = None,
        cluster: tuple[int, int] | None = None,
        persistent: bool | None = None,
        vector: int | None = None,
        staged: bool | None = None,
        split_k: int | None = None,
        dependent: bool | None = None,
        extents: Mapping[str, int] | Pins = (),
        **unknown: object,
    ):
        for key in unknown:
            _refuse_key(key)
        values: dict[str, Any] = {
            "warps": _int("warps", warps),
            "stages": _int("stages", stages),
            "consumers": _int("consumers", consumers),
            "mode": _mode(mode),
            "cluster": _cluster(cluster),
            "persistent": _bool("persistent", persistent),
            "vector": _int("vector", vector),
            "staged": _bool("staged", staged),
            "split_k": _int("split_k", split_k),
            "dependent": _bool("dependent", dependent),
            "extents": _extents(extents),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def threads(self) -> int | None:
        """Threads per CTA."""
        return None if self.warps is None else 32 * self.warps

    @property
    def of_others(self) -> Schedule:
        """The pins that apply to the other kernels of a launch of this one."""
        return Schedule(dependent=self.dependent)

    def replace(self, **changes: Any) -> Schedule:
        """The schedule with some decisions changed."""
        return Schedule(**{**_fields(self), **changes})

    @staticmethod
    def parse(text: str) -> Schedule:
        """Read ``key=value, key=value``; a key that is none of the schedule's pins a ``tw.auto`` keyword ``@key``."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            _refuse_value("text", text, "text such as stages=4, cluster=2x1")
        keys = dict[str, Any]()
        extents = dict[str, int]()
        for part in filter(None, (p.strip() for p in text.split(","))):
            key, equals, value = (p.strip() for p in part.partition("="))
            if not equals or not value:
                _refuse_value(key, value, "key=value")
            if key.startswith("@"):
                extents[key[1:]] = _read_int(key, value)
            elif key == "extents":
                _refuse_value(key, value, "@name=extent for each tw.auto keyword that is pinned")
            elif key in keys:
                _refuse_value(key, value, "one value a key")
            else:
                keys[key] = _read(key, value)
        return Schedule(**keys, extents=extents)

    def __str__(self) -> str:
        parts = [
            f"{key}={_write(value)}" for key, value in _fields(self).items() if value is not None and key != "extents"
        ]
        return ", ".join(parts + [f"@{name}={extent}" for name, extent in self.extents])


_LIMITS = {
    # PTX ISA, "maxntid": 1024 threads; sm_90: 16-byte accesses of 1-byte elements
    "warps": (1, 32),
    "stages": (1, 64),
    "consumers": (1, 7),
    "vector": (1, 16),
    # the grid's first axis: more parts than an SM each leave none of them a step's worth
    "split_k": (1, 1024),
}
_INTS = frozenset(_LIMITS)
_POWERS = ("warps", "vector")
"""Elements are dealt to threads by the bits of their coordinates."""


def _fields(schedule: Schedule) -> dict[str, Any]:
    return {f.name: getattr(schedule, f.name) for f in dataclasses.fields(schedule)}


def _int(key: str, value: object) -> int | None:
    low, high = _LIMITS[key]
    power = key in _POWERS
    if value is None or (type(value) is int and low <= value <= high and not (power and value & (value - 1))):
        return value
    _refuse_value(key, value, "a power of two, at most " + str(high) if power else f"an int of {low} to {high}")


def _bool(key: str, value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    _refuse_value(key, value, "True or False")


def _mode(value: str | None) -> RoleMode | None:
    if value is None or (isinstance(value, str) and value in tuple(RoleMode)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return None if value is None else RoleMode(value)
    _refuse_value("mode", value, ", ".join(RoleMode))


def _cluster(value: object) -> tuple[int, int] | None:
    match value:
        case None:
            return None
        case (int(x), int(y)) if x >= 1 and y >= 1 and x * y <= 16:
            return x, y
        case _:
            _refuse_value("cluster", value, "two ints of at least 1 with a product of at most 16")


def _extents(value: Mapping[str, int] | Pins) -> Pins:
    try:
        pairs = tuple(
            sorted((name, extent) for name, extent in (value.items() if isinstance(value, Mapping) else value))
        )
    except (TypeError, ValueError, NotImplementedError):
        _refuse_value("extents", value, "an extent by the name of a tw.auto keyword")
    for name, extent in pairs:
        if not str(name).isidentifier() or type(extent) is not int or extent < 1:
            _refuse_value("extents", f"{name}: {extent}", "an int of at least 1 for each tw.auto keyword")
    return pairs


def _write(value: object) -> str:
    return "x".join(map(str, cast("tuple[int, ...]", value))) if isinstance(value, tuple) else str(value)


def _read(key: str, value: str) -> object:
    if key in _INTS:
        return _read_int(key, value)
    if key == "cluster":
        sizes = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", value)
        return (int(sizes[1]), int(sizes[2])) if sizes else _refuse_value(key, value, "such as 2x1")
    if key in ("persistent", "staged", "dependent"):
        return (
            {"True": True, "False": False}.get(value)
            if value in ("True", "False")
            else _refuse_value(key, value, "True or False")
        )
    return value


def _read_int(key: str, value: str) -> int:
    return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else _refuse_value(key, value, "an int")


def _refuse_key(key: str) -> NoReturn:
    known = [f.name for f in dataclasses.fields(Schedule)]
    near = difflib.get_close_matches(key, known, 1)
    refuse(
        "LNG027",
        found=f"{key}=",
        required=", ".join(known),
        help=f"did you mean {near[0]}=?" if near else "pins of tw.auto keywords go into extents={...}, as text @bm=128",
    )


def _refuse_value(key: str, value: object, required: str) -> NoReturn:
    refuse(
        "LNG028",
        found=f"{key} = {shown(value)}",
        required=required,
        help="leave the key out to let the compiler choose",
    )
