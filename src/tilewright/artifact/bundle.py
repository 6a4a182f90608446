"""The bundle: an artifact on disk, as one file or as a folder with readable parts.

Both forms hold the same manifest (JSON: format, schema version, the artifact, the parts that its long expressions
share, size and SHA-256 of every blob), its SHA-256, and the same blobs. The digest covers the manifest and the manifest
covers the blobs, so one hash stands for the whole.

    one file:   magic | u64 manifest length | digest of the manifest's bytes | manifest | blobs in order of name
    folder:     manifest.json with its digest (of the canonical JSON) in it, and one file per blob (kernel.cubin,
                kernel.cu, kernel.ptx, tile.mlir, ...)

Bundles are untrusted input: sizes, hashes, types, expression grammar and all references are checked; reading executes
nothing, writes nothing, and reads no file that no field refers to.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn, cast

from tilewright.artifact import atomic_files
from tilewright.artifact.codec import Blobs, Json, MalformedError, decode, encode
from tilewright.artifact.schema import SCHEMA_VERSION, Artifact
from tilewright.artifact.well_formed import require_well_formed
from tilewright.diag import fail

MAGIC = b"TWBUNDLE"
MANIFEST = "manifest.json"
_FORMAT = "tilewright-bundle"
_HEADER = struct.Struct("<8sQ32s")
_BLOB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")  # one flat folder: no separators, no leading dot
_MAX_BYTES = 1 << 28  # of a whole bundle
_MAX_MANIFEST_BYTES = 1 << 23
_MAX_BLOBS = 4096


# -- writing --------------------------------------------------------------------------------------------------------


def to_bytes(artifact: Artifact, key: str = "") -> bytes:
    """``artifact`` as a one-file bundle, bound to the ``key`` of a store if there is one. Equal artifacts give equal
    bytes."""
    manifest, blobs = _pack(artifact)
    if key:
        manifest["key"] = key
    text = _canonical(manifest)
    header = _HEADER.pack(MAGIC, len(text), hashlib.sha256(text).digest())
    return b"".join([header, text, *(blobs[name] for name in sorted(blobs))])


def write_folder(artifact: Artifact, folder: Path) -> None:
    """Write ``artifact`` as the folder ``folder``, built aside and renamed whole.

    An empty folder or an older bundle there is replaced; anything else is refused (ART007). What writers of the same
    folder that were killed left beside it is removed. ART010 where the disk refuses.
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
    files = {**blobs, MANIFEST: json.dumps(manifest, indent=1, sort_keys=True).encode()}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.sibling_folder(folder) as working:
            _write_aside(folder, working, files)
    except OSError as error:
        fail("ART010", found=f"{error.filename or folder}: {error.strerror}", required="a folder that can be written")


def _write_aside(folder: Path, working: Path, files: Mapping[str, bytes | memoryview]) -> None:
    """Write ``files`` to a new folder in ``working`` and rename it to ``folder``."""
    new = working / "new"
    new.mkdir()
    for name, data in files.items():
        atomic_files.write_synced(new / name, data)
    atomic_files.sync_folder(new)
    if folder.exists():
        folder.rename(working / "old")
    new.rename(folder)
    atomic_files.sync_folder(folder.parent)


def _may_replace(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))


def _pack(artifact: Artifact) -> tuple[dict[str, Json], Blobs]:
    require_well_formed(artifact)
    blobs: Blobs = {}
    body, parts = encode(artifact, blobs)
    listing: dict[str, Json] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in sorted(blobs.items())
    }
    manifest: dict[str, Json] = {"format": _FORMAT, "schema": artifact.schema_version, "artifact": body}
    return {**manifest, "expressions": cast("Json", parts), "blobs": listing}, blobs


def _canonical(manifest: Json) -> bytes:
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


# -- reading --------------------------------------------------------------------------------------------------------


def read(path: Path) -> Artifact:
    """The bundle at ``path``, a folder or a file; refuses with ART001 to ART006."""
    path = Path(path)
    try:
        if path.is_dir():
            return _read_folder(path)
        data = read_plain(path)
    except OSError as error:
        fail("ART001", found=f"{path}: {error.strerror}", required="a bundle's folder or file")
    except ValueError as error:  # a name that no file has
        fail("ART001", found=f"{path}: {error}", required="a bundle's folder or file")
    return from_bytes(data, str(path))


def read_plain(path: Path) -> bytes:
    """The bytes of a plain file; ART001 for a pipe, a device, or more bytes than a bundle has. Links are followed."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            fail("ART001", found=f"{path} is no plain file", required="a bundle's folder or file")
        if found.st_size > _MAX_BYTES:
            fail("ART001", found=f"{path} has {found.st_size} bytes", required=f"at most {_MAX_BYTES}")
        return file.read(_MAX_BYTES + 1)


def from_bytes(data: bytes, origin: str = "the bundle", key: str = "") -> Artifact:
    """The artifact in a one-file bundle; ``origin`` names it in errors. ART004 if it is bound to another ``key``."""
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
    if manifest.get("key", "") != key and key:
        fail("ART004", found=f"{origin} was stored under another key", required=key)
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
    manifest = _parse_manifest(_read_regular(folder, MANIFEST, _MAX_MANIFEST_BYTES), str(folder))
    claimed = manifest.pop("digest", None)
    _check_digest(_canonical(manifest), claimed, str(folder))
    sizes = {name: size for name, (size, _) in _listing(manifest, str(folder)).items()}
    return _unpack(manifest, lambda name: _read_regular(folder, name, sizes[name]), str(folder))


def _read_regular(folder: Path, name: str, limit: int) -> bytes:
    """At most ``limit`` + 1 bytes of a regular file; symbolic links and pipes in an untrusted folder are not
    followed."""
    path = folder / name
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                _not_plain(path)
            return file.read(limit + 1)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            _not_plain(path)
        if name == MANIFEST:
            _no_bundle(str(folder), f"{MANIFEST}: {error.strerror}")
        _truncated(str(folder), f"{name}: {error.strerror}", f"the blob {name}")


def _not_plain(path: Path) -> NoReturn:
    fail("ART004", found=f"{path} is not a plain file", required="a plain file")


def _parse_manifest(text: bytes, origin: str) -> dict[str, Json]:
    if len(text) > _MAX_MANIFEST_BYTES:
        _malformed(origin, f"a manifest of more than {_MAX_MANIFEST_BYTES} bytes")
    try:
        manifest = cast(
            "Json", json.loads(text, parse_float=_no_float, parse_constant=_no_float, object_pairs_hook=_once_each)
        )
    except (ValueError, RecursionError) as error:
        fail("ART004", found=f"{origin}: the manifest is not JSON ({error})", required="a manifest of JSON text")
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        _no_bundle(origin, "its manifest names no format of ours")
    schema = manifest.get("schema")
    if schema != SCHEMA_VERSION:
        fail(
            "ART002",
            found=f"{origin} has schema version {repr(schema)[:60]}",
            required=f"schema version {SCHEMA_VERSION}",
            help="compile the kernel again with this version of Tilewright",
        )
    return manifest


def _check_digest(text: bytes, claimed: object, origin: str) -> None:
    actual = hashlib.sha256(text).hexdigest()
    if claimed != actual:
        fail("ART004", found=f"{origin}: the manifest's digest is {actual}", required=f"{claimed!r:.80}")


def _no_float(text: str) -> NoReturn:
    raise ValueError(f"{text} is not an integer")


def _once_each(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """A JSON object without repeated names: parsers differ in which of two values they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object names something twice")
    return found


def _listing(manifest: dict[str, Json], origin: str) -> dict[str, tuple[int, str]]:
    """The manifest's list of blobs: name to (bytes, SHA-256)."""
    blobs = manifest.get("blobs")
    if not isinstance(blobs, dict):
        _malformed(origin, "blobs: an object expected")
    listing: dict[str, tuple[int, str]] = {}
    for name, entry in blobs.items():
        if not _BLOB_NAME.fullmatch(name) or name == MANIFEST:
            _malformed(origin, f"blobs: {name[:60]!r} is no blob name")
        match entry:
            case {"bytes": int(size), "sha256": str(digest)} if 0 <= size <= _MAX_BYTES:
                listing[name] = (size, digest)
            case _:
                _malformed(origin, f"blobs.{name}: bytes and sha256 expected")
    total = sum(size for size, _ in listing.values())
    if len(listing) > _MAX_BLOBS or total > _MAX_BYTES:
        _malformed(origin, f"{len(listing)} blobs of {total} bytes; at most {_MAX_BLOBS} of {_MAX_BYTES} are read")
    return listing


def _unpack(manifest: dict[str, Json], fetch: Callable[[str], bytes | memoryview], origin: str) -> Artifact:
    listing = _listing(manifest, origin)
    unread = set(listing)

    def blob(name: str) -> bytes | memoryview:
        size, digest = listing[name]
        data = fetch(name)
        if len(data) < size:
            _truncated(origin, f"{name} has {len(data)} bytes", f"{size} bytes")
        if hashlib.sha256(data).hexdigest() != digest:
            fail("ART004", found=f"{origin}: {name} has another SHA-256 than the manifest says", required=digest)
        unread.discard(name)
        return data

    try:
        artifact = decode(Artifact, manifest.get("artifact"), blob, manifest.get("expressions"))
    except (MalformedError, RecursionError) as error:
        _malformed(origin, str(error))
    if unread:
        _malformed(origin, f"blobs.{min(unread)}: no field refers to it")
    require_well_formed(artifact)
    return artifact


def _no_bundle(origin: str, found: str) -> NoReturn:
    fail("ART001", found=f"{origin} {found}", required="a bundle written by tilewright compile")


def _truncated(origin: str, found: str, required: str) -> NoReturn:
    fail("ART003", found=f"{origin}: {found}", required=required, help="copy or compile the bundle again")


def _malformed(origin: str, found: str) -> NoReturn:
    fail("ART005", found=f"{origin}: {found}", required=f"schema version {SCHEMA_VERSION}")
