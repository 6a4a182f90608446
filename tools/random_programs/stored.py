"""Cases kept for a machine with a GPU: the bundle, the arguments as bytes, and the bounds of the results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from random_programs import tree as t
from random_programs.places import NUMPY, Placed
from random_programs.values import Value
from tilewright.artifact.bundle import to_bytes
from tilewright.artifact.schema import Artifact

EIGHT_BITS = ("e4m3", "e5m2")


def store(
    folder: Path,
    kernel: t.Kernel,
    seed: int,
    artifact: Artifact,
    given: Mapping[str, Placed],
    expected: Mapping[str, Value],
    source: str,
) -> None:
    """Write ``<seed>.twb``, ``.npz``, ``.json`` and ``.py`` to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{seed}.twb").write_bytes(to_bytes(artifact))
    (folder / f"{seed}.py").write_text(source)
    arrays: dict[str, Any] = {}
    for name, placed in given.items():
        arrays[f"given/{name}"] = placed.base.view(np.uint8)
    for name, value in expected.items():
        arrays[f"lo/{name}"], arrays[f"hi/{name}"] = value.lo, value.hi
        if value.free is not None:
            arrays[f"free/{name}"] = value.free
    for name in EIGHT_BITS:
        arrays[f"table/{name}"] = np.arange(256, dtype=np.uint8).view(NUMPY[name]).astype(np.float32)
    np.savez_compressed(folder / f"{seed}.npz", **arrays)
    about = {
        "seed": seed,
        "family": kernel.family,
        "tensors": {
            n: {"dtype": kernel.tensors[n].dtype, **{k: v for k, v in asdict(p).items() if k != "base"}}
            for n, p in given.items()
        },
        "scalars": kernel.scalars,
        "outputs": {n: v.signed for n, v in expected.items()},
    }
    (folder / f"{seed}.json").write_text(json.dumps(about, indent=1) + "\n")
