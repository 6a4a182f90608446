"""The store: compiled artifacts under the digest of everything they were compiled from.

    root/v1/ab/abcdef....twb      one bundle per key, bound to it, never changed once there
    root/v1/ab/abcdef....txt      a note of the compiler's about a key: the digest of both, then the text
    root/v1/aside/...             bundles being written

A bundle is written to a temporary file, synced and renamed, so that a reader sees all of it or nothing, at whatever
point a writer is killed, and two processes that compile the same kernel at once both succeed. An entry that can't be
read back whole, that was stored under another key, or that is no plain file counts as absent and is replaced.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tilewright.artifact import atomic_files
from tilewright.artifact.bundle import from_bytes, read_plain, to_bytes
from tilewright.artifact.schema import SCHEMA_VERSION, Artifact
from tilewright.diag import TilewrightError, fail


def digest(parts: Iterable[str | bytes]) -> str:
    """Key of a sequence of texts: SHA-256 over each with its length, so that no two sequences run together."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


class ArtifactStore:
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
            return from_bytes(read_plain(path), str(path), key)
        except OSError:
            return None
        except TilewrightError:
            with suppress(OSError):
                path.unlink()
            return None

    def put(self, key: str, artifact: Artifact) -> Path:
        """Store ``artifact`` and return its path; the last of several writers wins. ART008 if the folder refuses."""
        return self._write(self.path(key), to_bytes(artifact, key))

    def note(self, key: str) -> str | None:
        """The note stored under ``key``, or None if there is none or it does not read back whole."""
        path = self.path(key).with_suffix(".txt")
        try:
            whole, _, text = read_plain(path).partition(b"\n")
        except OSError:
            return None
        except TilewrightError:
            whole, text = b"", b""
        if whole.decode(errors="replace") == digest((key, text)):
            return text.decode(errors="replace")
        with suppress(OSError):
            path.unlink()
        return None

    def put_note(self, key: str, text: str) -> Path:
        """Store ``text`` as the note of ``key``; errors as for ``put``."""
        return self._write(self.path(key).with_suffix(".txt"), f"{digest((key, text))}\n{text}".encode())

    def _write(self, path: Path, data: bytes) -> Path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            atomic_files.write_atomically(path, data, self._folder / "aside")
        except OSError as error:
            fail("ART008", found=f"{path}: {error.strerror}", required="a folder that can be written", help=_HELP)
        return path


class Shipped:
    """A folder of the same form that came with a package, opened read-only; an entry that can't be read counts as
    absent. Keys include the compiler's version, so artifacts of another version are never found."""

    def __init__(self, root: Path) -> None:
        self._store = ArtifactStore(root)

    def get(self, key: str) -> Artifact | None:
        """The artifact, or None if it was not shipped or does not read back whole."""
        path = self._store.path(key)
        try:
            return from_bytes(read_plain(path), str(path), key)
        except (OSError, TilewrightError):
            return None


_HELP = "set TILEWRIGHT_STORE to a folder on a disk with room"
