"""The bundle: an artifact on disk, as one file or as a folder a person can read.

Both forms hold the same manifest (JSON: format, schema version, the artifact, size and SHA-256 of every blob), its
SHA-256, and the same blobs. The digest covers the manifest, the manifest covers the blobs: one hash stands for the
whole.

    one file:   magic | u64 manifest length | digest of the manifest's bytes | manifest | blobs in order of name
    folder:     manifest.json with its digest (of the canonical JSON) in it, and one file a blob (kernel.cubin,
                kernel.cu, kernel.ptx, tile.mlir, ...)

Reading trusts nothing: hashes, types, expression grammar and all references are checked, nothing is executed, nothing
is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, cast

from tilewright.artifact.codec import Blobs, Json, MalformedError, decode, encode
from tilewright.artifact.schema import SCHEMA_VERSION, Artifact
from tilewright.artifact.validate import validate
from tilewright.diag import fail

MAGIC = b"TWBUNDLE"
MANIFEST = "manifest.json"
_FORMAT = "tilewright-bundle"
_HEADER = struct.Struct("<8sQ32s")
_BLOB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")  # one flat folder: no separators, no leading dot
_MAX_BYTES = 1 << 30


# -- writing --------------------------------------------------------------------------------------------------------


def to_bytes(artifact: Artifact) -> bytes:
    """``artifact`` as a one-file bundle. Equal artifacts give equal bytes."""
    manifest, blobs = _pack(artifact)
    text = _canonical(manifest)
    header = _HEADER.pack(MAGIC, len(text), hashlib.sha256(text).digest())
    return b"".join([header, text, *(blobs[name] for name in sorted(blobs))])


def write_folder(artifact: Artifact, folder: Path) -> None:
    """Write ``artifact`` as the folder ``folder``, built aside and renamed whole.

    An empty folder or an older bundle there is replaced; anything else is refused (ART007).
    """
    folder = Path(folder).absolute()
    if folder.exists() and not _may_replace(folder):
        fail(
            "ART007",
            found=f"{folder} holds other files",
            required="an empty folder, or one that holds a bundle",
            help="name a folder that doesn't exist yet",
        )
    manifest, blobs = _pack(artifact)
    manifest["digest"] = hashlib.sha256(_canonical(manifest)).hexdigest()
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        new = aside / "new"
        new.mkdir()
        for name, data in blobs.items():
            write_synced(new / name, data)
        write_synced(new / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
        sync_folder(new)
        if folder.exists():
            folder.rename(aside / "old")
        new.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Write a new file and wait until it is on the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the folder's entries are on the disk, so that a rename in it survives a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _may_replace(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))


def _pack(artifact: Artifact) -> tuple[dict[str, Json], Blobs]:
    validate(artifact)
    blobs: Blobs = {}
    body = encode(artifact, blobs)
    listing: dict[str, Json] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in sorted(blobs.items())
    }
    return {"format": _FORMAT, "schema": artifact.schema_version, "artifact": body, "blobs": listing}, blobs


def _canonical(manifest: Json) -> bytes:
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


# -- reading --------------------------------------------------------------------------------------------------------


def read(path: Path) -> Artifact:
    """The bundle at ``path``, a folder or a file; refuses with ART001 to ART006."""
    path = Path(path)
    if path.is_dir():
        return _read_folder(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            fail("ART001", found=f"{path} has {path.stat().st_size} bytes", required=f"at most {_MAX_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        fail("ART001", found=f"{path}: {error.strerror}", required="a bundle's folder or file")
    return from_bytes(data, str(path))


def from_bytes(data: bytes, origin: str = "the bundle") -> Artifact:
    """The artifact in a one-file bundle; ``origin`` names it in errors."""
    if len(data) < _HEADER.size:
        if MAGIC.startswith(data[: len(MAGIC)]):
            _truncated(origin, f"{len(data)} bytes", f"a header of {_HEADER.size} bytes")
        _no_bundle(origin, f"begins with {data[:8]!r}")
    magic, length, claimed = cast("tuple[bytes, int, bytes]", _HEADER.unpack_from(data))
    if magic != MAGIC:
        _no_bundle(origin, f"begins with {magic!r}")
    if _HEADER.size + length > len(data):
        _truncated(origin, f"{len(data)} bytes", f"a manifest of {length} bytes")
    text = data[_HEADER.size : _HEADER.size + length]
    manifest = _parse_manifest(text, origin)
    _check_digest(text, claimed.hex(), origin)
    sizes = {name: size for name, (size, _) in _listing(manifest, origin).items()}
    expected = _HEADER.size + length + sum(sizes.values())
    if len(data) < expected:
        _truncated(origin, f"{len(data)} bytes", f"{expected} bytes")
    if len(data) > expected:
        fail("ART004", found=f"{origin} has {len(data) - expected} bytes after its end", required=f"{expected} bytes")
    starts: dict[str, int] = {}
    position = _HEADER.size + length
    for name in sorted(sizes):
        starts[name] = position
        position += sizes[name]
    view = memoryview(data)
    return _unpack(manifest, lambda name: view[starts[name] : starts[name] + sizes[name]], origin)


def _read_folder(folder: Path) -> Artifact:
    manifest = _parse_manifest(_read_regular(folder, MANIFEST, _MAX_BYTES), str(folder))
    claimed = manifest.pop("digest", None)
    _check_digest(_canonical(manifest), claimed, str(folder))
    sizes = {name: size for name, (size, _) in _listing(manifest, str(folder)).items()}
    return _unpack(manifest, lambda name: _read_regular(folder, name, sizes[name]), str(folder))


def _read_regular(folder: Path, name: str, limit: int) -> bytes:
    """At most ``limit`` + 1 bytes of a regular file; a link or a pipe in a stranger's folder is not followed."""
    path = folder / name
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            fail("ART004", found=f"{path} is not a plain file", required="a plain file")
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as error:
        if name == MANIFEST:
            _no_bundle(str(folder), f"{MANIFEST}: {error.strerror}")
        _truncated(str(folder), f"{name}: {error.strerror}", f"the blob {name}")


def _parse_manifest(text: bytes, origin: str) -> dict[str, Json]:
    try:
        manifest = cast("Json", json.loads(text, parse_float=_no_float, parse_constant=_no_float))
    except (ValueError, RecursionError) as error:
        fail("ART004", found=f"{origin}: the manifest is not JSON ({error})", required="a manifest of JSON text")
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        _no_bundle(origin, "its manifest names no format of ours")
    schema = manifest.get("schema")
    if schema != SCHEMA_VERSION:
        fail(
            "ART002",
            found=f"{origin} has schema version {schema}",
            required=f"schema version {SCHEMA_VERSION}",
            help="compile the kernel again with this version of Tilewright",
        )
    return manifest


def _check_digest(text: bytes, claimed: object, origin: str) -> None:
    actual = hashlib.sha256(text).hexdigest()
    if claimed != actual:
        fail("ART004", found=f"{origin}: the manifest's digest is {actual}", required=f"{claimed}")


def _no_float(text: str) -> NoReturn:
    raise ValueError(f"{text} is not an integer")


def _listing(manifest: dict[str, Json], origin: str) -> dict[str, tuple[int, str]]:
    """Blob name to (bytes, SHA-256)."""
    blobs = manifest.get("blobs")
    if not isinstance(blobs, dict):
        _malformed(origin, "blobs: an object expected")
    listing: dict[str, tuple[int, str]] = {}
    for name, entry in blobs.items():
        if not _BLOB_NAME.fullmatch(name) or name == MANIFEST:
            _malformed(origin, f"blobs: {name!r} is no blob name")
        match entry:
            case {"bytes": int(size), "sha256": str(digest)} if 0 <= size <= _MAX_BYTES:
                listing[name] = (size, digest)
            case _:
                _malformed(origin, f"blobs.{name}: bytes and sha256 expected")
    return listing


def _unpack(manifest: dict[str, Json], fetch: Callable[[str], bytes | memoryview], origin: str) -> Artifact:
    blobs: Blobs = {}
    for name, (size, digest) in _listing(manifest, origin).items():
        data = fetch(name)
        if len(data) < size:
            _truncated(origin, f"{name} has {len(data)} bytes", f"{size} bytes")
        if hashlib.sha256(data).hexdigest() != digest:
            fail("ART004", found=f"{origin}: {name} has another SHA-256 than the manifest says", required=digest)
        blobs[name] = data
    try:
        artifact = decode(Artifact, manifest.get("artifact"), blobs)
    except (MalformedError, RecursionError) as error:
        _malformed(origin, str(error))
    validate(artifact)
    return artifact


def _no_bundle(origin: str, found: str) -> NoReturn:
    fail("ART001", found=f"{origin} {found}", required="a bundle written by tilewright compile")


def _truncated(origin: str, found: str, required: str) -> NoReturn:
    fail("ART003", found=f"{origin}: {found}", required=required, help="copy or compile the bundle again")


def _malformed(origin: str, found: str) -> NoReturn:
    fail("ART005", found=f"{origin}: {found}", required=f"schema version {SCHEMA_VERSION}")
