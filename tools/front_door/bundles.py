"""Bundles, changed: bytes flipped, or fields of the manifest replaced and the digests made right again. What is still
read is shown and launched through a driver that records."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from support.artifacts import promised, scale, staged
from support.fake_driver import FakeDriver, FakeTensor
from tilewright import runtime
from tilewright.artifact import bundle
from tilewright.artifact.schema import Artifact, TensorArgument
from tilewright.cli.show import BundlePart, lines
from tilewright.diag import printable

NUMBERS = (0, 1, -1, 3, 255, 256, 2**31, 2**32, 2**63, 2**64, 10**12, 10**4298, True, None, 1.5)
TEXTS = (
    "", "x", "M", "N", "alpha", "x.address", "x.stride0", "x.stride9", "M // 0", "M % N", "M // (N - N)", "1 / 2",
    "sm_80", "9" * 4299, "9" * 40, "M*" * 400 + "M", "(M+N+1)*" * 60 + "M", "(" * 3000, "not " * 3000 + "M",
    "\ud800", "\x1b[31m", "a" * 20000, "min(" * 90 + "M", "__import__('os')", "M if N else 0", "xor(M)", "max()",
    "$tid", "bf16", "../x", "READ", "WRITE", "Fill", "Copy", "Launch", "WorkspacePointer", "min(M, N - 1)",
    "M == 8 and not N < 3", "-M", "M**9",
)  # fmt: skip


def changed_bundles(rng: Random, count: int, folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Half of them with their digests made right again, some as folders."""
    sources = [(manifest_of(data), data) for data in map(bundle.to_bytes, (scale(), staged(), promised()))]
    for i in range(count):
        (manifest, blobs), data = rng.choice(sources)
        if rng.random() < 0.5:
            broken = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            whole = bytes(broken[: rng.randrange(len(broken))] if rng.random() < 0.3 else broken)
            yield f"bytes {i}", lambda whole=whole: used(bundle.from_bytes(whole))
            continue
        forged, told = copy.deepcopy(manifest), []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            told.append(change(forged, rng))
        if rng.random() < 0.8:
            whole = packed(forged, blobs)
            yield f"forged {i}: {told}", lambda whole=whole: used(bundle.from_bytes(whole))
        else:
            place = folder / f"forged{i}"
            use = partial(_through_folder, place, forged, blobs)
            yield f"folder {i}: {told}", lambda use=use: used(use())


def manifest_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The manifest of a one-file bundle, and the bytes of its blobs."""
    length = int.from_bytes(data[8:16], "little")
    return json.loads(data[48 : 48 + length]), data[48 + length :]


def packed(manifest: dict[str, Any], blobs: bytes) -> bytes:
    """A one-file bundle with the right digest of its manifest."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return b"TWBUNDLE" + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text + blobs


def used(artifact: Artifact) -> str:
    """Shown, and launched on tensors of its own parameters."""
    for part in (BundlePart.PLAN, BundlePart.CERTIFICATE, BundlePart.SOURCE):
        for line in lines(artifact, part):
            printable(line).encode()
    driver = FakeDriver()
    program = runtime.load(artifact, driver)
    try:
        program.launch({p.name: _argument(p, i) for i, p in enumerate(artifact.parameters)})
        for counts in driver.kept:  # as if a step had found every promise broken
            counts[:] = b"\1" * len(counts)
        runtime.index_promises.check()
    finally:
        program.close()
    return "launched"


def _argument(parameter: Any, position: int) -> object:
    if not isinstance(parameter, TensorArgument):
        return 1
    shape = tuple(d.evaluate(dict.fromkeys(d.symbols, 8)) for d in parameter.dims)
    return FakeTensor(0x1000 + 0x9000_0000 * position, shape, dtype=parameter.dtype)


def change(manifest: dict[str, Any], rng: Random) -> str:
    """One change somewhere in the manifest, in words; of promises one in four."""
    places = list(_places(manifest, ()))
    promises = [place for place in places if "reports" in place[0] or "workspace" in place[0]]
    path, parent, key = rng.choice(promises if promises and rng.random() < 0.25 else places)
    match rng.randrange(6):
        case 0:
            parent[key] = rng.choice((*NUMBERS, *TEXTS))
        case 1 | 2:  # of the right type: the meaning is what is odd
            kind = type(parent[key])
            parent[key] = rng.choice([value for value in (*NUMBERS, *TEXTS) if type(value) is kind] or NUMBERS)
        case 3:
            _, other, name = rng.choice(places)
            parent[key] = copy.deepcopy(other[name])
        case 4 if isinstance(parent, dict):
            del parent[key]
            return f"{path} dropped"
        case _:
            if isinstance(parent, list):
                parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(parent[key]))
                return f"{path} doubled"
            parent[rng.choice(TEXTS)] = rng.choice(NUMBERS)
            return f"{path} beside something new"
    return f"{path} = {parent[key]!r:.60}"


def _places(value: Any, path: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in items:
        yield (*path, key), value, key
        yield from _places(member, (*path, key))


def _through_folder(place: Path, manifest: dict[str, Any], blobs: bytes) -> Artifact:
    place.mkdir()
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    whole = {**manifest, "digest": hashlib.sha256(text).hexdigest()}
    (place / "manifest.json").write_text(json.dumps(whole))
    start = 0
    for name, entry in sorted(manifest_blobs(manifest).items()):
        size = entry.get("bytes") if isinstance(entry, dict) else None
        if isinstance(size, int) and 0 <= size <= len(blobs) and name and "/" not in name and len(name) < 200:
            with open(place / name.encode("utf-8", "replace").decode().replace("\x00", "_"), "wb") as file:
                file.write(blobs[start : start + size])
            start += size
    return bundle.read(place)


def manifest_blobs(manifest: dict[str, Any]) -> dict[str, Any]:
    """What the manifest says of its blobs, if it is an object."""
    blobs = manifest.get("blobs")
    return blobs if isinstance(blobs, dict) else {}
