"""Writers of a store and of bundles' folders, killed at any point, and many at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from support.artifacts import renamed, scale
from tilewright.artifact import bundle
from tilewright.artifact.store import ArtifactStore, digest
from tilewright.diag import TilewrightError

KEYS = [digest([str(i)]) for i in range(8)]
PROCESSES = 16


def kills(rng: Random, count: int, folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """A writer killed after up to 20 ms, ``count`` times; then many writers and readers at once."""
    store, out = ArtifactStore(folder / "store"), folder / "scale.bundle"
    for i in range(count):
        seconds = rng.random() * 0.02
        yield f"kill {i} after {seconds * 1e3:.1f} ms", lambda seconds=seconds: _killed(store, out, seconds)
    yield f"{PROCESSES} processes", lambda: _together(store, out)
    yield "what is left", lambda: _left(store, out)


def _killed(store: ArtifactStore, out: Path, seconds: float) -> str:
    child = os.fork()
    if not child:
        while True:
            for i, key in enumerate(KEYS):
                store.put(key, renamed(scale(), f"scale{i}"))
                bundle.write_folder(scale(), out)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return _checked(store, out)


def _checked(store: ArtifactStore, out: Path) -> str:
    """Every entry is absent or whole, and of its key; the folder too."""
    for i, key in enumerate(KEYS):
        existed, artifact = store.path(key).exists(), store.get(key)
        if (artifact is not None) != existed or (artifact is not None and artifact.name != f"scale{i}"):
            raise RuntimeError(f"entry {i}: {'there' if existed else 'absent'}, read as {artifact}")
    if out.exists() and bundle.read(out) != scale():
        raise RuntimeError("another bundle")
    return "whole"


def _together(store: ArtifactStore, out: Path) -> str:
    children: list[int] = []
    for number in range(PROCESSES):
        child = os.fork()
        if not child:
            os._exit(_worker(store, out.with_name(f"{out.name}{number % 4}"), number))
        children.append(child)
    failed = [status for child in children if (status := os.waitpid(child, 0)[1])]
    if failed:
        raise RuntimeError(f"{len(failed)} of {PROCESSES} processes failed: {failed}")
    return "whole"


def _worker(store: ArtifactStore, out: Path, number: int) -> int:
    end = time.monotonic() + 2
    try:
        while time.monotonic() < end:
            for i, key in enumerate(KEYS):
                store.put(key, renamed(scale(), f"scale{i}"))
                artifact = store.get(key)
                if artifact is None or artifact.name != f"scale{i}":
                    return 2
            if number < 4:
                bundle.write_folder(scale(), out)
    except TilewrightError as error:
        print(error)
        return 1
    return 0


def _left(store: ArtifactStore, out: Path) -> str:
    """The next writer removes what the killed ones left."""
    store.put(KEYS[0], renamed(scale(), "scale0"))
    bundle.write_folder(scale(), out)
    aside = [str(path) for path in (store.path(KEYS[0]).parents[1] / "aside").iterdir()]
    beside = [str(path) for path in out.parent.glob(f".{out.name}.*")]
    if aside or beside:
        raise RuntimeError(f"left: {aside} {beside}")
    return "whole"
