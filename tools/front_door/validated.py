"""Bundles of compiled kernels, changed, with their digests made right again: what ``tilewright validate`` answers.

Half are edited as ``bundle_mutants`` does, a quarter has an odd number in one text of a kernel, where sizes and trip
counts stand, a quarter an odd field of the manifest.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

os.environ["TILEWRIGHT_VALIDATION"] = "0"  # of the bundles as they are compiled

from bundle_mutants import alone, edits
from front_door.bundles import change, manifest_of, packed
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.artifact.bundle import to_bytes
from tilewright.artifact.schema import Artifact, Launch
from tilewright.base.dtypes import DTYPES
from tilewright.diag import TilewrightError

NUMBERS = ("0", "1", "7", "33", "1000", "65537", "1000000", "100000000", "2147483647", "4294967296", "-1")
TEXTS = ("transport_ir", "tile_ir", "ptx")


def validations(rng: Random, count: int, folder: Path) -> Iterator[list[str]]:
    """Command lines, each about a bundle of its own that lies in ``folder`` while it is asked about."""
    artifacts = list(compiled())
    edited = [_sampled((edit.artifact for edit in edits(artifact, rng)), count, rng) for artifact in artifacts]
    file = folder / "changed.bundle"
    made = 0
    while made < count:
        k = rng.randrange(len(artifacts))
        match rng.randrange(4):
            case 0:
                data = _with_a_number(artifacts[k], rng)
            case 1:
                manifest, blobs = manifest_of(to_bytes(artifacts[k]))
                forged = copy.deepcopy(manifest)
                change(forged, rng)
                data = packed(forged, blobs)
            case _:
                data = _bytes_of(rng.choice(edited[k]))
        if data is not None:
            made += 1
            file.write_bytes(data)
            yield ["validate", str(file), *rng.choice(([], ["--json"]))]


def _sampled(artifacts: Iterator[Artifact], count: int, rng: Random) -> list[Artifact]:
    """So many of many, any as likely: all at once they take a gigabyte."""
    kept: list[Artifact] = []
    for seen, artifact in enumerate(artifacts):
        if seen < count:
            kept.append(artifact)
        elif (at := rng.randrange(seen + 1)) < count:
            kept[at] = artifact
    return kept


def _with_a_number(artifact: Artifact, rng: Random) -> bytes | None:
    """Another number somewhere in a text of a kernel; None of an artifact that can't be written."""
    at, name = rng.randrange(len(artifact.kernels)), rng.choice(TEXTS)
    image = artifact.kernels[at]
    text = getattr(image, name)
    place = rng.choice(list(re.finditer(r"\d+", text)))
    text = text[: place.start()] + rng.choice(NUMBERS) + text[place.end() :]
    images = (*artifact.kernels[:at], replace(image, **{name: text}), *artifact.kernels[at + 1 :])
    return _bytes_of(replace(artifact, kernels=images))


def _bytes_of(artifact: Artifact) -> bytes | None:
    try:
        return to_bytes(artifact)
    except (TilewrightError, ValueError):
        return None


def compiled() -> Iterator[Artifact]:
    """Single elements, rows with sums, a product by tensor cores; of each the variant whose PTX is longest."""
    for name in ("add", "softmax", "matmul", "row_sum"):
        example = EXAMPLES_BY_NAME[name]
        dtypes = {n: d.name for n, d in example.tensor_dtypes(DTYPES["bf16"]).items()}
        artifact = example.kernel.compile(dtypes=dtypes)
        launched = {v.name: [s.kernel for s in v.steps if isinstance(s, Launch)][-1] for v in artifact.variants}
        yield alone(artifact, max(launched, key=lambda name: len(artifact.kernel(launched[name]).ptx)))
