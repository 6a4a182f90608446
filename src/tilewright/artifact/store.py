"""The store: compiled artifacts by the digest of what they were compiled from.

    root/v1/ab/abcdef....twb      one bundle a key, never changed once there
    root/v1/aside/...             bundles being written

A bundle is written aside, fsynced and renamed whole, so that a reader sees all of it or none, at whatever point a
writer is killed, and two processes that compile the same kernel at once both succeed. An entry that can't be read
back whole counts as absent and is removed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from tilewright.artifact.bundle import from_bytes, sync_folder, to_bytes, write_synced
from tilewright.artifact.schema import SCHEMA_VERSION, Artifact
from tilewright.diag import TilewrightError, fail

_STALE_SECONDS = 3600.0


def digest(parts: Iterable[str]) -> str:
    """Key of a sequence of texts: SHA-256 over each with its length, so that no two sequences run together."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


class Store:
    """A folder of artifacts. Safe for any number of processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._folder = self.root / f"v{SCHEMA_VERSION}"

    def path(self, key: str) -> Path:
        """Where the artifact of ``key`` (from ``digest``) lies."""
        return self._folder / key[:2] / f"{key}.twb"

    def get(self, key: str) -> Artifact | None:
        """The artifact, or None if it was never stored or does not read back whole."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            return from_bytes(data, str(path))
        except TilewrightError:
            with suppress(OSError):
                path.unlink()
            return None

    def put(self, key: str, artifact: Artifact) -> Path:
        """Store ``artifact`` and return its path; the last of several writers wins. ART008 if the folder refuses."""
        data = to_bytes(artifact)
        path, aside = self.path(key), self._folder / "aside"
        temporary = aside / f"{key}.{os.getpid()}.{uuid4().hex}"
        try:
            aside.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(exist_ok=True)
            self._sweep(aside)
            write_synced(temporary, data)
            temporary.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            fail("ART008", found=f"{path}: {error.strerror}", required="a folder that can be written", help=_HELP)
        return path

    @staticmethod
    def _sweep(aside: Path) -> None:
        """Remove what killed writers left."""
        limit = time.time() - _STALE_SECONDS
        for entry in os.scandir(aside):
            with suppress(OSError):
                if entry.stat().st_mtime < limit:
                    os.unlink(entry.path)


_HELP = "set TILEWRIGHT_STORE to a folder on a disk with room"
