"""Makes the folder of shipped artifacts. What is there is kept, so that an interrupted build goes on where it ended.

folder/v3/ab/abcdef....twb     a store, each artifact under the key that a call looks up
folder/index.json              which compiler made it, and what each key is, for people and for the next build
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilewright
from tilewright.artifact import atomic_files
from tilewright.artifact.schema import SCHEMA_VERSION
from tilewright.artifact.store import ArtifactStore
from tilewright.diag import TilewrightError
from tilewright.jit.fingerprint import compiler_identity
from tilewright.ops.listing import Ready

INDEX = "index.json"

_OF_EVERY_ARTIFACT = ("JIT005", "ART008")
"""Refusals that no other artifact would escape: no compiler, a folder that can't be written."""


@dataclass(frozen=True)
class ShippingOutcome:
    """What became of one artifact: ``made`` now, or there before; ``problem`` says why there is none."""

    ready: Ready
    seconds: float
    bytes: int = 0
    made: bool = False
    problem: str = ""


def state(folder: Path) -> str:
    """Whether anything in the folder is served, in words."""
    try:
        index: Any = json.loads((folder / INDEX).read_bytes())
        made_by, count = index["made_by"], len(index["artifacts"])
    except FileNotFoundError:
        return "nothing is shipped there"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"its {INDEX} can't be read"
    if made_by != _made_by():
        return "made by another version of the compiler: nothing of it is served"
    return f"{count} artifacts of this version"


def build(folder: Path, target: str, wanted: Iterable[Ready]) -> Iterator[ShippingOutcome]:
    """Build what is missing, one artifact after another. Artifacts of another version of the compiler are removed
    first. ART008 or OSError where the folder can't be written, JIT005 without the compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    store = ArtifactStore(folder)
    listed = _kept(store)
    for ready in wanted:
        begin = time.perf_counter()
        try:
            options: dict[str, Any] = {**dict(ready.keywords), **dict.fromkeys(ready.absent)}
            key, made = ready.kernel.compiled.ship(store, target, dtypes=ready.dtypes, facts=ready.facts, **options)
        except TilewrightError as error:
            if error.code in _OF_EVERY_ARTIFACT:
                raise
            yield ShippingOutcome(ready, time.perf_counter() - begin, problem=str(error))
            continue
        listed[key] = f"{ready} for {target}"
        _write_index(folder, listed)
        yield ShippingOutcome(ready, time.perf_counter() - begin, store.path(key).stat().st_size, made)


def _kept(store: ArtifactStore) -> dict[str, str]:
    """What is there, by key. Of another compiler's folder nothing is served, so nothing is kept."""
    try:
        index: Any = json.loads((store.root / INDEX).read_bytes())
        listed = {key: str(what) for key, what in index["artifacts"].items() if _is_key(key)}
        if index["made_by"] == _made_by():
            return listed
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    for key in listed:
        for path in store.root.glob(f"v*/{key[:2]}/{key}.twb"):
            with suppress(OSError):
                path.unlink()
    return {}


def _is_key(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def _made_by() -> dict[str, str | int]:
    return {"tilewright": tilewright.__version__, "compiler": compiler_identity(), "schema": SCHEMA_VERSION}


def _write_index(folder: Path, listed: dict[str, str]) -> None:
    index = {"made_by": _made_by(), "artifacts": dict(sorted(listed.items()))}
    atomic_files.write_atomically(
        folder / INDEX, json.dumps(index, indent=1).encode() + b"\n", folder / f"v{SCHEMA_VERSION}/aside"
    )
